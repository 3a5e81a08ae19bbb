"""Mutations of every request field of every route, and what every answer must be like.

An answer is 2xx, or 4xx with an error object of OpenAI's shape whose message or `param` names the field (or says that the body is
no JSON), or a 429 or 503 with a reason. Never another 5xx, a connection without an answer, or a sentence as long as the request.
"""

from __future__ import annotations

import dataclasses
import json
import urllib.parse
from collections.abc import Iterator

from hostile import wire

DEADLINE_MS = 300  # of every request that could otherwise generate for long
LONGEST_MESSAGE = 4096  # bytes of an error message
PLACE = '"@place@"'

LONG = 1 << 20
# Values as JSON text; those of INVALID make a body that is no JSON.
VALUES: dict[str, bytes] = {
    "null": b"null",
    "true": b"true",
    "zero": b"0",
    "minus one": b"-1",
    "one": b"1",
    "fraction": b"1.5",
    "1e308": b"1e308",
    "-1e308": b"-1e308",
    "2^31": b"2147483648",
    "2^63": b"9223372036854775808",
    "-2^63": b"-9223372036854775808",
    "2^64": b"18446744073709551616",
    "40 digits": b"1" * 40,
    "tiny": b"1e-400",
    "empty text": b'""',
    "text": b'"x"',
    "digits as text": b'"1"',
    "NaN as text": b'"NaN"',
    "zero byte": b'"a\\u0000b"',
    "line feeds": b'"a\\r\\nX-Injected: 1\\r\\n\\r\\n"',
    "a megabyte of text": b'"' + b"x" * LONG + b'"',
    "a megabyte of escapes": b'"' + b"\\u00e9" * (LONG // 6) + b'"',
    "empty list": b"[]",
    "list of null": b"[null]",
    "list of lists": b"[[]]",
    "list of numbers": b"[1, 2]",
    "list of texts": b'["a", ""]',
    "list of objects": b"[{}]",
    "mixed list": b'[1, "a", null, {}]',
    "100,000 numbers": b"[" + b"1," * 99_999 + b"1]",
    "100,000 texts": b"[" + b'"a",' * 99_999 + b'"a"]',
    "empty object": b"{}",
    "object": b'{"a": 1}',
    "object without name": b'{"": ""}',
    "10,000 members": b"{" + b",".join(b'"k%d":1' % i for i in range(10_000)) + b"}",
    "30 levels": b"[" * 30 + b"]" * 30,
}
INVALID: dict[str, bytes] = {
    "nothing": b"",
    "NaN": b"NaN",
    "-Infinity": b"-Infinity",
    "1e999": b"1e999",
    "a million digits": b"1" * LONG,
    "hex": b"0x10",
    "leading zero": b"007",
    "open text": b'"x',
    "invalid UTF-8": b'"\xff\xfe"',
    "overlong UTF-8": b'"\xc0\xaf"',
    "cut UTF-8": b'"\xe2\x82"',
    "UTF-8 of a surrogate": b'"\xed\xa0\x80"',
    "lone surrogate": b'"\\ud800"',
    "raw control character": b'"a\x01b"',
    "10,000 levels": b"[" * 10_000 + b"]" * 10_000,
    "open lists": b"[" * 100_000,
    "objects in objects": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "two values": b"1 2",
}

SAMPLING = (
    "model max_tokens max_completion_tokens temperature top_p top_k min_p presence_penalty frequency_penalty repetition_penalty "
    "logit_bias bad_words allowed_token_ids n stream stream_options stop seed logprobs top_logprobs prompt_logprobs min_tokens "
    "ignore_eos stop_token_ids include_stop_str_in_output skip_special_tokens add_special_tokens echo request_id cache_salt prefix "
    "baton_stats return_token_ids priority deadline_ms speculative_config user metadata store service_tier parallel_tool_calls "
    "session_id spaces_between_special_tokens safety_identifier prompt_cache_key length_penalty tools tool_choice functions "
    "function_call response_format structured_outputs guided_json guided_regex guided_choice guided_grammar guided_json_object "
    "guided_decoding_backend guided_whitespace_pattern json_schema grammar best_of suffix "
    "truncate_prompt_tokens use_beam_search documents chat_template logits_processors prompt_embeds modalities audio prediction "
    "vllm_xargs nobody_knows_this"
).split()
SPECULATION = ("method", "num_speculative_tokens", "prompt_lookup_max", "prompt_lookup_min")


@dataclasses.dataclass(frozen=True)
class Route:
    """A route with a body that is answered by 200, and the paths of the fields to change in it."""

    path: str
    body: dict
    fields: tuple[tuple[str | int, ...], ...]


def routes() -> list[Route]:
    """All routes that take a body."""
    answer = {"max_tokens": 1, "deadline_ms": DEADLINE_MS}
    message = {"role": "user", "content": "x"}
    nested = (("stream_options", "include_usage"), ("logit_bias", "5"), ("allowed_token_ids", 0), ("stop", 0), ("bad_words", 0))
    common = (*((name,) for name in SAMPLING), *nested, *(("speculative_config", name) for name in SPECULATION))
    containers = {"stream": True, "stream_options": {}, "logit_bias": {}, "allowed_token_ids": [5]}
    containers |= {"stop": ["y"], "bad_words": ["y"]}
    speculation = {"speculative_config": {"method": "ngram", "num_speculative_tokens": 2}}
    chat_fields = (
        *(("messages", 0, name) for name in ("role", "content", "name", "tool_calls", "reasoning_content")),
        *(("messages", 0, "content", 0, name) for name in ("type", "text")),
        *((name,) for name in ("chat_template_kwargs", "reasoning_effort", "add_generation_prompt", "continue_final_message")),
        ("messages", 0),
        ("messages",),
        ("chat_template_kwargs", "enable_thinking"),
    )
    chat = {"messages": [message], "chat_template_kwargs": {}} | answer | containers | speculation
    return [
        Route("/v1/completions", {"prompt": "x"} | answer | containers | speculation, (("prompt",), ("prompt", 0), *common)),
        Route("/v1/chat/completions", chat, (*chat_fields, *common)),
        Route("/tokenize", {"prompt": "x"}, (*((name,) for name in "model prompt add_special_tokens return_token_strs".split()),)),
        Route("/tokenize", {"messages": [message]}, (*chat_fields, ("add_special_tokens",))),
        Route("/detokenize", {"tokens": [5]}, (("model",), ("tokens",), ("tokens", 0))),
        Route(
            "/v1/prefixes",
            {"id": "hostile", "text": "x", "ttl_seconds": 1},
            (("id",), ("text",), ("version",), ("ttl_seconds",), ("nobody_knows_this",)),
        ),
        Route("/v1/prefixes", {"id": "hostile", "messages": [message], "ttl_seconds": 1}, (*chat_fields[:7], ("messages",))),
        Route("/v1/prefixes", {"id": "hostile", "tokens": [5], "ttl_seconds": 1}, (("tokens",), ("tokens", 0))),
    ]


def changed(body: dict, path: tuple[str | int, ...], value: bytes) -> bytes:
    """The body as JSON, with `value` as JSON text at `path`; containers on the way are made where they are missing."""
    copy = json.loads(json.dumps(body))
    at = copy
    for key, following in zip(path, path[1:], strict=False):
        wanted: type = list if isinstance(following, int) else dict
        if isinstance(key, int) and len(at) <= key:
            at.append(wanted())
        if not isinstance(key, int) and not isinstance(at.get(key), wanted):
            at[key] = wanted()
        at = at[key]
    last = path[-1]
    if isinstance(last, int):
        del at[last:]
        at.append("@place@")
    else:
        at[last] = "@place@"
    before, after = json.dumps(copy).split(PLACE)
    return before.encode() + value + after.encode()


@dataclasses.dataclass(frozen=True)
class Mutation:
    """One request: where it goes, the field and what became of it, and its body."""

    path: str
    names: tuple[str, ...]  # of the field and what it is in; a message must have one of them
    what: str
    body: bytes
    is_json: bool

    def __str__(self) -> str:
        """Name it in a fault."""
        return f"{self.path} {self.what}"


def mutations() -> Iterator[Mutation]:
    """Every value in every field of every route, doubled names, and bodies that are wrong as a whole."""
    for route in routes():
        for path in route.fields:
            names = tuple(key for key in path if isinstance(key, str))
            where = ".".join(map(str, path))
            for what, value in (VALUES | INVALID).items():
                yield Mutation(route.path, names, f"{where}: {what}", changed(route.body, path, value), what in VALUES)
            if len(path) == 1:
                name = names[0].encode()
                twice = json.dumps(route.body)[:-1].encode() + b', "%s": 1, "%s": "x"}' % (name, name)
                yield Mutation(route.path, names, f"{where} doubled", twice, False)
        yield from whole_bodies(route)


def whole_bodies(route: Route) -> Iterator[Mutation]:
    """Bodies that are not an object, or have very many or very long unknown fields."""
    for what, value in (VALUES | INVALID).items():
        if not value.startswith(b"{") or what in INVALID:
            yield Mutation(route.path, (), f"body {what}", value, False)
    start = json.dumps(route.body)[:-1].encode()
    many = b", ".join(b'"unknown_%d": %d' % (i, i) for i in range(20_000))
    yield Mutation(route.path, (), "20,000 unknown fields", start + b", " + many + b"}", False)
    yield Mutation(route.path, (), "a field name of a megabyte", start + b', "' + b"n" * LONG + b'": 1}', True)
    yield Mutation(route.path, (), "a field name with line feeds", start + b', "a\\r\\nlevel=error event=forged": 1}', True)
    yield Mutation(route.path, (), "cut in the middle", start, False)
    yield Mutation(route.path, (), "a byte order mark", b"\xef\xbb\xbf" + start + b"}", False)
    yield Mutation(route.path, (), "UTF-16", json.dumps(route.body).encode("utf-16"), False)


def wrong_with(mutation: Mutation, reply: wire.Reply | None) -> str:
    """What is wrong with an answer; empty if nothing is."""
    if reply is None or not reply.is_whole:
        return f"{mutation}: the connection was cut"
    if 200 <= reply.status < 300:
        is_stream = reply.headers.get("content-type", "").startswith("text/event-stream")
        return "" if is_stream or reply.body[:1] == b"{" else f"{mutation}: {reply.status} {reply.body[:80]!r} is no JSON object"
    if not 400 <= reply.status < 500 and reply.status != 503:
        return f"{mutation}: {reply.status} {reply.body[:200]!r}"
    error = reply.error()
    message = error.get("message")
    is_error = isinstance(message, str) and len(message) >= 10 and isinstance(error.get("type"), str)
    is_too_long = reply.status == 400 and error.get("code") == "context_length_exceeded"
    if not is_error or (error.get("code") != reply.status and not is_too_long):
        return f"{mutation}: {reply.status} without an error object: {reply.body[:200]!r}"
    if len(message.encode()) > LONGEST_MESSAGE:
        return f"{mutation}: a message of {len(message.encode())} bytes"
    if reply.status in (413, 429, 503):
        return ""  # the whole request was too much
    if error.get("param") is not None and not isinstance(error["param"], str):
        return f"{mutation}: param is {error['param']!r}"
    named = f"{message} {error.get('param') or ''}"
    is_of_body = "the request body" in message
    names_field = any(name in named for name in mutation.names)
    if mutation.is_json and mutation.names and not names_field:
        return f"{mutation}: the message does not name the field: {message[:200]!r}"
    if not mutation.is_json and not is_of_body and not names_field:
        return f"{mutation}: the message names neither the body nor the field: {message[:200]!r}"
    return ""


class Sender:
    """Sends mutations on one connection as long as the server keeps it."""

    def __init__(self, port: int, key: str = "", timeout: float = 60) -> None:
        """Not connected yet; each answer is awaited for `timeout` seconds."""
        self.timeout = timeout
        self.port = port
        self.key = key
        self.reader: wire.Reader | None = None

    def send(self, mutation: Mutation) -> str:
        """Send one; what is wrong with the answer."""
        data = wire.request_bytes("POST", mutation.path, mutation.body, key=self.key)
        for _ in range(2):  # a kept connection may have been closed since
            is_new = self.reader is None
            if self.reader is None:
                self.reader = wire.Reader(wire.connect(self.port, self.timeout))
            wire.send(self.reader.connection, data)
            reply = self.reader.reply(self.timeout)
            if reply is None or reply.headers.get("connection") == "close" or not reply.is_whole:
                self.close()
            if reply is not None or is_new:
                break
        if reply is not None and reply.status == 200 and mutation.path == "/v1/prefixes":
            self.forget(json.loads(reply.body)["id"])
        return wrong_with(mutation, reply)

    def forget(self, prefix: str) -> None:
        """Delete a registered prefix, so that the next one may have its name."""
        wire.ask(self.port, "DELETE", f"/v1/prefixes/{urllib.parse.quote(prefix, safe='')}", key=self.key, timeout=self.timeout)

    def close(self) -> None:
        """End the connection."""
        if self.reader is not None:
            self.reader.connection.close()
        self.reader = None
