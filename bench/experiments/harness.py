"""What all experiments share: their options, running the program, writing rows as soon as they exist, continuing where
a run ended.

An experiment is a list of jobs. A job is one load of a model (or of the attention benchmark): it runs its arms
interleaved, inside one process wherever the tool can, and writes one row for each arm and point. Jobs are dealt to
workers: one, or one for each GPU.
"""

import argparse
import contextlib
import dataclasses
import datetime
import fnmatch
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import machine
import result_rows
from result_rows import REPOSITORY
from workloads import MissingData

SCALES = ("full", "quick", "smoke")
ARMS = ("relay", "paged", "unshared")


class CommandFailed(Exception):
    """A command ended with an error; the message is its last words."""


class OutOfTime(Exception):
    """The time of the run is over; the job is not written and is done again by the next call."""


@dataclasses.dataclass(frozen=True)
class Settings:
    device: str = "cpu"  # cpu or cuda
    scale: str = "full"  # full: the papers' sizes; quick: minutes on a CPU with the demo model; smoke: seconds, for CI
    data: str | None = None
    binary: tuple[str, ...] = ("baton",)
    results: Path = result_rows.RESULTS
    runs: int | None = None  # repetitions in place of the experiments' own numbers

    @property
    def is_full(self):
        return self.scale == "full"

    def pick(self, full, quick, smoke=None):
        """The value for the scale; smoke is quick's where it is not given."""
        if self.scale == "full":
            return full
        return smoke if self.scale == "smoke" and smoke is not None else quick


@dataclasses.dataclass(frozen=True)
class Job:
    name: str
    seconds: float  # estimate, loading included
    run: Callable[["Runner"], None]  # measures and calls add() for each row
    n_gpus: int = 1  # that it uses at the same time, where the device is cuda


@dataclasses.dataclass(frozen=True)
class Experiment:
    number: int
    name: str
    title: str
    jobs: Callable[[Settings], list[Job]]

    @property
    def file_name(self):
        return file_name(self.number, self.name)


def file_name(number, name):
    return f"experiment_{number:02}_{name}.json"


@dataclasses.dataclass(frozen=True)
class Program:
    """What is measured: both stand in each row."""

    commit: str
    build: dict  # machine.build_of

    @staticmethod
    def of(binary):
        return Program(machine.commit_of(binary), machine.build_of(binary))

    def __str__(self):
        parts = [f"{name} {value}" for name, value in self.build.items()]
        return ", ".join([f"commit {self.commit}", *parts])


