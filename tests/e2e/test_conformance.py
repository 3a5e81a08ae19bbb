"""Every route, field, error body and stream frame against the shapes of conformance_shapes.py and published ones.

The published ones are OpenAI's API description and recorded answers, in the folder that BATON_TEST_DATA names
(openai-api/openapi.yaml.zst, openai-api/recorded); where it is not set, only what needs them is skipped.
"""

from __future__ import annotations

import functools
import http.client
import json
import os
import pathlib
import socket
from collections.abc import Iterator
from typing import NamedTuple

import conformance_shapes as shapes
import jsonschema
import pytest
from conftest import Server

DATA = os.environ.get("BATON_TEST_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="BATON_TEST_DATA is not set: nothing is compared with OpenAI's description")
ASK = [{"role": "user", "content": "Is it raining?"}]
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "plan_trip", "parameters": PARAMETERS, "strict": True}}
RESPONSES_TOOL = {"type": "function", "name": "plan_trip", "parameters": PARAMETERS, "strict": True}
MESSAGES_TOOL = {"name": "plan_trip", "input_schema": PARAMETERS}
CALLS = {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False, "seed": 1, "max_tokens": 300}
RESPONSES_CALLS = {
    "tools": [RESPONSES_TOOL],
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "seed": 1,
    "max_output_tokens": 300,
}
MESSAGES_CALLS = {
    "tools": [MESSAGES_TOOL],
    "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
    "seed": 1,
    "max_tokens": 300,
}
FEW = {"model": "demo", "temperature": 0, "max_tokens": 5}
CHAT = FEW | {"messages": ASK}
PROMPT = FEW | {"prompt": "Galtan"}
INPUT = {"model": "demo", "temperature": 0, "max_output_tokens": 5, "input": "Is it raining?"}
STREAM = {"stream": True}
WITH_USAGE = STREAM | {"stream_options": {"include_usage": True}}
TEXT_SCORES = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}


class Case(NamedTuple):
    """A request that is answered: its shape, and the name of the schema in OpenAI's description."""

    path: str
    body: dict | None
    shape: dict
    published: str | None = None


