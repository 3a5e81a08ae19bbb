#!/usr/bin/env python3
"""Experiment 2: the Flash-Decoding table, and tokens per second of a 34B model from 512 to 65,536 tokens of context.

    bench/experiments/experiment_02_flash_decoding.py --device cuda

The table: 16 query heads, 2 KV heads, float16, batch x length constant. Arms: split is what Baton does; unsplit has
one block for each request and KV head, so that no context is cut (Baton with a grid of that size; 264 blocks at
most). eager and FlashAttention-2 are PyTorch's, by bench/peers, or quoted from another day.
"""

import sys

import harness
from harness import Experiment, Job
from offline_jobs import attention_rows, decode_job
from workloads import longer_shape

LINES = [(256, 256), (128, 512), (64, 1024), (32, 2048), (16, 4096), (8, 8192), (4, 16384), (2, 32768), (1, 65536), (1, 131072)]
HEADS = ["--heads", 16, "--kv-heads", 2, "--head-dim", 128]
MOST_BLOCKS = 264  # two for each of 132 multiprocessors: all that are resident at once


def table_job(settings):
    runs = settings.runs or settings.pick(None, 3, 1)
    run_flags = ["--runs", runs] if runs else []

    def run(runner):
        lines = LINES if settings.is_full else [(16, 256), (4, 1024), (1, 4096)]
        if settings.is_full:
            whole = ["bench", "attention", "--device", settings.device, "--tables", "W1", "--arms", "paged", *run_flags]
            attention_rows(runner, runner.report(whole, "--json"), {"paged": "split"})
        for requests, length in lines:
            shape = ["bench", "attention", "--device", settings.device, "--requests", requests, "--own", length, "--shared", 0]
            shape += [*HEADS, "--arms", "paged", *run_flags]
            if settings.device == "cuda":
                shape += ["--kv-cache-dtype", "float16", "--attention-blocks", min(2 * requests, MOST_BLOCKS)]
                attention_rows(runner, runner.report(shape, "--json"), {"paged": "unsplit"})
            else:
                attention_rows(runner, runner.report(shape, "--json"), {"paged": "split"})

    return Job("table", settings.pick(8, 15, 4), run)


def jobs(settings):
    lengths = settings.pick([512, 4096, 16384, 32768, 65536], [256, 1024, 2048], [256])
    shape = "codellama-34b"
    # One load for each length: the engine's cache and longest context are set by it.
    curve = [
        decode_job(settings, f"curve-{length}", shape, [1], 0, length - settings.pick(64, 16), {"context": length}, ["paged"],
                   folder=lambda: longer_shape(shape, 1 << 17))
        for length in lengths
    ]
    return [table_job(settings), *curve]


EXPERIMENT = Experiment(2, "flash_decoding", "the Flash-Decoding table and tokens per second against context", jobs)

if __name__ == "__main__":
    sys.exit(harness.main(EXPERIMENT))
