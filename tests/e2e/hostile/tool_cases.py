"""Cases of tools: lists that are long in every way, and schemas that refer to themselves: issue 32, (1) and (7)."""

from __future__ import annotations

import json
import time

from hostile.arena import Arena, Case
from hostile.watch import Watch

ANSWER_SECONDS = 3.0  # of any tool list within the limits, on one core
MEMBERS = 90_000  # of one object, within 1 MiB


def function(parameters: dict, name: str = "f") -> dict:
    """A tool."""
    return {"function": {"name": name, "parameters": parameters}}


def tool_lists() -> dict[str, dict]:
    """Fields of requests whose tools are costly where something looks at a member more than once."""
    many = {f"m{i}": 0 for i in range(MEMBERS)}
    self_references = [{"$ref": "#/$defs/a"}] * 60
    chain = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"type": "null"}]} for i in range(17_000)}
    names = [{"function": {"name": f"f{i}"}} for i in range(1024)]
    allowed = {"mode": "auto", "tools": names * 40}
    return {
        "a tool with many members": {"tools": [function({}) | many]},
        "parameters with many members": {"tools": [function(many)]},
        "many arguments": {"tools": [function({"properties": {f"p{i}": {"type": "null"} for i in range(40_000)}})]},
        "a schema that refers to itself": {
            "tools": [
                function({"properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"anyOf": self_references}}})
            ]
        },
        "a chain of schemas": {"tools": [function({"properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": chain})]},
        "many tools": {"tools": names},
        "many allowed tools": {
            "tools": names,
            "tool_choice": {"type": "allowed_tools", "allowed_tools": allowed},
        },
    }


def tools(arena: Arena) -> None:
    """Each list is answered or refused within three seconds, in a format that writes no types and in one that does."""
    body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 8}
    for parser in ("qwen3_coder", "hermes"):
        server = arena.start("--tool-call-parser", parser)
        watch = Watch(server.port, server.process.pid, slow_factor=arena.settings.slow_factor)
        try:
            for name, fields in tool_lists().items():
                begin = time.monotonic()
                reply = arena.ask("POST", "/v1/chat/completions", body | fields, timeout=10 * ANSWER_SECONDS)
                took = time.monotonic() - begin
                arena.row.notes.append(
                    f"{parser}, {name} ({len(json.dumps(fields)) >> 10} KB): {reply.status} in {took:.2f} s"
                )
                arena.expect(reply.status in (200, 400, 413), f"{parser}, {name}: {reply.status} {reply.body[:200]!r}")
                arena.expect(took <= arena.seconds(ANSWER_SECONDS), f"{parser}, {name}: {took:.1f} s")
        finally:
            seen = watch.end()
        arena.row.health_ms += seen.health_ms
        for fault in seen.health_faults[:1] + seen.small_faults[:1]:
            arena.fault(f"{parser}: {fault}")
        arena.stop(server)


CASES = [
    Case("(1) tools that refer to themselves and tools without end", tools, starts_itself=True),
]
