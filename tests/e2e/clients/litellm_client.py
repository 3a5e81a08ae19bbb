"""litellm against Baton: `litellm_client.py URL TOOLS_URL QUESTION ANSWER`; exits with 0 if all is as it should be.

It runs in build/venv-clients, because litellm asks for an older client of OpenAI than the other tests use. The server
at TOOLS_URL has a template that shows tools.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Literal

import litellm
import pydantic

URL, TOOLS_URL, QUESTION, ANSWER = sys.argv[1:]
ASK = [{"role": "user", "content": QUESTION}]
SHOP = {"extra_body": {"prefix": "shop"}}
# The providers of litellm that people point at such a server, and where their paths begin.
PROVIDERS = {"openai/demo": "/v1", "hosted_vllm/demo": "/v1", "custom_openai/demo": "/v1"}
TRIP = {
    "type": "function",
    "function": {
        "name": "plan_trip",
        "description": "Plans a trip.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}


class Trip(pydantic.BaseModel, extra="forbid"):
    """What an answer in JSON must be."""

    city: Literal["Paris", "Rome"]
    days: Literal[1, 2, 3]


def settings(url: str, **options: object) -> dict:
    """Return what every call has in common."""
    return {"api_base": url, "api_key": "none", "temperature": 0, "max_tokens": 96, "num_retries": 0} | options


def check_chat(model: str, base: str) -> None:
    """Check an answer in one piece, a stream with usage, and the asynchronous client."""
    given = settings(URL + base, model=model, messages=ASK, **SHOP)
    whole = litellm.completion(**given)
    assert whole.choices[0].message.content == ANSWER, whole
    assert whole.choices[0].finish_reason == "stop"
    assert whole.usage.prompt_tokens_details.cached_tokens > 1500
    chunks = list(litellm.completion(**given, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == ANSWER
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert litellm.stream_chunk_builder(chunks).choices[0].message.content == ANSWER
    later = asyncio.run(litellm.acompletion(**given))
    assert later.choices[0].message.content == ANSWER


def check_calls() -> None:
    """Check a demanded call in one piece and as a stream, and a conversation that continues after it."""
    given = settings(
        TOOLS_URL + "/v1",
        model="openai/demo",
        messages=ASK,
        tools=[TRIP],
        tool_choice="required",
        parallel_tool_calls=False,
        temperature=1,
        seed=1,
        max_tokens=400,
    )
    message = litellm.completion(**given).choices[0].message
    (call,) = message.tool_calls
    assert call.function.name == "plan_trip"
    assert set(json.loads(call.function.arguments)) == {"city", "days"}
    streamed = litellm.stream_chunk_builder(list(litellm.completion(**given, stream=True)))
    assert streamed.choices[0].message.tool_calls[0].function.arguments == call.function.arguments
    assert streamed.choices[0].finish_reason == "tool_calls"
    result = {"role": "tool", "tool_call_id": call.id, "name": "plan_trip", "content": "booked"}
    after = litellm.completion(**given | {"messages": [*ASK, message, result], "tool_choice": "none", "max_tokens": 4})
    assert after.choices[0].message.content


def check_schema() -> None:
    """Check an answer that keeps to the schema of a pydantic model."""
    given = settings(URL + "/v1", model="openai/demo", messages=ASK, response_format=Trip, temperature=1, seed=2, max_tokens=400)
    Trip.model_validate_json(litellm.completion(**given).choices[0].message.content)


def check_other_dialects() -> None:
    """Check plain completions, the Responses API and Anthropic's messages."""
    given = settings(URL + "/v1", model="text-completion-openai/demo", prompt="Galtan", max_tokens=4)
    assert litellm.text_completion(**given).usage.completion_tokens == 4
    given = settings(URL + "/v1", model="openai/demo", input=ASK, **SHOP)
    del given["max_tokens"]
    response = litellm.responses(**given, max_output_tokens=96)
    assert response.output[-1].content[0].text == ANSWER, response
    events = list(litellm.responses(**given, max_output_tokens=96, stream=True))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == ANSWER
    message = litellm.completion(**settings(URL, model="anthropic/demo", messages=ASK, prefix="shop"))
    assert message.choices[0].message.content == ANSWER
    assert message.usage.cache_read_input_tokens > 1500


def check_errors() -> None:
    """Check that errors become litellm's own of the right kind."""
    wrong = {
        litellm.NotFoundError: settings(URL + "/v1", model="openai/nobody", messages=ASK),
        litellm.BadRequestError: settings(URL + "/v1", model="openai/demo", messages=ASK, top_p=7),
    }
    for kind, given in wrong.items():
        try:
            litellm.completion(**given)
        except kind:
            continue
        raise AssertionError(kind)
    long = [{"role": "user", "content": "word " * 6000}]
    try:
        litellm.completion(**settings(URL + "/v1", model="openai/demo", messages=long))
    except litellm.ContextWindowExceededError:
        return
    raise AssertionError("a prompt that is too long is not recognised")


for name, path in PROVIDERS.items():
    check_chat(name, path)
check_calls()
check_schema()
check_other_dialects()
check_errors()
