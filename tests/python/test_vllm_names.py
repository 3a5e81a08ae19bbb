"""docs/python.md says of every name of vLLM's what it does here; BATON_WRITE_DOCS=1 writes its tables."""

from __future__ import annotations

import dataclasses
import inspect
import os
import pathlib
from collections.abc import Iterable

import pytest
from baton import LLM, CompletionOutput, RequestMetrics, RequestOutput, SamplingParams, _engine, _neutral

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/python.md"
ACTS = "acts"


def shown(values: Iterable[object]) -> str:
    """Accepted values as the table writes them."""
    return " or ".join(f"`{value!r}`" for value in values)


def table(rows: Iterable[tuple[str, str, str]]) -> str:
    """A Markdown table of (name, effect, reason), in which names of one effect and reason share a row."""
    shared: dict[tuple[str, str], list[str]] = {}
    for name, effect, reason in sorted(rows, key=lambda row: row[1] != ACTS):
        shared.setdefault((effect, reason), []).append(name)
    lines = [f"| {', '.join(names)} | {effect} | {reason} |" for (effect, reason), names in shared.items()]
    return "\n".join(["| name | effect | why |", "|---|---|---|", *lines])


def argument_row(row: _engine.ArgumentRow) -> tuple[str, str, str]:
    """A row of the table of arguments."""
    words = {"any", "the model's"}
    values = row.values if row.values in words else " or ".join(f"`{value}`" for value in row.values.split(", "))
    name = f"`{row.name}`" + (f" {values}" if row.effect == "neutral" else "")
    return name, row.effect, row.reason


def neutral_rows(rows: _neutral.Table) -> list[tuple[str, str, str]]:
    """Rows of names that take the values that change nothing."""
    return [(f"`{name}` {shown(accepted)}", "neutral", reason) for name, (accepted, reason) in rows.items()]


def output_rows(kind: type) -> list[tuple[str, str, str]]:
    """Rows of the fields of an output: with what they say, or None for ever."""
    never = [field.name for field in dataclasses.fields(kind) if field.type == "None"]
    names = [field.name for field in dataclasses.fields(kind)]
    names += [name for name, _ in inspect.getmembers(kind, lambda member: isinstance(member, property))]
    return [(f"`{name}`", "always `None`" if name in never else ACTS, "") for name in names]


def call_rows() -> list[tuple[str, str, str]]:
    """Rows of the parameters of generate and chat."""
    names = dict.fromkeys([*inspect.signature(LLM.generate).parameters, *inspect.signature(LLM.chat).parameters])
    acts = [(f"`{name}`", ACTS, "") for name in names if name != "self" and name not in _neutral.CALLS]
    return acts + neutral_rows(_neutral.CALLS)


def sampling_rows() -> list[tuple[str, str, str]]:
    """Rows of the fields of SamplingParams."""
    names = [field.name for field in dataclasses.fields(SamplingParams)]
    return [(f"`{name}`", ACTS, "") for name in names if name not in _neutral.SAMPLING] + neutral_rows(_neutral.SAMPLING)


TABLES = {
    "Arguments of LLM and AsyncLLM": table(map(argument_row, _engine.argument_rows())),
    "Fields of SamplingParams": table(sampling_rows()),
    "Parameters of generate and chat": table(call_rows()),
    "Fields of a prompt": table(
        [(f"`{name}`", ACTS, "") for name in ("prompt", "prompt_token_ids", "cache_salt")] + neutral_rows(_neutral.PROMPTS)
    ),
    "Fields of RequestOutput": table(output_rows(RequestOutput)),
    "Fields of CompletionOutput": table(output_rows(CompletionOutput)),
    "Fields of RequestMetrics": table(output_rows(RequestMetrics)),
    "Methods of vLLM's LLM that raise": table((f"`{name}`", "refused", reason) for name, reason in _neutral.METHODS.items()),
}


@pytest.mark.parametrize("heading", TABLES)
def test_the_page_has_the_table(heading: str) -> None:
    """As the code says it."""
    text = PAGE.read_text()
    begin = text.index(f"### {heading}\n") + len(f"### {heading}\n")
    start = text.index("| name |", begin)
    end = text.find("\n\n", start)
    end = len(text.rstrip()) if end < 0 else end
    if os.environ.get("BATON_WRITE_DOCS"):
        PAGE.write_text(text[:start] + TABLES[heading] + text[end:])
    else:
        assert text[start:end] == TABLES[heading], "BATON_WRITE_DOCS=1 writes the page"


