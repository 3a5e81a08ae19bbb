#!/usr/bin/env python3
"""SGLang on the points of experiment 11: whole offline jobs, and steps behind a shared prompt. Random weights.

    bench/peers/sglang_engine.py --shape llama-3-8b --points gsp-64x16,gsp-4x64,strangers-256

As vllm_engine.py: the same requests, at most 256 at once, 16,384 tokens of prompts a step, CUDA graphs on.

    sglang                  its defaults: radix cache, FlashAttention-3, overlapped scheduling
    sglang-flashinfer       FlashInfer's kernels
    sglang-no-radix-cache   what Baton calls unshared

decode: only whole runs can be timed, so a step is the difference of runs with 72 and 8 new tokens, over 64. Machine and
packages: engine_pack.py. SGLang compiles some kernels on the machine, which takes minutes.
"""

import os
import signal
import sys
import time

import engine_measure
import engine_points
from engine_points import MAX_BATCHED_TOKENS, MAX_MODEL_LEN, MAX_NUM_SEQS

ARMS = {
    "sglang": {},
    "sglang-flashinfer": {"attention_backend": "flashinfer"},
    "sglang-no-radix-cache": {"disable_radix_cache": True},
}
KV_BYTES = {"llama-2-7b": 524_288, "llama-3-8b": 131_072}  # a token


class Engine:
    """One SGLang engine. A prompt is a list of token ids."""

    def __init__(self, shape, arm, kv_gb):
        import sglang

        self.is_cached = not ARMS[arm].get("disable_radix_cache", False)
        self.engine = sglang.Engine(
            model_path=str(engine_points.shape_folder(shape)),
            skip_tokenizer_init=True,
            load_format="dummy",
            dtype="bfloat16",
            context_length=MAX_MODEL_LEN,
            max_running_requests=MAX_NUM_SEQS,
            chunked_prefill_size=MAX_BATCHED_TOKENS,
            max_prefill_tokens=MAX_BATCHED_TOKENS,
            max_total_tokens=int(1e9 * kv_gb) // KV_BYTES[shape],
            cuda_graph_max_bs_decode=MAX_NUM_SEQS,
            random_seed=0,
            log_level="error",
            **ARMS[arm],
        )

    def settings(self):
        of = self.engine.server_args
        names = ("attention_backend", "disable_radix_cache", "chunked_prefill_size", "page_size", "mem_fraction_static",
                 "disable_overlap_schedule", "max_total_tokens")  # fmt: skip
        return {name: getattr(of, name, None) for name in names}

    def forget(self):
        if self.is_cached:
            engine_measure.repeat_until(lambda: self.engine.flush_cache().success, "SGLang did not empty its radix cache")

    def whole(self, requests):
        prompts = [prompt for prompt, _ in requests]
        sampling = [{"temperature": 0, "max_new_tokens": n, "ignore_eos": True} for _, n in requests]
        begin = time.perf_counter()
        answers = self.engine.generate(input_ids=prompts, sampling_params=sampling)
        seconds = time.perf_counter() - begin
        for (_, wanted), answer in zip(requests, answers, strict=True):
            if answer["meta_info"]["completion_tokens"] != wanted:
                raise RuntimeError(f"an answer has {answer['meta_info']['completion_tokens']} tokens in place of {wanted}")
        return seconds, sum(answer["meta_info"]["cached_tokens"] for answer in answers)

    def step_ms(self, prompts, n_new):
        return None

    def stop(self):
        sys.stdout.flush()
        signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
        signal.alarm(15)
        self.engine.shutdown()
        os._exit(0)


def main():
    options = engine_measure.parse_options("sglang_engine.py", __doc__, ARMS)
    import sglang

    engine_measure.run(options, f"sglang {sglang.__version__}", lambda: Engine(options.shape, options.arm, options.kv_gb))


if __name__ == "__main__":
    main()
