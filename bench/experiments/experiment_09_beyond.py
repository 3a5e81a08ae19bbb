#!/usr/bin/env python3
"""Experiment 9: what the papers lack: many prompts in one batch, nested prefixes, strangers, batch 1, short prefixes,
long contexts, traces.

    bench/experiments/experiment_09_beyond.py --device cuda
"""

import sys

import harness
import serving
from harness import ARMS, Experiment, Job
from offline_jobs import decode_job, estimated, load_seconds, model_name, offline_seconds, throughput_job
from workloads import AZURE_CONVERSATION, MOONCAKE, UNPACKED, data_file, mixed_requests, nested_requests, write_requests

SHAPE = "llama-3-8b"
DEMO_VOCABULARY, LLAMA3_VOCABULARY = 1024, 128_000


def group_jobs(settings):
    """1 to 64 system prompts in one batch, 256 requests in all: SGLang's generated-shared-prefix, 16 to 256
    requests after each."""
    in_all, system, question, output = settings.pick((512, 2048, 128, 256), (32, 512, 32, 16), (8, 128, 16, 4))
    for groups in settings.pick([1, 4, 16, 64], [1, 4, 16], [2]):
        dataset = ["--dataset-name", "generated-shared-prefix", "--gsp-num-groups", groups]
        dataset += ["--gsp-prompts-per-group", in_all // groups, "--gsp-system-prompt-len", system]
        dataset += ["--gsp-question-len", question, "--gsp-output-len", output]
        point = {"part": "groups", "groups": groups, "requests": in_all, "shared": system, "own": question, "output": output}
        seconds = 10
        if settings.is_full:
            prompts = groups * offline_seconds(SHAPE, 1, system, 0, 1, "relay")
            seconds = estimated(SHAPE, in_all, system, question, output, ARMS[:2], 1) + 2 * prompts
        # One run: on 2026-11-22 a second one differed by less than 0.5%, here and with strangers.
        yield throughput_job(settings, f"groups-{groups}", SHAPE, lambda flags=dataset: flags, point, seconds, ARMS[:2],
                             settings.pick(1, 2, 1))  # fmt: skip


def custom_job(settings, name, requests, point, seconds, runs, arms=ARMS[:2]):
    path = UNPACKED / "made-up" / f"{settings.scale}-{name}.jsonl"

    def run(runner):
        write_requests(path, requests())
        dataset = ["--dataset-name", "custom", "--dataset-path", path, "--num-prompts", point["requests"]]
        throughput_job(settings, name, SHAPE, lambda: dataset, point, seconds, arms, runs).run(runner)

    return Job(name, seconds, run)


def nested_jobs(settings):
    """A base prompt, tenants after it, applications after those: one, two and three levels with the same number
    of tokens."""
    n_requests, total, own, output = settings.pick((256, 3072, 128, 128), (24, 768, 32, 16), (8, 192, 16, 4))
    vocabulary = LLAMA3_VOCABULARY if settings.is_full else DEMO_VOCABULARY
    kinds = {1: [(1, total)], 2: [(1, total // 2), (8, total // 2)], 3: [(1, total // 3), (4, total // 3), (16, total // 3)]}
    for depth in settings.pick([1, 2, 3], [1, 2, 3], [3]):
        point = {"part": "nested", "levels": kinds[depth], "requests": n_requests, "shared": total, "own": own, "output": output}
        seconds = estimated(SHAPE, n_requests, total, own, output, ARMS[:2], 2) if settings.is_full else 10

        def requests(depth=depth):
            return nested_requests(n_requests, kinds[depth], own, output, vocabulary)

        yield custom_job(settings, f"nested-{depth}", requests, point, seconds, settings.pick(2, 2, 1))


def stranger_jobs(settings):
    """Requests behind one prompt, mixed with requests that share nothing."""
    n_requests, shared, own, output = settings.pick((256, 2048, 128, 128), (24, 512, 32, 16), (8, 128, 16, 4))
    vocabulary = LLAMA3_VOCABULARY if settings.is_full else DEMO_VOCABULARY
    for share in settings.pick([0, 0.5, 0.75, 1], [0, 0.5, 1], [0.5]):
        point = {"part": "strangers", "share": share, "requests": n_requests, "shared": shared, "own": own, "output": output}
        seconds = 10
        if settings.is_full:
            seconds = estimated(SHAPE, n_requests, round(share * shared), own, output, ["unshared", "unshared"], 1)

        def requests(share=share):
            return mixed_requests(n_requests, share, shared, own, output, vocabulary)

        yield custom_job(settings, f"strangers-{round(100 * share)}", requests, point, seconds, settings.pick(1, 2, 1))


def step_jobs(settings):
    """Steps alone: one request, prefixes from short to long, long contexts of the requests' own."""
    few = settings.pick([1, 2, 4, 8], [1, 2, 4], [1])
    yield decode_job(settings, "few-requests", SHAPE, few, settings.pick(2048, 1024, 256), 160, {"part": "few requests"})
    lengths = settings.pick([64, 128, 256, 512, 1024, 2048, 4096, 8192], [64, 256], [64])
    requests, own = settings.pick((32, 160), (16, 64), (4, 16))
    # One process, so that the curve is of one engine and one state of the machine.
    yield decode_job(settings, "prefix-curve", SHAPE, [requests], lengths, own, {"part": "short prefixes"}, runs=3)
    for own in settings.pick([1024, 4096, 8192], [256, 1024], [128]):
        requests, shared = settings.pick((32, 2048), (4, 512), (2, 128))
        yield decode_job(settings, f"long-own-{own}", SHAPE, [requests], shared, own, {"part": "long own contexts"})


def mooncake_job(settings):
    """The first requests of Mooncake's conversations, all there at the begin: what real prefixes give. Requests
    longer than the shape's context are left out by the tool, which says how many."""
    n_requests = settings.pick(60, 20, 4)
    longest = settings.pick(16384, 4096)

    def run(runner):
        dataset = ["--dataset-name", "mooncake", "--dataset-path", data_file(MOONCAKE, settings.data), "--num-prompts", n_requests]
        dataset += ["--max-model-len", longest]
        if not settings.is_full:
            dataset += ["--output-len", 8]
        point = {"part": "Mooncake conversations", "requests": n_requests}
        throughput_job(settings, "mooncake", SHAPE, lambda: dataset, point, 0, ARMS, 1).run(runner)

    return Job("mooncake", settings.pick(60, 20, 10), run)


def azure_job(settings, arm):
    """Azure's conversations as they arrived: nothing is known to be shared, so the arms should be equal."""
    seconds = settings.pick(40, 5, 2)

    def run(runner):
        with serving.server(runner, "mistral-7b", arm) as (url, server_command):
            arguments = ["--dataset-name", "azure", "--dataset-path", data_file(AZURE_CONVERSATION, settings.data), "--speedup", 2]
            arguments += ["--num-prompts", settings.pick(800, 10, 4), "--time-limit-s", seconds, "--ignore-eos", "--label", arm]
            if not settings.is_full:
                arguments += ["--output-len", 8, "--speedup", 1]
            numbers = serving.load(runner, url, arguments)
            runner.command = f"{server_command}; baton bench serve {' '.join(map(str, arguments))}"
            runner.add({"part": "Azure conversations", "model": model_name(settings, "mistral-7b")}, arm, numbers)
            runner.say(f"{arm}: {numbers['completed']} requests, {numbers['mean_ttft_ms']:.0f} ms to the first token")

    return Job(f"azure-{arm}", settings.pick(load_seconds("mistral-7b") + seconds + 10, 25, 15), run)


def jobs(settings):
    made = [*group_jobs(settings), *step_jobs(settings), *nested_jobs(settings), *stranger_jobs(settings), mooncake_job(settings)]
    return made + [azure_job(settings, arm) for arm in ARMS[:2]]


EXPERIMENT = Experiment(9, "beyond", "what the papers lack", jobs)

if __name__ == "__main__":
    sys.exit(harness.main(EXPERIMENT))