WHOLE = {
    "chat": Case("/v1/chat/completions", CHAT, shapes.CHAT, "CreateChatCompletionResponse"),
    "chat: choices with scores": Case(
        "/v1/chat/completions",
        CHAT | {"n": 2, "logprobs": True, "top_logprobs": 2},
        shapes.CHAT,
        "CreateChatCompletionResponse",
    ),
    "chat: a call": Case("/v1/chat/completions", CHAT | CALLS, shapes.CHAT, "CreateChatCompletionResponse"),
    "chat: token ids and statistics": Case(
        "/v1/chat/completions", CHAT | {"baton_stats": True}, shapes.CHAT, "CreateChatCompletionResponse"
    ),
    "completion": Case("/v1/completions", PROMPT, shapes.COMPLETION, "CreateCompletionResponse"),
    "completion: scores": Case("/v1/completions", PROMPT | {"logprobs": 2}, shapes.COMPLETION, "CreateCompletionResponse"),
    # The published schema has no place for the first token of a prompt, whose log-probability is null.
    "completion: echo": Case("/v1/completions", PROMPT | {"logprobs": 1, "echo": True}, shapes.COMPLETION),
    "response": Case("/v1/responses", INPUT, shapes.RESPONSE, "Response"),
    "response: scores": Case("/v1/responses", INPUT | TEXT_SCORES, shapes.RESPONSE, "Response"),
    "response: a call": Case("/v1/responses", INPUT | RESPONSES_CALLS, shapes.RESPONSE, "Response"),
    "response: a count": Case(
        "/v1/responses/input_tokens",
        {"model": "demo", "input": "Hi"},
        shapes.obj(object=shapes.words("response.input_tokens"), input_tokens=shapes.COUNT),
        "TokenCountsResource",
    ),
    "message": Case("/v1/messages", CHAT, shapes.ANTHROPIC_MESSAGE),
    "message: a call": Case("/v1/messages", CHAT | MESSAGES_CALLS, shapes.ANTHROPIC_MESSAGE),
    "message: a count": Case(
        "/v1/messages/count_tokens", {"model": "demo", "messages": ASK}, shapes.obj(input_tokens=shapes.COUNT)
    ),
    "models": Case(
        "/v1/models",
        None,
        shapes.obj(object=shapes.words("list"), data=shapes.items(shapes.MODEL, least=1)),
        "ListModelsResponse",
    ),
    "model": Case("/v1/models/demo", None, shapes.MODEL, "Model"),
    "rendered chat": Case("/v1/chat/completions/render", CHAT, shapes.RENDERED),
    "rendered completion": Case("/v1/completions/render", PROMPT, shapes.RENDERED_COMPLETION),
    "tokenize": Case(
        "/tokenize",
        {"model": "demo", "prompt": "Galtan", "return_token_strs": True},
        shapes.obj(
            count=shapes.COUNT,
            max_model_len=shapes.COUNT,
            tokens=shapes.items(shapes.COUNT),
            token_strs=shapes.items(shapes.STRING),
        ),
    ),
    "detokenize": Case("/detokenize", {"model": "demo", "tokens": [40, 41]}, shapes.obj(prompt=shapes.STRING)),
    "tokenizer": Case(
        "/tokenizer_info",
        None,
        {"type": "object", "required": ["tokenizer_class", "model_max_length", "bos_token", "eos_token", "pad_token"]},
    ),
    "prefixes": Case("/v1/prefixes", None, shapes.obj(object=shapes.words("list"), data=shapes.items(shapes.PREFIX, least=1))),
    "prefix": Case("/v1/prefixes/kind", None, shapes.PREFIX),
    "version": Case("/version", None, shapes.obj(version=shapes.STRING)),
    "load": Case("/load", None, shapes.obj(server_load=shapes.COUNT)),
}
STREAMS = {
    "chat": Case("/v1/chat/completions", CHAT | WITH_USAGE, shapes.CHUNK, "CreateChatCompletionStreamResponse"),
    "chat: scores": Case(
        "/v1/chat/completions",
        CHAT | STREAM | {"logprobs": True, "top_logprobs": 1},
        shapes.CHUNK,
        "CreateChatCompletionStreamResponse",
    ),
    "chat: a call": Case("/v1/chat/completions", CHAT | CALLS | STREAM, shapes.CHUNK, "CreateChatCompletionStreamResponse"),
    "completion": Case("/v1/completions", PROMPT | WITH_USAGE | {"logprobs": 1}, shapes.COMPLETION, "CreateCompletionResponse"),
}
RESPONSE_STREAMS = {"text": INPUT | TEXT_SCORES | STREAM, "a call": INPUT | RESPONSES_CALLS | STREAM}
MESSAGE_STREAMS = {"text": CHAT | STREAM, "a call": CHAT | MESSAGES_CALLS | STREAM}
# Where a published schema has no null, but published answers have one, or conventions ask for one.
NULLS = {"finish_reason", "refusal", "usage", "logprobs", "user", "content"}
# Routes whose answers are no JSON, or which are in the other tests.
OTHER_ROUTES = {"/live", "/health", "/livez", "/ping", "/metrics"}
BODIES = {case.path: case.body for case in reversed(WHOLE.values()) if case.body}


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose template shows tools, with a prefix."""
    folder = tmp_path_factory.mktemp("conformance")
    (folder / "kind.txt").write_text("Be kind. " * 40)
    flags = ("--prefix", f"kind={folder / 'kind.txt'}")
    running = Server(folder / "log", *flags)
    yield running
    assert running.stop() == 0, running.log.read_text()


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that asks for a key."""
    running = Server(tmp_path_factory.mktemp("locked") / "log", "--api-key", "secret")
    yield running
    assert running.stop() == 0, running.log.read_text()


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: http.client.HTTPMessage
    text: str

    def json(self) -> object:
        """Return the body as JSON."""
        assert self.headers.get_content_type() == "application/json"
        return json.loads(self.text)


