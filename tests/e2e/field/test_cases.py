"""Small inputs of public reports that once failed: those of ../shared/field/cases.json, streamed and not."""

from __future__ import annotations

import gzip
import http.client
import http.server
import json
import os
import pathlib
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator

import pytest
import zstandard
from asking import Answered, ask, events, function, post
from conftest import BINARY, Server
from saying import write_saying_model

Saying = Callable[..., Server]

# Templates with the traits of real ones: one system message in front, then user and assistant in turn; and parts that are joined
# without anything between them.
IN_TURN = """\
{%- if messages[0].role == 'system' %}[SYSTEM]{{ messages[0].content }}{% set messages = messages[1:] %}{% endif -%}
{%- for message in messages -%}
{%- if message.role != ('user' if loop.index0 % 2 == 0 else 'assistant') -%}
{{- raise_exception('roles must alternate user and assistant') -}}
{%- endif -%}
[{{ message.role }}]{{ message.content }}
{%- endfor -%}"""
PARTS = """\
{%- for message in messages -%}
[INST]
{%- if message.content is string %}{{ message.content }}
{%- else %}{% for part in message.content %}{{ part.text }}{% endfor %}{% endif -%}
[/INST]
{%- endfor -%}"""


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def stream(request: pytest.FixtureRequest) -> bool:
    """Whether the answer is a stream."""
    return request.param


@pytest.fixture
def plain(saying: Saying) -> Server:
    """A server that answers "Yes."."""
    return saying("Yes.")


def test_a_hosted_tool_beside_a_function_is_left_out(plain: Server, stream: bool):
    tools = [
        {"type": "function", "name": "shell", "parameters": {"type": "object", "properties": {}}},
        {"type": "web_search", "external_web_access": False},
    ]
    answered = ask(plain, "responses", "hi", [], stream, tools=tools)
    assert (answered.status, answered.content) == (200, "Yes."), answered.body
    assert "web_search" in plain.log.read_text()


def test_context_management_changes_nothing(plain: Server, stream: bool):
    edits = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
    answered = ask(plain, "messages", "hi", [], stream, context_management=edits)
    assert (answered.status, answered.content) == (200, "Yes."), answered.body


def n_input(answered: Answered, stream: bool) -> int:
    """Return how long the prompt of a response or message was."""
    assert answered.status == 200, answered.body
    if not stream:
        usage = json.loads(answered.body)["usage"]
    else:
        told = [event.get("response") or event.get("message") or {} for event in events(answered.body)]
        usage = [part["usage"] for part in told if part.get("usage")][-1]
    return usage["input_tokens"] + usage.get("cache_read_input_tokens", 0)


def test_instructions_and_a_developer_message_are_both_in_the_prompt(saying: Saying, stream: bool):
    server = saying("Yes.", template=IN_TURN)

    def length(instructions: str, developer: str) -> int:
        parts = [{"role": "developer", "content": developer}, {"role": "user", "content": "hi"}]
        return n_input(ask(server, "responses", "", [], stream, instructions=instructions, input=parts), stream)

    shortest = length("INS", "DEV")
    assert length("INS" + 40 * "I", "DEV") == shortest + 40
    assert length("INS", "DEV" + 50 * "D") == shortest + 50


def test_a_system_message_between_turns_is_in_the_prompt(saying: Saying, stream: bool):
    server = saying("Yes.", template=IN_TURN)

    def length(system: str, reminder: str) -> int:
        messages = [{"role": "user", "content": "hi"}, {"role": "system", "content": reminder}]
        return n_input(ask(server, "messages", "", [], stream, system=system, messages=messages), stream)

    shortest = length("INS", "reminder")
    assert length("INS" + 40 * "I", "reminder") == shortest + 40
    assert length("INS", "reminder" + 50 * "r") == shortest + 50


def test_cut_arguments_in_the_history_are_no_mistake(plain: Server, stream: bool):
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"a": "b'}}
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "bad arguments"},
        {"role": "user", "content": "go on"},
    ]
    answered = ask(plain, "chat", "", [], stream, messages=messages)
    assert (answered.status, answered.content) == (200, "Yes."), answered.body


