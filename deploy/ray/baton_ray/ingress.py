"""Where requests come in: each is passed to one replica, or to all of them, and its answer is passed back as it comes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import ray.exceptions
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle, DeploymentResponseGenerator
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from baton_ray.errors import JSON_HEADERS, error_body, error_events
from baton_ray.metrics_pages import merge_pages
from baton_ray.passed_request import PassedRequest

LOST = (ray.exceptions.RayActorError, ray.exceptions.NodeDiedError, ray.exceptions.WorkerCrashedError)
ATTEMPTS = 4
PAUSE_SECONDS = 0.25
ALL_SECONDS = 120


class BatonIngress:
    """Ray Serve's deployment behind the HTTP proxy. It holds no state but what its router learns."""

    def __init__(self, replicas: DeploymentHandle, max_body_bytes: int) -> None:
        """`replicas` is the handle of BatonReplica; a larger body than `max_body_bytes` is refused by 413."""
        self._replicas = replicas
        self._streams = replicas.options(stream=True)
        self._max_body_bytes = max_body_bytes
        self._log = logging.getLogger("ray.serve")

    async def __call__(self, request: Request) -> Response:
        """Answer one HTTP request."""
        path = request.scope["path"].removeprefix(request.scope.get("root_path", "").rstrip("/"))
        query = request.scope.get("query_string", b"").decode("latin-1")
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > self._max_body_bytes:
                message = f"the body has more than {self._max_body_bytes} bytes"
                return Response(error_body(path, 413, message), 413, dict(JSON_HEADERS))
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw]
        passed = PassedRequest(request.method, path + (f"?{query}" if query else ""), headers, body)
        if path == "/metrics":
            return await self._metrics(passed)
        if _is_for_all(passed):
            return await self._ask_all(passed)
        if path.startswith("/v1/responses"):
            stored = _stored_response(passed)
            passed.replica = await self._holder(stored, passed.headers) if stored else None
        return await self._pass(passed)

    async def _pass(self, request: PassedRequest) -> Response:
        """Pass a request to the replica that the router chooses.

        A replica that is lost before its answer began has sent nothing, so another one is asked. What is lost later ends with
        an error that says so.
        """
        message = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(PAUSE_SECONDS * attempt)
                request.replica = None
            pieces = self._streams.forward.remote(request)
            try:
                status, headers = await anext(pieces)
            except asyncio.CancelledError:
                pieces.cancel()
                raise
            except BackPressureError as error:
                return _refusal(request.path, f"all replicas are busy: {error.message}")
            except DeploymentUnavailableError:
                return _refusal(request.path, "no replica can be started; the log of Ray Serve says why")
            except LOST as error:
                message = f"a replica was lost before it answered: {_first_line(error)}"
            except Exception as error:
                message = f"a replica failed before it answered: {_first_line(error)}"
            else:
                return self._answer(request, status, headers, pieces)
            self._log.warning("%s %s: %s", request.method, request.path, message)
            if not _may_repeat(request):
                break
        return _refusal(request.path, message)

    def _answer(
        self, request: PassedRequest, status: int, headers: list[tuple[str, str]], pieces: DeploymentResponseGenerator
    ) -> Response:
        """The answer whose head is known."""
        is_events = any(name.lower() == "content-type" and value.startswith("text/event-stream") for name, value in headers)
        response = StreamingResponse(self._body(request, pieces, is_events), status)
        response.raw_headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        return response

    async def _body(self, request: PassedRequest, pieces: DeploymentResponseGenerator, is_events: bool) -> AsyncIterator[bytes]:
        """The rest of an answer. A caller that stops reading cancels it at the replica."""
        is_complete = False
        try:
            async for piece in pieces:
                yield piece
            is_complete = True
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except Exception as error:
            is_complete = True
            message = f"the replica was lost while it answered: {_first_line(error)}"
            self._log.warning("%s %s: %s", request.method, request.path, message)
            if not is_events:
                raise  # the connection is cut: half of a JSON text cannot be mended
            yield error_events(request.path, message)
        finally:
            if not is_complete:
                pieces.cancel()

    async def _ask_all(self, request: PassedRequest) -> Response:
        """The same request to every replica; the first refusal, or else the first answer, is the answer."""
        answers = await self._broadcast(request)
        if not answers:
            return _refusal(request.path, "there is no replica yet")
        _, (status, headers), body = next((answer for answer in answers if answer[1][0] >= 400), answers[0])
        if request.method in ("GET", "DELETE") and request.path.startswith("/v1/responses/"):
            _, (status, headers), body = next((answer for answer in answers if answer[1][0] < 400), answers[0])
        response = Response(body, status)
        response.raw_headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        if not any(name.lower() == "content-length" for name, _ in headers):
            response.raw_headers.append((b"content-length", str(len(body)).encode()))
        return response

    async def _metrics(self, request: PassedRequest) -> Response:
        """The metrics of all replicas, told apart by a label."""
        pages = {replica: body.decode() for replica, head, body in await self._broadcast(request) if head[0] == 200}
        return Response(merge_pages(pages), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _holder(self, response_id: str, headers: list[tuple[str, str]]) -> str | None:
        """The replica that stores a response of /v1/responses."""
        question = PassedRequest("GET", f"/v1/responses/{response_id}", headers)
        return next((replica for replica, head, _ in await self._broadcast(question) if head[0] == 200), None)

    async def _broadcast(self, request: PassedRequest) -> list[tuple[str, tuple, bytes]]:
        """The answers of all replicas that gave one."""
        answers = await self._replicas.broadcast("answer", request).results_async(timeout_s=ALL_SECONDS)
        return [answer for answer in answers if isinstance(answer, tuple)]


def _is_for_all(request: PassedRequest) -> bool:
    """What concerns the state of every replica: registered prefixes, and stored responses by their id."""
    if request.path.startswith("/v1/prefixes"):
        return request.method in ("POST", "DELETE")
    return request.method in ("GET", "DELETE") and request.path.startswith("/v1/responses/")


def _stored_response(request: PassedRequest) -> str | None:
    """The id of the stored response that a request continues or cancels."""
    if request.path == "/v1/responses":
        previous = request.fields.get("previous_response_id")
        return previous if isinstance(previous, str) and previous.replace("_", "").isalnum() else None
    return request.path.split("/")[3]


def _may_repeat(request: PassedRequest) -> bool:
    """Whether a second replica may be asked: an answer is computed, it changes nothing, unless it is stored."""
    return request.method == "GET" or bool(request.prompt) or request.path in ("/detokenize",)


def _refusal(path: str, message: str) -> Response:
    return Response(error_body(path, 503, message), 503, dict(JSON_HEADERS) | {"retry-after": "1"})


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
