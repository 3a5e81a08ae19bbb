#!/usr/bin/env python3
"""vLLM on the points of experiments 11 to 13: whole offline jobs, and steps behind a shared prompt. Random weights.

    bench/peers/vllm_engine.py --shape llama-3-8b --points gsp-64x16,gsp-4x64,decode-8b-128-2048
    bench/peers/vllm_engine.py --shape llama-2-7b --points sharegpt-2048 --arm vllm-cascade --data FOLDER
    bench/peers/vllm_engine.py --shape llama-3-8b --points decode-8b-1-2048 --quantization int4 --arm vllm-marlin
    bench/peers/vllm_engine.py --list

One call loads one engine with the settings of one arm and does its points one after the other; a point that fails is a
row that says so, and the next one is tried. The requests are those of `baton bench throughput` (drawn_requests.py),
given as token ids, greedy, of fixed output lengths; at most 256 sequences at once and 16,384 batched tokens, CUDA graphs
on, as in Baton's arms.

    vllm                    prefix caching on, its defaults: FlashAttention-3, asynchronous scheduling
    vllm-cascade            its cascade attention on; only its first model runner has it
    vllm-no-prefix-caching  what Baton calls unshared
    vllm-flashinfer         FlashInfer's kernels, if the package is there; the machine compiles them, which takes minutes
                            (no cascade: vLLM 0.24.0 switches it off for FlashInfer)
    vllm-tp2, vllm-tp4      its defaults with tensor_parallel_size 2 or 4, on the first GPUs of CUDA_VISIBLE_DEVICES; the
                            rows are experiment 12's
    vllm-marlin             matmuls of quantised weights by Marlin, in place of the kernel that vLLM takes on this GPU
    vllm-fine               --prefix-match-unit 16: prompts of models with recurrent layers match at every 16th token
    vllm-triton             attention by Triton's kernels
    vllm-eager              the same without torch.compile and CUDA graphs

--or ARM,ARM names what to try in turn when an engine does not load; the rows say which arm it was.

--quantization fp8 rounds the weights while they load (a scale a matrix; CUTLASS's FP8 matmuls, whose activations are
rounded to FP8 with a scale a token; by Marlin they stay in bf16). int4 states symmetric groups of 128 in the format of
compressed-tensors (Machete) and fills them with random bits. The output layer stays in bf16. The rows are experiment
13's and name the kernel. gpt-oss has its experts in MXFP4, whatever is asked for (Triton's kernels).

Qwen3.5 is known to vLLM with its vision tower only: the config says so, and language_model_only leaves the tower out. Its
prefills of Gated DeltaNet are Triton's (FlashInfer's, the default, would have to be compiled), at most 128 sequences and
8,192 batched tokens; states are f32, prefix caching is vLLM's align mode.

job: seconds from the first request handed over to the last answer; the prefix cache is emptied before each run.
decode: milliseconds a step while all requests are running and their prompts are cached. Machine and packages:
engine_pack.py. cached: prefix_cases.py.
"""

import json
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

import engine_measure
import engine_points
from engine_points import MAX_BATCHED_TOKENS, MAX_MODEL_LEN, MAX_NUM_SEQS, RECURRENT, RECURRENT_BATCHED_TOKENS, RECURRENT_SEQS

ARMS = {
    "vllm": {},
    "vllm-cascade": {"cascade": True},
    "vllm-no-prefix-caching": {"prefix_caching": False},
    "vllm-flashinfer": {"backend": "FLASHINFER"},
    "vllm-tp2": {"ranks": 2},
    "vllm-tp4": {"ranks": 4},
    "vllm-marlin": {"linear_backend": "marlin"},
    "vllm-fine": {"prefix_match_unit": 16},
    "vllm-triton": {"backend": "TRITON_ATTN"},
    "vllm-eager": {"backend": "TRITON_ATTN", "eager": True},
}
INT4_GROUPS = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 128},
        }
    },
}
# What vLLM reads beside the shape's own keys: it knows Ministral's query scale under another name.
MORE_CONFIG = {"ministral-3-8b": {"llama_4_scaling": {"original_max_position_embeddings": 16384, "beta": 0.1}}}
DRAWN_AGAIN = ("gpt-oss-20b",)  # shapes whose weights draw_experts() draws
GRAPH_SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256]
LEAST_STEPS = 20


