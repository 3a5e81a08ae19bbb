"""Errors that come from Ray or from a lost replica, in the form that a client of the route expects."""

from __future__ import annotations

import json

JSON_HEADERS = [("content-type", "application/json")]


def error_body(path: str, status: int, message: str) -> bytes:
    """The body of a refused request."""
    if path.startswith("/v1/messages"):
        kind = "overloaded_error" if status == 503 else "api_error"
        return json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()
    kind = "ServiceUnavailableError" if status == 503 else "InternalServerError"
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": status}}).encode()


def error_events(path: str, message: str) -> bytes:
    """The events that end a stream which cannot continue: an error, and for OpenAI's older routes the [DONE] after it."""
    if path.startswith("/v1/messages"):
        return b"event: error\ndata: " + error_body(path, 500, message) + b"\n\n"
    if path.startswith("/v1/responses"):
        event = {"type": "error", "code": "server_error", "message": message, "param": None}
        return b"event: error\ndata: " + json.dumps(event).encode() + b"\n\n"
    return b"data: " + error_body(path, 500, message) + b"\n\ndata: [DONE]\n\n"
