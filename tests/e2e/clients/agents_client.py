"""The OpenAI Agents SDK against Baton: `agents_client.py URL`; exits with 0 if all is as it should be.

It runs in build/venv-clients. The server has a template that shows tools.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Literal

import agents
import openai
import pydantic

URL = sys.argv[1]
CLIENT = openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)
QUESTION = "Is it raining in Paris?"
asked: list[tuple[str, int]] = []


@agents.function_tool
def plan_trip(city: Literal["Paris", "Rome"], days: Literal[1, 2, 3]) -> str:
    """Plan a trip."""
    asked.append((city, days))
    return "booked"


class Trip(pydantic.BaseModel, extra="forbid"):
    """What an answer in JSON must be."""

    city: Literal["Paris", "Rome"]
    days: Literal[1, 2, 3]


def agent(model: agents.Model, **options: object) -> agents.Agent:
    """Return an agent that must call its tool first and then answers with a few words."""
    settings = agents.ModelSettings(
        temperature=1, max_tokens=400, parallel_tool_calls=False, extra_body={"seed": 1, "stop": ["."]}, **options
    )
    return agents.Agent(name="guide", instructions="Be brief.", model=model, tools=[plan_trip], model_settings=settings)


async def check(model: agents.Model, *, stops: bool) -> None:
    """Check a run of two turns in one piece and as a stream, and an answer of a type.

    `stops`: the dialect knows stop strings, which keep the demo model's free text short.
    """
    for is_streamed in (False, True):
        asked.clear()
        one = agent(model, tool_choice="required")
        if not stops:
            one.model_settings.extra_body = {"seed": 1}
        if is_streamed:
            result = agents.Runner.run_streamed(one, QUESTION, max_turns=2)
            kinds = [event.type async for event in result.stream_events()]
            assert "raw_response_event" in kinds
        else:
            result = await agents.Runner.run(one, QUESTION, max_turns=2)
        assert len(asked) == 1, asked
        kinds = [item.type for item in result.new_items]
        assert kinds[:2] == ["tool_call_item", "tool_call_output_item"], kinds
        assert isinstance(result.final_output, str)
        assert result.context_wrapper.usage.requests == 2
    typed = agents.Agent(
        name="typed",
        model=model,
        output_type=Trip,
        model_settings=agents.ModelSettings(temperature=1, max_tokens=400, extra_body={"seed": 2}),
    )
    trip = (await agents.Runner.run(typed, QUESTION)).final_output
    assert isinstance(trip, Trip), trip


async def run() -> None:
    """Check both dialects that the SDK speaks."""
    await check(agents.OpenAIChatCompletionsModel("demo", CLIENT), stops=True)
    await check(agents.OpenAIResponsesModel("demo", CLIENT), stops=False)


agents.set_tracing_disabled(True)
asyncio.run(run())
