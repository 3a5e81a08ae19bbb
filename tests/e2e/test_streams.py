"""Many streams at once (`baton bench stream`): nothing lost, nothing wrong, and what the server says where it ends."""

from __future__ import annotations

import json
import pathlib
import socket
import subprocess
import time

from conftest import BINARY, Server


def bench(url: str, numbers: pathlib.Path, *flags: str) -> dict:
    """Run `baton bench stream` to its end and return its numbers."""
    done = subprocess.run(
        [BINARY, "bench", "stream", url, "--json", str(numbers), *flags], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(numbers.read_text())


def test_200_clients_lose_nothing(server: Server, tmp_path: pathlib.Path):
    seen = bench(server.url, tmp_path / "chat.json", "--clients", "200", "--seconds", "10", "--server-pid", str(server.process.pid))
    assert seen["requests"] >= 200
    assert seen["whole"] == seen["requests"]
    assert seen["tokens"] == 128 * seen["requests"]
    assert seen["faults"] == seen["lost"] == seen["extra"] == 0
    assert {"engine", "answers", "http"} <= set(seen["server_threads"])


def test_completions_and_plain_text_lose_nothing(server: Server, tmp_path: pathlib.Path):
    flags = ["--clients", "50", "--requests", "100", "--seconds", "60", "--max-tokens", "16", "--completions", "--text-only"]
    seen = bench(server.url, tmp_path / "completions.json", *flags)
    assert seen["requests"] == seen["whole"] == 100
    assert seen["tokens"] == 1600


def test_a_load_says_which_server_is_missing():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        done = subprocess.run([BINARY, "bench", "stream", url], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert url in done.stderr
    done = subprocess.run([BINARY, "bench", "stream", "ftp://x"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr == "baton bench stream: the URL must be http://HOST:PORT, not 'ftp://x'\n"


def test_a_server_that_may_open_few_files_says_so_and_closes_idle_connections(tmp_path: pathlib.Path):
    log = tmp_path / "log"
    few = Server(log, open_files=148)
    try:
        assert "event=connections_limited max_connections=12" in log.read_text()
        open_ones = [socket.create_connection(("127.0.0.1", few.port)) for _ in range(12)]
        time.sleep(0.5)  # in its first moments (250 ms) a connection gives way to no other
        open_ones.append(socket.create_connection(("127.0.0.1", few.port)))
        assert open_ones[0].recv(1) == b""
        open_ones[-1].sendall(b"GET /version HTTP/1.1\r\nHost: h\r\n\r\n")
        assert open_ones[-1].recv(12) == b"HTTP/1.1 200"
        for connection in open_ones:
            connection.close()
    finally:
        assert few.stop() == 0