def test_a_lone_backslash_is_doubled(saying: Saying, stream: bool):
    text = '<tool_call>\n{"name": "edit", "arguments": {"content": "C:\\Users \\d+"}}\n</tool_call>'
    answered = ask(saying(text), "chat", "go", [function("edit", content={"type": "string"})], stream)
    assert answered.calls == [("edit", '{"content": "C:\\\\Users \\\\d+"}')]
    assert (answered.content, answered.end) == ("", "tool_calls")


def test_a_call_in_reasoning_that_was_not_closed_is_a_call(saying: Saying, stream: bool):
    text = '<think>\nI ponder.\n<tool_call>\n{"name": "f", "arguments": {"a": "q1"}}\n</tool_call>'
    answered = ask(saying(text), "chat", "go", [function("f", a={"type": "string"})], stream)
    assert answered.calls == [("f", '{"a": "q1"}')]
    assert (answered.reasoning, answered.content, answered.end) == ("I ponder.", "", "tool_calls")


def kept(saying: Saying, schema: dict, text: str, stream: bool) -> bool:
    """Whether a model that would write `text` may write it under the schema. A schema must be taken."""
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    answered = ask(saying(text), "chat", "hi", [], stream, most=60, response_format=form)
    assert answered.status == 200, answered.body
    return answered.content == text


