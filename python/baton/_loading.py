"""The arguments of LLM and AsyncLLM, as the engine's options."""

from __future__ import annotations

import os
from typing import Any

from baton import _engine
from baton._command import PROGRAM
from baton.errors import InvalidRequestError, UnsupportedError

#: Arguments whose names are fields of the engine's options.
FIELDS = (
    "revision",
    "download_dir",
    "load_format",
    "dtype",
    "device",
    "threads",
    "enforce_eager",
    "attention",
    "batch_invariant",
    "enable_prefix_caching",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "block_size",
    "kv_cache_dtype",
    "kv_cache_memory_bytes",
    "gpu_memory_utilization",
    "kv_offloading_size",
    "kv_offloading_backend",
    "scheduling_policy",
    "seed",
    "chat_template",
    "generation_config",
)
#: Arguments that are no fields.
OTHERS = ("tensor_parallel_size", "speculative_config")
#: Arguments of vLLM that are accepted with the one value that says what Baton does anyway.
NEUTRAL = {
    "tokenizer": None,
    "tokenizer_mode": "auto",
    "trust_remote_code": False,
    "pipeline_parallel_size": 1,
    "quantization": None,
    "enable_chunked_prefill": True,
    "disable_log_stats": True,
    "cpu_offload_gb": 0,
    "swap_space": 0,
}


def load(model: str, arguments: dict[str, Any]) -> _engine.LocalModel:
    """Load a model; an argument that is not known, or has a value that is not supported, is refused by name."""
    options = _engine.ModelOptions()
    options.model = os.fspath(model)
    n_ranks = arguments.pop("tensor_parallel_size", 1)
    if not isinstance(n_ranks, int):
        raise InvalidRequestError(f"tensor_parallel_size must be an integer, not {n_ranks!r}", "tensor_parallel_size")
    speculation = arguments.pop("speculative_config", None)
    if speculation is not None:
        _set_speculation(options, dict(speculation))
    for name, value in arguments.items():
        if name in NEUTRAL:
            if value != NEUTRAL[name]:
                raise UnsupportedError(f"{name}={value!r} is not supported: only {NEUTRAL[name]!r}", name)
        elif name not in FIELDS:
            raise TypeError(f"unexpected argument {name!r}; known are {', '.join(('model', *OTHERS, *FIELDS))}")
        elif value is not None:
            setattr(options, name, value)
    return _engine.LocalModel(options, n_ranks, str(PROGRAM))


def _set_speculation(options: _engine.ModelOptions, config: dict[str, Any]) -> None:
    """Read vLLM's speculative_config with the method ngram."""
    method = config.pop("method", "ngram")
    if method != "ngram":
        raise UnsupportedError(f"speculative_config: method {method!r} is not supported: only 'ngram'", "speculative_config")
    n_tokens = config.pop("num_speculative_tokens", 4)
    longest = config.pop("prompt_lookup_max", None)
    shortest = config.pop("prompt_lookup_min", None)
    if config:
        raise InvalidRequestError(f"speculative_config: {sorted(config)} are not known", "speculative_config")
    options.set_speculation(n_tokens, longest or shortest or 4, shortest or longest or 2)
