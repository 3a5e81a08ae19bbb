#!/usr/bin/env python3
"""Runs the experiments 1 to 13, one job a GPU at a time, within a given time, and continues where the last call ended.

    bench/experiments/run_all.py --quick                                          on a CPU, the demo model
    bench/experiments/run_all.py --device cuda --gpus 4 --minutes 9 --resume \\
        --plan bench/experiments/h200.plan --pack "$OUT/results.tar.gz"            on a host with four GPUs, call after call

Each GPU has a worker. A worker takes the first job of the plan whose estimate fits the time that is left, and runs it
with CUDA_VISIBLE_DEVICES and its own share of the processor's cores (taskset). Rows are written when an arm ends, so
that a call that is cut loses only the jobs under way. Jobs over several GPUs come after those of one, one at a time; those
over more GPUs than there are stay. A plan has a line NN:GLOB for each experiment or group of jobs,
in order; # begins a comment.
"""

import argparse
import importlib
import os
import shutil
import sys
import tarfile
import tempfile
import threading
import time
from pathlib import Path

import harness
import machine
import result_rows

MODULES = sorted(path.stem for path in Path(__file__).resolve().parent.glob("experiment_*.py"))


FAILURES_TOLD = 5


def all_experiments():
    return [importlib.import_module(name).EXPERIMENT for name in MODULES]


def read_plan(path):
    lines = (line.partition("#")[0].strip() for line in Path(path).read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line]


PACKING = threading.Lock()  # workers end jobs at the same time


def pack(results, target):
    """Archives the result files: a machine may give few files back. Any thread."""
    part = target.with_name(target.name + ".part")
    with PACKING:
        with tarfile.open(part, "w:gz") as archive:
            for path in sorted(results.glob("experiment_*.json")):
                archive.add(path, path.name)
        part.replace(target)


def merge(archive, results):
    """Adds the rows of an archive that pack() made to the result files, unless they are there."""
    with tempfile.TemporaryDirectory() as folder, tarfile.open(archive) as packed:
        for member in packed.getmembers():
            path = Path(folder) / Path(member.name).name
            path.write_bytes(packed.extractfile(member).read())
            print(f"{path.name}: {result_rows.merge(results / path.name, path)} rows added")


def runners_of(settings, arguments, program, deadline, n_workers):
    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // n_workers)
    make = harness.PrintingRunner if arguments.dry_run else harness.Runner
    gpus, numbers = arguments.gpus // n_workers, machine.visible_gpus() or range(arguments.gpus)
    runners = []
    for index in range(n_workers):
        mine = cores[index * share : (index + 1) * share]
        is_cuda = settings.device == "cuda"
        of_worker = list(numbers)[index * gpus : (index + 1) * gpus]
        described = machine.describe(settings.device, share, of_worker)
        visible = ",".join(map(str, of_worker))
        environment = {"CUDA_VISIBLE_DEVICES": visible} if is_cuda else {}
        prefix = ["taskset", "-c", ",".join(map(str, mine))] if is_cuda and mine and shutil.which("taskset") else []
        runners.append(make(settings, described, program, f"gpu{visible} " if is_cuda else "", environment, prefix, deadline))
    return runners


def estimate_of(pairs):
    """What jobs will take by their estimates: each experiment, and all of one GPU and of several."""
    of_one = [(experiment, job) for experiment, job in pairs if job.n_gpus == 1]
    lines = []
    for number in sorted({experiment.number for experiment, _ in pairs}):
        mine = [job.seconds for experiment, job in of_one if experiment.number == number]
        others = [job.seconds for experiment, job in pairs if experiment.number == number and job.n_gpus > 1]
        line = f"experiment {number:2}: {len(mine):3} jobs, {sum(mine) / 60:5.1f} minutes"
        lines.append(line + (f"; {len(others)} over several GPUs, {sum(others) / 60:.1f} minutes" if others else ""))
    total = sum(job.seconds for _, job in of_one)
    rest = [job.seconds for _, job in pairs if job.n_gpus > 1]
    others = f"{len(rest)} over several, {sum(rest) / 60:.0f} minutes"
    lines.append(f"{len(of_one)} jobs, about {total / 60:.0f} minutes of one GPU; {others}")
    return "\n".join(lines)


