"""AsyncLLM: the same model for asyncio, with streaming and cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import threading
from collections.abc import AsyncIterator
from typing import Any

from baton import _engine, _loading, _neutral, _prompts, errors
from baton.errors import BatonError
from baton.llm import WAIT_MS, new_output
from baton.outputs import RequestOutput, add_news
from baton.sampling_params import RequestOutputKind, SamplingParams
from baton.tokenizer import Tokenizer


class AsyncLLM:
    """A loaded model whose answers stream. Many tasks, of one event loop or of several, may generate at once.

    Arguments are those of LLM. `await close()`, or use it as an asynchronous context manager. A task that is cancelled, or
    leaves the iteration, cancels its request.
    """

    def __init__(self, model: str = "demo", **arguments: Any) -> None:  # noqa: ANN401
        """Load the model and start its engine."""
        self._model: _engine.LocalModel | None = _loading.load(model, arguments)
        self._lock = threading.Lock()
        self._streams: dict[int, tuple[asyncio.AbstractEventLoop, asyncio.Queue[Any]]] = {}
        self._is_closing = False
        self._thread = threading.Thread(target=self._deliver, name="baton-news", daemon=True)
        self._thread.start()

    async def __aenter__(self) -> AsyncLLM:
        """Return this object."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Free the model."""
        await self.close()

    async def close(self) -> None:
        """End the engine; streams that are open raise BatonError."""
        self._is_closing = True
        await asyncio.to_thread(self._thread.join)
        self._model = None

    @property
    def model(self) -> _engine.LocalModel:
        """The loaded model."""
        if self._model is None or self._is_closing:
            raise BatonError("this AsyncLLM has been closed")
        return self._model

    async def get_tokenizer(self, lora_request: None = None) -> Tokenizer:
        """Return the model's tokenizer, with the names that Transformers' tokenizers have."""
        _neutral.check(_neutral.CALLS, [("lora_request", lora_request)])
        return Tokenizer(self.model)

    async def generate(
        self,
        prompt: _prompts.Prompt,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        delta: bool = False,
        priority: int = 0,
        lora_request: None = None,
        trace_headers: dict[str, str] | None = None,
        tokenization_kwargs: dict[str, Any] | None = None,
        data_parallel_rank: int | None = None,
    ) -> AsyncIterator[RequestOutput]:
        """Yield the request's output whenever there is news of it, as the parameters' output_kind says.

        `delta`: only what is new. `request_id`: that of the outputs; None: a number. `priority`: lower ones first. The others
        are vLLM's and change nothing.
        """
        neutral = {
            "lora_request": lora_request,
            "trace_headers": trace_headers,
            "tokenization_kwargs": tokenization_kwargs,
            "data_parallel_rank": data_parallel_rank,
        }
        _neutral.check(_neutral.CALLS, neutral.items())
        model = self.model
        params = sampling_params or SamplingParams()
        kind = RequestOutputKind.DELTA if delta else params.output_kind
        text, ids, salt = await asyncio.to_thread(_prompts.tokens_of, model, prompt, None)
        question = await asyncio.to_thread(params.question, model)
        question.cache_salt = salt
        question.priority = priority
        with self._lock:
            request = model.submit(ids, question)
            queue: asyncio.Queue[Any] = asyncio.Queue()
            self._streams[request] = (asyncio.get_running_loop(), queue)
        output = new_output(request_id or request, text, ids, params)
        try:
            while not output.finished:
                news = await queue.get()
                if news is None:
                    raise BatonError("the model was closed while it answered")
                add_news(model, output, news)
                if news.error:
                    raise errors.failure(news)
                if kind is not RequestOutputKind.FINAL_ONLY or output.finished:
                    yield copy.deepcopy(output)
                if kind is RequestOutputKind.DELTA:
                    _forget_told(output)
        finally:
            with self._lock:
                self._streams.pop(request, None)
            if not output.finished:
                with contextlib.suppress(BatonError):
                    self.model.cancel(request)

    async def chat(
        self,
        messages: list[_prompts.Message],
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        delta: bool = False,
        priority: int = 0,
        chat_template: str | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: list[dict[str, Any]] | None = None,
        chat_template_kwargs: dict[str, Any] | None = None,
    ) -> AsyncIterator[RequestOutput]:
        """Yield the answer of a conversation whose prompt the model's chat template writes."""
        write = functools.partial(
            _prompts.rendered,
            self.model,
            messages,
            chat_template=chat_template,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            tools=tools,
            chat_template_kwargs=chat_template_kwargs,
        )
        prompt = await asyncio.to_thread(write)
        async for output in self.generate(prompt, sampling_params, request_id, delta=delta, priority=priority):
            yield output

    def _deliver(self) -> None:
        """Bring news to the loops of the tasks that wait for it, until the model is closed."""
        model = self._model
        while not self._is_closing and model is not None:
            for news in model.wait(WAIT_MS):
                with self._lock:
                    stream = self._streams.get(news.request)
                if stream is None:
                    continue
                loop, queue = stream
                with contextlib.suppress(RuntimeError):  # the loop was closed
                    loop.call_soon_threadsafe(queue.put_nowait, news)
        with self._lock:
            streams = list(self._streams.values())
        for loop, queue in streams:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(queue.put_nowait, None)


def _forget_told(output: RequestOutput) -> None:
    """Empty what the caller has been told of."""
    for answer in output.outputs:
        answer.text = ""
        answer.token_ids = []
        if answer.logprobs is not None:
            answer.logprobs = []
