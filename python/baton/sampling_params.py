"""How tokens are chosen and when an answer ends, with vLLM's names."""

from __future__ import annotations

import dataclasses
import json as json_text
from typing import Any

from baton import _engine
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


@dataclasses.dataclass
class SamplingParams:
    """Parameters of one prompt's answers. The engine checks ranges; its errors name the field.

    `max_tokens` None: what the context allows. `top_k` 0 or -1: off. `logprobs` and `prompt_logprobs` n: also the n most
    likely tokens. `stop_token_ids` come in addition to the model's own ends.
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
    bad_words: list[str] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    detokenize: bool = True
    skip_special_tokens: bool = True
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    structured_outputs: StructuredOutputsParams | None = None

    def __post_init__(self) -> None:
        """Refuse what the engine would not see."""
        if not 1 <= self.n <= MAX_SAMPLES:
            raise InvalidRequestError(f"n must be from 1 to {MAX_SAMPLES}, got {self.n}", "n")
        if not isinstance(self.structured_outputs, StructuredOutputsParams | None):
            kind = type(self.structured_outputs).__name__
            raise InvalidRequestError(f"structured_outputs must be StructuredOutputsParams, not {kind}", "structured_outputs")

    def stops(self) -> list[str]:
        """Return the stop strings as a list."""
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or [])

    def question(self, model: _engine.LocalModel) -> _engine.Question:
        """Return these parameters as the engine takes them. Compiling a grammar may take seconds."""
        question = _engine.Question()
        question.n = self.n
        question.stop = self.stops()
        question.include_stop = self.include_stop_str_in_output
        question.skip_special_tokens = self.skip_special_tokens
        question.detokenize = self.detokenize
        question.set_temperature(self.temperature)
        question.set_top_k(max(self.top_k, 0) if self.top_k == -1 else self.top_k)
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