def is_prepared(shape, quantization):
    """Whether something is done to the loaded model before it runs."""
    return quantization not in (None, "none") or shape in DRAWN_AGAIN


def environment(arm, quantization=None, shape=None):
    """What vLLM reads when it is imported."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ["VLLM_USE_FLASHINFER_SAMPLER"] = "0"
    os.environ["VLLM_NO_USAGE_STATS"] = "1"
    os.environ["HF_HUB_OFFLINE"] = "1"
    if ARMS[arm].get("cascade"):
        os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"
    if is_prepared(shape, quantization):
        os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"  # prepare() is sent to the process that has the model
    if ARMS[arm].get("linear_backend") == "marlin":
        os.environ["VLLM_TEST_FORCE_FP8_MARLIN"] = "1"  # else it refuses to on a GPU that multiplies FP8


def with_vision(config):
    """The config of Qwen3.5's text model as vLLM reads it: inside that of the model with a vision tower."""
    kind = config["model_type"].removesuffix("_text")
    architecture = "Qwen3_5MoeForConditionalGeneration" if kind.endswith("moe") else "Qwen3_5ForConditionalGeneration"
    text = {key: value for key, value in config.items() if key != "architectures"}
    above = {key: config[key] for key in ("tie_word_embeddings", "torch_dtype")}
    return {"architectures": [architecture], "model_type": kind, "text_config": text, "vision_config": {"depth": 1}, **above}


