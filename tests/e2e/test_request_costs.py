"""What one request costs the server while it waits."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pathlib
import re
import resource
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from conftest import BINARY, START_SECONDS, Server

MB = 1 << 20


Start = Callable[..., Server]


@pytest.fixture()
def start(tmp_path: pathlib.Path) -> Iterator[Start]:
    """Start servers; a failed test's servers are killed."""
    started: list[Server] = []

    def begin(kind: type[Server], *flags: str, **limits: int) -> Server:
        started.append(kind(tmp_path / f"log{len(started)}", *flags, **limits))
        return started[-1]

    yield begin
    for server in started:
        server.process.kill()
        server.process.wait()


def resident(server: Server) -> int:
    """Return the resident memory of the server in bytes."""
    pages = int(
        pathlib.Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]
    )
    return pages * 4096


def metric(server: Server, name: str, label: str = "") -> float:
    """Return the sum of a metric's values, of those with a label."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    return sum(
        float(line.split()[-1])
        for line in lines
        if line.startswith((f"{name} ", f"{name}{{"))
    )


def post(server: Server, body: dict) -> http.client.HTTPConnection:
    """Send a request for a completion, and leave its answer to the caller."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request(
        "POST",
        "/v1/completions",
        json.dumps(body),
        {"Content-Type": "application/json"},
    )
    return connection


def test_the_sequences_of_a_request_share_what_they_have_in_common(start):
    """1,024 sequences with long lists wait in a few MB: the lists are not copied for each of them."""
    server = start(Server, "--max-num-seqs", "1")
    body = {
        "prompt": [[1 + i] * 1000 for i in range(8)],
        "n": 128,
        "max_tokens": 1000,
        "ignore_eos": True,
        "bad_words": [
            f"never say the words of number {i}, nor anything else" for i in range(512)
        ],
        "allowed_token_ids": list(range(1000)),
        "stop": [f"{i:04}" * 200 for i in range(64)],
    }
    warm_up = post(server, body | {"n": 1, "max_tokens": 1})
    assert warm_up.getresponse().status == 200
    warm_up.close()
    before = resident(server)
    connection = post(server, body)
    deadline = time.monotonic() + 60
    while metric(server, "vllm:num_requests_waiting") < 1000:
        assert time.monotonic() < deadline, server.log.read_text()
        time.sleep(0.02)
    grown = resident(server) - before
    connection.close()
    assert (
        grown < 24 * MB
    ), f"{grown / MB:.0f} MB for a request of {len(json.dumps(body)) / 1e3:.0f} KB"
    assert server.stop() == 0


def endless(n: int, max_tokens: int = 3000) -> dict:
    """Return a request whose sequences run for long."""
    return {
        "prompt": [1, 2, 3],
        "n": n,
        "max_tokens": max_tokens,
        "ignore_eos": True,
    }


def refused(server: Server, body: dict) -> tuple[int, str | None, dict]:
    """Return status, Retry-After and error of a request that is answered at once."""
    connection = post(server, body)
    reply = connection.getresponse()
    error = json.loads(reply.read())["error"]
    connection.close()
    return reply.status, reply.getheader("Retry-After"), error


def wait_for(server: Server, name: str, least: float) -> None:
    """Wait until a metric has reached a value."""
    deadline = time.monotonic() + 60
    while metric(server, name) < least:
        assert time.monotonic() < deadline, server.log.read_text()
        time.sleep(0.02)


def test_the_queue_holds_so_many_sequences(start):
    server = start(Server, "--max-num-seqs", "1", "--max-num-queued-reqs", "20")
    waiting = post(server, endless(15))
    wait_for(server, "vllm:num_requests_waiting", 14)
    status, retry, error = refused(server, endless(7))
    assert (status, retry) == (503, "1")
    assert "14 sequences are waiting, and the queue holds 20" in error["message"]
    assert metric(server, "vllm:admission_rejections_total") == 1
    one_more = post(server, endless(6))
    wait_for(server, "vllm:num_requests_waiting", 20)
    waiting.close()
    one_more.close()
    assert server.stop() == 0


def test_a_queue_full_of_large_requests_has_room_for_small_ones(start):
    server = start(Server, "--max-num-seqs", "1", "--max-num-queued-reqs", "20")
    waiting = [post(server, endless(1))]
    wait_for(server, "vllm:num_requests_running", 1)
    waiting += [post(server, endless(1)) for _ in range(20)]
    wait_for(server, "vllm:num_requests_waiting", 20)
    assert refused(server, endless(1))[0] == 503
    small = post(server, endless(1, max_tokens=2))
    assert small.getresponse().status == 200
    small.close()
    for connection in waiting:
        connection.close()
    assert server.stop() == 0


