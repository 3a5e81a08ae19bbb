"""Floods: processes with many clients of one kind, which begin again as soon as they are answered, cut off, or have left."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import heapq
import json
import math
import multiprocessing
import os
import random
import resource
import selectors
import socket
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from hostile import wire

AGAIN_SECONDS = 1.0  # until a client that was answered or cut off comes again
ANNOUNCED = 30_000_000  # Content-Length of stalled bodies


@dataclasses.dataclass
class Visit:
    """What one client of a crowd does: connects, sends `data`, and leaves after `seconds` unless it was answered before."""

    data: bytes
    seconds: float = math.inf
    by_reset: bool = False
    reads: bool = True  # otherwise it leaves the answer unread


Script = Callable[[random.Random], Visit]


class Slot:
    """The state of one client."""

    def __init__(self, connection: socket.socket, visit: Visit) -> None:
        """Nothing is sent yet."""
        self.connection = connection
        self.visit = visit
        self.n_sent = 0
        self.is_watched = True


class Crowd:
    """Clients on one thread: each slot makes one visit after another."""

    def __init__(self, port: int, n: int, script: Script, seed: int) -> None:
        """All slots are free."""
        self.port = port
        self.script = script
        self.rng = random.Random(seed)
        self.selector = selectors.DefaultSelector()
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.n_open = 0
        self.order = 0
        now = time.monotonic()
        # (time, order, slot): the slot leaves, or a new one comes where it is None. They come within two seconds.
        self.agenda: list[tuple[float, int, Slot | None]] = [(now + 2 * i / n, -i, None) for i in range(n)]
        heapq.heapify(self.agenda)

    def plan(self, seconds: float, slot: Slot | None) -> None:
        """Put something on the agenda."""
        self.order += 1
        heapq.heappush(self.agenda, (time.monotonic() + seconds, self.order, slot))

    def arrive(self) -> None:
        """A client connects."""
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        connection.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            connection.connect_ex((wire.HOST, self.port))
        slot = Slot(connection, self.script(self.rng))
        self.selector.register(connection, selectors.EVENT_WRITE | selectors.EVENT_READ, slot)
        self.n_open += 1
        if slot.visit.seconds < math.inf:
            self.plan(slot.visit.seconds, slot)

    def leave(self, slot: Slot, outcome: str) -> None:
        """A client's connection ends, and it comes again."""
        if slot.connection.fileno() < 0:
            return
        if slot.is_watched:
            self.selector.unregister(slot.connection)
        if slot.visit.by_reset:
            wire.reset(slot.connection)
        else:
            slot.connection.close()
        self.n_open -= 1
        self.outcomes[outcome] += 1
        self.plan(0.0 if outcome == "left" else AGAIN_SECONDS, None)

    def step(self, slot: Slot, mask: int) -> None:
        """Send and receive what is possible."""
        try:
            if mask & selectors.EVENT_READ:
                piece = slot.connection.recv(65536)
                if not piece:
                    return self.leave(slot, "cut")
                if piece.startswith(b"HTTP/1.1 ") and not piece.startswith(b"HTTP/1.1 200"):
                    return self.leave(slot, piece[9:12].decode("latin-1"))
            if mask & selectors.EVENT_WRITE:
                slot.n_sent += slot.connection.send(memoryview(slot.visit.data)[slot.n_sent : slot.n_sent + (1 << 17)])
                if slot.n_sent == len(slot.visit.data) and slot.visit.reads:
                    self.selector.modify(slot.connection, selectors.EVENT_READ, slot)
                elif slot.n_sent == len(slot.visit.data):
                    self.selector.unregister(slot.connection)
                    slot.is_watched = False
        except BlockingIOError:
            pass
        except OSError as error:
            self.leave(slot, type(error).__name__)
        return None

    def run(self, ends: Callable[[], bool]) -> None:
        """Until the end."""
        while not ends():
            now = time.monotonic()
            while self.agenda and self.agenda[0][0] <= now:
                slot = heapq.heappop(self.agenda)[2]
                if slot is None:
                    self.arrive()
                else:
                    self.leave(slot, "left")
            for key, mask in self.selector.select(0.02):
                if key.fileobj.fileno() >= 0:
                    self.step(key.data, mask)
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()


