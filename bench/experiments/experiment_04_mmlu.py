#!/usr/bin/env python3
"""Experiment 4: time to answer MMLU's questions after 1, 3 and 5 solved ones (the RelayAttention paper's table 3).

    bench/experiments/experiment_04_mmlu.py --device cuda

A subject's solved questions are the system prompt of all its questions; the answer is one token, A, B, C or D. All
arms must give equal answers. With random weights accuracy is chance; it is printed because it means something with
real ones.
"""

import sys

import harness
from harness import ARMS, Experiment, Job
from offline_jobs import ARM_SECONDS, load_seconds, model_arguments, model_name, numbers_of
from workloads import LLAMA2_TOKENIZER, MMLU, data_file

SHAPE = "llama-2-7b"
SUBJECTS = "high_school_us_history,high_school_world_history,security_studies"


def mmlu_job(settings, shots):
    runs = settings.runs or 1  # a second run differed by less than 0.5% (2026-11-22)
    # The subjects with the longest solved questions show the most; all 57 would keep the unshared arm for minutes.
    subjects = settings.pick(SUBJECTS, "abstract_algebra", "abstract_algebra")

    def run(runner):
        arguments = ["bench", "mmlu", *model_arguments(settings, SHAPE), "--dataset-path", data_file(MMLU, settings.data)]
        arguments += ["--time-limit-s", ARM_SECONDS]
        arguments += ["--num-shots", shots, "--subjects", subjects, "--arms", ",".join(ARMS), "--runs", runs]
        if settings.is_full:
            arguments += ["--tokenizer", data_file(LLAMA2_TOKENIZER, settings.data).parent, "--max-num-batched-tokens", 16384]
        if settings.scale == "smoke":
            arguments += ["--num-prompts", 10]
        report = runner.report(arguments)
        # One element for the one number of shots; without it the model did not fit, and "arms" says so.
        answered = report["shots"][0] if "shots" in report else report
        point = {"model": model_name(settings, SHAPE), "shots": shots, "subjects": subjects}
        for entry in answered["arms"]:
            equal = {key: answered.get(key) for key in ("num_unequal_answers", "num_compared_answers")}
            runner.add(point, entry["arm"], numbers_of(entry) | equal, entry.get("error"))
            runner.say(f"{shots} shots, {entry['arm']}: {entry.get('elapsed_time', float('nan')):.1f} s")

    return Job(f"shots-{shots}", settings.pick(load_seconds(SHAPE) + 16 + 4.5 * shots, 30, 10), run)


def jobs(settings):
    return [mmlu_job(settings, shots) for shots in settings.pick([5, 3, 1], [1, 5], [1])]


EXPERIMENT = Experiment(4, "mmlu", "MMLU, 1, 3 and 5 solved questions in front", jobs)

if __name__ == "__main__":
    sys.exit(harness.main(EXPERIMENT))
