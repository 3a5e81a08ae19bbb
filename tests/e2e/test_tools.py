"""Tools in chat: what requests of real applications get, and the unmodified OpenAI client."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import jsonschema
import openai
import pytest
from conftest import ROOT, Server


def tool(name: str, strict: bool | None = None, **properties: dict) -> dict:
    """Return a function as applications describe it."""
    parameters: dict = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
    }
    function: dict = {
        "name": name,
        "description": f"Does {name}.",
        "parameters": parameters,
    }
    if strict is not None:
        function["strict"] = strict
        parameters["additionalProperties"] = False
    return {"type": "function", "function": function}


WEATHER = tool(
    "get_weather", city={"type": "string"}, unit={"type": "string", "enum": ["c", "f"]}
)
SEARCH = tool("search-web.v2", query={"type": "string"})
TRIP = tool(
    "plan_trip",
    strict=True,
    city={"enum": ["Paris", "Rome"]},
    days={"type": "integer", "minimum": 1, "maximum": 9},
)
LIGHT = tool("switch_light", strict=True, on={"type": "boolean"})
SYSTEM = {"role": "system", "content": "Be brief."}
ASK = {"role": "user", "content": "Is it raining in Paris?"}
PARTS = {
    "role": "user",
    "content": [
        {"type": "text", "text": "Is it raining"},
        {"type": "text", "text": "in Paris?"},
    ],
}


def called(*calls: tuple[str, str, object], **message: object) -> dict:
    """Return an assistant's message that calls functions: (id, name, arguments)."""
    tool_calls = [
        {"id": i, "type": "function", "function": {"name": name, "arguments": given}}
        for i, name, given in calls
    ]
    return {"role": "assistant", **message, "tool_calls": tool_calls}


def result(call_id: str, content: object, **message: object) -> dict:
    """Return the result of a call."""
    return {"role": "tool", "tool_call_id": call_id, "content": content, **message}


PARIS = ("call_1", "get_weather", '{"city": "Paris", "unit": "c"}')

# What applications send, in the shapes that their libraries give it. Each is answered.
ANSWERED = {
    "openai: tools alone": {"messages": [ASK], "tools": [WEATHER]},
    "openai: auto, parallel": {
        "messages": [ASK],
        "tools": [WEATHER],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
    },
    "langchain: one call at a time": {
        "messages": [SYSTEM, ASK],
        "tools": [WEATHER, SEARCH],
        "parallel_tool_calls": False,
    },
    "langchain: a history, absent content": {
        "messages": [ASK, called(PARIS), result("call_1", "12 C")],
        "tools": [WEATHER],
    },
    "langgraph: a history, content null": {
        "messages": [
            SYSTEM,
            ASK,
            called(PARIS, content=None),
            result("call_1", "12 C", name="get_weather"),
            ASK,
        ],
        "tools": [WEATHER],
        "tool_choice": "auto",
    },
    "llama-index: content empty": {
        "messages": [ASK, called(PARIS, content=""), result("call_1", "12 C")],
        "tools": [WEATHER],
    },
    "ai-sdk: parts everywhere": {
        "messages": [
            SYSTEM,
            PARTS,
            called(PARIS, content=None),
            result("call_1", [{"type": "text", "text": '{"c": 12}'}]),
        ],
        "tools": [WEATHER],
        "tool_choice": "auto",
        "stream": True,
        "stream_options": {"include_usage": True},
    },
    "autogen: names": {
        "messages": [SYSTEM | {"name": "boss"}, ASK | {"name": "admin"}],
        "tools": [WEATHER],
    },
    "crewai: two calls, two results": {
        "messages": [
            ASK,
            called(PARIS, ("call_2", "search-web.v2", '{"query": "rain"}')),
            result("call_1", "12 C"),
            result("call_2", "no"),
        ],
        "tools": [WEATHER, SEARCH],
    },
    "semantic-kernel: strict false": {
        "messages": [ASK],
        "tools": [tool("time", strict=False)],
        "tool_choice": "auto",
    },
    "n8n: tools without parameters": {
        "messages": [ASK],
        "tools": [{"type": "function", "function": {"name": "now"}}],
    },
    "dify: tool_choice none": {
        "messages": [ASK],
        "tools": [WEATHER],
        "tool_choice": "none",
    },
    "open-webui: empty tools": {"messages": [ASK], "tools": [], "tool_choice": "none"},
    "litellm: null fields": {
        "messages": [ASK],
        "tools": None,
        "tool_choice": None,
        "functions": None,
        "response_format": None,
    },
    "mcp client: a long name": {
        "messages": [ASK],
        "tools": [tool("mcp__" + "server_" * 15 + "_list")],
    },
    "agents sdk: developer, store, effort": {
        "messages": [{"role": "developer", "content": "Be brief."}, ASK],
        "tools": [WEATHER],
        "store": False,
        "reasoning_effort": "low",
        "metadata": {"a": "b"},
    },
    "cline: reasoning is sent back": {
        "messages": [
            ASK,
            called(PARIS, content="", reasoning_content="I look.", reasoning="I look."),
            result("call_1", "12 C"),
        ],
        "tools": [WEATHER],
        "include_reasoning": False,
    },
    "arguments that are cut": {
        "messages": [ASK, called(("c", "get_weather", '{"city": "Pa')), result("c", "bad arguments")],
        "tools": [WEATHER],
    },
    "openai: a custom tool and its call": {
        "messages": [
            ASK,
            {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "patch", "input": "a"}}]},
            result("c", "done"),
        ],
        "tools": [{"type": "custom", "custom": {"name": "patch", "format": {"type": "text"}}}],
    },
    "ollama clients: arguments are an object": {
        "messages": [
            ASK,
            called(("call_1", "get_weather", {"city": "Paris"}), content=""),
            result("call_1", "12 C"),
        ],
        "tools": [WEATHER],
    },
    "agents sdk: strict tools": {"messages": [ASK], "tools": [LIGHT]},
    "old clients: function_call in the history": {
        "messages": [
            ASK,
            {
                "role": "assistant",
                "content": None,
                "function_call": {"name": "get_weather", "arguments": "{}"},
            },
            {"role": "function", "name": "get_weather", "content": "12 C"},
        ],
    },
    "openai: what it answered is sent back": {
        "messages": [
            ASK,
            {
                "role": "assistant",
                "content": "No.",
                "refusal": None,
                "audio": None,
                "tool_calls": None,
            },
            ASK,
        ],
        "tools": [WEATHER],
    },
}

