#!/usr/bin/env python3
"""Which prompt tokens vLLM finds in its prefix cache, told by its own scheduler without a GPU.

    LD_LIBRARY_PATH=STUBS PYTHONPATH=SITE bench/peers/vllm_scheduler.py --shape qwen3.5-4b --arm vllm-fine --kv-gb 15.5

The cases of prefix_cases.py. The model's layers are made without weights, the blocks of its cache are planned for --kv-gb,
and the scheduler plans step after step; answers are drawn in place of computed, so the times say nothing. SITE is the
unpacked packages of engine_pack.py, beside PyTorch 2.11 and Transformers 5.17; STUBS a folder with libcuda.so.1, a link to
CUDA's stub. --json FILE takes the rows.
"""

import argparse
import json
import tempfile
from pathlib import Path

import engine_points
import prefix_cases
import vllm_engine


def pretend():
    """PyTorch and vLLM see an H200, as far as they look at it before anything runs. Returns vLLM's platform."""
    import torch
    import vllm.platforms
    import vllm.utils.torch_utils
    from vllm.platforms.cuda import NonNvmlCudaPlatform
    from vllm.platforms.interface import DeviceCapability

    class H200(NonNvmlCudaPlatform):
        @classmethod
        def get_device_capability(cls, device_id=0):
            return DeviceCapability(9, 0)

        @classmethod
        def get_device_name(cls, device_id=0):
            return "NVIDIA H200"

        @classmethod
        def get_device_total_memory(cls, device_id=0):
            return 143_771 << 20

        @classmethod
        def num_compute_units(cls, device_id=0):
            return 132

        @classmethod
        def is_fully_connected(cls, physical_device_ids):
            return True

    torch.cuda.current_device = lambda: "cpu"
    vllm.utils.torch_utils.aux_stream = lambda: None
    vllm.platforms._current_platform = H200()
    return vllm.platforms._current_platform


def cache_of(config, platform, kv_gb):
    """The plan of the cache for a model of this config, whose layers are made without memory."""
    import torch
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.v1.core.kv_cache_utils import generate_scheduler_kv_cache_config, get_kv_cache_configs

    with tempfile.NamedTemporaryFile() as store:
        init_distributed_environment(1, 0, f"file://{store.name}", 0, "gloo")
        initialize_model_parallel(1, 1)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("meta"):
        initialize_model(vllm_config=config)
    torch.set_default_dtype(torch.float32)
    platform.update_block_size_for_backend(config)
    layers = config.compilation_config.static_forward_context
    specs = {name: layer.get_kv_cache_spec(config) for name, layer in layers.items() if isinstance(layer, AttentionLayerBase)}
    plans = get_kv_cache_configs(config, [{name: spec for name, spec in specs.items() if spec}], [int(1e9 * kv_gb)])
    return generate_scheduler_kv_cache_config(plans)


class Simulation:
    """vLLM's scheduler, and an engine of prefix_cases.py whose answers are drawn."""

    def __init__(self, config, cache):
        from vllm.utils.hashing import get_hash_fn_by_name
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash, resolve_kv_cache_block_sizes
        from vllm.v1.structured_output import StructuredOutputManager

        config.cache_config.num_gpu_blocks = cache.num_blocks
        self.block_size, unit = resolve_kv_cache_block_sizes(cache, config)
        self.scheduler = config.scheduler_config.get_scheduler_cls()(
            vllm_config=config,
            kv_cache_config=cache,
            structured_output_manager=StructuredOutputManager(config),
            block_size=self.block_size,
            hash_block_size=unit,
        )
        hash_of = get_hash_fn_by_name(config.cache_config.prefix_caching_hash_algo)
        init_none_hash(hash_of)
        self.hasher, self.n_sent, self.n_drawn = get_request_block_hasher(unit, hash_of), 0, 0

    def forget(self):
        if not self.scheduler.reset_prefix_cache():
            raise RuntimeError("vLLM did not empty its prefix cache")

    def drawn(self):
        self.n_drawn += 1
        return 10 + 7919 * self.n_drawn % 200_000

    def first_tokens(self, prompts, n_new):
        from vllm import SamplingParams
        from vllm.v1.outputs import ModelRunnerOutput
        from vllm.v1.request import Request

        ids = [str(self.n_sent + i) for i in range(len(prompts))]
        self.n_sent += len(prompts)
        for name, prompt in zip(ids, prompts, strict=True):
            sampling = SamplingParams(temperature=0, max_tokens=n_new, ignore_eos=True)
            self.scheduler.add_request(Request(name, prompt, sampling, None, block_hasher=self.hasher))
        cached, answers, running = {}, {name: [] for name in ids}, set(ids)
        while running:
            step = self.scheduler.schedule()
            for request in step.scheduled_new_reqs:
                cached.setdefault(request.req_id, request.num_computed_tokens)
            planned = list(step.num_scheduled_tokens)
            sampled = [[] if self.scheduler.requests[name].is_prefill_chunk else [self.drawn()] for name in planned]
            outputs = self.scheduler.update_from_output(
                step,
                ModelRunnerOutput(
                    req_ids=planned,
                    req_id_to_index={name: i for i, name in enumerate(planned)},
                    sampled_token_ids=sampled,
                    prompt_logprobs_dict={},
                    pooler_output=[],
                ),
            )
            for output in (one for of_client in outputs.values() for one in of_client.outputs):
                answers[output.request_id] += output.new_token_ids
                if output.finish_reason is not None:
                    running.discard(output.request_id)
        return [(0.0, cached[name], answers[name]) for name in ids]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=engine_points.RECURRENT, required=True)
    parser.add_argument("--arm", choices=("vllm", "vllm-fine"), default="vllm")
    parser.add_argument("--kv-gb", type=float, required=True, help="memory for keys, values and states")
    parser.add_argument("--json", type=Path, help="file for the rows")
    options = parser.parse_args()
    vllm_engine.environment(options.arm)
    platform = pretend()
    from vllm.config import set_current_vllm_config
    from vllm.engine.arg_utils import EngineArgs

    with tempfile.TemporaryDirectory() as folder:
        config = EngineArgs(**vllm_engine.arguments(options.shape, options.arm, options.kv_gb, None, folder)).create_engine_config()
    rows, vocabulary = [], engine_points.n_vocab(options.shape)
    with set_current_vllm_config(config):
        simulation = Simulation(config, cache_of(config, platform, options.kv_gb))
        print(f"{options.arm} {options.shape}: blocks of {simulation.block_size} tokens", flush=True)
        for number, case in enumerate(prefix_cases.CASES):
            simulation.forget()
            rows.append(prefix_cases.run(simulation.first_tokens, case, vocabulary, number))
            print(prefix_cases.line(rows[-1]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