def progress(settings, described, build):
    """What there is of this build on this kind of machine: jobs done of each experiment, and the failures that no later run made
    good."""
    lines, failures = [], []
    for experiment in all_experiments():
        rows = result_rows.load(settings.results / experiment.file_name)
        mine = [row for row in rows if row.get("build") == build and row["machine"]["device"] == described["device"]]
        jobs = experiment.jobs(settings)
        done = result_rows.finished_jobs(mine, described, build)
        minutes = sum(job.seconds for job in jobs if job.name not in done) / 60
        n_done = sum(job.name in done for job in jobs)
        name = f"{experiment.number:02} {experiment.name}"
        lines.append(f"{name:21} {n_done:3} of {len(jobs):3} jobs, {len(mine):4} rows; {minutes:4.1f} minutes left")
        for row in mine:
            if not result_rows.is_final(row) and not result_rows.is_made_good(row, mine):
                failures.append(f"FAILED {experiment.number:02}:{row['job']} {row['arm']}: {row['error'][-160:]}")
    if len(failures) > FAILURES_TOLD:
        failures[FAILURES_TOLD:] = [f"{len(failures) - FAILURES_TOLD} more failures: rows with an error"]
    return "\n".join([*lines, *failures])


def passes_of(pairs, settings, n_gpus):
    """[(workers, jobs)]: the jobs of one GPU on a worker each, then those of several, which have the host for themselves."""
    if settings.device != "cuda":
        return [(1, pairs)]
    alone = [pair for pair in pairs if pair[1].n_gpus == 1]
    return [(n_gpus, alone), (1, [pair for pair in pairs if 1 < pair[1].n_gpus <= n_gpus])]


def main():
    parser = argparse.ArgumentParser(description="Runs the experiments 1 to 13")
    harness.add_options(parser)
    parser.add_argument("--gpus", type=int, default=1, help="GPUs of this host to use, a worker each (default: 1)")
    parser.add_argument("--minutes", type=float, help="end within so many minutes")
    parser.add_argument("--plan", help="file with a line NN:GLOB for each group of jobs, in order")
    parser.add_argument("--pack", type=Path, help="archive of the result files, rewritten after each job")
    parser.add_argument("--merge", type=Path, help="add the rows of such an archive to --results, and end")
    arguments = parser.parse_args()
    if arguments.merge:
        merge(arguments.merge, arguments.results)
        return 0
    settings = harness.settings_of(arguments)
    seen = machine.visible_gpus()
    if settings.device == "cuda" and seen is not None and arguments.gpus > len(seen):
        parser.error(f"--gpus {arguments.gpus}: CUDA_VISIBLE_DEVICES names {len(seen)}")
    budget = arguments.minutes * 60 if arguments.minutes else arguments.budget_seconds
    deadline = time.monotonic() + budget if budget else None
    patterns = arguments.only or (read_plan(arguments.plan) if arguments.plan else [])
    described = machine.describe(settings.device, len(os.sched_getaffinity(0)))
    program = harness.Program.of(settings.binary)
    build = None if arguments.any_build else program.build
    pairs = harness.select(all_experiments(), settings, patterns, arguments.resume, described, build)
    print(f"{estimate_of(pairs)}; {described['device']}, {program}", flush=True)

    def after_each():
        if arguments.pack and not arguments.dry_run:
            pack(settings.results, arguments.pack)

    ended = tried = 0
    left = len(pairs)
    for n_workers, mine in passes_of(pairs, settings, arguments.gpus):
        runners = runners_of(settings, arguments, program, deadline, n_workers)
        try:
            counts = harness.work(runners, mine, after_each)
            ended, tried, left = ended + counts[0], tried + counts[1], left - len(mine) + counts[2]
        finally:
            for runner in runners:
                runner.close()
            after_each()
    print(progress(settings, described, program.build))
    print(f"{ended} of {tried} jobs done, {left} left", flush=True)
    return 0 if arguments.dry_run or ended == tried else 1


if __name__ == "__main__":
    sys.exit(main())
