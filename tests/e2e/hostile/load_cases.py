"""Cases that flood a server while a watcher asks for /health and sends small requests."""

from __future__ import annotations

import collections
import json
import random
import time

from hostile import fields, floods, stalls, wire
from hostile.arena import Arena, Case
from hostile.floods import Attack
from hostile.watch import Watch

KEY = "hostile-secret"
KB = 1 << 10
N_CLIENTS = 16
N_STALLED = 8192
N_VANISHING = 1000


def idle_connections(arena: Arena) -> None:
    """Connections that never send a byte (issue 13, 5)."""
    arena.flood([Attack("8192 idle connections", N_STALLED, script=lambda _: floods.Visit(b""))], 40)


def stalled_headers(arena: Arena) -> None:
    """Connections that stop after a header that announces a body."""
    arena.flood([Attack("8192 bodies without a byte", N_STALLED, script=floods.stalled_body(0))], 40)


def stalled_bodies(arena: Arena) -> None:
    """Connections that stop after 64 KiB of their body (issue 13, 1)."""
    arena.flood([Attack("8192 bodies stalled at 64 KiB", N_STALLED, script=floods.stalled_body(64 * KB))], 40)


def large_stalled_bodies(arena: Arena) -> None:
    """A few clients that each send 20 MB of a body and stop (issue 13, 1)."""
    arena.flood([Attack("64 bodies stalled at 20 MB", 64, script=floods.stalled_body(20 * KB * KB, key=arena.key))], 20)


def strangers(arena: Arena) -> None:
    """Bodies of clients without a key, and for paths that do not exist (issue 13, 1)."""
    stalled = [
        Attack("1000 bodies without a key", 1000, script=floods.stalled_body(256 * KB)),
        Attack("1000 bodies for an unknown path", 1000, script=floods.stalled_body(256 * KB, path="/v1/nothing", key=KEY)),
    ]
    arena.flood(stalled, 20)


def scores(arena: Arena) -> None:
    """Log-probabilities beyond the ceiling, and as many as are allowed (issue 13, 2)."""
    attacks = [
        Attack("scores x 128 choices", N_CLIENTS, request=lambda _: floods.scores_of_many_choices(arena.key)),
        Attack("scores x 4 choices", N_CLIENTS, request=lambda _: floods.most_scores_allowed(arena.key)),
    ]
    arena.flood(attacks, 40)


def long_texts(arena: Arena) -> None:
    """31 MB for /tokenize (issue 13, 3)."""
    arena.flood([Attack("31 MB to tokenize", N_CLIENTS, request=lambda _: floods.long_text(arena.key))], 30)


def three_together(arena: Arena) -> None:
    """The requests of issue 13, (1) to (3), of 16 clients each at the same time."""
    attacks = [
        Attack("stalled bodies", N_CLIENTS, script=floods.stalled_body(20 * KB * KB, key=arena.key)),
        Attack("scores", N_CLIENTS, request=lambda _: floods.scores_of_many_choices(arena.key)),
        Attack("scores allowed", N_CLIENTS, request=lambda _: floods.most_scores_allowed(arena.key)),
        Attack("long texts", N_CLIENTS, request=lambda _: floods.long_text(arena.key)),
    ]
    arena.flood(attacks, 60)


def sequences(arena: Arena) -> None:
    """1,024 sequences of one request with lists (issue 13, 4)."""
    attack = Attack("8 prompts x 128 choices with lists", N_CLIENTS, request=lambda _: floods.many_sequences(arena.key))
    arena.flood([attack], 40)


def unread_answers(arena: Arena) -> None:
    """Large answers, and streams, that their clients do not read."""
    stream = {"prompt": "x", "max_tokens": 2000, "ignore_eos": True, "stream": True, "logprobs": 20, "n": 4}
    streamed = wire.request_bytes("POST", "/v1/completions", json.dumps(stream).encode(), key=arena.key)
    requests = [floods.most_scores_allowed(arena.key), streamed]

    def script(rng: random.Random) -> floods.Visit:
        return floods.Visit(rng.choice(requests), seconds=15 * rng.random(), reads=False)

    attack = Attack("answers that are not read", 64, script=script)
    arena.flood([attack], 40)


