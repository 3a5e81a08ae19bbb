#!/usr/bin/env python3
"""Experiment 11, other families: decode steps of models with experts, recurrent layers, latent attention and windows.

    bench/experiments/experiment_11_families.py --device cuda

2048 shared tokens, own contexts from 160 tokens on, as in experiment 11. bench/peers/run_peers.sh adds vLLM's arms of some
of them to the same file.
"""

import sys
from pathlib import Path

import harness
from harness import Experiment
from offline_jobs import decode_job

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "peers"))

from engine_points import DECODE_NEW, DECODE_OWN  # noqa: E402

# Shape and forms of weights; those of gpt-oss' experts are its own, 4 bits.
FAMILIES = {
    "gpt-oss-20b": ("mxfp4",),
    "qwen3-30b-a3b": ("none", "fp8"),
    "qwen3.5-35b-a3b": ("none",),
    "qwen3.5-27b": ("none", "fp8"),
    "ministral-3-8b": ("none", "fp8"),
    "gemma-2-9b": ("none",),
    "glm-4.7-flash": ("none",),
    "deepseek-v2-lite": ("none",),
}
QUICK = {"llama-3-8b": ("none",)}


def steps_job(settings, shape, quantization):
    requests = settings.pick([1, 8, 32, 128], [1, 4], [2])
    shared, own, new = settings.pick((2048, DECODE_OWN, DECODE_NEW), (256, 32, 16), (64, 16, 4))

    def about(n):
        if quantization == "mxfp4":  # vLLM's rows of gpt-oss name the point and not its weights
            return {"name": f"decode-{shape}-{n}-2048", "dataset": "decode"}
        return {"quantization": quantization}

    rounded = None if quantization == "mxfp4" else quantization
    # Blocks of windows are counted by running requests and rows in flight: with fewer rows the second run of 128 requests does
    # not find the ends of all prompts.
    flags = ("--max-num-batched-tokens", "16384") if shape == "gpt-oss-20b" else ()
    return decode_job(settings, f"decode-{shape}-{quantization}", shape, requests, shared, own, about, new=new,
                      quantization=rounded, flags=flags)  # fmt: skip


def jobs(settings):
    families = FAMILIES if settings.is_full else QUICK
    return [steps_job(settings, shape, quantization) for shape, forms in families.items() for quantization in forms]


EXPERIMENT = Experiment(11, "families", "decode steps of other families", jobs)

if __name__ == "__main__":
    sys.exit(harness.main(EXPERIMENT))
