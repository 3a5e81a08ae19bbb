"""Schemas, expressions, grammars, structural tags and tools of up to 1 MiB that are expensive to compile."""

from __future__ import annotations

import json
import pathlib
import threading
import time
from collections.abc import Callable

from hostile import wire
from hostile.arena import Arena, Case
from hostile.confine import MB
from hostile.floods import Attack, Script, Visit
from hostile.watch import status_field

ANSWER_SECONDS = 3.0  # within which any document of 1 MiB is compiled or refused
MOST_BYTES = 350 * MB  # that it may take meanwhile
SMALL_SECONDS = 2.0  # within which another key's small request is answered
LEAVE_SECONDS = 0.3  # after which a client leaves its request
N_KEYS = 8
N_CLIENTS = 4  # of each key

Body = dict[str, object]


def asking(**constraint: object) -> Body:
    """A chat request for four tokens."""
    return {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4} | constraint


def schema(document: object) -> Body:
    """A request whose answer keeps to a JSON schema."""
    return asking(response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": document}})


def structured(**kind: object) -> Body:
    """A request with `structured_outputs`."""
    return asking(structured_outputs=kind)


def tools(parameters: object, n: int = 1) -> Body:
    """A request with tools of the same parameters, one of which must be called."""
    named = [{"type": "function", "function": {"name": f"f{i}", "parameters": parameters}} for i in range(n)]
    return asking(tools=named, tool_choice="required")


def chain(keyword: str, n: int) -> object:
    """`n` definitions, each of which refers to the next through a keyword."""
    links: dict[str, object] = {f"d{i}": {keyword: [{"$ref": f"#/$defs/d{i + 1}"}]} for i in range(n)}
    return {"$defs": links | {f"d{n}": {"type": "string"}}, "$ref": "#/$defs/d0"}


def nested(wrap: Callable[[object], object], n: int) -> object:
    """A schema inside of `n` others. JSON's own limit of nesting may refuse it."""
    document: object = {"type": "string"}
    for _ in range(n):
        document = wrap(document)
    return document


def recursive(n: int) -> object:
    """A parameter that refers to itself `n` times (60 of them once ended all answers)."""
    return {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/a"}},
        "$defs": {"a": {"anyOf": [{"type": "string"}, *([{"$ref": "#/$defs/a"}] * n)]}},
    }


def crossed(n_properties: int, n_alternatives: int) -> object:
    """Alternatives beside properties."""
    names = {f"p{i}": {"type": "integer"} for i in range(n_properties)}
    return {"type": "object", "properties": names, "anyOf": [{"required": [f"p{i}"]} for i in range(n_alternatives)]}


def shared_definitions(n: int) -> object:
    """Properties that each bring definitions of their own."""
    defs = {f"d{i}": {"type": "integer"} for i in range(n)}
    return {"type": "object", "$defs": defs, "properties": {f"p{i}": {"$ref": f"#/$defs/d{i}"} for i in range(n)}}


def tagged(n: int, trigger: Callable[[int], str]) -> Body:
    """Tags with triggers."""
    tags = [{"begin": "<a>", "content": {"type": "any_text"}, "end": "</a>"}]
    form = {"type": "triggered_tags", "triggers": [trigger(i) for i in range(n)], "tags": tags}
    return structured(structural_tag=json.dumps({"type": "structural_tag", "format": form}))


def documents() -> dict[str, Callable[[], Body]]:
    """What is sent, by name."""
    many = {f"p{i}": {"type": "string"} for i in range(8000)}
    return {
        "a parameter that refers to itself 60 times": lambda: tools(recursive(60)),
        "a parameter that refers to itself 20,000 times": lambda: tools(recursive(20_000)),
        "12,000 allOf and $ref": lambda: schema(chain("allOf", 12_000)),
        "12,000 anyOf and $ref": lambda: schema(chain("anyOf", 12_000)),
        "12,000 oneOf and $ref": lambda: schema(chain("oneOf", 12_000)),
        "480 lists deep": lambda: schema(nested(lambda s: {"type": "array", "items": s}, 480)),
        "480 objects deep": lambda: schema(nested(lambda s: {"type": "object", "properties": {"a": s}}, 480)),
        "480 not deep": lambda: schema(nested(lambda s: {"not": s}, 480)),
        "oneOf of 10,000 empty schemas": lambda: schema({"oneOf": [{}] * 10_000}),
        "anyOf of 100,000 empty schemas": lambda: schema({"anyOf": [{}] * 100_000}),
        "oneOf of 20,000 numbers": lambda: schema({"oneOf": [{"const": i} for i in range(20_000)]}),
        "8,000 properties, at least 8,000": lambda: schema({"type": "object", "properties": many, "minProperties": 8000}),
        "8,000 properties, at least 4,000": lambda: schema({"type": "object", "properties": many, "minProperties": 4000}),
        "a long $id and 50,000 values": lambda: schema(
            {"$id": "http://a/" + "x" * 200_000, "anyOf": [{"type": "null"}] * 50_000}
        ),
        "1,000 properties x 500 alternatives": lambda: schema(crossed(1000, 500)),
        "5,000 definitions for 5,000 properties": lambda: schema(shared_definitions(5000)),
        "allOf of 340,000": lambda: schema({"allOf": [{}] * 340_000}),
        "enum of 150,000 equal values": lambda: schema({"enum": ["a"] * 150_000}),
        "enum of 100,000 values": lambda: schema({"enum": [f"v{i}" for i in range(90_000)]}),
        "a Unicode class 20,000 times": lambda: structured(regex=r"\p{L}{20000}"),
        "a Unicode class written 20,000 times": lambda: structured(regex=r"\p{L}" * 20_000),
        "counted twice": lambda: structured(regex="((a{1,1000}){1,1000}){1,1000}"),
        "100,000 alternatives": lambda: structured(regex="|".join(f"a{i}" for i in range(100_000))),
        "200,000 equal alternatives": lambda: structured(regex="|".join(["a"] * 200_000)),
        "100,000 groups deep": lambda: structured(regex="(" * 100_000 + "a" + ")" * 100_000),
        "150,000 equal choices": lambda: structured(choice=["a"] * 150_000),
        "20,000 rules in a chain": lambda: structured(
            grammar="root ::= r0\n" + "".join(f"r{i} ::= r{i + 1}\n" for i in range(20_000)) + 'r20000 ::= "a"\n'
        ),
        "30,000 nested groups of a grammar": lambda: structured(grammar="root ::= " + "(" * 30_000 + '"a"' + ")" * 30_000),
        "150,000 equal triggers": lambda: tagged(150_000, lambda _: "<a>"),
        "60,000 triggers": lambda: tagged(60_000, lambda i: f"<a{i}>"),
        "150,000 tokens": lambda: structured(
            structural_tag=json.dumps({"type": "structural_tag", "format": {"type": "any_text"}, "tokens": ["<a>"] * 150_000})
        ),
        "5,000 tools": lambda: tools({"type": "object", "properties": {"a": {"type": "string"}}}, 5000),
        "a tool with 20,000 properties": lambda: tools(
            {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(20_000)}}
        ),
    }


