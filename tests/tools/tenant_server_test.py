"""The time to the first token (bench/tenants/tenant_server.py) of a client that loses its processor after its request."""

from __future__ import annotations

import pathlib
import socket
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "tenants"))

from tenant_server import Tenant  # noqa: E402

SERVER_SECONDS = 0.05
FRAME = b'data: {"choices": [{"text": "x"}]}\n\n'
ANSWER = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(FRAME), FRAME)


def answer_one(listener: socket.socket) -> None:
    """Read a request to its last byte, and answer it after a while."""
    connection, _ = listener.accept()
    request = b""
    while b"\r\n\r\n" not in request or len(request.partition(b"\r\n\r\n")[2]) < int(
        request.partition(b"Content-Length: ")[2].partition(b"\r\n")[0]
    ):
        request += connection.recv(65536)
    time.sleep(SERVER_SECONDS)
    connection.sendall(ANSWER)
    connection.close()


class SlowSocket:
    """A socket whose thread is late after each send."""

    def __init__(self, connection: socket.socket) -> None:
        """Around a connected socket."""
        self.connection = connection

    def sendall(self, data: bytes) -> None:
        """Send, and lose the processor until the answer is there."""
        self.connection.sendall(data)
        time.sleep(3 * SERVER_SECONDS)

    def recv(self, n_bytes: int) -> bytes:
        """As the socket does."""
        return self.connection.recv(n_bytes)


class FirstToken(unittest.TestCase):
    """No time is left out."""

    def test_counts_from_the_last_byte_though_the_client_is_late(self) -> None:
        """The answer cannot have come sooner than the server wrote it."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = threading.Thread(target=answer_one, args=(listener,))
            server.start()
            tenant = Tenant(listener.getsockname()[1])
            tenant.connection = SlowSocket(tenant.connect())
            seen = tenant.first_token([1, 2, 3])
            server.join()
        self.assertGreaterEqual(seen.seconds, SERVER_SECONDS)


if __name__ == "__main__":
    unittest.main()
