"""Rows of bench/results/experiment_NN_NAME.json: one row for each arm of each point, written as soon as it is
measured.

A row is an object:

    experiment   number                      point     parameters of the point, the same for all its arms
    job          name of the job that wrote it         arm       relay, paged, unshared, ...
    numbers      what the tool reported, with all repetitions; {} if the point did not run. Committed rows of
                 bench attention keep the median and the spread of `us`, not each repetition
    error        why it did not run, with `bytes_needed` and `bytes_available` in `numbers` if memory was short; absent otherwise
    command      what was run                commit    of the program       machine   see machine.py
    date         UTC, ISO 8601               seconds   that the job's command took, loading included
    build        hashes of the program and of the CUDA module (machine.py); rows of before 2026-11-29 and of other
                 programs have none
"""

import contextlib
import fcntl
import json
import os
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
RESULTS = REPOSITORY / "bench" / "results"


def load(path):
    """The rows of a file; [] if there is none."""
    path = Path(path)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []


def rounded(value, digits=7):
    """The value with its floating-point numbers rounded to so many significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {key: rounded(item, digits) for key, item in value.items()}
    return [rounded(item, digits) for item in value] if isinstance(value, list) else value


def dump(rows):
    """One row a line, so that a change of one row is a change of one line."""
    lines = [json.dumps(row, ensure_ascii=False, separators=(", ", ": ")) for row in rows]
    return "[\n" + ",\n".join(lines) + "\n]\n" if lines else "[]\n"


@contextlib.contextmanager
def locked(folder):
    """Holds the folder against other processes and threads that append."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def write_atomically(path, text):
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
        file.write(text)
    Path(file.name).chmod(0o644)
    Path(file.name).replace(path)


def append(path, row):
    """Adds a row; a reader never sees a half-written file."""
    path = Path(path)
    with locked(path.parent):
        write_atomically(path, dump([*load(path), row]))


def measurement(row):
    """What tells measurements apart, however their points are written."""
    return json.dumps([row.get(key) for key in ("job", "arm", "date", "numbers", "error")], sort_keys=True)


def merge(path, other):
    """Adds the rows of the file `other` that `path` does not have. Returns how many were added."""
    path = Path(path)
    with locked(path.parent):
        rows = load(path)
        known = {measurement(row) for row in rows}
        added = [row for row in load(other) if measurement(row) not in known]
        if added:
            write_atomically(path, dump(rows + added))
    return len(added)


def is_final(row):
    """Whether running the job again would give the same: it ran, or memory does not suffice."""
    return "error" not in row or "bytes_needed" in row["numbers"]


def finished_jobs(rows, machine, build):
    """Names of the jobs of this kind of machine and this build (None: any build) of which every row is final. Rows of other
    programs do not count: they have a name and a version, "vllm 0.24.0", in place of a commit."""
    mine = [row for row in rows if row["machine"]["device"] == machine["device"] and " " not in row["commit"]]
    mine = [row for row in mine if build in (None, row.get("build"))]
    unfinished = {row["job"] for row in mine if not is_final(row) and not is_made_good(row, mine)}
    return {row["job"] for row in mine} - unfinished


def is_made_good(failed, rows):
    """Whether a later run of the job got past the failure: the same point and arm, or any where the whole job had failed."""

    def matches(row):
        return failed["arm"] == "-" or (row["arm"], row["point"]) == (failed["arm"], failed["point"])

    later = (row for row in rows if row["job"] == failed["job"] and row.get("date", "") > failed.get("date", ""))
    return any(is_final(row) and matches(row) for row in later)