def resident(pid: int) -> int:
    """Bytes of a process."""
    return 1024 * status_field(pid, "VmRSS")


class Peak:
    """The most resident bytes of a process between `__enter__` and `__exit__`."""

    def __init__(self, pid: int) -> None:
        """Nothing is watched yet."""
        self.pid = pid
        self.before = self.most = resident(pid)
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def watch(self) -> None:
        """Read until the end."""
        while not self.ends.wait(0.01):
            self.most = max(self.most, resident(self.pid))

    def __enter__(self) -> Peak:
        """Begin."""
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self.ends.set()
        self.thread.join()


def leave(arena: Arena, name: str, request: bytes) -> float:
    """A client that leaves its request; seconds until the server holds nothing of it."""
    before = arena.metrics()["baton:budget_used"]  # what keeps compiled grammars
    connection = wire.connect(arena.server.port)
    connection.sendall(request)
    time.sleep(LEAVE_SECONDS)
    wire.reset(connection)
    begin = time.monotonic()
    while arena.metrics()["baton:budget_used"] > before:
        if time.monotonic() - begin > arena.seconds(ANSWER_SECONDS):
            arena.fault(f"{name}: the server still works {arena.seconds(ANSWER_SECONDS):g} s after its client has left")
            break
    return time.monotonic() - begin


