"""Requests that stop at each of their bytes: by a stall, by a half-close, or by a reset."""

from __future__ import annotations

import json
import select
import socket
import time

from hostile import wire

# What the server allows (src/server/http/message.h), and what its clock and a busy machine add.
HEADER_SECONDS = 20.0
BODY_SECONDS = 120.0
LATE_SECONDS = 8.0

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
BODY = json.dumps({"model": "demo", "prompt": "x", "max_tokens": 1}).encode()


def chunked_request() -> bytes:
    """A request in chunks, with an extension and a trailer."""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    parts = (BODY[:10], BODY[10:11], BODY[11:])
    return head + b"".join(b"%x;a=b\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\nX-Trailer: 1\r\n\r\n"


def requests() -> dict[str, bytes]:
    """The requests, by name; each is answered by 200 when it is sent whole."""
    plain = wire.request_bytes("POST", "/v1/completions", BODY)
    return {
        "a body with its length": plain,
        "a body in chunks": chunked_request(),
        "a page": wire.request_bytes("GET", "/health", headers=("Accept: */*",)),
        "100-continue": wire.request_bytes("POST", "/tokenize", BODY, headers=("Expect: 100-continue",)),
        "two in a row": wire.request_bytes("GET", "/v1/models") + plain,
    }


def is_complete(name: str, n: int) -> bool:
    """Whether the first `n` bytes of a request hold a whole one."""
    data = requests()[name]
    if name == "two in a row":
        return n >= data.index(b"\r\n\r\n") + 4
    return n >= len(data)


def cut_everywhere(port: int, name: str, how: str, step: int = 1, slow_factor: float = 1) -> tuple[int, list[str]]:
    """Send each beginning of a request and end it by "half-close" or "reset"; how many were sent, and what was wrong.

    A half-closed connection must end within 10 s times `slow_factor`, and a complete request on it must be answered.
    """
    data = requests()[name]
    faults: list[str] = []
    n_sent = 0
    for n in sorted({*range(0, len(data) + 1, step), len(data)}):
        n_sent += 1
        connection = wire.connect(port)
        where = f"{name}: {how} after byte {n} of {len(data)}"
        if n:
            connection.sendall(data[:n])
        if how == "reset":
            wire.reset(connection)
            continue
        connection.shutdown(socket.SHUT_WR)
        try:
            reply = wire.Reader(connection).reply(10 * slow_factor)
            if is_complete(name, n) and (reply is None or reply.status != 200):
                faults.append(f"{where}: a complete request got {'no answer' if reply is None else reply.status}")
            if reply is not None and reply.status >= 500:
                faults.append(f"{where}: {reply.status}")
        except TimeoutError:
            faults.append(f"{where}: the connection stays open")
        connection.close()
    return n_sent, faults


class Stalls:
    """A connection for each beginning of each request, all held open at the same time."""

    def __init__(self, port: int, step: int = 1, slow_factor: float = 1) -> None:
        """Open and send them all; `slow_factor` multiplies how late the server may end them."""
        self.late_seconds = slow_factor * LATE_SECONDS
        self.begin = time.monotonic()
        self.held: dict[int, tuple[wire.Reader, str, int]] = {}
        self.faults: list[str] = []
        for name, data in requests().items():
            for n in range(0, len(data), step):
                connection = wire.connect(port)
                connection.sendall(data[:n])
                self.held[connection.fileno()] = (wire.Reader(connection), name, n)
        self.n_requests = len(self.held)

    def limit(self, name: str, n: int) -> float:
        """Seconds that the server may keep a beginning. A header's time runs from its first byte, a body's from its header."""
        data = requests()[name]
        first_end = data.index(b"\r\n\r\n") + 4
        if name == "two in a row":
            second_end = data.index(b"\r\n\r\n", first_end) + 4
            return HEADER_SECONDS + (BODY_SECONDS if n >= second_end else BODY_SECONDS if n == first_end else 0)
        return BODY_SECONDS if n >= first_end else HEADER_SECONDS

    def collect(self, seconds: float) -> None:
        """Wait until the server has ended them all, or for so long. Every beginning must end in its time, with a reason once a
        byte of it was sent."""
        poller = select.poll()
        for number in self.held:
            poller.register(number, select.POLLIN)
        while self.held and time.monotonic() - self.begin < seconds:
            for number, _ in poller.poll(200):
                reader, name, n = self.held[number]
                if reader.connection.recv(len(CONTINUE), socket.MSG_PEEK) == CONTINUE:
                    reader.connection.recv(len(CONTINUE))
                    continue
                took = time.monotonic() - self.begin
                where = f"{name}: stalled after byte {n}"
                reply = reader.reply(self.late_seconds)
                if reply is not None and reply.status == 200 and is_complete(name, n):
                    continue  # the first of two; its connection stays for a while
                poller.unregister(number)
                del self.held[number]
                if took > self.limit(name, n) + self.late_seconds:
                    self.faults.append(f"{where}: ended after {took:.0f} s")
                if reply is not None and reply.status != 408:
                    self.faults.append(f"{where}: {reply.status}")
                if reply is None and n and not is_complete(name, n):
                    self.faults.append(f"{where}: closed without 408")
                reader.connection.close()
        for _, name, n in self.held.values():
            if seconds > self.limit(name, n) + self.late_seconds:
                self.faults.append(f"{name}: stalled after byte {n}: still open after {seconds:.0f} s")

    def close(self) -> None:
        """Leave."""
        for reader, _, _ in self.held.values():
            reader.connection.close()
