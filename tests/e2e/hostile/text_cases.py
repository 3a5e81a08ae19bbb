"""Cases of templates and tokenizers that work long on short texts: issue 13, (7) and (20)."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import time
from collections.abc import Callable

from conftest import BINARY, ROOT

from hostile import wire
from hostile.arena import Arena, Case
from hostile.watch import Watch

ANSWER_SECONDS = 15.0  # within which work that has no limit of its own must be refused, on a busy machine
TEXT = "ab " * 6000
LOOPS = 100_000

# What a template does LOOPS times with the 18 KB of a message, `t`, a list of its 6,000 words, `l`, and a dictionary, `d`.
LOOPED = {
    "search": "'zz' in t",
    "find": "t.find('zz')",
    "count": "t.count('ab')",
    "split": "t.split('a')",
    "split at spaces": "t.split()",
    "replace": "t.replace('a', 'bb')",
    "strip characters": "t.strip('ab ')",
    "trim": "t | trim",
    "upper": "t.upper()",
    "length": "t | length",
    "list": "t | list",
    "slice": "t[1:]",
    "reverse": "t | reverse",
    "concatenate": "t ~ t",
    "compare": "t == (t ~ 'x')",
    "join": "l | join(',')",
    "sort": "l | sort",
    "unique": "l | unique",
    "list search": "'zz' in l",
    "list sum": "l + l",
    "map": "l | map('upper') | list",
    "to JSON": "l | tojson",
    "copy": "d.copy()",
    "items": "d.items()",
    "integer keys": "d[5999]",
    "dictionary of pairs": "dict(d)",
    "doubling": "n.t ~ n.t -%}{%- set n.t = x",
}

# Templates nested this deep must be refused by a sentence, or work; and not end the process by its stack.
NESTED: dict[str, Callable[[int], str]] = {
    "parentheses": lambda n: "{{ " + "(" * n + "1" + ")" * n + " }}",
    "lists": lambda n: "{{ " + "[" * n + "]" * n + " }}",
    "dictionaries": lambda n: "{{ " + "{'a':" * n + "1" + "}" * n + " }}",
    "minus signs": lambda n: "{{ " + "-" * n + "1 }}",
    "not": lambda n: "{{ " + "not " * n + "1 }}",
    "if": lambda n: "{% if true %}" * n + "x" + "{% endif %}" * n,
    "for": lambda n: "{% for a in [1] %}" * n + "x" + "{% endfor %}" * n,
    "elif": lambda n: "{% if false %}" + "{% elif false %}" * n + "{% endif %}",
    "attributes": lambda n: "{{ messages" + ".a" * n + " }}",
    "indices": lambda n: "{{ messages" + "[0]" * n + " }}",
    "calls": lambda n: "{{ messages" + "()" * n + " }}",
    "filters": lambda n: "{{ 'x'" + " | trim" * n + " }}",
    "sums": lambda n: "{{ 1" + " + 1" * n + " }}",
    "powers": lambda n: "{{ 1" + " ** 1" * n + " }}",
    "conditions": lambda n: "{{ 1" + " if 1 else 1" * n + " }}",
    "macros": lambda n: "".join(f"{{% macro m{i}() %}}" for i in range(n)) + "x" + "{% endmacro %}" * n,
    "recursion": lambda _: "{% macro m(i) %}{{ m(i + 1) }}{% endmacro %}{{ m(0) }}",
}


def model_folder(folder: pathlib.Path) -> pathlib.Path:
    """A copy of the demo model whose files may be changed."""
    copy = folder / "model"
    shutil.copytree(ROOT / "models/demo", copy)
    return copy


def looped(expression: str) -> str:
    """A template that computes an expression LOOPS times."""
    dictionary = "{" + ", ".join(f"{i}: {i}" for i in range(6000)) + "}"
    begin = "{%- set t = messages[0].content -%}{%- set l = t.split() -%}{%- set n = namespace(t=t) -%}"
    loop = "{%- for i in range(" + str(LOOPS) + ") -%}{%- set x = " + expression + " -%}{%- endfor -%}ok"
    return begin + "{%- set d = " + dictionary + " -%}" + loop


def rendering(arena: Arena) -> None:
    """Templates that work long: each is refused or answered soon, /health answers meanwhile, and SIGTERM ends it."""
    arena.folder.mkdir(parents=True, exist_ok=True)
    body = {"messages": [{"role": "user", "content": TEXT}], "max_tokens": 1}
    request = wire.request_bytes("POST", "/v1/chat/completions", json.dumps(body).encode())
    file = arena.folder / "template.jinja"
    for name, expression in LOOPED.items():
        file.write_text(looped(expression))
        server = arena.start("--chat-template", str(file))
        watch = Watch(server.port, server.process.pid, slow_factor=arena.settings.slow_factor)
        begin = time.monotonic()
        try:
            reply = arena.ask("POST", "/v1/chat/completions", body, timeout=ANSWER_SECONDS)
            took = time.monotonic() - begin
            arena.expect(reply.status in (200, 400), f"{name}: {reply.status} {reply.body[:200]!r}")
        finally:
            seen = watch.end()
        arena.row.health_ms += seen.health_ms
        for fault in seen.health_faults[:1] + seen.small_faults[:1]:
            arena.fault(f"{name}: {fault}")
        # The end in the middle of such work.
        connection = wire.connect(server.port)
        connection.sendall(request)
        time.sleep(0.3)
        arena.row.notes.append(f"{name}: {reply.status} in {took:.2f} s, SIGTERM during the same {arena.stop(server):.1f} s")
        connection.close()


def nesting(arena: Arena) -> None:
    """Templates nested deeply, with the usual stack and with a small one: a sentence or an answer, never a signal."""
    arena.folder.mkdir(parents=True, exist_ok=True)
    file = arena.folder / "template.jinja"
    line = json.dumps({"messages": [{"role": "user", "content": "x"}]}).encode()
    for stack in (None, 1 << 20):
        for name, make in NESTED.items():
            for depth in (100, 1000, 20_000, 200_000):
                file.write_text(make(depth))
                limit = ["prlimit", f"--stack={stack}"] if stack else []
                command = [*limit, BINARY, "render", str(ROOT / "models/demo"), "--chat-template", str(file)]
                arena.row.n_requests += 1
                try:
                    done = subprocess.run(
                        command, input=line, capture_output=True, timeout=arena.seconds(ANSWER_SECONDS), check=False
                    )
                    arena.expect(done.returncode >= 0, f"{name}, {depth} deep, stack {stack}: signal {-done.returncode}")
                except subprocess.TimeoutExpired:
                    arena.fault(f"{name}, {depth} deep, stack {stack}: no end in {arena.seconds(ANSWER_SECONDS):g} s")


def tokenizers() -> dict[str, Callable[[dict], None]]:
    """Changes of a tokenizer.json that make it work long on a short text."""

    def replaces(tokenizer: dict) -> None:
        doubled = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
        tokenizer["normalizer"] = {"type": "Sequence", "normalizers": [doubled] * 40}

    def expensive_pattern(tokenizer: dict) -> None:
        split = {"type": "Split", "pattern": {"Regex": "(a|a)*$"}, "behavior": "Isolated", "invert": False}
        tokenizer["pre_tokenizer"]["pretokenizers"].insert(0, split)

    def expensive_replace(tokenizer: dict) -> None:
        tokenizer["normalizer"] = {"type": "Replace", "pattern": {"Regex": "(\\s*a?)*c"}, "content": "c"}

    def added(tokenizer: dict, **options: object) -> None:
        plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
        first = len(tokenizer["model"]["vocab"])
        for i in range(4000):
            tokenizer["added_tokens"].append({"id": first + i, "content": "a" * (i + 2) + "z"} | plain | options)

    def strips(tokenizer: dict) -> None:
        options = {"single_word": False, "lstrip": True, "rstrip": True, "normalized": False, "special": False}
        tokenizer["added_tokens"].append({"id": len(tokenizer["model"]["vocab"]), "content": "b"} | options)

    return {
        "40 doubling Replace normalizers": replaces,
        "a pattern that tries everything": expensive_pattern,
        "a normalizer that tries everything": expensive_replace,
        "added tokens of 4,000 lengths": added,
        "added tokens of 4,000 lengths, whole words": lambda tokenizer: added(tokenizer, single_word=True),
        "added tokens of 4,000 lengths, normalized": lambda tokenizer: added(tokenizer, normalized=True),
        "a token that takes spaces on both sides": strips,
    }


TEXTS = {
    "a": "a" * 20_000,
    "spaces": " " * 20_000,
    "b and spaces": ("b" + " " * 100) * 200,
    "one word": "a" * 19_999 + "y",
    "letters and spaces": "a " * 10_000,
}


def encoding(arena: Arena) -> None:
    """Tokenizers that work long: refused at load by a sentence, or every text is answered soon and SIGTERM ends it."""
    arena.folder.mkdir(parents=True, exist_ok=True)
    model = model_folder(arena.folder)
    original = (model / "tokenizer.json").read_text()
    for name, change in tokenizers().items():
        tokenizer = json.loads(original)
        change(tokenizer)
        (model / "tokenizer.json").write_text(json.dumps(tokenizer))
        try:
            server = arena.start(str(model))
        except RuntimeError as error:
            reason = [line for line in str(error).splitlines() if line.strip()][-1]
            arena.row.notes.append(f"{name}: refused at load: {reason[:150]}")
            continue
        watch = Watch(server.port, server.process.pid, slow_factor=arena.settings.slow_factor)
        try:
            for what, text in TEXTS.items():
                begin = time.monotonic()
                reply = arena.ask("POST", "/tokenize", {"prompt": text}, timeout=ANSWER_SECONDS)
                arena.row.notes.append(f"{name}, {what}: {reply.status} in {time.monotonic() - begin:.2f} s")
                arena.expect(reply.status in (200, 400, 413), f"{name}, {what}: {reply.status} {reply.body[:200]!r}")
        finally:
            seen = watch.end()
        arena.row.health_ms += seen.health_ms
        for fault in seen.health_faults[:1] + seen.small_faults[:1]:
            arena.fault(f"{name}: {fault}")
        arena.stop(server)


CASES = [
    Case("(7) templates that work long", rendering, starts_itself=True),
    Case("(7) tokenizers that work long", encoding, starts_itself=True),
    Case("(20) nested templates", nesting, starts_itself=True),
]
