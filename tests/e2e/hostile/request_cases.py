"""Cases of single requests that cost or reveal too much: issue 13, (6), (8), (9), (12) to (15) and (18)."""

from __future__ import annotations

import json
import socket
import threading
import time

from conftest import ROOT

from hostile import wire
from hostile.arena import Arena, Case
from hostile.fields import LONGEST_MESSAGE

N_PREFIXES = 5000  # more than any server of this size should keep
LONG_PROMPT = [300 + i % 600 for i in range(3900)]
ENDS_SECONDS = 5.0  # for what a client that left had asked for


def lasting(n: int = 16) -> dict:
    """A request that takes many seconds."""
    return {"prompt": "x", "max_tokens": 4000, "ignore_eos": True, "n": n}


def salts(arena: Arena) -> None:
    """A template variable before the system message, and the system message a registered prefix: nothing private is shared."""
    template = arena.folder / "lead.jinja"
    arena.folder.mkdir(parents=True, exist_ok=True)
    template.write_text(
        "{{ bos_token }}{% if lead %}{{ lead }}{% endif %}{% for message in messages %}<|user|>{{ message['content'] }}<|end|>"
        "{% endfor %}<|assistant|>"
    )
    arena.start("--chat-template", str(template), "--prefix", f"shop={ROOT / 'models/demo/catalogue.txt'}")

    def cached(salt: str, lead: str, question: str) -> int:
        body = {
            "messages": [{"role": "user", "content": question}],
            "prefix": "shop",
            "cache_salt": salt,
            "chat_template_kwargs": {"lead": lead},
            "max_tokens": 1,
        }
        reply = arena.ask("POST", "/v1/chat/completions", body)
        arena.expect(reply.status == 200, f"a request with a salt got {reply.status} {reply.body[:200]!r}")
        return json.loads(reply.body)["usage"]["prompt_tokens_details"]["cached_tokens"] if reply.status == 200 else 0

    private = "The key of the safe is 4711 and it is a secret.  " * 20
    public = cached("one", "", "hello")
    arena.expect(public > 0, "the registered prefix is not shared between salts")
    cached("one", private, "hello")
    own = cached("one", private, "hello")
    arena.expect(own > 0, "one salt does not share with itself: the case shows nothing")
    foreign = cached("two", private, "hello")
    arena.expect(foreign == 0, f"{foreign} tokens of another salt's prompt were found in the cache")


def registrations(arena: Arena) -> None:
    """Thousands of registered prompts, long names in errors, clients that leave, and deleting what waits."""
    before = arena.warm_up()
    n_kept = 0
    for i in range(N_PREFIXES):
        reply = arena.ask("POST", "/v1/prefixes", {"id": f"many-{i}", "text": "x", "nobody": "y" * 1000})
        if reply.status != 200:
            arena.expect(reply.status in (400, 409, 413, 429, 503), f"prefix {i} got {reply.status} {reply.body[:200]!r}")
            arena.row.notes.append(f"prefix {i} was refused: {reply.error().get('message', '')[:120]}")
            break
        n_kept += 1
    arena.expect(n_kept < N_PREFIXES, f"{N_PREFIXES} prompts were registered and none refused")
    unknown = arena.ask("POST", "/v1/completions", {"prompt": "x", "prefix": "n" * 100_000, "max_tokens": 1})
    arena.expect(len(unknown.body) < LONGEST_MESSAGE, f"the error about an unknown prefix has {len(unknown.body)} bytes")
    for i in range(n_kept):
        arena.ask("DELETE", f"/v1/prefixes/many-{i}")
    for name in (".", "..", "a/b", "a b", "", "\u00e9", "n" * 10_000):
        reply = arena.ask("POST", "/v1/prefixes", {"id": name, "text": "x"})
        arena.expect(reply.status == 400, f"the prefix name {name[:20]!r} got {reply.status}")
    arena.settle(before)


