"""Answers, with vLLM's names."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from baton import _engine


@dataclasses.dataclass
class Logprob:
    """A token's natural log-probability, its place among the most likely (1: the most likely; None: not known) and text."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclasses.dataclass
class SharingStats:
    """What sharing a prompt's beginning with other requests did for one answer; bytes are bytes of keys and values."""

    cached_tokens: int = 0
    replayed_tokens: int = 0
    relayed_tokens: int = 0
    kv_bytes_requested: int = 0
    kv_bytes_saved: int = 0
    largest_group: int = 1
    queue_ms: float = 0.0
    prefill_ms: float = 0.0
    n_preemptions: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0


@dataclasses.dataclass
class CompletionOutput:
    """One answer to a prompt. `finish_reason`: stop, length, abort or error; None while it continues.

    `stop_reason` is the stop string or the stop token id that ended it; None for the model's own end.
    """

    index: int
    text: str = ""
    token_ids: list[int] = dataclasses.field(default_factory=list)
    cumulative_logprob: float | None = None
    logprobs: list[dict[int, Logprob]] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    stats: SharingStats = dataclasses.field(default_factory=SharingStats)
    routed_experts: None = None
    lora_request: None = None
    kv_transfer_params: None = None

    def finished(self) -> bool:
        """Return whether nothing will follow."""
        return self.finish_reason is not None


@dataclasses.dataclass
class RequestMetrics:
    """When a request came, was first computed, and was answered, in seconds; 0: not yet.

    Names that end in _ts are of the clock time.monotonic, names in _time of time.time; vLLM has had both.
    """

    arrival_time: float = dataclasses.field(default_factory=time.time)
    queued_ts: float = dataclasses.field(default_factory=time.monotonic)
    scheduled_ts: float = 0.0
    first_token_ts: float = 0.0
    last_token_ts: float = 0.0
    finished_ts: float = 0.0
    num_generation_tokens: int = 0

    def _time(self, moment: float) -> float | None:
        return self.arrival_time + moment - self.queued_ts if moment else None

    @property
    def first_scheduled_time(self) -> float | None:
        """When its first step began."""
        return self._time(self.scheduled_ts)

    @property
    def first_token_time(self) -> float | None:
        """When its first token was there."""
        return self._time(self.first_token_ts)

    @property
    def last_token_time(self) -> float | None:
        """When its last token so far was there."""
        return self._time(self.last_token_ts)

    @property
    def finished_time(self) -> float | None:
        """When all of its answers had ended."""
        return self._time(self.finished_ts)

    @property
    def time_in_queue(self) -> float | None:
        """Seconds until its first step."""
        return self.scheduled_ts - self.queued_ts if self.scheduled_ts else None

    @property
    def first_token_latency(self) -> float:
        """Seconds until its first token."""
        return self.first_token_ts - self.queued_ts if self.first_token_ts else 0.0

    def add(self, output: RequestOutput, news: Any) -> None:  # noqa: ANN401
        """Take the times of news (_engine.News) that the output has taken."""
        now = time.monotonic()
        if news.tokens:
            self.last_token_ts = now
            self.num_generation_tokens += len(news.tokens)
            if not self.first_token_ts:
                self.scheduled_ts = min(now, self.queued_ts + news.stats.queue_ms / 1000)
                self.first_token_ts = min(now, self.scheduled_ts + news.stats.prefill_ms / 1000)
        if output.finished:
            self.finished_ts = now


@dataclasses.dataclass
class RequestOutput:
    """A prompt and its answers."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    prompt_logprobs: list[dict[int, Logprob] | None] | None
    outputs: list[CompletionOutput]
    finished: bool = False
    metrics: RequestMetrics = dataclasses.field(default_factory=RequestMetrics)
    lora_request: None = None
    encoder_prompt: None = None
    encoder_prompt_token_ids: None = None
    num_cached_tokens: int | None = None
    kv_transfer_params: None = None


def logprobs_of(model: _engine.LocalModel, token: _engine.TokenOutput) -> dict[int, Logprob]:
    """Return the log-probabilities of one token: its own, and those of the most likely ones."""
    entries = {
        top.token: Logprob(top.logprob, rank, model.decode([top.token], skip_special_tokens=False))
        for rank, top in enumerate(token.top_logprobs, start=1)
    }
    if token.token not in entries:
        text = model.decode([token.token], skip_special_tokens=False)
        entries[token.token] = Logprob(token.logprob, token.rank or None, text)
    return entries


def add_news(model: _engine.LocalModel, output: RequestOutput, news: Any) -> None:  # noqa: ANN401
    """Bring a request's output up to date with the news (_engine.News) of one of its answers."""
    answer = output.outputs[news.index]
    answer.text += news.text
    for token in news.tokens:
        answer.token_ids.append(token.token)
        if answer.logprobs is not None and token.logprob is not None:
            answer.logprobs.append(logprobs_of(model, token))
            answer.cumulative_logprob = (answer.cumulative_logprob or 0.0) + token.logprob
    for token in news.prompt_scores:
        if output.prompt_logprobs is not None:
            output.prompt_logprobs.append(logprobs_of(model, token))
    stats = news.stats
    answer.stats = SharingStats(*(getattr(stats, field.name) for field in dataclasses.fields(SharingStats)))
    output.num_cached_tokens = stats.cached_tokens
    if news.finish_reason:
        answer.finish_reason = news.finish_reason
        answer.stop_reason = news.stop if news.stop is not None else news.stop_token
    output.finished = all(answer.finished() for answer in output.outputs)
    output.metrics.add(output, news)
