#!/usr/bin/env python3
"""Experiment 1: attention of one layer against the length of the shared prefix (the RelayAttention paper's figures 1
and 6, Eq. 10).

    bench/experiments/experiment_01_attention.py --device cuda

Batches of 4 to 32, own context of 128 and 256, 64 to 8192 shared tokens, with the heads of Llama-30B (52 and 52) and
of Llama-3-8B (32 and 8). Arms relay and paged share one copy of the prefix; unshared has a copy for each request.
"""

import sys

import harness
from harness import Experiment, Job
from offline_jobs import attention_rows

HEADS = {"llama-30b": (52, 52, 128), "llama-3-8b": (32, 8, 128)}
SMALL_HEADS = {"12 heads": (12, 12, 64), "12 and 3 heads": (12, 3, 64)}


def attention_job(settings, name, heads, batch):
    query_heads, kv_heads, head_dim = heads
    shared = settings.pick([64, 128, 256, 512, 1024, 2048, 4096, 8192], [64, 256, 1024, 2048], [64, 512])
    owns = settings.pick([128, 256], [128], [128])
    runs = settings.runs or settings.pick(None, 5, 2)
    common = ["bench", "attention", "--device", settings.device, "--requests", batch]
    common += ["--heads", query_heads, "--kv-heads", kv_heads, "--head-dim", head_dim]
    common += ["--runs", runs] if runs else []

    def lengths(values):
        return ",".join(map(str, values))

    def run(runner):
        report = runner.report([*common, "--own", lengths(owns), "--shared", lengths(shared)], flag="--json")
        attention_rows(runner, report)
        for own in owns:
            # A request's own copy of the prefix is a longer own context.
            copies = [*common, "--own", lengths([own + prefix for prefix in shared]), "--shared", 0, "--arms", "paged"]
            report = runner.report(copies, flag="--json")
            for case in report["runs"]:
                case["own"], case["shared"] = own, case["own"] - own
            attention_rows(runner, report, {"paged": "unshared"})

    return Job(name, settings.pick(5 + batch / 2, 20, 5), run)


def tables_job(settings):
    """The cases that bench/peers/flashinfer_attention.py runs with other libraries."""

    def run(runner):
        attention_rows(runner, runner.report(["bench", "attention", "--device", settings.device, "--tables", "W2,W3"], "--json"))

    return Job("tables-W2-W3", 23, run)


def jobs(settings):
    batches = settings.pick([32, 4, 16, 8], [4, 16], [4])
    kinds = HEADS if settings.is_full else SMALL_HEADS
    made = [
        attention_job(settings, f"{name.replace(' ', '-')}-batch-{batch}", heads, batch)
        for batch in batches
        for name, heads in kinds.items()
    ]
    return [*made, tables_job(settings)] if settings.is_full else made


EXPERIMENT = Experiment(1, "attention", "attention against the length of the shared prefix", jobs)

if __name__ == "__main__":
    sys.exit(harness.main(EXPERIMENT))