def full_queue(arena: Arena) -> None:
    """More requests than may wait (issue 13, 4)."""
    data = floods.queued(arena.key)
    arena.flood([Attack("2000 requests of 16,000 tokens", 2000, script=lambda _: floods.Visit(data))], 40)


def vanishing(arena: Arena) -> None:
    """1,000 clients that leave at any moment, for --minutes."""
    arena.flood([Attack("1000 vanishing clients", N_VANISHING, script=floods.vanishing(arena.key))], 60 * arena.settings.minutes)


def every_field(arena: Arena) -> None:
    """Mutations of every request field of every route, under watch."""
    before = arena.warm_up()
    watch = Watch(arena.server.port, arena.server.process.pid, arena.key, arena.settings.slow_factor)
    sender = fields.Sender(arena.server.port, arena.key, arena.seconds(60))
    kinds: collections.Counter[str] = collections.Counter()
    for mutation in fields.mutations():
        arena.row.n_requests += 1
        try:
            wrong = sender.send(mutation)
        except (OSError, ValueError) as error:
            wrong = f"{mutation}: {type(error).__name__} {error}"
            sender.close()
        if wrong:
            arena.fault(wrong)
            kinds[mutation.path] += 1
        if arena.server.process.poll() is not None:
            arena.fault(f"{mutation}: the server ended with {arena.server.process.returncode}")
            break
    sender.close()
    arena.judge(watch.end(), before)
    time.sleep(1.5)  # the registered prefixes' lifetime
    arena.settle(before)


def stall_everywhere(arena: Arena) -> None:
    """Stalls, half-closes and resets at every byte of five requests, under watch."""
    before = arena.warm_up()
    watch = Watch(arena.server.port, arena.server.process.pid, arena.key, arena.settings.slow_factor)
    held = stalls.Stalls(arena.server.port, slow_factor=arena.settings.slow_factor)
    for name in stalls.requests():
        for how in ("half-close", "reset"):
            n, faults = stalls.cut_everywhere(arena.server.port, name, how, slow_factor=arena.settings.slow_factor)
            arena.row.n_requests += n
            arena.row.faults += faults
    arena.row.n_requests += held.n_requests
    wait = stalls.HEADER_SECONDS + (0 if arena.settings.quick else stalls.BODY_SECONDS)
    held.collect(wait + 2 * held.late_seconds)
    arena.row.faults += held.faults
    held.close()
    arena.judge(watch.end(), before)
    arena.settle(before)


CASES = [
    Case("every field of every route", every_field),
    Case("stalls, half-closes and resets at every byte", stall_everywhere),
    Case("8,192 idle connections", idle_connections),
    Case("8,192 bodies stalled at their first byte", stalled_headers, is_confined=True),
    Case("8,192 bodies stalled at 64 KiB", stalled_bodies, is_confined=True),
    Case("64 bodies stalled at 20 MB", large_stalled_bodies, ("--api-key", KEY), KEY, is_confined=True),
    Case("2,000 bodies of strangers", strangers, ("--api-key", KEY), KEY, is_confined=True),
    Case("log-probabilities, 32 clients", scores, is_confined=True),
    Case("31 MB to tokenize, 16 clients", long_texts, is_confined=True),
    Case("the requests of (1) to (3), 16 clients each", three_together, is_confined=True),
    Case("1,024 sequences with lists, 16 clients", sequences, is_confined=True),
    Case("64 answers that are not read", unread_answers, is_confined=True),
    Case("2,000 requests that wait", full_queue, is_confined=True),
    Case("1,000 vanishing clients", vanishing, is_confined=True),
]
