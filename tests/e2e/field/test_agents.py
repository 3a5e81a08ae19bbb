"""What the two coding agents that most people run send, as public sources describe it, and what they get.

The bodies in `agents` are written by hand. `responses_turn` is a turn of the agent that speaks `/v1/responses` alone. The others
are of the one that speaks `/v1/messages`: a turn, the title of a session, and the question whether a key is good.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable

import pytest
from asking import events, of_messages, post
from conftest import Server

Saying = Callable[..., Server]

PATCH = "*** Begin Patch\n*** Update File: a.py\n@@ def test\n-assert 1 == 2\n+assert 1 == 1\n*** End Patch\n"
BETAS = "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27,structured-outputs-2025-12-15"


def shape(name: str) -> dict:
    """Return the body of a request."""
    return json.loads((pathlib.Path(__file__).parent / "agents" / f"{name}.json").read_text())


def call(name: str, **arguments: object) -> str:
    """Return a call as the template asks for it: a strict tool is held to that."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def responses_turn(server: Server, **changes: object) -> list[dict]:
    """Return the events of a turn."""
    headers = {"Accept": "text/event-stream", "Authorization": "Bearer none", "originator": "cli", "session_id": "019a0000"}
    status, body = post(server, "/v1/responses", shape("responses_turn") | changes, headers)
    assert status == 200, body
    return events(body)


def only_item(happened: list[dict]) -> dict:
    """Return the one item that a response has."""
    items = [event["item"] for event in happened if event["type"] == "response.output_item.done"]
    assert len(items) == 1, items
    return items[0]


def messages(server: Server, name: str, path: str = "/v1/messages?beta=true") -> tuple[int, str]:
    """Send a body of the other agent."""
    return post(server, path, shape(name), {"anthropic-version": "2023-06-01", "anthropic-beta": BETAS, "x-api-key": "none"})


def test_a_patch_comes_back_as_the_call_of_a_custom_tool(saying: Saying):
    happened = responses_turn(saying(call("apply_patch", input=PATCH)))
    item = only_item(happened)
    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "apply_patch", PATCH)
    pieces = [event["delta"] for event in happened if event["type"] == "response.custom_tool_call_input.delta"]
    assert "".join(pieces) == PATCH
    assert len(pieces) > 3
    assert happened[-1]["type"] == "response.completed"
    assert happened[-1]["response"]["usage"]["input_tokens"] > 0


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (call("exec_command", cmd="ls C:\\"), {"type": "function_call", "name": "exec_command"}),
        (
            call("mcp__tracker__list_issues", state="open"),
            {"type": "function_call", "name": "list_issues", "namespace": "mcp__tracker"},
        ),
        (call("tool_search", query="issues"), {"type": "tool_search_call", "execution": "client"}),
        ("All tests pass.", {"type": "message", "role": "assistant"}),
    ],
    ids=["function", "namespace", "search", "text"],
)
def test_each_kind_of_item_comes_back_as_its_own(saying: Saying, said: str, wanted: dict):
    happened = responses_turn(saying(said))
    item = only_item(happened)
    assert {name: item.get(name) for name in wanted} == wanted
    assert happened[-1]["type"] == "response.completed"


def test_what_it_said_goes_into_the_next_turn(saying: Saying):
    happened = responses_turn(saying(call("exec_command", cmd="ls")))
    item = only_item(happened)
    result = {"type": "function_call_output", "call_id": item["call_id"], "output": "a.py"}
    again = responses_turn(saying("Done."), input=[*shape("responses_turn")["input"], item, result])
    assert again[-1]["type"] == "response.completed"


@pytest.mark.parametrize("name", ["Bash", "mcp__tracker__list_issues"])
def test_a_turn_of_messages_calls_a_tool(saying: Saying, name: str):
    arguments = {"command": 'grep "a\\.b" *', "description": "Find"} if name == "Bash" else {"state": "open"}
    status, body = messages(saying(call(name, **arguments)), "messages_turn")
    assert status == 200, body
    answered = of_messages(body, stream=True)
    ((called, given),) = answered.calls
    assert (called, json.loads(given)) == (name, arguments)
    assert answered.end == "tool_use"
    assert [event["type"] for event in events(body)][0] == "message_start"


def test_its_tokens_are_counted_as_it_is_answered(saying: Saying):
    server = saying("Done.")
    turn = shape("messages_turn")
    kept = ("model", "system", "messages", "tools", "thinking", "output_config", "context_management")
    status, body = post(server, "/v1/messages/count_tokens?beta=true", {name: turn[name] for name in kept})
    assert status == 200, body
    counted = json.loads(body)
    assert counted["context_management"] == {"original_input_tokens": counted["input_tokens"]}
    status, body = messages(server, "messages_turn")
    assert status == 200, body
    usage = events(body)[0]["message"]["usage"]
    read = sum(usage[name] for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"))
    assert read == counted["input_tokens"]


def test_a_session_gets_its_title(saying: Saying):
    status, body = messages(saying('{"title": "Mend the test"}'), "messages_title")
    assert status == 200, body
    assert json.loads(of_messages(body, stream=True).content) == {"title": "Mend the test"}


def test_a_key_is_tried_with_one_token(saying: Saying):
    status, body = messages(saying("Yes, it is."), "messages_probe")
    assert status == 200, body
    assert json.loads(body)["stop_reason"] == "max_tokens"
    status, body = post(saying("Yes, it is."), "/v1/messages?beta=true", shape("messages_probe") | {"model": "gpt-9"})
    assert status == 404, body
    assert json.loads(body)["error"]["type"] == "not_found_error"