def send(server: Server, path: str, body: dict | str | None = None, method: str = "", **headers: str) -> Answer:
    """Send a request: a POST if it has a body."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    data = body if isinstance(body, str) or body is None else json.dumps(body)
    kind = {"Content-Type": "application/json"} if data is not None else {}
    connection.request(method or ("GET" if data is None else "POST"), path, data, kind | headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return Answer(answer.status, answer.headers, text)


@functools.cache
def description() -> dict:
    """Return OpenAI's API description."""
    yaml = pytest.importorskip("yaml")
    zstandard = pytest.importorskip("zstandard")
    packed = pathlib.Path(DATA, "openai-api/openapi.yaml.zst").read_bytes()
    text = zstandard.ZstdDecompressor().stream_reader(packed).read()
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - safe ones


def check_published(name: str, value: object) -> None:
    """Check a value against a schema of the description; nulls of NULLS are left out first."""
    referencing = pytest.importorskip("referencing")
    specification = referencing.jsonschema.DRAFT202012
    resource = referencing.Resource(contents=description(), specification=specification)
    registry = referencing.Registry().with_resource("urn:api", resource)
    schema = {"$ref": f"urn:api#/components/schemas/{name}"}
    errors = []
    for found in jsonschema.Draft202012Validator(schema, registry=registry).iter_errors(value):
        error = found
        while error.context:
            error = max(error.context, key=lambda inner: len(inner.absolute_path))
        if error.instance is None and error.absolute_path and error.absolute_path[-1] in NULLS:
            continue
        errors.append(f"{'/'.join(map(str, error.absolute_path))}: {error.message[:300]}")
    assert not errors, "\n".join(errors)


def frames_of(answer: Answer) -> list[tuple[str | None, str]]:
    """Return the (event, data) of each frame of a stream."""
    assert answer.status == 200, answer.text
    assert answer.headers.get_content_type() == "text/event-stream"
    assert answer.text.endswith("\n\n")
    frames = []
    for block in answer.text[:-2].split("\n\n"):
        lines = block.split("\n")
        named = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        assert len(data) == 1, block
        assert len(lines) == len(named) + 1, block
        frames.append((named[0] if named else None, data[0]))
    return frames


def kinds_of(chunks: list[dict]) -> list[str]:
    """Return what the chunks of a chat say, neighbours of one kind as one."""
    kinds: list[str] = []
    for chunk in chunks:
        if not chunk["choices"]:
            kind = "usage"
        elif "role" in chunk["choices"][0]["delta"]:
            kind = "role"
        elif chunk["choices"][0]["finish_reason"]:
            kind = "finish"
        elif "tool_calls" in chunk["choices"][0]["delta"]:
            kind = "call" if "id" in chunk["choices"][0]["delta"]["tool_calls"][0] else "arguments"
        else:
            kind = "content"
        if not kinds or kinds[-1] != kind:
            kinds.append(kind)
    return kinds


@pytest.mark.parametrize("name", WHOLE)
def test_answers_have_their_fields(serving: Server, name: str):
    case = WHOLE[name]
    answer = send(serving, case.path, case.body)
    assert answer.status == 200, answer.text
    shapes.check(case.shape, answer.json(), name)


@needs_data
@pytest.mark.parametrize("name", [name for name, case in WHOLE.items() if case.published])
def test_answers_are_as_published(serving: Server, name: str):
    case = WHOLE[name]
    check_published(case.published, send(serving, case.path, case.body).json())


