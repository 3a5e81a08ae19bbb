"""One question in each of the three dialects, streamed or not, and one form of what is answered."""

from __future__ import annotations

import dataclasses
import json
import urllib.error
import urllib.request

from conftest import Server

DIALECTS = ("chat", "responses", "messages")
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages?beta=true"}


@dataclasses.dataclass
class Answered:
    """The texts of an answer, its calls as (name, arguments as text), and the word that says why it ended."""

    status: int = 200
    content: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    end: str | None = None
    body: str = ""  # as it came


def post(server: Server, path: str, body: dict | bytes, headers: dict | None = None) -> tuple[int, str]:
    """Return the status and the body of an answer."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(f"{server.url}{path}", data, {"Content-Type": "application/json"} | (headers or {}))
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def function(name: str, **properties: dict) -> dict:
    """Return a function without a dialect's wrapping."""
    return {"name": name, "description": f"Does {name}.", "parameters": {"type": "object", "properties": properties}}


def question(dialect: str, text: str, functions: list[dict], stream: bool, most: int) -> dict:
    """Return the body of a request with functions, of which the answer has at most so many tokens."""
    body: dict = {"model": "said", "stream": stream, "temperature": 0}
    if dialect == "responses":
        body |= {"input": text, "max_output_tokens": most, "store": False}
        wrapped = [{"type": "function"} | tool for tool in functions]
    else:
        body |= {"messages": [{"role": "user", "content": text}], "max_tokens": most}
        wrapped = [{"type": "function", "function": tool} for tool in functions]
        if dialect == "messages":
            wrapped = [
                {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]} for tool in functions
            ]
    return body | ({"tools": wrapped} if functions else {})


def events(body: str) -> list[dict]:
    """Return the data of a stream's events."""
    lines = [line.removeprefix("data: ") for line in body.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def of_chat(body: str, stream: bool) -> Answered:
    """Read a chat completion."""
    answered = Answered(body=body)
    for part in events(body) if stream else [json.loads(body)]:
        for choice in part["choices"]:
            message = choice["delta" if stream else "message"]
            answered.content += message.get("content") or ""
            answered.reasoning += message.get("reasoning_content") or ""
            answered.end = choice["finish_reason"] or answered.end
            for call in message.get("tool_calls") or []:
                if call.get("id"):
                    answered.calls.append((call["function"]["name"], ""))
                name, arguments = answered.calls[-1]
                answered.calls[-1] = (name, arguments + call["function"].get("arguments", ""))
    return answered


def of_messages(body: str, stream: bool) -> Answered:
    """Read a message of Anthropic's dialect."""
    answered = Answered(body=body)
    if not stream:
        message = json.loads(body)
        answered.end = message["stop_reason"]
        for block in message["content"]:
            answered.content += block.get("text", "")
            answered.reasoning += block.get("thinking", "")
            if block["type"] == "tool_use":
                answered.calls.append((block["name"], json.dumps(block["input"])))
        return answered
    for event in events(body):
        if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
            answered.calls.append((event["content_block"]["name"], ""))
        if event["type"] == "content_block_delta":
            delta = event["delta"]
            answered.content += delta.get("text", "")
            answered.reasoning += delta.get("thinking", "")
            if "partial_json" in delta:
                name, arguments = answered.calls[-1]
                answered.calls[-1] = (name, arguments + delta["partial_json"])
        if event["type"] == "message_delta":
            answered.end = event["delta"]["stop_reason"]
    return answered


def of_responses(body: str, stream: bool) -> Answered:
    """Read a response; `end` is its status, or why it is incomplete."""
    answered = Answered(body=body)
    response = events(body)[-1]["response"] if stream else json.loads(body)
    answered.end = response["status"]
    if response.get("incomplete_details"):
        answered.end = response["incomplete_details"]["reason"]
    for item in response["output"]:
        if item["type"] == "function_call":
            answered.calls.append((item["name"], item["arguments"]))
        text = "".join(part["text"] for part in item.get("content", []))
        answered.reasoning += text if item["type"] == "reasoning" else ""
        answered.content += text if item["type"] == "message" else ""
    return answered


READERS = {"chat": of_chat, "responses": of_responses, "messages": of_messages}


def ask(
    server: Server, dialect: str, text: str, functions: list[dict], stream: bool, most: int = 2000, **fields: object
) -> Answered:
    """Return the answer to a user's message, with more fields of the dialect's own."""
    status, body = post(server, PATHS[dialect], question(dialect, text, functions, stream, most) | fields)
    return READERS[dialect](body, stream) if status == 200 else Answered(status=status, body=body)