#: vLLM's own, by its class of engine arguments and its three classes of outputs and parameters, as of 2026.
ENGINE_ARGUMENTS = """
    model tokenizer tokenizer_mode trust_remote_code allowed_local_media_path allowed_media_domains download_dir load_format
    config_format dtype kv_cache_dtype seed max_model_len cudagraph_capture_sizes max_cudagraph_capture_size runner convert
    distributed_executor_backend pipeline_parallel_size master_addr master_port nnodes node_rank tensor_parallel_size
    prefill_context_parallel_size decode_context_parallel_size dcp_kv_cache_interleave_size cp_kv_cache_interleave_size
    data_parallel_size data_parallel_rank data_parallel_start_rank data_parallel_size_local data_parallel_address
    data_parallel_rpc_port data_parallel_hybrid_lb data_parallel_external_lb data_parallel_backend enable_expert_parallel
    all2all_backend enable_dbo ubatch_size dbo_decode_token_threshold dbo_prefill_token_threshold
    disable_nccl_for_dp_synchronization eplb_config enable_eplb expert_placement_strategy max_parallel_loading_workers
    block_size enable_prefix_caching prefix_caching_hash_algo disable_sliding_window disable_cascade_attn swap_space
    cpu_offload_gb gpu_memory_utilization kv_cache_memory_bytes max_num_batched_tokens max_num_partial_prefills
    max_long_partial_prefills long_prefill_token_threshold max_num_seqs max_logprobs logprobs_mode disable_log_stats
    aggregate_engine_logging revision code_revision hf_token hf_overrides hf_config_path tokenizer_revision quantization
    allow_deprecated_quantization enforce_eager disable_custom_all_reduce limit_mm_per_prompt enable_mm_embeds
    interleave_mm_strings media_io_kwargs mm_processor_kwargs mm_processor_cache_gb mm_processor_cache_type
    mm_shm_cache_max_object_size_mb mm_encoder_only mm_encoder_tp_mode mm_encoder_attn_backend io_processor_plugin
    skip_mm_profiling video_pruning_rate enable_lora max_loras max_lora_rank default_mm_loras fully_sharded_loras max_cpu_loras
    lora_dtype ray_workers_use_nsight num_gpu_blocks_override model_loader_extra_config ignore_patterns enable_chunked_prefill
    disable_chunked_mm_input disable_hybrid_kv_cache_manager structured_outputs_config reasoning_parser reasoning_parser_plugin
    logits_processor_pattern speculative_config show_hidden_metrics_for_version otlp_traces_endpoint collect_detailed_traces
    kv_cache_metrics kv_cache_metrics_sample cudagraph_metrics enable_layerwise_nvtx_tracing enable_mfu_metrics
    enable_logging_iteration_details enable_mm_processor_stats scheduling_policy scheduler_cls pooler_config
    compilation_config attention_config worker_cls worker_extension_cls profiler_config kv_transfer_config kv_events_config
    ec_transfer_config generation_config enable_sleep_mode override_generation_config model_impl override_attention_dtype
    attention_backend calculate_kv_scales mamba_cache_dtype mamba_ssm_cache_dtype mamba_block_size mamba_cache_mode
    additional_config use_tqdm_on_load pt_load_map_location logits_processors async_scheduling stream_interval
    kv_sharing_fast_prefill optimization_level kv_offloading_size kv_offloading_backend tokens_only weight_transfer_config
    enable_return_routed_experts skip_tokenizer_init enable_prompt_embeds served_model_name chat_template
    offload_group_size offload_num_in_group offload_prefetch_step offload_params
""".split()
FIELDS = {
    SamplingParams: """n presence_penalty frequency_penalty repetition_penalty temperature top_p top_k min_p seed stop
        stop_token_ids ignore_eos max_tokens min_tokens logprobs prompt_logprobs prompt_logprob_token_ids prompt_logprob_start
        logprob_token_ids flat_logprobs detokenize skip_special_tokens spaces_between_special_tokens include_stop_str_in_output
        output_kind stream_interval skip_clone output_text_buffer_length structured_outputs logit_bias allowed_token_ids
        extra_args bad_words skip_reading_prefix_cache thinking_token_budget repetition_detection routed_experts_prompt_start
        trace_decode_token_ids""",
    RequestOutput: """request_id prompt prompt_token_ids prompt_logprobs outputs finished metrics lora_request encoder_prompt
        encoder_prompt_token_ids num_cached_tokens kv_transfer_params""",
    CompletionOutput: """index text token_ids cumulative_logprob logprobs routed_experts finish_reason stop_reason lora_request
        kv_transfer_params""",
    RequestMetrics: """arrival_time num_generation_tokens queued_ts scheduled_ts first_token_ts last_token_ts
        first_token_latency first_scheduled_time first_token_time last_token_time finished_time time_in_queue""",
}


def test_every_engine_argument_of_vllm_has_a_row() -> None:
    """No argument of a script for vLLM is unknown."""
    assert set(ENGINE_ARGUMENTS) - {row.name for row in _engine.argument_rows()} == set()


@pytest.mark.parametrize("kind", FIELDS)
def test_every_field_of_vllm_is_there(kind: type) -> None:
    """Fields and properties."""
    names = {field.name for field in dataclasses.fields(kind)} | set(dir(kind))
    assert set(FIELDS[kind].split()) - names == set()