# What is refused, with the field that the error names.
REFUSED = {
    "autogen 0.2: functions": (
        {"messages": [ASK], "functions": [{"name": "a", "parameters": {}}]},
        "functions",
    ),
    "openai: a built-in tool": (
        {"messages": [ASK], "tools": [{"type": "web_search_preview"}]},
        "tools[0].type",
    ),
    "openai: a custom tool": (
        {"messages": [ASK], "tools": [{"type": "custom", "custom": {"name": "a", "format": {"type": "xml"}}}]},
        "tools[0].custom.format.type",
    ),
    "mistral: tool_choice any": (
        {"messages": [ASK], "tools": [WEATHER], "tool_choice": "any"},
        "tool_choice",
    ),
    "a name that is not a tool": (
        {
            "messages": [ASK],
            "tools": [WEATHER],
            "tool_choice": {"type": "function", "function": {"name": "x"}},
        },
        "tool_choice.function.name",
    ),
    "a name with a space": (
        {"messages": [ASK], "tools": [tool("get weather")]},
        "tools[0].function.name",
    ),
    "required without tools": (
        {"messages": [ASK], "tool_choice": "required"},
        "tool_choice",
    ),
    "a result that is an object": (
        {"messages": [ASK, called(PARIS), result("call_1", {"c": 12})]},
        "messages[2].content",
    ),
    "a call without a function": (
        {"messages": [ASK, {"role": "assistant", "tool_calls": [{"id": "a"}]}]},
        "messages[1].tool_calls[0].function",
    ),
}


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose template shows tools."""
    log = tmp_path_factory.mktemp("tools") / "log"
    running = Server(log, "--enable-auto-tool-choice")
    yield running
    assert running.stop() == 0, log.read_text()


def post(
    server: Server, body: dict, path: str = "/v1/chat/completions"
) -> tuple[int, str]:
    """Return the status and the body of an answer; a chat completion's to a few tokens."""
    few = {"model": "demo", "max_tokens": 4, "temperature": 0}
    data = json.dumps((few if "/chat/" in path else {}) | body).encode()
    request = urllib.request.Request(
        f"{server.url}{path}", data, {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.parametrize("name", ANSWERED)
def test_requests_of_applications_are_answered(agents: Server, name: str):
    status, text = post(agents, ANSWERED[name])
    assert status == 200, text
    if ANSWERED[name].get("stream"):
        assert text.endswith("data: [DONE]\n\n")
        return
    choice = json.loads(text)["choices"][0]
    assert choice["message"]["role"] == "assistant"
    assert isinstance(choice["message"]["content"], str)


@pytest.mark.parametrize("name", REFUSED)
def test_requests_that_cannot_be_answered_name_the_field(agents: Server, name: str):
    body, param = REFUSED[name]
    status, text = post(agents, body)
    assert status == 400, text
    assert json.loads(text)["error"]["param"] == param, text


def test_a_template_that_does_not_show_tools_is_named(tmp_path: Path):
    template = tmp_path / "plain.jinja"
    template.write_text("{% for message in messages %}{{ message.content }}{% endfor %}")
    running = Server(tmp_path / "log", "--chat-template", str(template))
    status, text = post(running, {"messages": [ASK], "tools": [WEATHER]})
    assert running.stop() == 0
    assert status == 400
    error = json.loads(text)["error"]
    assert error["param"] == "tools"
    assert "--chat-template" in error["message"]


def test_the_demo_model_calls_a_function_and_reads_its_result(client: openai.OpenAI):
    lookup = tool("look_up_item", item={"type": "string"})
    messages: list = [{"role": "user", "content": "How much is the Marlan N8?"}]
    asked = client.chat.completions.create(model="demo", messages=messages, tools=[lookup], temperature=0)
    assert asked.choices[0].finish_reason == "tool_calls"
    call = asked.choices[0].message.tool_calls[0]
    assert (call.function.name, json.loads(call.function.arguments)) == ("look_up_item", {"item": "Marlan N8"})
    found = '{"name": "Marlan N8", "kind": "hook", "status": "sold out", "price": "$12.50", "link": "shop.example/1234"}'
    messages += [asked.choices[0].message.model_dump(exclude_none=True), result(call.id, found)]
    answered = client.chat.completions.create(model="demo", messages=messages, tools=[lookup], temperature=0)
    assert answered.choices[0].message.content == "The Marlan N8 costs $12.50."
    assert answered.choices[0].finish_reason == "stop"


def test_the_model_sees_tools_and_history(agents: Server):
    def count(**fields: object) -> int:
        body = json.dumps({"messages": [ASK]} | fields).encode()
        request = urllib.request.Request(
            f"{agents.url}/tokenize", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["count"]

    plain = count()
    assert count(tools=[WEATHER]) > plain + 50
    assert count(tools=[WEATHER], tool_choice="none") == count(tools=[WEATHER])
    assert (
        count(messages=[ASK, called(PARIS), result("call_1", "12 C"), ASK])
        > count(messages=[ASK, ASK]) + 20
    )


def test_the_client_streams_an_answer_without_calls(agents: Server):
    client: openai.OpenAI = agents.client()
    with client.chat.completions.stream(
        model="demo",
        messages=[ASK],
        tools=[WEATHER],
        tool_choice="none",
        max_tokens=64,
        temperature=0,
        stop=[" "],
    ) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content
    assert not final.choices[0].message.tool_calls
    assert final.choices[0].finish_reason == "stop"


def check_call(call: object) -> None:
    """Check that a call of the client's is one of TRIP or LIGHT, with arguments of its schema."""
    schema = {t["function"]["name"]: t["function"]["parameters"] for t in (TRIP, LIGHT)}
    jsonschema.validate(
        json.loads(call.function.arguments), schema[call.function.name]
    )


@pytest.mark.parametrize("seed", range(4))
def test_a_required_call_keeps_to_its_schema(agents: Server, seed: int):
    answer = agents.client().chat.completions.create(
        model="demo",
        messages=[ASK],
        tools=[TRIP, LIGHT],
        tool_choice="required",
        parallel_tool_calls=False,
        temperature=1,
        seed=seed,
        max_tokens=400,
    )
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    (call,) = choice.message.tool_calls
    check_call(call)


def test_a_named_call_streams(agents: Server):
    named = {"type": "function", "function": {"name": "plan_trip"}}
    stream = agents.client().chat.completions.create(
        model="demo",
        messages=[ASK],
        tools=[TRIP, LIGHT],
        tool_choice=named,
        temperature=1,
        seed=1,
        max_tokens=400,
        stream=True,
    )
    names, arguments, finish = [], "", None
    for chunk in stream:
        choice = chunk.choices[0]
        finish = choice.finish_reason or finish
        assert not choice.delta.content
        for call in choice.delta.tool_calls or []:
            assert call.index == 0
            if call.function.name:
                names.append(call.function.name)
            arguments += call.function.arguments or ""
    assert names == ["plan_trip"]
    jsonschema.validate(json.loads(arguments), TRIP["function"]["parameters"])
    assert finish == "stop"


# Patches as a coding agent has them, of few and short lines, so that a random model comes to their end.
PATCH = """
start: begin hunk~1..2 end
begin: "*** Begin Patch" LF
end: "*** End Patch" LF?
hunk: "*** Add File: " NAME LF line~1..3 | "*** Delete File: " NAME LF
line: "+" /[^\\n]{0,9}/ LF
NAME: /[a-z]{1,8}/ "." /py|cc/
%import common.LF
"""
PATCHES = re.compile(
    r"\*\*\* Begin Patch\n(\*\*\* (Add File: [a-z]{1,8}\.(py|cc)\n(\+[^\n]{0,9}\n){1,3}|Delete File: [a-z]{1,8}\.(py|cc)\n)){1,2}"
    r"\*\*\* End Patch\n?"
)


@pytest.mark.parametrize("seed", range(3))
def test_a_custom_tool_keeps_to_its_grammar_in_chat(agents: Server, seed: int):
    made = {"type": "grammar", "grammar": {"syntax": "lark", "definition": PATCH}}
    answer = agents.client().chat.completions.create(
        model="demo",
        messages=[ASK],
        tools=[{"type": "custom", "custom": {"name": "patch", "format": made}}],
        tool_choice={"type": "custom", "custom": {"name": "patch"}},
        temperature=1,
        seed=seed,
        max_tokens=400,
    )
    (call,) = answer.choices[0].message.tool_calls
    assert call.type == "custom"
    assert PATCHES.fullmatch(call.custom.input), call.custom.input


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_custom_tool_keeps_to_its_grammar_in_responses(agents: Server, is_streamed: bool):
    asked = {
        "model": "demo",
        "input": "Add a file.",
        "tools": [{"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition": PATCH}}],
        "tool_choice": "required",
        "temperature": 1,
        "max_output_tokens": 400,
    }
    if is_streamed:
        with agents.client().responses.stream(**asked) as stream:
            response = stream.get_final_response()
    else:
        response = agents.client().responses.create(**asked)
    calls = [item for item in response.output if item.type == "custom_tool_call"]
    assert calls
    for call in calls:
        assert PATCHES.fullmatch(call.input), call.input


def test_allowed_tools_are_the_only_ones(agents: Server):
    allowed = {
        "type": "allowed_tools",
        "allowed_tools": {
            "mode": "required",
            "tools": [{"type": "function", "function": {"name": "switch_light"}}],
        },
    }
    answer = agents.client().chat.completions.create(
        model="demo",
        messages=[ASK],
        tools=[TRIP, LIGHT],
        tool_choice=allowed,
        parallel_tool_calls=False,
        temperature=1,
        seed=2,
        max_tokens=400,
    )
    (call,) = answer.choices[0].message.tool_calls
    assert call.function.name == "switch_light"
    check_call(call)


def test_instructor_gets_its_model_by_a_tool(agents: Server):
    instructor = pytest.importorskip("instructor")
    pydantic = pytest.importorskip("pydantic")

    class Trip(pydantic.BaseModel, extra="forbid"):
        city: Literal["Paris", "Rome"]
        days: Literal[1, 2, 3]

    client = instructor.from_openai(agents.client(), mode=instructor.Mode.TOOLS)
    trip = client.chat.completions.create(
        model="demo",
        messages=[ASK],
        response_model=Trip,
        temperature=1,
        seed=3,
        max_tokens=400,
        max_retries=0,
    )
    assert trip.city in ("Paris", "Rome")
    assert trip.days in (1, 2, 3)


def test_the_dialects_demand_calls_too(agents: Server):
    """`any` of Anthropic's messages and `required` of the Responses API."""
    parameters = TRIP["function"]["parameters"]
    anthropic = {
        "model": "demo",
        "max_tokens": 400,
        "temperature": 1,
        "messages": [ASK],
        "tools": [{"name": "plan_trip", "input_schema": parameters}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
    }
    status, text = post(agents, anthropic, "/v1/messages")
    assert status == 200, text
    message = json.loads(text)
    assert message["stop_reason"] == "tool_use"
    (block,) = message["content"]
    assert block["type"] == "tool_use"
    jsonschema.validate(block["input"], parameters)

    responses = {
        "model": "demo",
        "max_output_tokens": 400,
        "temperature": 1,
        "input": ASK["content"],
        "tools": [
            {"type": "function", "name": "plan_trip", "parameters": parameters}
        ],
        "tool_choice": "required",
        "parallel_tool_calls": False,
    }
    status, text = post(agents, responses, "/v1/responses")
    assert status == 200, text
    calls = [
        item for item in json.loads(text)["output"] if item["type"] == "function_call"
    ]
    (call,) = calls
    jsonschema.validate(json.loads(call["arguments"]), parameters)


ANSWER = {
    "type": "object",
    "properties": {"rain": {"type": "boolean"}, "days": {"enum": [1, 2]}},
    "required": ["rain", "days"],
    "additionalProperties": False,
}
FORMAT = {
    "type": "json_schema",
    "json_schema": {"name": "answer", "strict": True, "schema": ANSWER},
}


def first_token(server: Server, text: str) -> dict[str, int]:
    """Return a bias that makes an answer begin with the first token of a text."""
    body = {"prompt": text, "add_special_tokens": False}
    return {str(json.loads(post(server, body, "/tokenize")[1])["tokens"][0]): 100}


@pytest.mark.parametrize("begin", ["<tool_call>", '{"'])
def test_an_answer_is_a_call_or_content_in_the_asked_format(agents: Server, begin: str):
    """Agents send tools that may be called beside the format of their last answer."""
    asked = {
        "model": "demo",
        "messages": [ASK],
        "tools": [TRIP, LIGHT],
        "parallel_tool_calls": False,
        "response_format": FORMAT,
        "temperature": 1,
        "seed": 5,
        "max_tokens": 400,
        "logit_bias": first_token(agents, begin),
    }
    is_call = begin == "<tool_call>"
    choice = agents.client().chat.completions.create(**asked).choices[0]
    assert choice.finish_reason == ("tool_calls" if is_call else "stop")
    if is_call:
        assert choice.message.content is None
        check_call(choice.message.tool_calls[0])
    else:
        assert not choice.message.tool_calls
        jsonschema.validate(json.loads(choice.message.content), ANSWER)
    with agents.client().chat.completions.stream(
        **{k: v for k, v in asked.items() if k != "response_format"},
        extra_body={"response_format": FORMAT},
    ) as stream:
        streamed = stream.get_final_completion().choices[0].message
    assert (streamed.content or None) == choice.message.content
    given = [c.function.arguments for c in streamed.tool_calls or []]
    assert given == [c.function.arguments for c in choice.message.tool_calls or []]


def test_langchain_binds_tools_and_a_response_format(agents: Server):
    chat = pytest.importorskip("langchain_openai").ChatOpenAI(
        model="demo",
        base_url=f"{agents.url}/v1",
        api_key="none",
        temperature=1,
        seed=6,
        max_tokens=400,
    )
    bound = chat.bind_tools([TRIP, LIGHT], parallel_tool_calls=False)
    answers = [
        bound.bind(
            response_format=FORMAT, extra_body={"logit_bias": first_token(agents, begin)}
        ).invoke("Is it raining?")
        for begin in ("<tool_call>", '{"')
    ]
    assert answers[0].tool_calls
    assert not answers[1].tool_calls
    jsonschema.validate(json.loads(answers[1].content), ANSWER)


def test_64_agents_read_their_tools_together(agents: Server):
    script = ROOT / "docs/examples/shared_tools.py"
    command = [
        sys.executable,
        str(script),
        agents.url,
        "--agents",
        "64",
        "--answer-tokens",
        "16",
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=True
    )
    shown = dict(
        line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line
    )
    assert int(shown["tokens read together with other agents"]) > 64 * 2000, done.stdout
    assert int(shown["agents in the largest shared read"]) > 8, done.stdout