@pytest.mark.parametrize("name", STREAMS)
def test_streams_have_their_frames(serving: Server, name: str):
    case = STREAMS[name]
    frames = frames_of(send(serving, case.path, case.body))
    assert frames[-1] == (None, "[DONE]")
    assert {event for event, _ in frames} == {None}
    chunks = [json.loads(data) for _, data in frames[:-1]]
    for chunk in chunks:
        shapes.check(case.shape, chunk, name)
        if DATA:
            check_published(case.published, chunk)
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    if "stream_options" in case.body:
        assert chunks[-1]["choices"] == []
        assert chunks[-1]["usage"]["completion_tokens"] == 5
        assert all(chunk["usage"] is None for chunk in chunks[:-1])
        chunks.pop()
    else:
        assert all("usage" not in chunk for chunk in chunks)
    ends = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert ends[-1] in ("stop", "length", "tool_calls")
    assert set(ends[:-1]) <= {None}
    if case.path == "/v1/chat/completions":
        said = ["call", "arguments"] if "tools" in case.body else ["content"]
        assert kinds_of(chunks) == ["role", *said, "finish"]


@needs_data
def test_recorded_streams_have_the_same_order():
    """The order that test_streams_have_their_frames asks for is that of recorded streams."""
    recorded = pathlib.Path(DATA, "openai-api/recorded")

    def order(name: str) -> list[str]:
        lines = (recorded / f"{name}.chunks.txt").read_text().splitlines()
        return kinds_of([json.loads(line) for line in lines if line])

    assert order("openai__openai-text") == ["role", "content", "finish", "usage"]
    assert [kind for kind in order("groq__groq-tool-call") if kind != "arguments"] == ["role", "call", "finish"]


@needs_data
@pytest.mark.parametrize("name", ["openai__openai-text", "groq__groq-text", "mistral__mistral-text", "deepseek__deepseek-text"])
def test_answers_have_what_recorded_answers_have(serving: Server, name: str):
    """Each field that all recorded servers send is in Baton's answers too."""
    recorded = pathlib.Path(DATA, "openai-api/recorded")
    ours = send(serving, "/v1/chat/completions", CHAT).json()
    openais = json.loads((recorded / "openai__openai-text.json").read_text())
    theirs = json.loads((recorded / f"{name}.json").read_text())
    for pick in (lambda a: a, lambda a: a["choices"][0], lambda a: a["choices"][0]["message"], lambda a: a["usage"]):
        common = set(pick(openais)) & set(pick(theirs))
        # Annotations are of web searches, the tier is OpenAI's, and these details are of audio and prediction.
        missing = common - set(pick(ours)) - {"annotations", "service_tier", "completion_tokens_details"}
        assert not missing, missing


@pytest.mark.parametrize("name", RESPONSE_STREAMS)
def test_events_of_responses_come_in_order(serving: Server, name: str):
    frames = frames_of(send(serving, "/v1/responses", RESPONSE_STREAMS[name]))
    events = [json.loads(data) for _, data in frames]
    assert [kind for kind, _ in frames] == [event["type"] for event in events]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    for one in events:
        shapes.check(shapes.RESPONSE_EVENTS[one["type"]], one, one["type"])
        if DATA:
            # A response in an event has the same nulls as one alone.
            check_published("ResponseStreamEvent", json.loads(json.dumps(one).replace('"user": null', '"user": ""')))
    short = [event["type"].removeprefix("response.") for event in events]
    once = [kind for kind in short if not kind.endswith(".delta")]
    inner = ["content_part.added", "output_text.done", "content_part.done"]
    inner = ["function_call_arguments.done"] if "tools" in RESPONSE_STREAMS[name] else inner
    assert once[:-1] == ["created", "in_progress", "output_item.added", *inner, "output_item.done"]
    assert once[-1] in ("completed", "incomplete")


@pytest.mark.parametrize("name", MESSAGE_STREAMS)
def test_events_of_messages_come_in_order(serving: Server, name: str):
    frames = frames_of(send(serving, "/v1/messages", MESSAGE_STREAMS[name]))
    events = [json.loads(data) for _, data in frames]
    assert [kind for kind, _ in frames] == [event["type"] for event in events]
    for one in events:
        shapes.check(shapes.MESSAGES_EVENTS[one["type"]], one, one["type"])
    once = [event["type"] for event in events if event["type"] != "content_block_delta"]
    block = ["content_block_start", "ping", "content_block_stop"]
    assert once == ["message_start", *block, "message_delta", "message_stop"]


