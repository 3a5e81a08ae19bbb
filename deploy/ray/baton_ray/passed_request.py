"""An HTTP request on its way to a replica, and the text of its prompt, by which routers choose that replica."""

from __future__ import annotations

import functools
import json
from typing import Any

# The routes whose bodies hold a prompt. What begins alike in `prompt_text` begins alike in the KV cache.
PROMPT_ROUTES = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/messages",
    "/v1/responses",
    "/tokenize",
)


class PassedRequest:
    """One request as it came: nothing of it is changed on the way."""

    def __init__(
        self,
        method: str,
        target: str,
        headers: list[tuple[str, str]],
        body: bytes = b"",
        replica: str | None = None,
    ) -> None:
        """`target` is path and query; `replica` is the id of the only replica that can answer, or None."""
        self.method = method
        self.target = target
        self.headers = headers
        self.body = body
        self.replica = replica

    def __reduce__(self) -> tuple:
        """What travels to the replica: without the texts that only the router needs."""
        return PassedRequest, (self.method, self.target, self.headers, self.body, self.replica)

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    @functools.cached_property
    def fields(self) -> dict[str, Any]:
        """The JSON object of the body; empty where there is none, since judging bodies is the replica's part."""
        try:
            value = json.loads(self.body) if self.body else {}
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    @functools.cached_property
    def prompt(self) -> str:
        """The text by which requests are told apart: Ray's own router reads this attribute too. Never empty for a prompt."""
        return prompt_text(self.fields) if self.path.startswith(PROMPT_ROUTES) else ""


def prompt_text(fields: dict[str, Any]) -> str:
    """The prompt of a request in the order in which chat templates write it; two prompts that begin alike give texts that do.

    Salt and named prefix come first, because requests that differ in them share no blocks, or begin otherwise.
    """
    parts = [str(fields[name]) for name in ("cache_salt", "prefix") if fields.get(name)]
    model = fields.get("model")
    if isinstance(model, str) and ":" in model:
        parts.append(model.rpartition(":")[2])
    if fields.get("tools"):
        parts.append(json.dumps(fields["tools"]))
    parts += [_content(fields.get(name)) for name in ("instructions", "system", "messages", "input", "prompt")]
    return "\n".join(part for part in parts if part) or "-"


def _content(value: Any) -> str:
    """The text of a prompt, a message, a list of messages or content parts, or token ids."""
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list):
        return " ".join(_content(item) for item in value)
    if isinstance(value, dict):
        return "\n".join(_content(value[name]) for name in ("role", "content", "text", "input", "output") if name in value)
    return ""
