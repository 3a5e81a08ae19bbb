"""LLM takes every flag of the server that concerns an engine, and vLLM's where they change nothing."""

from __future__ import annotations

import pathlib

import pytest
from baton import LLM, AsyncLLM, InvalidRequestError, SamplingParams, UnsupportedError, _engine
from baton._loading import _text

SMALL = {"kv_cache_memory_bytes": 4 << 20, "max_num_seqs": 4, "max_model_len": 256}


def test_a_script_for_vllm_starts(tmp_path: pathlib.Path) -> None:
    """With the arguments that such scripts write, in any order and of any type."""
    template = tmp_path / "template.jinja"
    template.write_text("{{ messages[0].content }}!")
    with LLM(
        model="demo",
        tokenizer="demo",
        tokenizer_mode="auto",
        trust_remote_code=True,
        tensor_parallel_size=1,
        pipeline_parallel_size=1,
        dtype="auto",
        quantization=None,
        revision=None,
        seed=None,
        swap_space=4,
        cpu_offload_gb=0.0,
        enforce_eager=True,
        disable_custom_all_reduce=False,
        disable_log_stats=True,
        enable_prefix_caching=False,
        enable_chunked_prefill=True,
        enable_lora=False,
        max_num_batched_tokens=512,
        max_prefill_tokens=64,
        gpu_memory_utilization=0.5,
        hf_overrides={},
        compilation_config={"level": 0},
        limit_mm_per_prompt={"image": 0},
        structured_outputs_config={"disable_any_whitespace": True},
        max_logprobs=2,
        chat_template=template,
        **SMALL,
    ) as llm:
        (first,) = llm.chat([{"role": "user", "content": "Hello"}], SamplingParams(max_tokens=2, logprobs=2))
        assert llm.decode(first.prompt_token_ids) == "Hello!"
        (again,) = llm.generate(["The lamp costs " * 20], SamplingParams(max_tokens=2))
        (again,) = llm.generate(["The lamp costs " * 20], SamplingParams(max_tokens=2))
        assert again.num_cached_tokens == 0, "enable_prefix_caching=False"
        with pytest.raises(InvalidRequestError, match="logprobs is 3; max_logprobs is 2"):
            llm.generate("Hello", SamplingParams(logprobs=3))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"max_num_seqs": 0}, "max_num_seqs: .*0 not in range"),
        ({"max_num_seqs": "many"}, "max_num_seqs: 'many' is not a number"),
        ({"block_size": 17}, "block_size: .*17 not in"),
        ({"gpu_memory_utilization": float("nan")}, "gpu_memory_utilization"),
        ({"kv_cache_dtype": "int3"}, "kv_cache_dtype: .*int3 not in"),
        ({"scheduling_policy": "lifo"}, "scheduling_policy: .*lifo not in"),
        ({"chat_template": "/no/such/file"}, "chat_template: .*/no/such/file"),
        ({"speculative_config": {"method": "eagle"}}, "speculative_config.*eagle.*'ngram'"),
        ({"speculative_config": {"method": object()}}, "speculative_config: .*not JSON serializable"),
        ({"structured_outputs_config": {"backend": "outlines"}}, "structured_outputs_config.*backend"),
        ({"dtype": object()}, "dtype must be a word"),
        ({"trust_remote_code": "yes"}, "trust_remote_code must be True or False"),
    ],
)
def test_wrong_values_are_named_in_the_words_of_a_call(arguments: dict[str, object], sentence: str) -> None:
    """A ValueError in the flag's sentence; `param` is the argument."""
    for kind in (LLM, AsyncLLM):
        with pytest.raises(InvalidRequestError, match=sentence) as refused:
            kind("demo", **arguments)
        assert isinstance(refused.value, ValueError)
        assert refused.value.param == next(iter(arguments))
        assert "--" not in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"pipeline_parallel_size": 2}, "pipeline_parallel_size 2: only 1 is supported"),
        ({"tokenizer": "other"}, "tokenizer other: only demo is supported"),
        ({"enable_lora": True}, "enable_lora is not supported: there are no adapters"),
        ({"enable_chunked_prefill": False}, "enable_chunked_prefill=False is not supported"),
        ({"rope_theta": 1}, "rope_theta is not supported"),
        ({"num_gpu_blocks_override": 8}, "kv_cache_memory_bytes says how large"),
        ({"log_level": "debug"}, "baton.set_log_level"),
        ({"prefix": ["a=b"]}, "register_prefix"),
    ],
)
def test_what_baton_cannot_do_is_refused_with_a_reason(arguments: dict[str, object], sentence: str) -> None:
    """It is a ValueError, as vLLM's are."""
    with pytest.raises(UnsupportedError, match=sentence) as refused:
        LLM("demo", **arguments)
    assert isinstance(refused.value, ValueError)
    assert refused.value.param == next(iter(arguments))


def test_unknown_names_are_type_errors() -> None:
    """With a neighbour only where one is near."""
    with pytest.raises(TypeError, match="'max_num_seq'; did you mean 'max_num_seqs'"):
        LLM("demo", max_num_seq=4)
    with pytest.raises(TypeError, match="'enable_prefix_cache'; did you mean 'enable_prefix_caching'"):
        AsyncLLM("demo", enable_prefix_cache=True)
    for name in ("nonsense", "port", "api_key", "help"):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'$"):
            LLM("demo", **{name: 1})


def test_values_become_the_text_of_a_flag() -> None:
    """Numbers, booleans, paths, objects and a framework's data types."""

    class Dtype:
        def __str__(self) -> str:
            return "torch.float32"

    values = {64: "64", 0.5: "0.5", 6.0: "6", True: "true", "auto": "auto", pathlib.Path("/a b"): "/a b", Dtype(): "float32"}
    for value, text in values.items():
        assert _text("x", value) == text
    assert _text("x", {"a": [1, None]}) == '{"a": [1, null]}'


def test_no_argument_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call says all; the command line's variables are the command line's."""
    monkeypatch.setenv("BATON_ATTENTION", "nonsense")
    assert _engine.parse_arguments("demo", [])
