#!/usr/bin/env python3
"""The lengths of the requests in the data: ShareGPT, Azure's traces, Mooncake's conversations. Measures nothing.

    bench/experiments/experiment_00_lengths.py
"""

import csv
import json
import statistics
import sys

import harness
from harness import Experiment, Job
from workloads import AZURE_CODE, AZURE_CONVERSATION, MOONCAKE, SHAREGPT, data_file

BINS_AN_OCTAVE = 2


def sharegpt_lengths(path):
    with path.open(encoding="utf-8", newline="") as file:
        pairs = [(int(prompt), int(answer)) for prompt, answer in csv.reader(file)]
    # What vLLM's benchmark and the paper keep of them.
    return [pair for pair in pairs if pair[0] >= 4 and pair[1] >= 4 and pair[0] <= 1024 and sum(pair) <= 2048]


def azure_lengths(path):
    with path.open(encoding="utf-8", newline="") as file:
        return [(int(row["ContextTokens"]), int(row["GeneratedTokens"])) for row in csv.DictReader(file)]


def mooncake_lengths(path):
    with path.open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [(row["input_length"], row["output_length"]) for row in rows]


SETS = {
    "ShareGPT, as vLLM filters it": (SHAREGPT, sharegpt_lengths),
    "Azure, conversations (2023)": (AZURE_CONVERSATION, azure_lengths),
    "Azure, code (2023)": (AZURE_CODE, azure_lengths),
    "Mooncake, conversations (2025)": (MOONCAKE, mooncake_lengths),
}


def summary(values):
    """Histogram over bins of half an octave, and the usual numbers."""
    ordered = sorted(values)
    edges = [1.0]
    while edges[-1] <= ordered[-1]:
        edges.append(round(2 ** (len(edges) / BINS_AN_OCTAVE), 2))
    counts = [0] * (len(edges) - 1)
    place = 0
    for value in ordered:
        while value >= edges[place + 1]:
            place += 1
        counts[place] += 1

    def quantile(share):
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    return {
        "n": len(ordered),
        "mean": statistics.fmean(ordered),
        "median": quantile(0.5),
        "p90": quantile(0.9),
        "p99": quantile(0.99),
        "largest": ordered[-1],
        "edges": edges,
        "shares": [count / len(ordered) for count in counts],
    }


def lengths_job(settings, name, path, read):
    def run(runner):
        pairs = read(data_file(path, settings.data))
        runner.command = "bench/experiments/experiment_00_lengths.py"
        for arm, values in zip(("prompt", "answer"), zip(*pairs, strict=True), strict=True):
            runner.add({"dataset": name}, arm, summary([max(value, 1) for value in values]))

    return Job(path.split("/")[-1], 1, run)


def jobs(settings):
    return [lengths_job(settings, name, path, read) for name, (path, read) in SETS.items()]


EXPERIMENT = Experiment(0, "lengths", "lengths of the requests in the data", jobs)

if __name__ == "__main__":
    sys.exit(harness.main(EXPERIMENT))
