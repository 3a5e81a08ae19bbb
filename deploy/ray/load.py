"""Streams chat completions to a server with a fixed number of clients, and says how each of them ended."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import json
import random
import statistics
import time
from collections.abc import Callable

import aiohttp


@dataclasses.dataclass
class Outcomes:
    """What became of all requests. `errors` ended with a reason; `lost` ended without one."""

    complete: int = 0
    tokens: int = 0
    errors: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    lost: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    first_token_s: list[float] = dataclasses.field(default_factory=list)
    seconds: float = 0

    @property
    def finished(self) -> int:
        """Requests that ended, however they did."""
        return self.complete + self.errors.total() + self.lost.total()

    def row(self) -> dict[str, object]:
        """The numbers of a table's row."""
        return {
            "complete": self.complete,
            "errors_that_say_why": self.errors.total(),
            "lost_without_a_reason": self.lost.total(),
            "tokens": self.tokens,
            "seconds": round(self.seconds, 1),
            "first_token_ms": round(1e3 * statistics.median(self.first_token_s), 1) if self.first_token_s else None,
            "errors": dict(self.errors.most_common(8)),
            "lost": dict(self.lost.most_common(8)),
        }


def prompts(catalogue: str, n_prefixes: int, lines: int, seed: int) -> list[str]:
    """Shared prompts that differ from their first line on: lines of the catalogue in orders of their own."""
    rows = [line for line in catalogue.splitlines() if line.strip()]
    order = random.Random(seed)
    return [f"Shop number {number}.\n" + "\n".join(order.choices(rows, k=lines)) for number in range(n_prefixes)]


async def stream_all(
    urls: list[str],
    shared: list[str],
    n_requests: int,
    concurrency: int,
    n_tokens: int,
    seed: int,
    at: dict[int, Callable[[], None]] | None = None,
) -> Outcomes:
    """Send `n_requests`, each behind a prompt drawn at random, `concurrency` at a time, to the urls in turn.

    `at` are actions by the number of finished requests at which they happen, each on a thread of its own.
    """
    draw = random.Random(seed)
    work = [(number, draw.choice(shared)) for number in range(n_requests)]
    outcomes = Outcomes()
    waiting = iter(work)
    due = dict(at or {})
    began = time.monotonic()

    async def client(session: aiohttp.ClientSession) -> None:
        for number, prompt in waiting:
            body = {
                "messages": [{"role": "system", "content": prompt}, {"role": "user", "content": f"Question {number}?"}],
                "max_tokens": n_tokens,
                "ignore_eos": True,
                "temperature": 0,
                "stream": True,
            }
            await _stream_one(session, urls[number % len(urls)], body, outcomes)
            for count in [count for count in due if outcomes.finished >= count]:
                asyncio.get_running_loop().run_in_executor(None, due.pop(count))

    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        await asyncio.gather(*(client(session) for _ in range(concurrency)))
    outcomes.seconds = time.monotonic() - began
    return outcomes


async def _stream_one(session: aiohttp.ClientSession, url: str, body: dict, outcomes: Outcomes) -> None:
    """One request. It is complete when a finish_reason and [DONE] came, and no error."""
    began = time.monotonic()
    text = b""
    try:
        async with session.post(f"{url}/v1/chat/completions", json=body) as answer:
            async for piece in answer.content.iter_any():
                if b'"content":"' in piece and b'"content":"' not in text:
                    outcomes.first_token_s.append(time.monotonic() - began)
                text += piece
            if answer.status != 200:
                _note_refusal(answer.status, text, outcomes)
                return
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        outcomes.lost[f"{type(error).__name__}: {error}"[:120]] += 1
        return
    events = [line[6:] for line in text.split(b"\n") if line.startswith(b"data: ")]
    said = [json.loads(event)["error"]["message"] for event in events if event.startswith(b'{"error"')]
    outcomes.tokens += sum(event.count(b'"delta":{"content":') for event in events)
    if said:
        outcomes.errors["in the stream: " + said[0][:120]] += 1
    elif events[-1:] == [b"[DONE]"] and any(b'"finish_reason":"length"' in event for event in events):
        outcomes.complete += 1
    else:
        outcomes.lost["the stream ended without [DONE]"] += 1


def _note_refusal(status: int, text: bytes, outcomes: Outcomes) -> None:
    try:
        message = json.loads(text)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        outcomes.lost[f"{status} without a reason: {text[:80].decode(errors='replace')}"] += 1
    else:
        outcomes.errors[f"{status}: {message[:120]}"] += 1