class Runner:
    """Runs the commands of one job after the other on one worker's share of the machine. One thread uses it."""

    def __init__(self, settings, described, program, worker="", environment=None, prefix=(), deadline=None):
        self.settings, self.machine, self.program = settings, described, program
        self.worker, self.environment, self.prefix, self.deadline = worker, environment or {}, list(prefix), deadline
        self.experiment = self.job = None
        self.command = ""
        self.begin = 0.0
        self.scratch = Path(tempfile.mkdtemp(prefix="baton-experiment-"))

    def close(self):
        shutil.rmtree(self.scratch, ignore_errors=True)

    def seconds_left(self):
        return float("inf") if self.deadline is None else self.deadline - time.monotonic()

    def say(self, text):
        now = datetime.datetime.now(datetime.UTC).strftime("%H:%M:%S")
        with contextlib.suppress(BrokenPipeError):  # the reader of the output is gone; the results are still wanted
            # One write, so that the lines of workers do not run into each other.
            sys.stdout.write(f"{now} {self.worker}{self.experiment.number:02} {self.job.name}: {text}\n")
            sys.stdout.flush()

    def begins(self):
        self.say(f"begins, about {self.job.seconds:.0f} s")

    def start(self, arguments, log):
        """Starts the program in a process group of its own."""
        command = [*self.prefix, *self.settings.binary, *map(str, arguments)]
        self.command = shlex.join(["baton", *map(str, arguments)])
        return subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, env={**os.environ, **self.environment}
        )

    def stop(self, process, patience=10):
        """Ends a process group that start() made."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.poll() is None:
                os.killpg(process.pid, number)
                try:
                    process.wait(patience)
                except subprocess.TimeoutExpired:
                    continue

    def run(self, arguments, limit=None):
        """Runs the program to its end. Errors: CommandFailed, also if it takes much longer than the job's estimate on a GPU, so
        that a program that hangs leaves time for others; OutOfTime if the run's time ends first."""
        patience = 4 * self.job.seconds + 60 if self.settings.device == "cuda" else float("inf")
        limit = min(limit or float("inf"), patience, self.seconds_left())
        with (self.scratch / "log").open("w+", encoding="utf-8", errors="replace") as log:
            process = self.start(arguments, log)
            try:
                code = process.wait(None if limit == float("inf") else max(limit, 0.1))
            except subprocess.TimeoutExpired:
                kind = CommandFailed if self.seconds_left() > 0 else OutOfTime
                raise kind(f"stopped after {limit:.0f} s") from None
            finally:
                self.stop(process)
            log.seek(0)
            lines = [line for line in log.read().splitlines() if line.strip()]
        if code != 0:
            raise CommandFailed(" / ".join(lines[-2:])[-600:] or f"exit status {code}")

    def report(self, arguments, flag="--output-json", limit=None):
        """Runs a tool that writes JSON and returns it. The recorded command leaves the name of that file out."""
        path = self.scratch / "report.json"
        path.unlink(missing_ok=True)
        begin = time.monotonic()
        self.run([*arguments, flag, path], limit)
        self.begin = begin
        self.command = shlex.join(["baton", *map(str, arguments)])
        return json.loads(path.read_text(encoding="utf-8"))

    def add(self, point, arm, numbers, error=None, to=None):
        """Writes a row; `to`, (experiment's number and name, job), where it is of another experiment's job than this one, which is
        the same work."""
        (number, name), job = to or ((self.experiment.number, self.experiment.name), self.job.name)
        row = {
            "experiment": number,
            "job": job,
            "point": point,
            "arm": arm,
            "numbers": result_rows.rounded(numbers),
            **({"error": error} if error else {}),
            "command": self.command.replace(str(REPOSITORY) + "/", "").replace(str(self.scratch) + "/", ""),
            **dataclasses.asdict(self.program),
            "machine": self.machine,
            "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "seconds": round(time.monotonic() - self.begin, 1),
        }
        result_rows.append(self.settings.results / file_name(number, name), row)

    def do(self, experiment, job):
        """Runs a job. Returns whether it came to its end, None if its data is missing; a failure is a row."""
        self.experiment, self.job, self.begin = experiment, job, time.monotonic()
        begin = self.begin  # of the job; commands move the other
        self.begins()
        try:
            job.run(self)
        except OutOfTime as error:
            self.say(f"left for the next call: {error}")
            return False
        except MissingData as error:
            self.say(f"left out: {error}")
            return None
        except Exception as error:  # whatever a job meets, the next one runs
            self.say(f"FAILED: {error!r}")
            self.add({}, "-", {}, error=str(error)[-600:])
            return False
        self.say(f"done in {time.monotonic() - begin:.0f} s")
        return True


class PrintingRunner(Runner):
    """Prints the first command of each job in place of running it, and writes nothing."""

    def begins(self):
        pass

    def add(self, point, arm, numbers, error=None, to=None):
        pass

    def start(self, arguments, log):
        raise OutOfTime(shlex.join(["baton", *map(str, arguments)]))

    def say(self, text):
        command = text.partition(": ")[2].replace(str(self.scratch) + "/", "")
        print(f"{self.experiment.number:02}:{self.job.name}  about {self.job.seconds:.0f} s  {command}", flush=True)


def select(experiments, settings, patterns=(), resume=False, described=None, build=None):
    """[(experiment, job)] to run, in order: the patterns' order, then the experiments'. A pattern is NN or NN:GLOB. `build`: whose
    rows count where `resume` is given, None for any."""
    pairs = []
    for experiment in experiments:
        done = set()
        if resume:
            rows = result_rows.load(settings.results / experiment.file_name)
            done = result_rows.finished_jobs(rows, described, build)
        pairs += [(experiment, job) for job in experiment.jobs(settings) if job.name not in done]
    if not patterns:
        return pairs
    chosen = []
    for pattern in patterns:
        number, _, glob = pattern.partition(":")
        chosen += [
            pair
            for pair in pairs
            if pair not in chosen and pair[0].number == int(number) and fnmatch.fnmatchcase(pair[1].name, glob or "*")
        ]
    return chosen


