#!/usr/bin/env python3
"""Experiment 5: interactive serving: latency against the rate of Poisson arrivals (the RelayAttention paper's figure
8).

    bench/experiments/experiment_05_interactive.py --device cuda

`baton serve` in each arm and `baton bench serve` with ShareGPT lengths behind one system prompt. Requests arrive for
ARRIVAL_SECONDS at each rate, so that a rate that cannot be sustained shows as a growing queue; the count is in the
results. Every rate has prompts and a system prompt of its own, so that nothing is found in the cache from the rate
before.
"""

import shlex
import sys

import harness
import serving
from harness import Experiment, Job
from offline_jobs import load_seconds, model_name
from workloads import SHAREGPT, data_file

SHAPE = "llama-2-7b"
ARRIVAL_SECONDS = 45
# Requests a second: below and above what each arm can sustain on an H200. Far below nothing was learnt; the sustained rate is
# read between two of them, so two lie near it.
RATES = {
    (2048, "relay"): [(48, 16), (60, 80), (43,)],
    (2048, "paged"): [(20, 28), (40,), (32,)],
    (2048, "unshared"): [(8, 14)],
    (512, "relay"): [(40, 60)],
    (512, "paged"): [(28, 44)],
}
SUSTAINED = {(2048, "relay"): 50, (2048, "paged"): 27, (2048, "unshared"): 9.5, (512, "relay"): 48, (512, "paged"): 38}  # about
QUICK_RATES = {(1024, "relay"): [(4, 16)], (1024, "paged"): [(4, 16)], (1024, "unshared"): [(4, 16)]}
SMOKE_RATES = {(256, "relay"): [(8,)], (256, "paged"): [(8,)]}


def interactive_job(settings, shared, arm, rates):
    arrival_seconds = settings.pick(ARRIVAL_SECONDS, 5, 1)

    def run(runner):
        with serving.server(runner, SHAPE, arm) as (url, server_command):
            for rate in rates:
                n_requests = max(1, round(rate * arrival_seconds))
                arguments = ["--dataset-name", "sharegpt", "--dataset-path", data_file(SHAREGPT, settings.data)]
                arguments += ["--num-prompts", n_requests, "--prefix-len", shared, "--seed", round(rate * 10)]
                arguments += ["--request-rate", rate, "--ignore-eos", "--label", arm]
                if not settings.is_full:
                    arguments += ["--output-len", settings.pick(0, 16, 4)]
                numbers = serving.load(runner, url, arguments)
                runner.command = f"{server_command}; {shlex.join(map(str, ['baton', 'bench', 'serve', *arguments]))}"
                point = {"model": model_name(settings, SHAPE), "dataset": "sharegpt", "shared": shared, "rate": rate}
                runner.add(point | {"requests": n_requests}, arm, numbers)
                latency_ms = 1e3 * numbers["latency_per_token_s"]
                runner.say(f"{arm}, {rate}/s: {numbers['request_throughput']:.2f} requests/s, {latency_ms:.1f} ms a token")

    seconds = 20
    if settings.is_full:
        loads = [arrival_seconds * max(1, 1.05 * rate / SUSTAINED[shared, arm]) + 8 for rate in rates]
        seconds = load_seconds(SHAPE) + sum(loads)
    name = f"{arm}-{shared}-rates-{'-'.join(map(str, rates))}"
    return Job(name, seconds, run)


def jobs(settings):
    rates = settings.pick(RATES, QUICK_RATES, SMOKE_RATES)
    made = []
    for shared in dict.fromkeys(length for length, _ in rates):
        of_length = {arm: parts for (length, arm), parts in rates.items() if length == shared}
        for part in range(max(map(len, of_length.values()))):  # arms in turn
            made += [interactive_job(settings, shared, arm, parts[part]) for arm, parts in of_length.items() if part < len(parts)]
    return made


EXPERIMENT = Experiment(5, "interactive", "interactive serving: latency against arrival rate", jobs)

if __name__ == "__main__":
    sys.exit(harness.main(EXPERIMENT))