def one_by_one(arena: Arena) -> None:
    """Each document alone: its time and memory; its client leaves in the middle; SIGTERM in the middle."""
    arena.warm_up()
    for name, make in documents().items():
        body = json.dumps(make()).encode()
        request = wire.request_bytes("POST", "/v1/chat/completions", body, key=arena.key)
        pid = arena.server.process.pid
        with Peak(pid) as peak:
            begin = time.monotonic()
            reply = arena.ask("POST", "/v1/chat/completions", body, timeout=30)
            took = time.monotonic() - begin
        arena.expect(reply.status in (200, 400, 413, 503), f"{name}: {reply.status} {reply.body[:200]!r}")
        arena.expect(took <= arena.seconds(ANSWER_SECONDS), f"{name}: {took:.1f} s; the limit is {ANSWER_SECONDS:g} s")
        grown = peak.most - peak.before
        arena.expect(
            grown <= MOST_BYTES * arena.settings.memory_factor,
            f"{name}: {grown / MB:.0f} MB more; the limit is {MOST_BYTES / MB:.0f} MB",
        )
        gone = leave(arena, name, request)
        text = reply.error().get("message", "")[:110] if reply.status != 200 else "answered"
        arena.row.notes.append(
            f"{name} ({len(body) / 1024:.0f} KiB): {reply.status} in {took:.2f} s, {grown / MB:.0f} MB, left {gone:.2f} s: {text}"
        )
        if arena.server.process.poll() is not None:
            arena.fault(f"{name}: the server ended with {arena.server.process.returncode}")
            arena.start()
    connections = []
    for make in list(documents().values())[:8]:
        connections.append(wire.connect(arena.server.port))
        connections[-1].sendall(wire.request_bytes("POST", "/v1/chat/completions", json.dumps(make()).encode()))
    time.sleep(LEAVE_SECONDS)
    arena.row.notes.append(f"SIGTERM under load: {arena.stop(arena.server):.1f} s")
    for connection in connections:
        connection.close()


def key_file(arena: Arena) -> pathlib.Path:
    """Keys of eight clients that flood, and of one that does not."""
    arena.folder.mkdir(parents=True, exist_ok=True)
    file = arena.folder / "keys.json"
    names = ["watcher", *(f"flood-{i}" for i in range(N_KEYS))]
    file.write_text(json.dumps({"keys": [{"name": name, "key": f"key-of-{name}"} for name in names]}))
    return file


def eight_keys(arena: Arena) -> None:
    """Eight keys send all documents again and again; another key's small requests are answered soon."""
    arena.key = "key-of-watcher"
    arena.small_seconds = SMALL_SECONDS
    arena.start("--api-key-file", str(key_file(arena)))
    bodies = [json.dumps(make()).encode() for make in documents().values()]

    def script(i: int) -> Script:
        key, headers = f"key-of-flood-{i}", ("Connection: close",)
        requests = [wire.request_bytes("POST", "/v1/chat/completions", body, key=key, headers=headers) for body in bodies]
        return lambda rng: Visit(rng.choice(requests))

    arena.flood([Attack(f"documents of key {i}", N_CLIENTS, script=script(i)) for i in range(N_KEYS)], 60)


CASES = [
    Case("grammars: expensive documents, one by one", one_by_one),
    Case("grammars: eight keys with expensive documents", eight_keys, starts_itself=True, is_confined=True),
]
