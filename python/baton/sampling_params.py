"""How tokens are chosen and when an answer ends, with vLLM's names."""

from __future__ import annotations

import copy
import dataclasses
import enum
import json as json_text
from typing import Any

from baton import _engine, _neutral
from baton.errors import InvalidRequestError

MAX_SAMPLES = 128
#: The fields of StructuredOutputsParams of which one is given.
GRAMMARS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")


@dataclasses.dataclass
class StructuredOutputsParams:
    """What answers keep to: exactly one grammar. Fields that are wrong are named when a prompt is submitted.

    `json`: a schema, or its text. `regex`: of the whole answer. `choice`: the answers to choose from. `grammar`: in GBNF or
    Lark. `json_object`: any object. `structural_tag`: see docs/grammars.md. `disable_any_whitespace`, or "" as
    `whitespace_pattern`: JSON without spaces.
    """

    json: str | dict[str, Any] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: str | None = None
    structural_tag: str | dict[str, Any] | None = None

    def __post_init__(self) -> None:
        """Refuse several grammars, and none."""
        given = [name for name in GRAMMARS if getattr(self, name) is not None]
        if len(given) != 1:
            raise InvalidRequestError(
                f"structured_outputs takes one of {', '.join(GRAMMARS)}, got {' and '.join(given) or 'none'}", "structured_outputs"
            )


class RequestOutputKind(enum.Enum):
    """What AsyncLLM yields: all so far, what is new, or the whole answer once."""

    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


@dataclasses.dataclass
class SamplingParams:
    """Parameters of one prompt's answers: all of vLLM's. The engine checks ranges; its errors name the field.

    `max_tokens` None: what the context allows. `top_k` 0 or -1: off. `logprobs` and `prompt_logprobs` n: also the n most
    likely tokens. `stop_token_ids` come in addition to the model's own ends. `output_kind`: of AsyncLLM. `skip_clone`: clone()
    returns the object itself. Fields that docs/python.md calls neutral take the values that change nothing.
    """

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    prompt_logprob_token_ids: None = None
    prompt_logprob_start: int | None = None
    logprob_token_ids: None = None
    flat_logprobs: bool = False
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    stream_interval: int | None = None
    skip_clone: bool = False
    output_text_buffer_length: int = 0
    structured_outputs: StructuredOutputsParams | None = None
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    extra_args: dict[str, Any] | None = None
    bad_words: list[str] | None = None
    skip_reading_prefix_cache: bool | None = None
    thinking_token_budget: int | None = None
    repetition_detection: None = None
    routed_experts_prompt_start: int = 0
    trace_decode_token_ids: None = None

    @staticmethod
    def from_optional(**given: Any) -> SamplingParams:  # noqa: ANN401
        """Return parameters of which None means the default (of max_tokens: no limit); ids of logit_bias may be texts."""
        known = {name: value for name, value in given.items() if value is not None or name == "max_tokens"}
        if "logit_bias" in known:
            try:
                known["logit_bias"] = {int(token): min(100.0, max(-100.0, bias)) for token, bias in known["logit_bias"].items()}
            except (TypeError, ValueError) as error:
                raise InvalidRequestError(f"logit_bias: {error}", "logit_bias") from None
        return SamplingParams(**known)

    def __post_init__(self) -> None:
        """Write fields in one form, and refuse what the engine would not see."""
        self.stop = [self.stop] if isinstance(self.stop, str) else list(self.stop or [])
        self.stop_token_ids = list(dict.fromkeys(self.stop_token_ids or []))
        self.bad_words = list(dict.fromkeys(self.bad_words or []))
        self.logprobs = 1 if self.logprobs is True else self.logprobs
        self.prompt_logprobs = 1 if self.prompt_logprobs is True else self.prompt_logprobs
        self.seed = None if self.seed == -1 else self.seed
        self._check()

    def clone(self) -> SamplingParams:
        """Return a copy that shares nothing with this one."""
        return self if self.skip_clone else copy.deepcopy(self)

    def _check(self) -> None:
        if not 1 <= self.n <= MAX_SAMPLES:
            raise InvalidRequestError(f"n must be from 1 to {MAX_SAMPLES}, got {self.n}", "n")
        for name in ("logprobs", "prompt_logprobs"):
            wanted = getattr(self, name)
            if wanted is not None and wanted < 0:
                raise InvalidRequestError(f"{name} must be at least 0, got {wanted}: the whole vocabulary is not given", name)
        if not isinstance(self.structured_outputs, StructuredOutputsParams | None):
            kind = type(self.structured_outputs).__name__
            raise InvalidRequestError(f"structured_outputs must be StructuredOutputsParams, not {kind}", "structured_outputs")
        if not isinstance(self.output_kind, RequestOutputKind):
            raise InvalidRequestError(f"output_kind must be a RequestOutputKind, not {self.output_kind!r}", "output_kind")
        _neutral.check(_neutral.SAMPLING, ((name, getattr(self, name)) for name in _neutral.SAMPLING))

    def question(self, model: _engine.LocalModel) -> _engine.Question:
        """Return these parameters as the engine takes them. Compiling a grammar may take seconds."""
        self._check()  # fields may have been set since
        question = _engine.Question()
        question.n = self.n
        question.stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        question.include_stop = self.include_stop_str_in_output
        question.skip_special_tokens = self.skip_special_tokens
        question.detokenize = self.detokenize
        question.set_temperature(self.temperature)
        question.set_top_k(0 if self.top_k == -1 else self.top_k)
        question.set_top_p(self.top_p)
        question.set_min_p(self.min_p)
        question.set_repetition_penalty(self.repetition_penalty)
        question.set_presence_penalty(self.presence_penalty)
        question.set_frequency_penalty(self.frequency_penalty)
        if self.seed is not None:
            question.set_seed(self.seed)
        if self.logprobs is not None:
            question.set_logprobs(self.logprobs)
        if self.prompt_logprobs is not None:
            question.set_prompt_logprobs(self.prompt_logprobs)
        if self.max_tokens is not None:
            question.set_max_tokens(self.max_tokens)
        question.set_min_tokens(self.min_tokens)
        question.set_ignore_eos(self.ignore_eos)
        question.set_stop_ids(self.stop_token_ids or [])
        question.set_allowed_ids(self.allowed_token_ids or [])
        question.set_logit_bias(list((self.logit_bias or {}).items()))
        question.bad_words = self.bad_words or []
        if self.structured_outputs is not None:
            model.constrain(question, json_text.dumps(dataclasses.asdict(self.structured_outputs)))
        return question