def model_folder(shape, quantization, folder):
    """Writes a shape as vLLM reads it to `folder`, with weights in int4 groups where they are asked for. Returns it."""
    config = json.loads((engine_points.shape_folder(shape) / "config.json").read_text(encoding="utf-8"))
    config |= MORE_CONFIG.get(shape, {})
    if shape in RECURRENT:
        config = with_vision(config)
    if quantization == "int4":
        config["quantization_config"] = INT4_GROUPS
    (Path(folder) / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def draw_experts(model):
    """Draws the weights of gpt-oss again, with norms of 1, no biases and MXFP4 values of random bits: as a dummy load leaves
    them, each token takes the same experts, whose values are zeroes. Returns the bytes of random bits. Runs in the process
    that has the model."""
    import torch

    n_bytes = 0
    with torch.inference_mode():
        for name, parameter in model.named_parameters():
            if name.endswith(("bias", "sinks")):
                parameter.data.zero_()
            elif parameter.dim() == 1:
                parameter.data.fill_(1)
            elif parameter.is_floating_point():
                parameter.data.normal_(std=parameter.shape[-1] ** -0.5)
        for module in model.modules():
            for which in ("w13", "w2"):
                precision = getattr(getattr(module, "quant_method", None), f"{which}_precision_config", None)
                if precision is not None:
                    values = getattr(module, f"{which}_weight").storage.data
                    n_bytes += values.random_(0, 256).numel()
                    precision.weight_scale.storage.data.fill_(120)  # 2^-7, about 0.4 / sqrt(2880)
    if n_bytes == 0:
        raise RuntimeError("no experts in MXFP4 were found")
    return n_bytes


def prepare(model):
    """Fills the packed integers of a model, which a dummy load leaves as memory was, with random bits. Returns their bytes,
    and the names of the kernels of its matrices. Runs in the process that has the model."""
    import torch

    n_bytes, kernels = 0, set()
    with torch.inference_mode():
        for parameter in model.parameters():
            if parameter.dtype == torch.int32 and parameter.dim() == 2:
                parameter.data.random_(-(2**31), 2**31)
                n_bytes += 4 * parameter.numel()
    for module in model.modules():
        for holder, name in ((getattr(module, "quant_method", None), "fp8_linear"), (getattr(module, "scheme", None), "kernel")):
            kernels |= {type(kernel).__name__ for kernel in (getattr(holder, name, None),) if kernel is not None}
    return n_bytes, sorted(kernels)


def arguments(shape, arm, kv_gb, quantization, folder):
    """The arguments of an engine of an arm; writes the shape to `folder`."""
    settings, more = ARMS[arm], {}
    if "backend" in settings:
        more["attention_backend"] = settings["backend"]
    if settings.get("cascade"):
        more["disable_cascade_attn"] = False
    if settings.get("ranks"):
        more["tensor_parallel_size"] = settings["ranks"]
    if settings.get("eager"):
        more["enforce_eager"] = True
    more |= {key: settings[key] for key in ("linear_backend", "prefix_match_unit") if key in settings}
    if quantization == "fp8":
        more["quantization"] = "fp8"
    n_seqs, batched_tokens = MAX_NUM_SEQS, MAX_BATCHED_TOKENS
    if shape in RECURRENT:
        more |= {"language_model_only": True, "additional_config": {"gdn_prefill_backend": "triton"}}
        n_seqs, batched_tokens = RECURRENT_SEQS, RECURRENT_BATCHED_TOKENS
    return {
        "model": str(model_folder(shape, quantization, folder)),
        "skip_tokenizer_init": True,
        "load_format": "dummy",
        "dtype": "bfloat16",
        "max_model_len": MAX_MODEL_LEN,
        "max_num_seqs": n_seqs,
        "max_num_batched_tokens": batched_tokens,
        "kv_cache_memory_bytes": int(1e9 * kv_gb),
        "gpu_memory_utilization": 0.05,  # only checked against what is free; other engines may be on the GPU
        "enable_prefix_caching": settings.get("prefix_caching", True),
        "seed": 0,
        "compilation_config": {"cudagraph_capture_sizes": [size for size in GRAPH_SIZES if size <= n_seqs]},
        **more,
    }


class Engine:
    """One vLLM engine. A prompt is a list of token ids."""

    def __init__(self, shape, arm, kv_gb, quantization=None):
        from vllm import LLM, SamplingParams
        from vllm.sampling_params import RequestOutputKind

        self.sampling, self.kinds = SamplingParams, RequestOutputKind
        self.folder = tempfile.mkdtemp(prefix="vllm-shape-")
        self.llm = LLM(**arguments(shape, arm, kv_gb, quantization, self.folder))
        self.engine, self.n_sent, self.prepared = self.llm.llm_engine, 0, {}
        if quantization not in (None, "none"):
            n_bytes, kernels = self.llm.apply_model(prepare)[0]
            self.prepared = {"kernels": kernels, "random_bytes": n_bytes}
        if shape in DRAWN_AGAIN:
            self.prepared = {"random_bytes": self.llm.apply_model(draw_experts)[0]}

    def stop(self):
        """Ends the engine's process, so that its memory is free for the next one, and then this one at once."""
        import multiprocessing

        sys.stdout.flush()
        shutil.rmtree(self.folder, ignore_errors=True)
        stopper = threading.Thread(target=self.engine.engine_core.shutdown, daemon=True)
        stopper.start()
        stopper.join(10)
        for process in multiprocessing.active_children():
            process.kill()
            process.join(10)
        os._exit(0)

    def settings(self):
        """What the engine decided, for the row."""
        of = self.engine.vllm_config
        return {
            "v2_runner": bool(of.use_v2_model_runner),
            "cascade": not of.model_config.disable_cascade_attn,
            "prefix_caching": bool(of.cache_config.enable_prefix_caching),
            "block_size": of.cache_config.block_size,
            "cudagraph_mode": str(of.compilation_config.cudagraph_mode).rpartition(".")[2],
            "attention_backend": str(of.attention_config.backend).rpartition(".")[2],
            "asynchronous": bool(of.scheduler_config.async_scheduling),
            "tensor_parallel_size": of.parallel_config.tensor_parallel_size,
            "custom_all_reduce": not of.parallel_config.disable_custom_all_reduce,
            "max_num_batched_tokens": of.scheduler_config.max_num_batched_tokens,
            "mamba_cache_mode": of.cache_config.mamba_cache_mode,
            "prefix_match_unit": getattr(of.cache_config, "prefix_match_unit", None),
            **self.prepared,
        }

    def greedy(self, n_tokens, kind):
        return self.sampling(temperature=0, max_tokens=n_tokens, ignore_eos=True, detokenize=False, output_kind=kind)

    def forget(self):
        engine_measure.repeat_until(self.llm.reset_prefix_cache, "vLLM did not empty its prefix cache")

    def whole(self, requests):
        """Runs [(prompt, output_len)]. Returns (seconds, prompt tokens found in the cache or None)."""
        prompts = [{"prompt_token_ids": prompt} for prompt, _ in requests]
        sampling = [self.greedy(n, self.kinds.FINAL_ONLY) for _, n in requests]
        begin = time.perf_counter()
        answers = self.llm.generate(prompts, sampling, use_tqdm=False)
        seconds = time.perf_counter() - begin
        for (_, wanted), answer in zip(requests, answers, strict=True):
            if len(answer.outputs[0].token_ids) != wanted:
                raise RuntimeError(f"an answer has {len(answer.outputs[0].token_ids)} tokens in place of {wanted}")
        cached = [answer.num_cached_tokens for answer in answers]
        return seconds, None if None in cached else sum(cached)

    def step_ms(self, prompts, n_new):
        """Milliseconds a step over the longest run of steps that gave a token to every request, its ends left out.
        Errors: RuntimeError if it is short."""
        sampling = self.greedy(n_new, self.kinds.DELTA)
        for prompt in prompts:
            self.engine.add_request(str(self.n_sent), {"prompt_token_ids": prompt}, sampling)
            self.n_sent += 1
        events = []
        while self.engine.has_unfinished_requests():
            outputs = self.engine.step()
            n_tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
            if n_tokens:
                events.append((time.perf_counter(), n_tokens))
        best = run = (0, 0)
        for i, (_, n_tokens) in enumerate(events):
            run = (run[0], i) if n_tokens == len(prompts) else (i + 1, i + 1)
            best = max(best, run, key=lambda of: of[1] - of[0])
        first, last = best[0] + 3, best[1] - 2
        if last - first < LEAST_STEPS:
            raise RuntimeError(f"only {last - first} of {len(events)} steps gave every request a token")
        return (events[last][0] - events[first][0]) / (last - first) * 1e3

    def first_tokens(self, prompts, n_new):
        """Runs prompts that come at once. Returns [(milliseconds to the first token, prompt tokens found, answer)]."""
        sampling, begin, ids = self.greedy(n_new, self.kinds.DELTA), time.perf_counter(), []
        for prompt in prompts:
            ids.append(str(self.n_sent))
            self.engine.add_request(ids[-1], {"prompt_token_ids": prompt}, sampling)
            self.n_sent += 1
        first, cached, answers = {}, {}, {name: [] for name in ids}
        while self.engine.has_unfinished_requests():
            for output in self.engine.step():
                if output.outputs[0].token_ids:
                    first.setdefault(output.request_id, (time.perf_counter() - begin) * 1e3)
                    cached.setdefault(output.request_id, output.num_cached_tokens)
                answers[output.request_id] += output.outputs[0].token_ids
        return [(first[name], cached[name], answers[name]) for name in ids]


def main():
    options = engine_measure.parse_options("vllm_engine.py", __doc__, ARMS, engine_points.QUANTISED)
    if options.shape in DRAWN_AGAIN and options.quantization not in (None, "none"):
        sys.exit(f"vllm_engine.py: {options.shape} has a form of its own: no --quantization")
    if "linear_backend" in ARMS[options.arm] and options.quantization in (None, "none"):
        sys.exit(f"vllm_engine.py: --arm {options.arm} is for --quantization fp8 and int4")
    environment(options.arm, options.quantization, options.shape)
    import vllm

    def make():
        return Engine(options.shape, options.arm, options.kv_gb, options.quantization)

    engine_measure.run(options, f"vllm {vllm.__version__}", make)


if __name__ == "__main__":
    main()
