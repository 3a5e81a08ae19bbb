"""A replica: one `baton serve` process, and the requests that pass through to it."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator

import aiohttp
import yarl
from ray import serve

from baton_ray.passed_request import PassedRequest
from baton_ray.process import BatonProcess

# Headers that belong to one connection, or that the HTTP client writes itself.
OF_ONE_CONNECTION = frozenset(("connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer", "host", "expect"))
NOT_SENT = OF_ONE_CONNECTION | {"content-length"}
# Ray's proxy writes these itself. Its request id is the one that Baton got, and uses.
NOT_RETURNED = OF_ONE_CONNECTION | {"date", "server", "x-request-id"}
EVENT_END = b"\n\n"
STOP_SECONDS = 45
LOST_PROCESS_EXIT_CODE = 86

Head = tuple[int, list[tuple[str, str]]]


class BatonReplica:
    """Ray Serve's deployment. Ray counts its requests, asks for its health, and replaces it when it dies."""

    def __init__(self, command: list[str], start_timeout_s: float) -> None:
        """Start the process of `command` and wait until it serves."""
        self._log = logging.getLogger("ray.serve")
        self._id = serve.get_replica_context().replica_id.unique_id
        self._session: aiohttp.ClientSession | None = None
        self._process = BatonProcess(command, self._log, self._lost)
        self._process.start(start_timeout_s)

    def _lost(self, sentence: str) -> None:
        """Without its process the replica is of no use. Ending at once tells Ray at once, and Ray starts another."""
        self._log.error("%s", sentence)
        for handler in self._log.handlers:
            handler.flush()
        os._exit(LOST_PROCESS_EXIT_CODE)

    def __del__(self) -> None:
        """Ray's end of a replica: its requests are done, or their time is up."""
        if hasattr(self, "_process"):
            self._process.stop(STOP_SECONDS)

    async def check_health(self) -> None:
        """Ray asks now and then. A server whose engine is stuck answers 503, and is replaced."""
        async with self._client().get(f"{self._process.url}/livez", timeout=aiohttp.ClientTimeout(total=10)) as answer:
            if answer.status != 200:
                raise RuntimeError(f"/livez answered {answer.status}: the engine is stuck")

    async def whereabouts(self) -> dict[str, object]:
        """Which replica this is, and its process."""
        return {"replica": self._id, "pid": self._process.pid, "actor_pid": os.getpid()}

    async def forward(self, request: PassedRequest) -> AsyncIterator[Head | bytes]:
        """The answer to a request: status and headers first, then the body as it comes.

        An event stream comes in whole events, so that an error can follow whichever was the last. When the caller cancels, the
        connection to the server is closed, and the server cancels the request.
        """
        async with self._client().request(
            request.method,
            yarl.URL(self._process.url + request.target, encoded=True),
            data=request.body if request.body else None,
            headers=[(name, value) for name, value in request.headers if name.lower() not in NOT_SENT],
            allow_redirects=False,
        ) as answer:
            headers = [(name, value) for name, value in answer.headers.items() if name.lower() not in NOT_RETURNED]
            yield answer.status, headers
            if answer.content_type == "text/event-stream":
                async for events in whole_events(answer.content.iter_any()):
                    yield events
            else:
                async for piece in answer.content.iter_any():
                    yield piece

    async def answer(self, request: PassedRequest) -> tuple[str, Head, bytes]:
        """The id of this replica, and a whole answer: what is asked of all replicas is asked like this."""
        pieces = self.forward(request)
        head = await anext(pieces)
        return self._id, head, b"".join([piece async for piece in pieces])

    def _client(self) -> aiohttp.ClientSession:
        """The connections to the process. They belong to the event loop that first uses them."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
                loop=asyncio.get_running_loop(),
            )
        return self._session


async def whole_events(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes, cut after events only; what follows the last event comes at the end."""
    rest = b""
    async for piece in pieces:
        rest += piece
        end = rest.rfind(EVENT_END) + len(EVENT_END)
        if end >= len(EVENT_END):
            yield rest[:end]
            rest = rest[end:]
    if rest:
        yield rest