def test_waiting_requests_share_a_budget_of_bytes(start):
    """An eighth of --client-memory-bytes: 1 MB, of which one request may have three quarters."""
    server = start(Server, "--max-num-seqs", "1", "--client-memory-bytes", "8M")
    too_large = {"prompt": [[1, 2]] * 8, "n": 100, "max_tokens": 1}
    status, _, error = refused(server, too_large)
    assert status == 413
    assert "8 prompts and 800 sequences" in error["message"]
    waiting = [post(server, endless(128)) for _ in range(2)]
    wait_for(server, "vllm:num_requests_waiting", 255)
    status, retry, error = refused(server, endless(128))
    assert (status, retry) == (503, "1")
    assert "requests that wait or run take" in error["message"]
    assert metric(server, "baton:budget_refusals_total", 'budget="request_bytes"') == 1
    for connection in waiting:
        connection.close()
    assert server.stop() == 0


def test_a_priority_counts_or_is_refused(server, start):
    status, _, error = refused(server, {"prompt": "x", "max_tokens": 1, "priority": 2})
    assert status == 400
    assert error["param"] == "priority"
    assert "--scheduling-policy priority" in error["message"]
    ordered = start(Server, "--scheduling-policy", "priority")
    connection = post(ordered, {"prompt": "x", "max_tokens": 1, "priority": 2})
    assert connection.getresponse().status == 200
    connection.close()
    assert ordered.stop() == 0


class PipedServer(Server):
    """A server whose log goes into a pipe that this test reads or not."""

    def __init__(self, log: pathlib.Path, *flags: str) -> None:
        """Start it and wait for the address on its standard output."""
        self.log = log
        self.reader, writer = os.pipe()
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [BINARY, "serve", "--host", "127.0.0.1", "--port", "0", *flags],
                stdout=output,
                stderr=writer,
            )
        os.close(writer)
        deadline = time.monotonic() + START_SECONDS
        while not (found := re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text())):
            assert self.process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        self.port = int(found[1])

    def get_many(self, n: int) -> None:
        """Ask for the version so many times; each is a line of the log at level debug."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        for _ in range(n):
            connection.request("GET", "/version")
            reply = connection.getresponse()
            assert reply.status == 200
            reply.read()
        connection.close()


def test_a_dead_reader_of_the_log_does_not_end_the_server(start):
    server = start(PipedServer, "--log-level", "debug")
    os.close(server.reader)
    server.get_many(50)
    wait_for(server, "baton:log_lines_dropped_total", 50)
    assert server.stop() == 0


def test_a_stalled_reader_of_the_log_holds_up_nothing(start):
    server = start(PipedServer, "--log-level", "debug")
    server.get_many(20_000)  # 1.9 MB of lines: more than the pipe and the queue hold
    assert metric(server, "baton:log_lines_dropped_total") > 1000
    begin = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - begin < 10
    os.close(server.reader)


def test_the_last_lines_of_the_log_come_out(start, tmp_path):
    server = start(PipedServer)
    assert server.stop() == 0
    with os.fdopen(server.reader, "rb") as reader:
        lines = reader.read().decode().splitlines()
    assert "event=shutdown_done" in lines[-1]
    broken = subprocess.run(
        [BINARY, "serve", str(tmp_path / "no-such-model"), "--port", "0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert broken.returncode == 1
    assert broken.stderr.splitlines()[-1].startswith("baton serve: ")


def test_a_server_without_memory_refuses_and_lives(start):
    """No budget of bytes is in the way: requests take memory until there is none."""
    flags = (
        "--max-num-seqs",
        "1",
        "--client-memory-bytes",
        "64G",
        "--max-num-queued-reqs",
        "30000",
    )
    server = start(Server, *flags)
    body = {
        "prompt": ["word " * 1300] * 8,
        "n": 128,
        "echo": True,
        "max_tokens": 50,
        "ignore_eos": True,
    }
    warm_up = post(server, body | {"max_tokens": 1})
    assert warm_up.getresponse().status == 200
    warm_up.close()
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    most = int(re.search(r"VmSize:\s*(\d+) kB", status)[1]) * 1024 + 24 * MB
    resource.prlimit(
        server.process.pid, resource.RLIMIT_AS, (most, resource.RLIM_INFINITY)
    )
    connections: list[http.client.HTTPConnection] = []
    answers: list[str] = []

    def flood() -> None:
        for _ in range(6):
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = post(server, body)
                connections.append(connection)
                connection.sock.settimeout(5)
                answers.append(connection.getresponse().read().decode())

    threads = [threading.Thread(target=flood) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.process.poll() is None, server.log.read_text()[-2000:]
    assert any("no memory" in answer for answer in answers), answers
    for connection in connections:
        connection.close()
    deadline = time.monotonic() + 30
    while (
        metric(server, "vllm:num_requests_waiting")
        + metric(server, "vllm:num_requests_running")
        > 0
    ):
        assert time.monotonic() < deadline, server.log.read_text()[-2000:]
        time.sleep(0.1)
    connection = post(server, {"prompt": "x", "max_tokens": 1})
    assert connection.getresponse().status == 200
    connection.close()
    assert server.stop() == 0