def left_registrations(arena: Arena) -> None:
    """Clients that ask for the computation of long prompts and leave; and deletion of one that waits."""
    before = arena.warm_up()
    for i in range(8):
        connection = wire.connect(arena.server.port)
        body = json.dumps({"id": f"left-{i}", "tokens": [300 + i, *LONG_PROMPT[1:]]}).encode()
        connection.sendall(wire.request_bytes("POST", "/v1/prefixes", body))
        arena.row.n_requests += 1
        wire.reset(connection)
    time.sleep(arena.seconds(ENDS_SECONDS))
    kept = [entry["id"] for entry in json.loads(arena.ask("GET", "/v1/prefixes").body)["data"]]
    arena.expect(len(kept) < 8, "eight prompts were registered for clients that had left")
    for name in kept:
        arena.ask("DELETE", f"/v1/prefixes/{name}")
    replies: dict[int, wire.Reply] = {}

    def register(i: int) -> None:
        replies[i] = arena.ask("POST", "/v1/prefixes", {"id": f"queued-{i}", "tokens": [400 + i, *LONG_PROMPT[1:]]})

    threads = [threading.Thread(target=register, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
        time.sleep(arena.seconds(0.02))
    deleted = arena.ask("DELETE", "/v1/prefixes/queued-5")
    for thread in threads:
        thread.join()
    listed = arena.ask("GET", "/v1/prefixes/queued-5")
    arena.expect(deleted.status == 200, f"deleting a prefix that waits got {deleted.status} {deleted.body[:200]!r}")
    arena.expect(listed.status == 404, f"a prefix that was deleted while it waited: {listed.status}, its POST {replies[5].status}")
    for i in range(5):
        arena.ask("DELETE", f"/v1/prefixes/queued-{i}")
    arena.settle(before)


def priorities(arena: Arena) -> None:
    """A priority other than 0 is refused where the scheduler does not go by priorities."""
    for value, status in ((0, 200), (-5, 400), (1, 400)):
        reply = arena.ask("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1, "priority": value})
        arena.expect(reply.status == status, f"priority {value} got {reply.status}")


def pipelining(arena: Arena) -> None:
    """A client that sends more than is read ahead after its request, and resets, or just closes: its request ends soon."""
    before = arena.warm_up()
    for how in ("reset", "close"):
        connection = wire.connect(arena.server.port)
        connection.sendall(wire.request_bytes("POST", "/v1/completions", json.dumps(lasting()).encode()))
        arena.row.n_requests += 1
        connection.setblocking(False)
        page = wire.request_bytes("GET", "/health") * 1000
        n_sent = 0
        for _ in range(40 if how == "reset" else 0):  # after bytes that are not taken, the end of a close stays unseen
            try:
                n_sent += connection.send(page)
            except BlockingIOError:
                time.sleep(0.02)
        deadline = time.monotonic() + arena.seconds(ENDS_SECONDS)
        while arena.metrics()["vllm:num_requests_running"] == 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        if how == "reset":
            wire.reset(connection)
        else:
            connection.close()
        begin = time.monotonic()
        while (n := arena.metrics()["vllm:num_requests_running"]) > 0 and time.monotonic() < begin + arena.seconds(ENDS_SECONDS):
            time.sleep(0.05)
        arena.expect(
            n == 0,
            f"{arena.seconds(ENDS_SECONDS):g} s after a {how} after {n_sent >> 10} KiB of pipelined requests, it still runs",
        )
    arena.settle(before, 60)


def half_closed(arena: Arena) -> None:
    """A client that closes its sending side after its request gets the answer."""
    for path, body in (("/v1/completions", {"prompt": "x", "max_tokens": 50}), ("/tokenize", {"prompt": "x"})):
        for stream in (False, True) if path == "/v1/completions" else (False,):
            connection = wire.connect(arena.server.port)
            sent = body | ({"stream": True} if stream else {})
            connection.sendall(wire.request_bytes("POST", path, json.dumps(sent).encode()))
            connection.shutdown(socket.SHUT_WR)
            arena.row.n_requests += 1
            reply = wire.Reader(connection).reply(arena.seconds(60))
            connection.close()
            is_right = reply is not None and reply.status == 200 and reply.is_whole
            arena.expect(is_right, f"a half-closed POST {path}{' (stream)' if stream else ''} got {reply and reply.status}")


def media_types(arena: Arena) -> None:
    """A body that is not application/json is refused: browsers send the other types to foreign servers without asking."""
    body = json.dumps({"prompt": "x", "max_tokens": 1}).encode()
    types = {
        "application/json": 200,
        "application/json; charset=utf-8": 200,
        "Application/JSON": 200,
        "text/plain": 415,
        "application/x-www-form-urlencoded": 415,
        "multipart/form-data; boundary=x": 415,
        "text/plain; application/json": 415,
    }
    for path in ("/v1/completions", "/tokenize", "/v1/prefixes"):
        for name, status in types.items():
            if path == "/v1/prefixes" and status == 200:
                continue
            arena.row.n_requests += 1
            data = wire.request_bytes("POST", path, body, headers=(f"Content-Type: {name}",))
            reply = wire.ask_raw(arena.server.port, data, arena.seconds(60))
            arena.expect(reply is not None and reply.status == status, f"POST {path} of {name!r} got {reply and reply.status}")


def codings(arena: Arena) -> None:
    """Transfer-Encoding other than chunked, on HTTP/1.0, twice, or beside Content-Length: the body's end is never guessed."""
    body = b'{"prompt": "x", "max_tokens": 1}'
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    heads = {
        "gzip, chunked": ("1.1", "Transfer-Encoding: gzip, chunked\r\n"),
        "identity": ("1.1", "Transfer-Encoding: identity\r\n"),
        "chunked, chunked": ("1.1", "Transfer-Encoding: chunked, chunked\r\n"),
        "chunked, identity": ("1.1", "Transfer-Encoding: chunked, identity\r\n"),
        "xchunked": ("1.1", "Transfer-Encoding: xchunked\r\n"),
        "chunked twice": ("1.1", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
        "chunked on HTTP/1.0": ("1.0", "Transfer-Encoding: chunked\r\n"),
        "chunked and a length": ("1.1", f"Transfer-Encoding: chunked\r\nContent-Length: {len(body)}\r\n"),
        "a length and chunked": ("1.1", f"Content-Length: {len(body)}\r\nTransfer-Encoding: chunked\r\n"),
        "two lengths": ("1.1", f"Content-Length: {len(body)}\r\nContent-Length: 5\r\n"),
        "a length with a sign": ("1.1", f"Content-Length: +{len(body)}\r\n"),
        "a length in hex": ("1.1", "Content-Length: 0x10\r\n"),
        "a folded header": ("1.1", f"X: a\r\n b\r\nContent-Length: {len(body)}\r\nTransfer-Encoding:\r\n chunked\r\n"),
        "a space before the colon": ("1.1", f"Content-Length : {len(body)}\r\n"),
    }
    for what, (version, lines) in heads.items():
        data = f"POST /v1/completions HTTP/{version}\r\nHost: h\r\nContent-Type: application/json\r\n{lines}\r\n".encode() + chunks
        arena.row.n_requests += 1
        reply = wire.ask_raw(arena.server.port, data, arena.seconds(60))
        arena.expect(reply is not None and reply.status in (400, 501), f"{what}: {reply and reply.status}")


def odd_paths(arena: Arena) -> None:
    """Paths that lead nowhere, and methods that do not exist."""
    long = "/" + "a" * 60_000
    for method, path, status in (
        ("GET", "/v1/models/", 200),
        ("GET", "/v1/prefixes/", 200),
        ("DELETE", "/v1/prefixes/", 405),
        ("GET", "/v1/models/%00", 404),
        ("GET", "/v1/models/..%2f..", 404),
        ("GET", "/../etc/passwd", 404),
        ("GET", "//v1/models", 404),
        ("GET", "/v1/models/" + "%41" * 1000, 404),
        ("GET", long, 404),
        ("BREW", "/v1/models", 405),
        ("DELETE", "/v1/prefixes/%2e%2e", 404),
    ):
        reply = arena.ask(method, path)
        arena.expect(reply.status == status, f"{method} {path[:40]} got {reply.status}")
        arena.expect(len(reply.body) < LONGEST_MESSAGE, f"{method} {path[:40]}: an answer of {len(reply.body)} bytes")


CASES = [
    Case("(6) salts after a template variable", salts, starts_itself=True),
    Case("(8) registered prompts without number", registrations),
    Case("(8) registrations of clients that left", left_registrations),
    Case("(9) priority", priorities),
    Case("(12) a reset after pipelined requests", pipelining),
    Case("(13) half-closed requests", half_closed),
    Case("(14) media types", media_types),
    Case("(15) transfer codings", codings),
    Case("(18) odd paths", odd_paths),
]