def test_names_that_are_texts_are_all_names(saying: Saying, stream: bool):
    member = {"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {"type": "number"}}
    schema = {"type": "object", "properties": {"m": member}, "required": ["m"]}
    assert kept(saying, schema, '{"m": {"a": 1.5, "any name": 2}}', stream)
    assert not kept(saying, schema, '{"m": {"a": "b"}}', stream)


def test_names_are_those_of_an_enum(saying: Saying, stream: bool):
    schema = {"type": "object", "propertyNames": {"enum": ["x", "y"]}, "additionalProperties": {"type": "integer"}}
    assert kept(saying, schema, '{"y": 1}', stream)
    assert kept(saying, schema, "{}", stream)
    assert not kept(saying, schema, '{"z": 1}', stream)


def test_bounds_are_those_of_draft_4_too(saying: Saying, stream: bool):
    schema = {"type": "integer", "minimum": 0, "exclusiveMinimum": True}
    assert kept(saying, schema, "1", stream)
    assert not kept(saying, schema, "0", stream)


def test_a_url_is_as_pydantic_writes_it(saying: Saying, stream: bool):
    url = {"type": "string", "format": "uri", "minLength": 1, "maxLength": 2083}
    schema = {"type": "object", "properties": {"u": url}, "required": ["u"]}
    assert kept(saying, schema, '{"u": "https://a.example/b?c=d"}', stream)
    assert not kept(saying, schema, '{"u": "no url"}', stream)


def test_a_length_may_be_large(saying: Saying, stream: bool):
    assert kept(saying, {"type": "string", "maxLength": 1_000_000}, '"so long"', stream)


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_body_may_be_compressed(plain: Server, stream: bool, coding: str):
    body = json.dumps({"model": "said", "input": "hi", "stream": stream}).encode()
    packed = gzip.compress(body) if coding == "gzip" else zstandard.compress(body)
    status, text = post(plain, "/v1/responses", packed, {"Content-Encoding": coding})
    assert status == 200, text
    assert "Yes." in text


@pytest.mark.parametrize("coding", ["br", "gzip, zstd", "aes128gcm"])
def test_another_coding_is_refused_with_the_codings_that_are_read(plain: Server, coding: str):
    connection = http.client.HTTPConnection("127.0.0.1", plain.port, timeout=60)
    headers = {"Content-Type": "application/json", "Content-Encoding": coding}
    connection.request("POST", "/v1/messages", b"{}", headers)
    response = connection.getresponse()
    assert (response.status, response.headers["Accept-Encoding"]) == (415, "gzip, deflate, zstd")
    assert json.load(response)["type"] == "error"


def test_a_bomb_is_refused_at_the_limit_of_bodies(plain: Server, stream: bool):
    body = b'{"stream": %s, "input": "%s"}' % (json.dumps(stream).encode(), b"x" * 300_000_000)
    for packed, coding in ((gzip.compress(body), "gzip"), (zstandard.compress(body), "zstd")):
        status, text = post(plain, "/v1/responses", packed, {"Content-Encoding": coding})
        assert status == 413, text
        assert "33554432 bytes" in text


def test_a_compressed_body_that_is_cut_is_refused(plain: Server):
    for packed, coding in ((gzip.compress(b"{}")[:-1], "gzip"), (b"{}", "zstd"), (b"", "deflate")):
        status, text = post(plain, "/v1/chat/completions", packed, {"Content-Encoding": coding})
        assert status == 400, text


@pytest.mark.parametrize("path", ["/v1/models/", "/v1/models//", "/health/", "/v1/models/said/"])
def test_a_slash_at_the_end_of_a_path_is_none(plain: Server, path: str):
    with urllib.request.urlopen(plain.url + path, timeout=60) as response:
        assert response.status == 200


def test_chat_with_a_slash_at_the_end(plain: Server, stream: bool):
    status, text = post(plain, "/v1/chat/completions/", {"messages": [{"role": "user", "content": "hi"}], "stream": stream})
    assert status == 200, text


@pytest.mark.parametrize("path", ["//v1/chat/completions", "/chat/completions", "/v1/v1/chat/completions"])
def test_a_base_url_that_does_not_fit_is_told(plain: Server, path: str):
    status, text = post(plain, path, {"messages": [{"role": "user", "content": "hi"}]})
    assert status == 404
    assert "is /v1/chat/completions meant?" in text


class Hub(http.server.BaseHTTPRequestHandler):
    """A hub with one model, org/said. One that only redirects has `other`; one that asks for a token has `token`."""

    folder: pathlib.Path
    other: str = ""
    token: str = ""
    seen: list[str | None]
    commit = "0123456789abcdef0123456789abcdef01234567"

    def do_HEAD(self) -> None:
        """Answer without the body."""
        self.answer(with_body=False)

    def do_GET(self) -> None:
        """Answer."""
        self.answer(with_body=True)

    def answer(self, with_body: bool) -> None:
        """Redirect, refuse, or give a file."""
        self.seen.append(self.headers.get("Authorization"))
        if self.other:
            return self.reply(308, {"Location": self.other + self.path})
        if self.token and self.headers.get("Authorization") != f"Bearer {self.token}":
            return self.reply(401, {})
        name = self.path.rpartition("/")[2]
        path = self.folder / name
        if self.path == "/api/models/org/said/revision/main":
            listed = [{"rfilename": file.name} for file in self.folder.iterdir()]
            return self.reply(200, {}, json.dumps({"sha": self.commit, "siblings": listed}).encode(), with_body)
        if not path.is_file():
            return self.reply(404, {})
        return self.reply(200, {"ETag": f'"etag-{name}"'}, path.read_bytes(), with_body)

    def reply(self, status: int, headers: dict[str, str], body: bytes = b"", with_body: bool = True) -> None:
        """Send a whole reply."""
        self.send_response(status)
        for key, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(key, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def hub(tmp_path: pathlib.Path) -> Iterator[Callable[..., tuple[str, list]]]:
    """Return a function that starts a hub: its address, and the Authorization headers that it has seen."""
    folder = write_saying_model(tmp_path / "model", "Yes.")
    servers = []

    def start(host: str = "127.0.0.1", **fields: str) -> tuple[str, list]:
        handler = type("OneHub", (Hub,), {"folder": folder, "seen": []} | fields)
        servers.append(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://{host}:{servers[-1].server_port}", handler.seen

    yield start
    for server in servers:
        server.shutdown()


def pull(home: pathlib.Path, **variables: str) -> subprocess.CompletedProcess:
    """Run `baton pull org/said` without variables of the hub but these."""
    plain = {key: value for key, value in os.environ.items() if not key.startswith("HF_") and not key.lower().endswith("_proxy")}
    environment = plain | {"HOME": str(home)} | variables
    return subprocess.run([BINARY, "pull", "org/said"], capture_output=True, text=True, timeout=100, check=False, env=environment)


def test_a_hub_that_redirects_everything_is_followed_without_the_token(hub: Callable, tmp_path: pathlib.Path):
    mirror, seen = hub("localhost")
    front, _ = hub(other=mirror)
    pulled = pull(tmp_path, HF_ENDPOINT=front, HF_TOKEN="hf_secret")
    assert pulled.returncode == 0, pulled.stderr
    assert (pathlib.Path(pulled.stdout.strip()) / "model.safetensors").is_file()
    assert seen, "the mirror was asked"
    assert set(seen) == {None}


def test_the_token_that_a_login_saved_is_used(hub: Callable, tmp_path: pathlib.Path):
    address, _ = hub(token="hf_saved")
    saved = tmp_path / ".cache/huggingface/token"
    saved.parent.mkdir(parents=True)
    saved.write_text("hf_saved\n")
    pulled = pull(tmp_path, HF_ENDPOINT=address)
    assert pulled.returncode == 0, pulled.stderr


def test_text_parts_are_joined_as_the_template_joins_them(saying: Saying, stream: bool):
    server = saying("Yes.", template=PARTS)

    def length(*texts: str) -> int:
        content = [{"type": "text", "text": text} for text in texts]
        messages = [{"role": "user", "content": content}]
        return n_input(ask(server, "messages", "", [], stream, messages=messages), stream)

    assert length("QQ1", "QQ2") == length("QQ1QQ2")
    assert length("QQ1", "QQ2", "QQ3") == length("QQ1QQ2QQ3")


def test_a_prompt_that_is_too_long_is_told_as_the_dialect_tells_it(saying: Saying, stream: bool):
    server = saying("Yes.", context=4096)
    answered = ask(server, "messages", "x" * 27004, [], stream, most=8)
    assert answered.status == 400, answered.body
    message = json.loads(answered.body)["error"]["message"]
    n_tokens = int(message.removeprefix("prompt is too long: ").partition(" ")[0])
    assert message == f"prompt is too long: {n_tokens} tokens > 4096 maximum"
    assert 27004 <= n_tokens < 27104


def test_integers_of_a_history_keep_their_digits(saying: Saying, stream: bool):
    server = saying("Yes.")

    def length(number: str) -> int:
        call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": f'{{"a": {number}}}'}}
        messages = [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": "done"},
        ]
        body = {"model": "said", "messages": messages, "stream": stream}
        status, text = post(server, "/v1/chat/completions", body | ({"stream_options": {"include_usage": True}} if stream else {}))
        assert status == 200, text
        usage = [event["usage"] for event in events(text) if event.get("usage")][-1] if stream else json.loads(text)["usage"]
        return usage["prompt_tokens"]

    shortest = length("7")
    for digits in ("9223372036854775808", "18446744073709551616", "1" + 60 * "0"):
        assert length(digits) == shortest + len(digits) - 1


@pytest.mark.parametrize("trait", ["no token", "surplus", "infinity"])
def test_a_checkpoint_with_harmless_traits_is_served(tmp_path: pathlib.Path, trait: str):
    folder = write_saying_model(tmp_path / "model", "Yes.")
    config = json.loads((folder / "config.json").read_text())
    if trait == "no token":
        config["bos_token_id"] = -1
    if trait == "infinity":
        config["attention_bias_limit"] = float("inf")
    if trait == "surplus":
        shard = folder / "model-00001-of-00001.safetensors"
        weights = (folder / "model.safetensors").rename(shard).read_bytes()
        names = json.loads(weights[8 : 8 + int.from_bytes(weights[:8], "little")])
        index = {"weight_map": dict.fromkeys([*names, "model.layers.0.self_attn.rotary_emb.inv_freq"], shard.name)}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(config))
    server = Server(tmp_path / "log", str(folder), "--served-model-name", "said")
    assert ask(server, "chat", "hi", [], stream=False).content == "Yes."
    assert server.stop() == 0


def test_a_length_may_be_written_with_a_letter(tmp_path: pathlib.Path):
    folder = write_saying_model(tmp_path / "model", "Yes.")
    server = Server(tmp_path / "log", str(folder), "--served-model-name", "said", "--max-model-len", "4k")
    status, body = post(server, "/v1/chat/completions", {"messages": [{"role": "user", "content": "x" * 5000}]})
    assert server.stop() == 0
    assert status == 400
    assert "4096" in body
