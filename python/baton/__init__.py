"""Baton: a language-model engine that computes, stores and reads a shared prompt once for all its requests.

    from baton import LLM, SamplingParams

    llm = LLM("demo")
    for output in llm.generate(["2 + 2 ="], SamplingParams(temperature=0, max_tokens=8)):
        print(output.outputs[0].text)

The command `baton` (serve, chat, demo, bench, ...) comes with the package.
"""

from baton._engine import set_log_level
from baton._prompts import TextPrompt, TokensPrompt
from baton.async_llm import AsyncLLM
from baton.errors import (
    BatonError,
    InvalidDataError,
    InvalidRequestError,
    IoError,
    NotFoundError,
    OutOfMemoryError,
    UnavailableError,
    UnsupportedError,
)
from baton.llm import LLM
from baton.outputs import CompletionOutput, Logprob, RequestMetrics, RequestOutput, SharingStats
from baton.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams
from baton.tokenizer import Tokenizer

__all__ = [
    "LLM",
    "AsyncLLM",
    "BatonError",
    "CompletionOutput",
    "InvalidDataError",
    "InvalidRequestError",
    "IoError",
    "Logprob",
    "NotFoundError",
    "OutOfMemoryError",
    "RequestMetrics",
    "RequestOutput",
    "RequestOutputKind",
    "SamplingParams",
    "SharingStats",
    "StructuredOutputsParams",
    "TextPrompt",
    "Tokenizer",
    "TokensPrompt",
    "UnavailableError",
    "UnsupportedError",
    "set_log_level",
]
__version__ = "0.1.0"

set_log_level("warning")  # a library says little; the command logs as it always does