def test_stored_responses(serving: Server):
    made = send(serving, "/v1/responses", INPUT).json()
    path = f"/v1/responses/{made['id']}"
    assert send(serving, path).json() == made
    listed = send(serving, f"{path}/input_items").json()
    ends = {name: shapes.maybe(shapes.STRING) for name in ("first_id", "last_id")}
    data = shapes.items(shapes.OBJECT, least=1)
    shapes.check(shapes.obj(object=shapes.words("list"), data=data, has_more=shapes.BOOLEAN, **ends), listed, "items")
    if DATA:
        check_published("ResponseItemList", listed)
    removed = send(serving, path, method="DELETE").json()
    assert removed == {"id": made["id"], "object": "response", "deleted": True}
    gone = send(serving, path)
    assert gone.status == 404
    shapes.check(shapes.ERROR, gone.json(), "a response that is gone")


def check_error(answer: Answer, path: str, status: int) -> None:
    """Check that an error has the status and the form of its path's dialect."""
    assert answer.status == status, answer.text
    if path.startswith("/v1/messages"):
        shapes.check(shapes.MESSAGES_ERROR, answer.json(), path)
        assert answer.json()["error"]["type"] == shapes.MESSAGES_ERROR_TYPES[status]
        assert answer.headers["request-id"].startswith("req_")
    elif status == 401:
        shapes.check(shapes.UNAUTHORIZED, answer.json(), path)
    else:
        shapes.check(shapes.ERROR, answer.json(), path)
        error = answer.json()["error"]
        assert (error["type"], error["code"]) == (shapes.ERROR_TYPES[status], status)


@pytest.mark.parametrize("path", BODIES)
def test_errors_have_the_form_of_their_dialect(serving: Server, locked: Server, path: str):
    body = BODIES[path]
    for text in ("{", "[]", '"a"', "", '{"model": 7}'):
        check_error(send(serving, path, text), path, 400)
    check_error(send(serving, path, body | {"model": "nobody"}), path, 404)
    check_error(send(serving, path, json.dumps(body), **{"Content-Type": "text/plain"}), path, 415)
    method = send(serving, path, method="PUT")
    check_error(method, path, 405)
    assert "POST" in method.headers["Allow"]
    check_error(send(locked, path, body), path, 401)
    check_error(send(locked, path, body, Authorization="Bearer wrong"), path, 401)
    check_error(send(locked, path, body, **{"x-api-key": "wrong"}), path, 401)
    # A body whose announced length is over the limit is refused before it comes.
    with socket.create_connection(("127.0.0.1", serving.port), timeout=30) as raw:
        head = f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: {1 << 40}\r\n\r\n"
        raw.sendall(head.encode())
        answer = http.client.HTTPResponse(raw)
        answer.begin()
        check_error(Answer(answer.status, answer.headers, answer.read().decode()), path, 413)


def test_errors_of_other_paths(serving: Server):
    check_error(send(serving, "/v1/nothing"), "/v1/nothing", 404)
    check_error(send(serving, "/v1/messages/nothing", {}), "/v1/messages/nothing", 404)
    for path in ("/v1/embeddings", "/v1/moderations", "/v1/audio/speech", "/v1/images/generations"):
        check_error(send(serving, path, {"model": "demo", "input": "a"}), path, 501)


def test_every_route_is_here(serving: Server):
    """The answer to an unknown path lists all routes."""
    message = send(serving, "/v1/nothing").json()["error"]["message"]
    listed = set(message.split("there are: ")[1].split(", "))
    assert listed - {case.path for case in WHOLE.values()} == OTHER_ROUTES
