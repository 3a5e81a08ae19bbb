#!/usr/bin/env python3
"""Experiment 13: weights in 8 and 4 bits beside 16: decode steps behind a shared prompt, and experiment 3's jobs.

    bench/experiments/experiment_13_quantised.py --device cuda

The weights are rounded while they load (`--quantization`): fp8 with a scale a row, int4 in groups of 128, int8; or drawn in the
form that a checkpoint's configuration states: AWQ, FP8 in blocks of 128 x 128 as DeepSeek's and Qwen's, MXFP4, NVFP4. Relay saves
reads of keys and values, and quantised weights leave less else to read, so relay over paged should grow. bench/peers/run_peers.sh
adds vLLM's steps with the same forms of weights; both belong on one machine in one run. The whole jobs with weights in 16 bits are
experiment 3's, which writes their rows here, too.
"""

import sys
from pathlib import Path

import harness
from experiment_03_offline import SHAPE, sharegpt_job
from harness import ARMS, Experiment
from offline_jobs import decode_job
from workloads import configured_shape

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "peers"))

from engine_points import DECODE_NEW, DECODE_OWN, QUANTISED  # noqa: E402

STEPS_SHAPE = "llama-3-8b"
ROUNDED = (*QUANTISED, "int8")  # by --quantization


def packed_by_compressed_tensors(form, weights):
    of_group = {"targets": ["Linear"], "weights": weights, "input_activations": None, "output_activations": None}
    return {"quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed", "ignore": ["lm_head"],
            "config_groups": {"group_0": of_group}}  # fmt: skip


# What quantization_config states, by the name of the form in rows.
CONFIGURED = {
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"},
    "fp8-block": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
    "mxfp4": packed_by_compressed_tensors(
        "mxfp4-pack-quantized",
        {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "group", "group_size": 32, "dynamic": False},
    ),
    "nvfp4": packed_by_compressed_tensors(
        "nvfp4-pack-quantized",
        {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "tensor_group", "group_size": 16, "dynamic": False},
    ),
}


def steps_job(settings, quantization):
    requests = settings.pick([1, 8, 32, 128], [1, 8], [2])
    shared, own, new = settings.pick((2048, DECODE_OWN, DECODE_NEW), (512, 32, 16), (64, 16, 4))
    folder, rounded = None, quantization
    if quantization in CONFIGURED:
        rounded = None

        def folder():
            return configured_shape(STEPS_SHAPE, quantization, quantization_config=CONFIGURED[quantization])

    return decode_job(settings, f"decode-{quantization}", STEPS_SHAPE, requests, shared, own, {"quantization": quantization},
                      new=new, quantization=rounded, folder=folder)  # fmt: skip


def jobs(settings):
    forms = (*ROUNDED, *CONFIGURED) if settings.is_full else QUANTISED  # the demo model has weights and a configuration of its own
    made = [steps_job(settings, quantization) for quantization in forms]
    n_requests = settings.pick(1000, 32, 8)
    for shared in settings.pick([2048], [512], []):
        for quantization in QUANTISED:
            if settings.is_full and quantization == "none":
                continue
            made.append(sharegpt_job(settings, f"offline-{quantization}-{shared}", SHAPE, shared, n_requests, ARMS[:2], 1,
                                     about={"quantization": quantization}, quantization=quantization))  # fmt: skip
    return made


EXPERIMENT = Experiment(13, "quantised", "weights in 8 and 4 bits beside 16", jobs)

if __name__ == "__main__":
    sys.exit(harness.main(EXPERIMENT))