def repeat(port: int, n: int, data: Callable[[int], bytes], timeout: float, ends: Callable[[], bool]) -> collections.Counter[str]:
    """`n` threads that send their request again and again; how often each kind of answer came."""
    outcomes: collections.Counter[str] = collections.Counter()
    lock = threading.Lock()

    def client(i: int) -> None:
        request = data(i)
        while not ends():
            try:
                reply = wire.ask_raw(port, request, timeout)
                outcome = "cut" if reply is None else str(reply.status) if reply.is_whole else f"{reply.status} cut"
                if reply is not None and reply.status >= 400 and not reply.error().get("message") and reply.status != 401:
                    outcome += " without a reason"
            except OSError as error:
                outcome = type(error).__name__
            with lock:
                outcomes[outcome] += 1
            if not outcome.startswith("200"):
                time.sleep(AGAIN_SECONDS)

    threads = [threading.Thread(target=client, args=(i,), daemon=True) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def allow_files() -> None:
    """Let this process open as many files as it may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@dataclasses.dataclass
class Attack:
    """Clients of one kind: a crowd with a script, or threads that repeat a request."""

    name: str
    n: int
    script: Script | None = None
    request: Callable[[int], bytes] | None = None
    timeout: float = 120.0  # seconds that a thread waits for an answer


def attack(port: int, what: Attack, seed: int, slow_factor: float, pipe: Connection) -> None:
    """The process of an attack, until the pipe says so."""
    os.nice(1)  # the watcher goes first: it is not part of the load
    allow_files()
    is_over = False

    def ends() -> bool:
        nonlocal is_over
        is_over = is_over or pipe.poll()
        return is_over

    if what.script is not None:
        crowd = Crowd(port, what.n, what.script, seed)
        crowd.run(ends)
        pipe.send(crowd.outcomes)
    else:
        over = threading.Event()
        threading.Thread(target=lambda: (pipe.poll(None), over.set()), daemon=True).start()
        pipe.send(repeat(port, what.n, what.request, slow_factor * what.timeout, over.is_set))


class Flood:
    """Processes of attacks, from `__init__` to `stop`."""

    def __init__(self, port: int, attacks: list[Attack], seed: int = 0, slow_factor: float = 1) -> None:
        """Start them; `slow_factor` multiplies how long clients wait for answers, and `stop` for the attacks."""
        self.slow_factor = slow_factor
        self.parts = []
        for number, what in enumerate(attacks):
            ours, theirs = multiprocessing.Pipe()
            process = multiprocessing.Process(target=attack, args=(port, what, seed + number, slow_factor, theirs), daemon=True)
            process.start()
            self.parts.append((what, ours, process))

    def stop(self, timeout: float = 150) -> dict[str, collections.Counter[str]]:
        """End them; what came of the requests, by attack. A process that does not end in time is killed."""
        for _, pipe, _ in self.parts:
            pipe.send("end")
        outcomes = {}
        deadline = time.monotonic() + self.slow_factor * timeout
        for what, pipe, process in self.parts:
            outcomes[what.name] = (
                pipe.recv() if pipe.poll(max(0.0, deadline - time.monotonic())) else collections.Counter({"no end": 1})
            )
            process.join(5)
            process.kill()
        return outcomes


def stalled_body(n_sent: int, *, path: str = "/v1/completions", key: str = "") -> Script:
    """A body of 30 MB is announced and `n_sent` bytes of it are sent, then nothing, until the server ends it."""
    authorization = f"Authorization: Bearer {key}\r\n" if key else ""
    head = f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n{authorization}"
    data = f"{head}Content-Length: {ANNOUNCED}\r\n\r\n".encode() + b" " * n_sent
    return lambda _: Visit(data)


def vanishing(key: str = "") -> Script:
    """Clients that leave within two seconds: before, in, or after a request, while it waits or while its answer is sent."""
    long = {"prompt": [300 + i % 600 for i in range(700)], "max_tokens": 200, "ignore_eos": True}
    bodies = [
        {"prompt": "x", "max_tokens": 20, "ignore_eos": True},
        {"prompt": "x", "max_tokens": 500, "ignore_eos": True, "stream": True},
        {"prompt": "x", "max_tokens": 50, "n": 8, "stream": True},
        long,
        long | {"stream": True, "logprobs": 5},
    ]
    requests = [wire.request_bytes("POST", "/v1/completions", json.dumps(body).encode(), key=key) for body in bodies]
    chat = {"messages": [{"role": "user", "content": "tea " * 200}], "max_tokens": 50, "stream": True}
    requests += [
        wire.request_bytes("POST", "/v1/chat/completions", json.dumps(chat).encode(), key=key),
        wire.request_bytes("POST", "/tokenize", json.dumps({"prompt": "tea " * 2000}).encode(), key=key),
        wire.request_bytes("GET", "/metrics"),
        wire.request_bytes("GET", "/v1/models", key=key),
    ]

    def script(rng: random.Random) -> Visit:
        data = rng.choice(requests)
        if rng.random() < 0.3:
            data = data[: rng.randrange(len(data))]
        seconds = rng.choice((0.01, 0.3, 2.0)) * rng.random()
        return Visit(data, seconds, by_reset=rng.random() < 0.5, reads=rng.random() < 0.5)

    return script


def scores_of_many_choices(key: str = "") -> bytes:
    """20 KB that ask for 10.75 million log-probabilities."""
    body = {"prompt": [100 + i % 90 for i in range(4000)], "max_tokens": 1, "prompt_logprobs": 20, "n": 128}
    return wire.request_bytes("POST", "/v1/completions", json.dumps(body).encode(), key=key)


def most_scores_allowed(key: str = "") -> bytes:
    """As many log-probabilities as one answer may have with 256 MB for clients."""
    body = {"prompt": [100 + i % 90 for i in range(4000)], "max_tokens": 1, "prompt_logprobs": 20, "n": 4}
    return wire.request_bytes("POST", "/v1/completions", json.dumps(body).encode(), key=key)


def long_text(key: str = "") -> bytes:
    """31 MB for /tokenize."""
    return wire.request_bytes("POST", "/tokenize", json.dumps({"prompt": "tea " * (31 << 18)}).encode(), key=key)


def many_sequences(key: str = "") -> bytes:
    """200 KB that become 1,024 sequences with lists of their own (issue 13, 4)."""
    words = [f"word {i} " * 8 for i in range(500)]
    body = {
        "prompt": [[300 + (i + j) % 600 for j in range(1000)] for i in range(8)],
        "n": 128,
        "max_tokens": 2,
        "bad_words": words,
        "allowed_token_ids": list(range(1000)),
    }
    return wire.request_bytes("POST", "/v1/completions", json.dumps(body).encode(), key=key)


def queued(key: str = "") -> bytes:
    """A small request that runs for long, of which many are sent."""
    body = {"prompt": "x", "max_tokens": 1000, "ignore_eos": True, "n": 16}
    return wire.request_bytes("POST", "/v1/completions", json.dumps(body).encode(), key=key)
