"""HTTP on raw sockets: requests may be cut anywhere, and answers are read although the request could not be sent whole."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
import struct
import time

HOST = "127.0.0.1"


@dataclasses.dataclass
class Reply:
    """One answer; `is_whole` is false if the connection ended before its announced end."""

    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes
    is_whole: bool = True

    def error(self) -> dict:
        """The error object of a refusal; empty if the body holds none."""
        with contextlib.suppress(ValueError, TypeError):
            error = json.loads(self.body)["error"]
            return error if isinstance(error, dict) else {"message": str(error)}
        return {}


def request_bytes(method: str, path: str, body: bytes | None = None, *, key: str = "", headers: tuple[str, ...] = ()) -> bytes:
    """A request with Content-Length, and with application/json unless `headers` name a content type."""
    lines = [f"{method} {path} HTTP/1.1", "Host: h", *headers]
    if key:
        lines.append(f"Authorization: Bearer {key}")
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
        if not any(line.lower().startswith("content-type:") for line in headers):
            lines.append("Content-Type: application/json")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b"")


def connect(port: int, timeout: float = 60) -> socket.socket:
    """Open a connection."""
    connection = socket.create_connection((HOST, port), timeout=timeout)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def reset(connection: socket.socket) -> None:
    """Close with a reset instead of a FIN."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def send(connection: socket.socket, data: bytes) -> bool:
    """Send; false if the server closed or stopped reading meanwhile."""
    try:
        connection.sendall(data)
    except (ConnectionError, TimeoutError):
        return False
    return True


class Reader:
    """Reads the answers of one connection."""

    def __init__(self, connection: socket.socket) -> None:
        """Nothing is read yet."""
        self.connection = connection
        self.data = b""
        self.has_ended = False

    def more(self, deadline: float) -> bool:
        """Receive something; false at the end of the connection. Raises TimeoutError at the deadline."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no answer in time")
        self.connection.settimeout(left)
        try:
            piece = self.connection.recv(1 << 18)
        except ConnectionError:
            piece = b""
        self.data += piece
        self.has_ended = not piece
        return bool(piece)

    def line(self, deadline: float) -> bytes | None:
        """The next line without its end; None if the connection ends before."""
        while b"\r\n" not in self.data:
            if not self.more(deadline):
                return None
        line, _, self.data = self.data.partition(b"\r\n")
        return line

    def take(self, n: int, deadline: float) -> bytes:
        """`n` bytes, or fewer at the end of the connection."""
        pieces = [self.data[:n]]
        n_left = n - len(pieces[0])
        self.data = self.data[n:]
        while n_left > 0 and self.more(deadline):
            pieces.append(self.data[:n_left])
            n_left -= len(pieces[-1])
            self.data = self.data[len(pieces[-1]) :]
        return b"".join(pieces)

    def reply(self, timeout: float = 60) -> Reply | None:
        """The next answer after those with status 100; None if the connection ends before its header is there."""
        deadline = time.monotonic() + timeout
        while True:
            first = self.line(deadline)
            if first is None:
                return None
            headers: dict[str, str] = {}
            while (line := self.line(deadline)) != b"":
                if line is None:
                    return None
                name, _, value = line.decode("latin-1").partition(":")
                headers[name.strip().lower()] = value.strip()
            status = int(first.split()[1])
            if status != 100:
                break
        if headers.get("transfer-encoding") == "chunked":
            return self.chunked(status, headers, deadline)
        n = int(headers.get("content-length", 0))
        body = self.take(n, deadline)
        return Reply(status, headers, body, is_whole=len(body) == n)

    def chunked(self, status: int, headers: dict[str, str], deadline: float) -> Reply:
        """The body in chunks."""
        body = b""
        while True:
            size = self.line(deadline)
            if size is None:
                return Reply(status, headers, body, is_whole=False)
            n = int(size, 16)
            body += self.take(n, deadline)
            self.line(deadline)
            if n == 0:
                return Reply(status, headers, body)


def ask_raw(port: int, data: bytes, timeout: float = 60) -> Reply | None:
    """Send bytes on a new connection and read one answer; None if there is none."""
    connection = connect(port, timeout)
    try:
        send(connection, data)
        return Reader(connection).reply(timeout)
    finally:
        connection.close()


def ask(
    port: int, method: str, path: str, body: bytes | dict | None = None, *, key: str = "", timeout: float = 60
) -> Reply | None:
    """Send one request on a new connection and read its answer; None if there is none."""
    if isinstance(body, dict):
        body = json.dumps(body).encode()
    return ask_raw(port, request_bytes(method, path, body, key=key, headers=("Connection: close",)), timeout)
