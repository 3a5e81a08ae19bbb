"""Rows of the peers in bench/results, in the form of bench/experiments/result_rows.py."""

import datetime
import os
import shlex
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/experiments"))

import machine  # noqa: E402
import result_rows  # noqa: E402

KEPT_ENVIRONMENT = ("VLLM_USE_V2_MODEL_RUNNER", "VLLM_USE_FLASHINFER_SAMPLER", "VLLM_ATTENTION_BACKEND")


class Rows:
    """Appends the rows of one program to one file and prints each one's main number."""

    def __init__(self, path, experiment, version):
        """`version`: the program measured and its version, "vllm 0.24.0"; it stands where rows of Baton have the commit."""
        self.path, self.experiment, self.version = Path(path), experiment, version
        self.machine = machine.describe("cuda", len(os.sched_getaffinity(0)))
        self.begin = time.monotonic()
        settings = [f"{name}={os.environ[name]}" for name in KEPT_ENVIRONMENT if name in os.environ]
        self.command = " ".join([*settings, shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])])

    def begins(self):
        self.begin = time.monotonic()

    def add(self, job, point, arm, numbers, error=None):
        row = {
            "experiment": self.experiment,
            "job": job,
            "point": point,
            "arm": arm,
            "numbers": numbers,
            **({"error": error} if error else {}),
            "command": self.command,
            "commit": self.version,
            "machine": self.machine,
            "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "seconds": round(time.monotonic() - self.begin, 1),
        }
        result_rows.append(self.path, row)


def failure(error):
    """One line that says what went wrong, short enough for a row."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' / '.join(lines[-2:])}"[:400]
