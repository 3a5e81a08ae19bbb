"""LLM: a model that answers batches of prompts in this process."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from baton import _engine, _loading, _neutral, _prompts, errors
from baton.errors import BatonError, InvalidRequestError, NotFoundError, UnsupportedError
from baton.outputs import CompletionOutput, RequestOutput, add_news
from baton.sampling_params import SamplingParams
from baton.tokenizer import Tokenizer

#: How long a wait for news lasts, so that Ctrl-C is heard.
WAIT_MS = 100


@dataclass(frozen=True)
class PrefixInfo:
    """A registered prefix: its full blocks are computed, and kept until the prefix is removed."""

    name: str
    n_tokens: int
    n_pinned_tokens: int  #: tokens in its full blocks; each request computes the tail
    prefill_ms: float
    tokens: list[int] = field(repr=False)
    pin: int = field(repr=False)  #: the model's


def new_output(request: int | str, prompt: str | None, ids: list[int], params: SamplingParams) -> RequestOutput:
    """Return the output of a request without any news."""
    answers = [CompletionOutput(index, logprobs=None if params.logprobs is None else []) for index in range(params.n)]
    return RequestOutput(str(request), prompt, ids, None if params.prompt_logprobs is None else [None], answers)


class LLM(_neutral.AbsentMethods):
    """A loaded model. Prompts that begin alike share that part: it is computed, stored and read once for all of them.

    `model` is a folder, a Hugging Face id, or "demo". Keyword arguments are the flags of `baton serve` that concern an engine,
    and vLLM's as far as their values change nothing (docs/python.md lists all). Use it as a context manager, or call
    close(), to free the model before the object goes. One thread at a time may generate.
    """

    def __init__(self, model: str = "demo", **arguments: Any) -> None:  # noqa: ANN401
        """Load the model and start its engine."""
        self._model: _engine.LocalModel | None = _loading.load(model, arguments)
        self._prefixes: dict[str, PrefixInfo] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> LLM:
        """Return this object."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Free the model."""
        self.close()

    def close(self) -> None:
        """End the engine and free its memory. Nothing else may be called afterwards."""
        self._model = None

    @property
    def model(self) -> _engine.LocalModel:
        """The loaded model."""
        if self._model is None:
            raise BatonError("this LLM has been closed")
        return self._model

    def get_default_sampling_params(self) -> SamplingParams:
        """Return the defaults that the model's generation_config.json names."""
        names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens")
        named = {name: getattr(self.model, f"default_{name}") for name in names}
        return SamplingParams(**{name: value for name, value in named.items() if value is not None})

    def get_tokenizer(self, lora_request: None = None) -> Tokenizer:
        """Return the model's tokenizer, with the names that Transformers' tokenizers have."""
        _neutral.check(_neutral.CALLS, [("lora_request", lora_request)])
        return Tokenizer(self.model)

    def encode(self, text: str, *pooling: Any, add_special_tokens: bool = True, **more: Any) -> list[int]:  # noqa: ANN401
        """Return the token ids of a text. What vLLM's method of this name does, pooling, is not there."""
        if pooling or more or not isinstance(text, str):
            raise UnsupportedError("encode() takes one text and gives its token ids: pooling is not supported", "encode")
        return self.model.encode(text, add_special_tokens)

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of token ids."""
        return self.model.decode(list(token_ids), skip_special_tokens)

    def register_prefix(self, name: str, prompt: _prompts.Prompt) -> PrefixInfo:
        """Compute the beginning of prompts ahead, and keep it until remove_prefix. Requests name it by `prefix`.

        Prompts that begin alike share blocks without being registered; registration makes it dependable.
        """
        if not name or name in self._prefixes:
            raise InvalidRequestError(f"there is a prefix {name!r} already" if name else "a prefix needs a name", "prefix")
        _, ids, _ = _prompts.tokens_of(self.model, prompt, None)
        pin = self.model.pin(ids)
        info = PrefixInfo(name, pin.n_tokens, pin.n_pinned_tokens, pin.prefill_ms, ids, pin.id)
        if self._prefixes.setdefault(name, info) is not info:  # another thread was first
            self.model.unpin(pin.id)
            raise InvalidRequestError(f"there is a prefix {name!r} already", "prefix")
        return info

    def remove_prefix(self, name: str) -> None:
        """Let go of a registered prefix."""
        info = self._prefixes.pop(name, None)
        if info is None:
            raise NotFoundError(f"there is no prefix {name!r}", "prefix")
        self.model.unpin(info.pin)

    def prefixes(self) -> list[PrefixInfo]:
        """Return the registered prefixes, by name."""
        return [info for _, info in sorted(self._prefixes.items())]

    def kv_bytes(self) -> tuple[float, float]:
        """Return the bytes of keys and values read so far, and the bytes that sharing saved."""
        return self.model.kv_bytes()

    def generate(
        self,
        prompts: _prompts.Prompt | Sequence[_prompts.Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool | Callable[..., Any] = True,
        lora_request: None = None,
        priority: Sequence[int] | None = None,
        tokenization_kwargs: dict[str, Any] | None = None,
        prefix: str | None = None,
    ) -> list[RequestOutput]:
        """Answer the prompts, in one batch as far as they fit. Return outputs in the order of the prompts.

        A prompt is text, a list of token ids, or a dict with prompt or prompt_token_ids, and cache_salt. `sampling_params`: one
        for all, or one for each; None: the model's defaults. `use_tqdm`: a progress bar on a terminal (if tqdm is installed), or
        what makes one. `priority`: one for each, lower ones first. `prefix`: the name of a registered prefix that comes before
        every prompt. The others are vLLM's and change nothing.
        """
        _neutral.check(_neutral.CALLS, [("lora_request", lora_request), ("tokenization_kwargs", tokenization_kwargs)])
        asked = _prompts.as_list(prompts)
        params = self._params_for(asked, sampling_params)
        if priority is not None and len(priority) != len(asked):
            raise InvalidRequestError(f"{len(priority)} priorities for {len(asked)} prompts", "priority")
        before = self._prefix_tokens(prefix)
        with self._lock:
            return self._run(asked, params, before, priority, use_tqdm)

    def chat(
        self,
        messages: Sequence[_prompts.Message] | Sequence[Sequence[_prompts.Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool | Callable[..., Any] = True,
        lora_request: None = None,
        chat_template: str | None = None,
        chat_template_content_format: str = "auto",
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: list[dict[str, Any]] | None = None,
        chat_template_kwargs: dict[str, Any] | None = None,
        tokenization_kwargs: dict[str, Any] | None = None,
        mm_processor_kwargs: dict[str, Any] | None = None,
        *,
        priority: Sequence[int] | None = None,
    ) -> list[RequestOutput]:
        """Answer one conversation, or several, whose prompts the model's chat template writes."""
        neutral = {
            "chat_template_content_format": chat_template_content_format,
            "tokenization_kwargs": tokenization_kwargs,
            "mm_processor_kwargs": mm_processor_kwargs,
        }
        _neutral.check(_neutral.CALLS, neutral.items())
        prompts = [
            _prompts.rendered(
                self.model,
                conversation,
                chat_template=chat_template,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                tools=tools,
                chat_template_kwargs=chat_template_kwargs,
            )
            for conversation in _prompts.conversations(messages)
        ]
        return self.generate(prompts, sampling_params, use_tqdm=use_tqdm, lora_request=lora_request, priority=priority)

    def _prefix_tokens(self, prefix: str | None) -> list[int] | None:
        if prefix is None:
            return None
        if prefix not in self._prefixes:
            raise InvalidRequestError(f"no prefix {prefix!r} is registered", "prefix")
        return self._prefixes[prefix].tokens

    def _params_for(
        self, asked: list[_prompts.Prompt], given: SamplingParams | Sequence[SamplingParams] | None
    ) -> list[SamplingParams]:
        if given is None:
            given = self.get_default_sampling_params()
        if isinstance(given, SamplingParams):
            return [given] * len(asked)
        if len(given) != len(asked):
            raise InvalidRequestError(f"{len(given)} sampling_params for {len(asked)} prompts", "sampling_params")
        return list(given)

    def _run(
        self,
        asked: list[_prompts.Prompt],
        params: list[SamplingParams],
        before: list[int] | None,
        priority: Sequence[int] | None,
        use_tqdm: bool | Callable[..., Any],
    ) -> list[RequestOutput]:
        model = self.model
        outputs: dict[int, RequestOutput] = {}
        try:
            for i, (prompt, sampling) in enumerate(zip(asked, params, strict=True)):
                text, ids, salt = _prompts.tokens_of(model, prompt, before)
                question = sampling.question(model)
                question.cache_salt = salt
                question.priority = priority[i] if priority is not None else 0
                request = model.submit(ids, question)
                outputs[request] = new_output(request, text, ids, sampling)
            with _Progress(len(outputs), use_tqdm) as progress:
                self._collect(model, outputs, progress)
        except BaseException:
            _abandon(model, outputs)
            raise
        return list(outputs.values())

    @staticmethod
    def _collect(model: _engine.LocalModel, outputs: dict[int, RequestOutput], progress: _Progress) -> None:
        n_open = len(outputs)
        while n_open > 0:
            for news in model.wait(WAIT_MS):
                output = outputs.get(news.request)
                if output is None:  # of a call that was interrupted
                    continue
                add_news(model, output, news)
                if news.error:
                    raise errors.failure(news)
                if output.finished:
                    n_open -= 1
                    progress.advance()


def _abandon(model: _engine.LocalModel, outputs: Iterable[int]) -> None:
    """Cancel requests whose caller no longer waits."""
    for request in outputs:
        model.cancel(request)


class _Progress:
    """A progress bar, where there is a terminal and tqdm."""

    def __init__(self, total: int, use_tqdm: bool | Callable[..., Any]) -> None:
        self._bar = None
        if callable(use_tqdm):
            self._bar = use_tqdm(total=total, desc="Answers")
        elif use_tqdm and total > 1 and sys.stderr.isatty():
            try:
                from tqdm import tqdm  # noqa: PLC0415

                self._bar = tqdm(total=total, desc="Answers", dynamic_ncols=True)
            except ImportError:
                pass

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def advance(self) -> None:
        """Count one answer more."""
        if self._bar is not None:
            self._bar.update(1)
