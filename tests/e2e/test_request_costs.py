"""What one request costs the server while it waits."""

from __future__ import annotations

import http.client
import json
import pathlib
import time

from conftest import Server

MB = 1 << 20


def resident(server: Server) -> int:
    """Return the resident memory of the server in bytes."""
    pages = int(
        pathlib.Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]
    )
    return pages * 4096


def metric(server: Server, name: str) -> float:
    """Return the sum of a metric's values."""
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


def test_the_sequences_of_a_request_share_what_they_have_in_common(tmp_path):
    """1,024 sequences with long lists wait in a few MB: the lists are not copied for each of them."""
    server = Server(tmp_path / "log", "--max-num-seqs", "1")
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
