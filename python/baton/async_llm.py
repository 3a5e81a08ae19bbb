"""AsyncLLM: the same model for asyncio, with streaming and cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import threading
from collections.abc import AsyncIterator
from typing import Any

from baton import _engine, _loading, _prompts, errors
from baton.errors import BatonError
from baton.llm import WAIT_MS, new_output
from baton.outputs import RequestOutput, add_news
from baton.sampling_params import SamplingParams


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

    async def generate(
        self, prompt: _prompts.Prompt, sampling_params: SamplingParams | None = None, *, delta: bool = False
    ) -> AsyncIterator[RequestOutput]:
        """Yield the request's output whenever there is news of it: all so far, or with `delta` only what is new."""
        model = self.model
        params = sampling_params or SamplingParams()
        text, ids, salt = await asyncio.to_thread(_prompts.tokens_of, model, prompt, None)
        question = await asyncio.to_thread(params.question, model)
        question.cache_salt = salt
        with self._lock:
            request = model.submit(ids, question)
            queue: asyncio.Queue[Any] = asyncio.Queue()
            self._streams[request] = (asyncio.get_running_loop(), queue)
        output = new_output(request, text, ids, params)
        try:
            while not output.finished:
                news = await queue.get()
                if news is None:
                    raise BatonError("the model was closed while it answered")
                add_news(model, output, news)
                if news.error:
                    raise errors.failure(news)
                yield copy.deepcopy(output)
                if delta:
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
        *,
        delta: bool = False,
        tools: list[dict[str, Any]] | None = None,
        chat_template_kwargs: dict[str, Any] | None = None,
    ) -> AsyncIterator[RequestOutput]:
        """Yield the answer of a conversation whose prompt the model's chat template writes."""
        prompt = await asyncio.to_thread(
            _prompts.rendered,
            self.model,
            messages,
            chat_template=None,
            add_generation_prompt=True,
            continue_final_message=False,
            tools=tools,
            chat_template_kwargs=chat_template_kwargs,
        )
        async for output in self.generate(prompt, sampling_params, delta=delta):
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
