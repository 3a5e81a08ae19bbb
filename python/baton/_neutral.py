"""What vLLM's calls have and Baton has not: the values that change nothing, and why others are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from baton.errors import UnsupportedError

#: Accepted values, and the reason.
Table = Mapping[str, tuple[tuple[Any, ...], str]]

SAMPLING: Table = {
    "prompt_logprob_token_ids": ((None,), "prompt_logprobs scores the prompt's own tokens and the most likely ones"),
    "prompt_logprob_start": ((None, 0), "prompt_logprobs scores the whole prompt"),
    "logprob_token_ids": ((None,), "logprobs gives the most likely tokens"),
    "flat_logprobs": ((False,), "logprobs are dicts"),
    "spaces_between_special_tokens": ((True, False), "texts have the spaces that the tokenizer writes"),
    "stream_interval": ((None, 1), "news come as soon as there are any"),
    "output_text_buffer_length": ((0,), "what may become a stop string is held back"),
    "extra_args": ((None, {}), "there are no plug-ins"),
    "skip_reading_prefix_cache": ((None, False), "a cache_salt of its own keeps a prompt apart"),
    "thinking_token_budget": ((None, -1), "reasoning ends where the model ends it"),
    "repetition_detection": ((None,), "repetition_penalty and max_tokens are there"),
    "routed_experts_prompt_start": ((0,), "outputs hold no routing"),
    "trace_decode_token_ids": ((None,), "tokens are sampled"),
}
CALLS: Table = {
    "lora_request": ((None,), "there are no adapters"),
    "tokenization_kwargs": ((None, {}), "prompts as token ids may be cut in any way"),
    "mm_processor_kwargs": ((None, {}), "prompts are texts"),
    "chat_template_content_format": (("auto", "string", "openai"), "the template shows whether it takes lists of parts"),
    "trace_headers": ((None, {}), "there are no traces"),
    "data_parallel_rank": ((None, 0), "one engine"),
}
PROMPTS: Table = {
    "multi_modal_data": ((None, {}), "prompts are texts"),
    "multi_modal_uuids": ((None, {}), "prompts are texts"),
    "mm_processor_kwargs": ((None, {}), "prompts are texts"),
    "prompt_embeds": ((None,), "prompts are texts or token ids"),
    "token_type_ids": ((None,), "prompts are texts or token ids"),
}
TOKENIZER: Table = {
    "text_pair": ((None,), "texts are single"),
    "padding": ((None, False), "lists of ids need none"),
    "truncation": ((None, False), "a list of ids may be cut in any way"),
    "max_length": ((None,), "a list of ids may be cut in any way"),
    "return_tensors": ((None,), "ids are lists"),
    "return_dict": ((None, False), "ids are lists"),
    "return_attention_mask": ((None, False, True), "nothing is padded, so it holds ones"),
    "clean_up_tokenization_spaces": ((None, False), "texts are what the tokenizer writes"),
    "spaces_between_special_tokens": ((None, True, False), "texts have the spaces that the tokenizer writes"),
}
_GENERATES = "the model generates; embeddings and scores are not there"
_ONE_ENGINE = "no code of others runs in the engine"
_WEIGHTS = "weights are those of the checkpoint"
#: Methods of vLLM's LLM.
METHODS: Mapping[str, str] = {
    "apply_model": _ONE_ENGINE,
    "beam_search": "answers are sampled; n answers share their prompt",
    "classify": _GENERATES,
    "collective_rpc": _ONE_ENGINE,
    "embed": _GENERATES,
    "enqueue": "generate takes a whole batch, and AsyncLLM takes prompts at any time",
    "finish_weight_update": _WEIGHTS,
    "get_metrics": "outputs have metrics and stats, and kv_bytes() counts what sharing saved",
    "init_weight_transfer_engine": _WEIGHTS,
    "reset_mm_cache": "prompts are texts",
    "reset_prefix_cache": "a cache_salt keeps prompts apart",
    "reward": _GENERATES,
    "score": _GENERATES,
    "set_tokenizer": "the tokenizer is the model's",
    "sleep": "close() frees the model",
    "start_profile": "there is no profiler",
    "start_weight_update": _WEIGHTS,
    "stop_profile": "there is no profiler",
    "update_weights": _WEIGHTS,
    "wait_for_completion": "generate returns when all have been answered",
    "wake_up": "close() frees the model",
}


def check(table: Table, given: Iterable[tuple[str, Any]]) -> None:
    """Refuse a value that would change something, by name."""
    for name, value in given:
        accepted, reason = table[name]
        if not any(value is each or (type(value) is type(each) and value == each) for each in accepted):
            raise UnsupportedError(f"{name}={value!r} is not supported: {reason}", name)


def _absent(name: str, reason: str) -> Callable[..., Any]:
    def method(_: object, *__: Any, **___: Any) -> Any:  # noqa: ANN401
        raise UnsupportedError(f"{name}() is not supported: {reason}", name)

    method.__name__ = name
    method.__doc__ = f"Not supported: {reason}."
    return method


class AbsentMethods:
    """METHODS, each of which says why it is not there."""


for _name, _reason in METHODS.items():
    setattr(AbsentMethods, _name, _absent(_name, _reason))
