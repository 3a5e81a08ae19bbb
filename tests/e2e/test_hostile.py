"""What strangers and careless clients can cost: memory stays bounded, /health answers, and others are served.

`make hostile` runs the long forms, tests/e2e/hostile, with limits of time.
"""

from __future__ import annotations

import base64
import dataclasses
import http.client
import json
import os
import pathlib
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from conftest import Server
from hostile import fields, floods, stalls
from hostile.arena import Arena, Row, Settings, State
from hostile.watch import Seen

MB = 1 << 20
HEALTH_SECONDS = 5.0  # an answer that hangs after a client's work takes longer on any machine


def ask(
    server: Server,
    method: str,
    path: str,
    body: bytes | None = None,
    key: str | None = None,
) -> tuple[int, dict, bytes]:
    """Send one request; return status, headers and body."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    try:
        connection.request(method, path, body, headers)
        reply = connection.getresponse()
        return reply.status, dict(reply.getheaders()), reply.read()
    finally:
        connection.close()


def resident(server: Server) -> int:
    """Return the resident memory of the server in bytes."""
    pages = int(pathlib.Path(f"/proc/{server.process.pid}/statm").read_text().split()[1])
    return pages * 4096


def open_files(server: Server) -> int:
    """Return how many files the server has open."""
    return len(list(pathlib.Path(f"/proc/{server.process.pid}/fd").iterdir()))


def running(server: Server) -> float:
    """Return how many requests run or wait."""
    page = ask(server, "GET", "/metrics")[2].decode()
    names = ("vllm:num_requests_running", "vllm:num_requests_waiting")
    return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(names))


class Watch:
    """Asks for /health all the time, and notes the slowest answer and the most resident memory."""

    def __init__(self, server: Server) -> None:
        """Start to watch."""
        self.server = server
        self.slowest = 0.0
        self.most = 0
        self.statuses: set[int] = set()
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        """Ask until the end, and at least once."""
        ended = False
        while not ended:
            begin = time.monotonic()
            self.statuses.add(ask(self.server, "GET", "/health")[0])
            self.slowest = max(self.slowest, time.monotonic() - begin)
            self.most = max(self.most, resident(self.server))
            ended = self.ends.wait(0.02)

    def __enter__(self) -> Watch:
        """Begin to ask."""
        self.before = resident(self.server)
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """End, and check what was seen."""
        self.ends.set()
        self.thread.join()
        if error[0] is None:
            assert self.statuses == {200}
            assert self.slowest < HEALTH_SECONDS


def at_once(n: int, call: Callable[[int], None]) -> None:
    """Call from `n` threads, and wait for all."""
    threads = [threading.Thread(target=call, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def stalled_body(server: Server, n_sent: int, *, path: str = "/v1/completions", header: str = "") -> socket.socket:
    """Open a connection that announces 30 MB and sends `n_sent` bytes of them."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    header = f"Host: h\r\nContent-Type: application/json\r\nContent-Length: 30000000\r\n{header}"
    connection.sendall(f"POST {path} HTTP/1.1\r\n{header}\r\n".encode())
    try:
        for _ in range(n_sent // 65536):
            connection.sendall(b" " * 65536)
    except (ConnectionError, TimeoutError):
        pass  # refused meanwhile
    return connection


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a key, and a little memory for its clients."""
    log = tmp_path_factory.mktemp("guarded") / "log"
    running = Server(log, "--api-key", "secret", "--client-memory-bytes", "256M")
    yield running
    assert running.stop() == 0, log.read_text()


def test_bodies_of_strangers_are_not_kept(guarded):
    with Watch(guarded) as watch:
        for path in ("/v1/completions", "/v1/nothing"):
            connections = [stalled_body(guarded, 4 * MB, path=path) for _ in range(32)]
            for connection in connections:
                assert connection.recv(12).startswith((b"HTTP/1.1 401", b"HTTP/1.1 404"))
                connection.close()
    assert watch.most - watch.before < 64 * MB


def test_bodies_of_all_clients_share_a_budget(guarded):
    key = "Authorization: Bearer secret\r\n"
    with Watch(guarded) as watch:
        connections = [stalled_body(guarded, 12 * MB, header=key) for _ in range(16)]
        small = json.dumps({"model": "demo", "prompt": "x", "max_tokens": 1}).encode()
        assert ask(guarded, "POST", "/v1/completions", small, key="secret")[0] == 200
        for connection in connections:
            connection.close()
    assert watch.most - watch.before < 192 * MB
    page = ask(guarded, "GET", "/metrics")[2].decode()
    refusals = [line for line in page.splitlines() if line.startswith("baton:budget_refusals_total") and "body_bytes" in line]
    assert float(refusals[0].rsplit(" ", 1)[1]) > 0


def test_a_small_address_space_costs_requests_and_not_the_server(tmp_path):
    server = Server(tmp_path / "log", "--kv-cache-dtype", "bfloat16", address_space=2560 * MB)  # by itself float32 on some CPUs
    try:
        connections = [stalled_body(server, 16 * MB) for _ in range(64)]
        for connection in connections:
            connection.close()
        body = b'{"model": "demo", "prompt": [' + b"1," * (12 * MB) + b"1]}"
        at_once(8, lambda _: ask(server, "POST", "/v1/completions", body))
        assert ask(server, "GET", "/health")[0] == 200
        small = json.dumps({"model": "demo", "prompt": "x", "max_tokens": 1}).encode()
        assert ask(server, "POST", "/v1/completions", small)[0] == 200
    finally:
        assert server.stop() == 0, (tmp_path / "log").read_text()


def test_texts_longer_than_any_prompt_hold_up_no_client(guarded):
    long = json.dumps({"model": "demo", "prompt": "tea " * (7 * MB)}).encode()
    small = json.dumps({"model": "demo", "prompt": "x", "max_tokens": 1}).encode()
    statuses: list[int] = []
    with Watch(guarded) as watch:
        floods = [
            threading.Thread(target=lambda: statuses.append(ask(guarded, "POST", "/tokenize", long, key="secret")[0]))
            for _ in range(8)
        ]
        for flood in floods:
            flood.start()
        for _ in range(5):
            begin = time.monotonic()
            assert ask(guarded, "POST", "/v1/completions", small, key="secret")[0] == 200
            assert time.monotonic() - begin < HEALTH_SECONDS
        for flood in floods:
            flood.join()
    assert set(statuses) <= {400, 503}
    status, _, answer = ask(guarded, "POST", "/tokenize", long, key="secret")
    assert status == 400
    assert b"maximum context length" in answer
    assert watch.most - watch.before < 512 * MB


def test_the_end_does_not_wait_for_texts_of_clients_that_left(tmp_path):
    server = Server(tmp_path / "log")
    words = base64.b32encode(os.urandom(16 * MB)).replace(b"A", b" ").decode()
    body = json.dumps({"model": "demo", "prompt": words}).encode()
    head = f"POST /tokenize HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    connections = []
    for _ in range(6):
        connections.append(socket.create_connection(("127.0.0.1", server.port), timeout=30))
        connections[-1].sendall(head + body)
    for connection in connections:
        connection.close()
    begin = time.monotonic()
    assert server.stop() == 0, (tmp_path / "log").read_text()
    assert time.monotonic() - begin < 6


def token_times(server: Server, ends: threading.Event) -> list[float]:
    """Read streams until the end; return when their lines came."""
    body = json.dumps({"model": "demo", "prompt": "x", "max_tokens": 1000, "ignore_eos": True, "stream": True})
    times: list[float] = []
    while not ends.is_set():
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        while not ends.is_set() and reply.readline():
            times.append(time.monotonic())
        connection.close()
    return times


def test_large_answers_hold_up_no_stream(server):
    prompt = [100 + i % 90 for i in range(4000)]
    body = json.dumps({"model": "demo", "prompt": prompt, "max_tokens": 1, "prompt_logprobs": 20, "n": 6}).encode()
    ends = threading.Event()
    times: list[float] = []
    stream = threading.Thread(target=lambda: times.extend(token_times(server, ends)))
    with Watch(server) as watch:
        stream.start()
        results: list[tuple[int, dict, bytes]] = []
        begin = time.monotonic()
        at_once(4, lambda _: results.append(ask(server, "POST", "/v1/completions", body)))
        took = time.monotonic() - begin
        ends.set()
        stream.join()
    choices = [json.loads(answer)["choices"] for status, _, answer in results if status == 200]
    assert len(choices) == 4
    assert all(choice["prompt_logprobs"] == choices[0][0]["prompt_logprobs"] for answer in choices for choice in answer)
    # While answers of 36 MB each are computed, written and sent, tokens come in most parts of the time, however long it is.
    assert len({int(20 * (at - begin) / took) for at in times if 0 <= at - begin < took}) >= 10
    assert watch.most - watch.before < 160 * MB  # all of the answers are 140 MB, and their numbers 20


SMALL = json.dumps({"model": "demo", "prompt": "x", "max_tokens": 1}).encode()


def metric(server: Server, name: str, label: str = "") -> float:
    """Return the value of a metric, of the line with `label`."""
    page = ask(server, "GET", "/metrics")[2].decode()
    lines = [line for line in page.splitlines() if line.startswith(name + "{") and label in line]
    return float(lines[0].rsplit(" ", 1)[1])


@pytest.fixture
def few_connections(tmp_path: pathlib.Path) -> Iterator[Server]:
    """A server that may open 400 files, which leaves 264 for connections."""
    running = Server(tmp_path / "log", open_files=400)
    yield running
    assert running.stop() == 0, (tmp_path / "log").read_text()


def served_at_last(server: Server, seconds: float) -> bool:
    """Whether a small request is answered within so many seconds, by a client that tries again when it is refused."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if ask(server, "POST", "/v1/completions", SMALL)[0] == 200:
            return True
        time.sleep(0.05)
    return False


def test_idle_connections_keep_no_client_out(few_connections):
    idle = []
    for _ in range(2):
        idle += [socket.create_connection(("127.0.0.1", few_connections.port), timeout=30) for _ in range(200)]
        time.sleep(0.5)  # they had time to send something
    with Watch(few_connections):
        for _ in range(20):
            assert ask(few_connections, "POST", "/v1/completions", SMALL)[0] == 200
    assert metric(few_connections, "baton:connections_reclaimed_total") > 100
    for connection in idle:
        connection.close()


def test_stalled_bodies_keep_no_client_out(few_connections):
    stalled = [stalled_body(few_connections, 0) for _ in range(264)]
    with Watch(few_connections):
        for _ in range(10):
            assert served_at_last(few_connections, 5)
    for connection in stalled:
        connection.close()


def test_health_is_answered_when_no_file_can_be_opened(few_connections):
    # Clients whose answers last keep their connections.
    body = json.dumps({"model": "demo", "prompt": "x", "max_tokens": 1900, "ignore_eos": True, "stream": True}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    streams = [socket.create_connection(("127.0.0.1", few_connections.port), timeout=30) for _ in range(8)]
    for stream in streams:
        stream.sendall(head.encode() + body)
        assert stream.recv(12) == b"HTTP/1.1 200"
    n_open = len(list(pathlib.Path(f"/proc/{few_connections.process.pid}/fd").iterdir()))
    subprocess.run(["prlimit", f"--pid={few_connections.process.pid}", f"--nofile={n_open}:400"], check=True)
    assert ask(few_connections, "GET", "/health")[0] == 200
    status, _, answer = ask(few_connections, "POST", "/v1/completions", SMALL)
    assert status == 503
    assert b"may open no more files" in answer
    assert metric(few_connections, "baton:connections_refused_total", 'reason="files"') == 1
    for stream in streams:
        stream.close()
    assert served_at_last(few_connections, 5)


def test_connections_of_an_address_have_a_limit_when_it_is_set(tmp_path):
    server = Server(tmp_path / "log", "--max-connections-per-address", "4")
    try:
        own = [socket.create_connection(("127.0.0.1", server.port), timeout=30) for _ in range(4)]
        status, _, answer = ask(server, "POST", "/v1/completions", SMALL)
        assert status == 429
        assert b"4 connections from your address" in answer
        assert ask(server, "GET", "/health")[0] == 200
        for connection in own:
            connection.close()
        assert served_at_last(server, 5)
    finally:
        assert server.stop() == 0, (tmp_path / "log").read_text()


def test_scores_of_many_choices_have_a_ceiling(server):
    body = {"model": "demo", "prompt": [100 + i % 90 for i in range(4000)], "max_tokens": 1, "prompt_logprobs": 20}
    with Watch(server) as watch:
        results: list[tuple[int, dict, bytes]] = []
        too_many = json.dumps(body | {"n": 128}).encode()
        at_once(4, lambda _: results.append(ask(server, "POST", "/v1/completions", too_many)))
        for status, _, answer in results:
            assert status == 400
            assert b"10752000" in answer  # 4000 x 21 x 128
        n_choices = 4
        status, _, answer = ask(server, "POST", "/v1/completions", json.dumps(body | {"n": n_choices}).encode())
        assert status == 200
    choices = json.loads(answer)["choices"]
    assert len(choices) == n_choices
    assert all(choice["prompt_logprobs"] == choices[0]["prompt_logprobs"] for choice in choices)
    assert len(choices[0]["prompt_logprobs"]) == len(body["prompt"])
    assert watch.most - watch.before < 512 * MB


def test_every_field_of_every_route_gets_an_answer_or_an_error_that_names_it(server):
    sender = fields.Sender(server.port)
    faults = [sender.send(mutation) for number, mutation in enumerate(fields.mutations()) if number % 7 == 0]
    sender.close()
    assert [fault for fault in faults if fault] == []
    assert server.process.poll() is None


@pytest.mark.parametrize("name", stalls.requests())
def test_requests_that_are_cut_at_any_byte_leave_nothing_behind(server, name):
    before = open_files(server)
    _, faults = stalls.cut_everywhere(server.port, name, "reset")
    held = stalls.Stalls(server.port, step=9)
    held.collect(0.5)  # none is answered as if it were whole
    held.close()
    assert faults + held.faults == []
    assert ask(server, "GET", "/health")[0] == 200
    deadline = time.monotonic() + 20
    while open_files(server) > before:
        assert time.monotonic() < deadline, "connections stay open"
        time.sleep(0.05)


def test_vanishing_clients_leave_nothing_behind(tmp_path):
    server = Server(tmp_path / "log", "--shutdown-timeout", "0")
    try:
        before = open_files(server)
        with Watch(server):
            flood = floods.Flood(server.port, [floods.Attack("vanishing", 100, script=floods.vanishing())])
            time.sleep(3)
            outcomes = flood.stop()["vanishing"]
        assert outcomes["left"] > 100
        deadline = time.monotonic() + 30
        while open_files(server) > before or running(server) > 0:
            assert time.monotonic() < deadline, "connections or sequences are left over"
            time.sleep(0.1)
    finally:
        assert server.stop() == 0, (tmp_path / "log").read_text()


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with two tenants."""
    folder = tmp_path_factory.mktemp("keyed")
    keys = [{"name": name, "key": f"key-of-{name}"} for name in ("one", "two")]
    (folder / "keys.json").write_text(json.dumps({"keys": keys}))
    running = Server(folder / "log", "--api-key-file", str(folder / "keys.json"), "--shutdown-timeout", "0")
    yield running
    assert running.stop() == 0, (folder / "log").read_text()


def test_a_key_that_floods_does_not_keep_out_another(keyed):
    data = floods.queued("key-of-two")
    small = json.dumps({"model": "demo", "prompt": "x", "max_tokens": 1}).encode()
    flood = floods.Flood(keyed.port, [floods.Attack("queued", 100, script=lambda _: floods.Visit(data))])
    deadline = time.monotonic() + 20
    while running(keyed) < 500:  # of 1,600 sequences, each of which takes 1,000 steps
        assert time.monotonic() < deadline, "the flood did not arrive"
        time.sleep(0.05)
    with Watch(keyed):
        for _ in range(5):
            assert ask(keyed, "POST", "/v1/completions", small, key="key-of-one")[0] == 200
    assert running(keyed) > 500  # the flood's sequences still wait: these requests went past them
    flood.stop()


def test_a_key_finds_nothing_of_another_in_the_cache(keyed):
    body = {"model": "demo", "prompt": [300 + i % 700 for i in range(1000)], "max_tokens": 1}

    def cached(key: str, **fields: object) -> int:
        status, _, answer = ask(keyed, "POST", "/v1/completions", json.dumps(body | fields).encode(), key=key)
        assert status == 200
        return json.loads(answer)["usage"]["prompt_tokens_details"]["cached_tokens"]

    assert cached("key-of-one") == 0
    assert cached("key-of-one") > 900
    for salted in ({}, {"cache_salt": "one"}, {"cache_salt": "name:one"}):
        assert cached("key-of-two", **salted) == 0


def faults_of(seen: Seen, slow_factor: float = 1, memory_factor: float = 1) -> list[str]:
    """Return what an arena says of what its watcher saw."""
    arena = Arena(Row("a case"), pathlib.Path(), "", Settings(slow_factor=slow_factor, memory_factor=memory_factor))
    arena.judge(seen, State(files=0, threads=0, running=0, waiting=0, budgets=0, resident=0))
    return arena.row.faults


def test_a_slow_factor_multiplies_limits_of_time_and_switches_off_no_check():
    slow = Seen(health_ms=[2000.0] * 100, small_seconds=[90.0])
    assert len(faults_of(slow, 1)) == 3  # 99% of /health, the slowest one, and the small request
    assert faults_of(slow, 20) == []
    wrong = Seen(health_ms=[5.0], health_faults=["/health: was cut"], small_cuts=1, small_faults=["got 500"], peak_bytes=1 << 40)
    assert faults_of(wrong, 20) == faults_of(wrong, 1)
    assert len(faults_of(wrong, 20)) == 5  # these four, and that no small request was answered
    assert len(faults_of(Seen(health_ms=[21_000.0], small_seconds=[201.0]), 20)) == 3


def test_a_memory_factor_multiplies_the_limit_of_resident_memory():
    large = Seen(health_ms=[5.0], small_seconds=[1.0], peak_bytes=1000 << 20)
    assert faults_of(large) == faults_of(large, slow_factor=20) == ["1000 MB were resident; budgets and cache allow 627 MB"]
    assert faults_of(large, memory_factor=3) == []
    assert faults_of(dataclasses.replace(large, peak_bytes=2000 << 20), memory_factor=3) != []
