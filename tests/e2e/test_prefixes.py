"""Prefixes as resources over HTTP: registered, used, replaced, capped, deleted, expired."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator

import openai
import pytest
from conftest import Server

PINNED_BLOCKS = 200
NAME = "catalogue"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server without prefixes that may pin few blocks."""
    log = tmp_path_factory.mktemp("prefixes") / "log"
    running = Server(log, "--max-pinned-blocks", str(PINNED_BLOCKS))
    yield running
    assert running.stop() == 0, log.read_text()


def call(server: Server, method: str, path: str, body: dict | None = None) -> tuple[int, dict]:
    """Return status and parsed body."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    text = reply.read().decode()
    connection.close()
    return reply.status, json.loads(text)


def ask(server: Server, prefix: str, question: dict) -> object:
    """One greedy answer behind a prefix."""
    return server.client().chat.completions.create(
        model="demo",
        messages=question["messages"],
        temperature=0,
        max_tokens=96,
        extra_body={"prefix": prefix},
    )


def test_a_prefix_from_registration_to_deletion(bare, catalogue, questions):
    status, made = call(bare, "POST", "/v1/prefixes", {"id": NAME, "text": catalogue, "version": "1"})
    assert status == 200, made
    assert made["n_tokens"] > 1000
    assert made["n_pinned_blocks"] * 16 == made["n_pinned_tokens"]
    answer = ask(bare, NAME, questions[0])
    assert answer.choices[0].message.content == questions[0]["answer"]
    assert answer.usage.prompt_tokens_details.cached_tokens >= made["n_pinned_tokens"]
    listed = call(bare, "GET", "/v1/prefixes")[1]["data"]
    assert [(entry["id"], entry["version"], entry["hits"]) for entry in listed] == [(NAME, "1", 1)]

    status, refused = call(bare, "POST", "/v1/prefixes", {"id": "long", "text": 2 * catalogue[100:]})
    assert status == 400
    assert f"--max-pinned-blocks is {PINNED_BLOCKS}" in refused["error"]["message"]

    status, other = call(bare, "POST", "/v1/prefixes", {"id": NAME, "text": "Open on Sundays.", "version": "2"})
    assert status == 200, other
    assert call(bare, "GET", f"/v1/prefixes/{NAME}")[1]["n_tokens"] < 100

    assert call(bare, "DELETE", f"/v1/prefixes/{NAME}") == (200, {"id": NAME, "object": "prefix", "deleted": True})
    assert call(bare, "DELETE", f"/v1/prefixes/{NAME}")[0] == 404
    with pytest.raises(openai.NotFoundError):
        ask(bare, NAME, questions[0])


def test_a_prefix_expires(bare):
    status, made = call(bare, "POST", "/v1/prefixes", {"id": "brief", "text": "Open for a moment.", "ttl_seconds": 1})
    assert status == 200, made
    assert made["expires_at"] > made["created"]
    deadline = time.monotonic() + 30
    while call(bare, "GET", "/v1/prefixes/brief")[0] == 200 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert call(bare, "GET", "/v1/prefixes/brief")[0] == 404
    assert call(bare, "GET", "/v1/prefixes")[1]["data"] == []
