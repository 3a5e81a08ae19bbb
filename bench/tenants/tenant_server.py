"""A `baton serve` for two tenants, and connections that measure the time to the first token."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import socket
import subprocess
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = ROOT / "build/cpu-release/bin/baton"
START_SECONDS = 60


@dataclasses.dataclass
class FirstToken:
    """One streamed request: when its first token came, and what the usage says."""

    seconds: float
    cached_tokens: int
    completion_tokens: int


class TenantServer:
    """A server on a free port, with an end."""

    def __init__(self, binary: pathlib.Path, flags: list[str]) -> None:
        """Start it and wait until it answers."""
        self.log = pathlib.Path(tempfile.mkstemp(prefix="baton-tenants-", suffix=".log")[1])
        command = [str(binary), "serve", "--host", "127.0.0.1", "--port", "0", *flags]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + START_SECONDS
        while not (found := re.search(r"http://127\.0\.0\.1:(\d+)", self.log.read_text())):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the server did not start:\n{self.log.read_text()}")
            time.sleep(0.05)
        self.port = int(found[1])

    def __enter__(self) -> TenantServer:
        """It runs already."""
        return self

    def __exit__(self, *_: object) -> None:
        """SIGTERM, and its end."""
        self.process.terminate()
        self.process.wait(timeout=60)
        self.log.unlink()

    def metric(self, name: str) -> float:
        """The value of a metric without labels of its own."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60) as page:
            return float(re.search(rf"^{name}\{{[^}}]*\}} (\S+)$", page.read().decode(), re.MULTILINE)[1])


class Tenant:
    """One kept connection, whose requests carry the tenant's key and cache salt where it has them."""

    def __init__(self, port: int, key: str = "", salt: str = "") -> None:
        """Not connected yet."""
        self.port = port
        self.key = key
        self.salt = salt
        self.connection: socket.socket | None = None

    def connect(self) -> socket.socket:
        """The connection, opened where there is none."""
        if self.connection is None:
            self.connection = socket.create_connection(("127.0.0.1", self.port), timeout=600)
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self.connection

    def first_token(self, prompt: list[int], max_tokens: int = 1, **fields: object) -> FirstToken:
        """Stream an answer; seconds from the request's last byte to the first frame with a token. A refusal raises RuntimeError."""
        body: dict = {"prompt": prompt, "max_tokens": max_tokens, "stream": True, "ignore_eos": True, "temperature": 0}
        body |= {"stream_options": {"include_usage": True}} | fields
        if self.salt:
            body["cache_salt"] = self.salt
        data = json.dumps(body).encode()
        key = f"Authorization: Bearer {self.key}\r\n" if self.key else ""
        head = f"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n{key}"
        request = f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data
        connection = self.connect()
        # The clock is read before the last byte is sent: a thread that loses its processor after it may find the answer there.
        connection.sendall(request[:-1])
        begin = time.perf_counter()
        connection.sendall(request[-1:])
        first = None
        answer = b""
        while b"0\r\n\r\n" not in answer[-7:]:
            piece = connection.recv(65536)
            now = time.perf_counter()
            if not piece:
                raise RuntimeError(f"the connection was cut: {answer[-200:]!r}")
            answer += piece
            if first is None and b"data: " in answer:
                first = now - begin
            if answer.startswith(b"HTTP/1.1 ") and answer[9:12] != b"200" and b"}" in answer:
                self.close()
                raise RuntimeError(answer[:500].decode(errors="replace"))
        usage = json.loads(re.findall(rb'"usage":(\{.*?\}\})', answer)[-1]) if b'"usage":{' in answer else {}
        details = usage.get("prompt_tokens_details") or {}
        return FirstToken(first or 0.0, details.get("cached_tokens", 0), usage.get("completion_tokens", 0))

    def close(self) -> None:
        """End the connection."""
        if self.connection is not None:
            self.connection.close()
        self.connection = None


def machine() -> str:
    """Processor, threads, system and load."""
    names = [line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    system = pathlib.Path("/proc/version").read_text().split()[2]
    load = pathlib.Path("/proc/loadavg").read_text().split()[0]
    return f"{names[0] if names else 'unknown'}, {len(names)} threads, Linux {system}, load average {load}"


def version(binary: pathlib.Path) -> str:
    """The program's version and commit."""
    return subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