class Queue:
    """Jobs in their order, handed to workers; a worker gets the first one whose estimate fits its time. Any thread."""

    def __init__(self, pairs):
        self.pairs, self.lock = list(pairs), threading.Lock()

    def take(self, seconds_left):
        with self.lock:
            for index, (_, job) in enumerate(self.pairs):
                if 1.15 * job.seconds <= seconds_left:
                    return self.pairs.pop(index)
        return None


def work(runners, pairs, after_each=lambda: None):
    """Deals the jobs to the runners, a thread each. Returns (jobs that ended well, jobs tried with their data there,
    jobs left)."""
    queue, ended = Queue(pairs), []

    def loop(runner):
        while pair := queue.take(runner.seconds_left()):
            ended.append(runner.do(*pair))
            after_each()

    threads = [threading.Thread(target=loop, args=(runner,)) for runner in runners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ended.count(True), len(ended) - ended.count(None), len(queue.pairs)


def add_options(parser):
    parser.add_argument("--baton", default=os.environ.get("BATON_BINARY", str(REPOSITORY / "build/cpu-release/bin/baton")),
                        help="the program, with arguments if need be (default: BATON_BINARY, then the build of this tree)")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--quick", action="store_const", dest="scale", const="quick", default="full",
                        help="small points, for a CPU and the demo model")
    parser.add_argument("--smoke", action="store_const", dest="scale", const="smoke", help="the smallest points, for CI")
    parser.add_argument("--data", help="folder of the data (default: BATON_TEST_DATA)")
    parser.add_argument("--results", type=Path, default=result_rows.RESULTS, help="folder of the result files")
    parser.add_argument("--runs", type=int, help="repetitions, in place of each experiment's own number")
    parser.add_argument("--resume", action="store_true", help="skip jobs that are there for this kind of machine and this build")
    parser.add_argument("--any-build", action="store_true", help="with --resume: whatever build measured them")
    parser.add_argument("--only", "--points", nargs="+", default=[], metavar="NN[:GLOB]",
                        help="experiments, or their jobs by name, in this order")
    parser.add_argument("--budget-seconds", type=float, help="begin no job that would not end within so many seconds")
    parser.add_argument("--dry-run", action="store_true", help="print what would run")
    return parser


def settings_of(arguments):
    binary = tuple(shlex.split(arguments.baton))
    if not arguments.dry_run and not shutil.which(binary[0]):
        sys.exit(f"{binary[0]}: no such program; build it (make build) or name it by --baton")
    return Settings(arguments.device, arguments.scale, arguments.data, binary, arguments.results.resolve(), arguments.runs)


def main(experiment):
    """Runs one experiment: the whole of bench/experiments/experiment_NN_NAME.py."""
    parser = add_options(argparse.ArgumentParser(description=f"Experiment {experiment.number}: {experiment.title}"))
    arguments = parser.parse_args()
    settings = settings_of(arguments)
    patterns = [pattern if pattern[:1].isdigit() else f"{experiment.number}:{pattern}" for pattern in arguments.only]
    described = machine.describe(settings.device, len(os.sched_getaffinity(0)))
    program = Program.of(settings.binary)
    wanted = None if arguments.any_build else program.build
    pairs = select([experiment], settings, patterns, arguments.resume, described, wanted)
    deadline = time.monotonic() + arguments.budget_seconds if arguments.budget_seconds else None
    runner = (PrintingRunner if arguments.dry_run else Runner)(settings, described, program, deadline=deadline)
    try:
        ended, tried, left = work([runner], pairs)
    finally:
        runner.close()
    print(f"experiment {experiment.number}: {ended} of {tried} jobs done, {left} left", flush=True)
    return 0 if arguments.dry_run or ended == tried else 1
