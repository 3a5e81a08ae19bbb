#!/usr/bin/env python3
"""Reads a GPU's counters over the attention kernel: what it requests from the L2 and what comes from memory, relay and paged.

    tools/attention_counters.py --bundle build/device --csv counters.csv

Runs `ncu` (clocks left alone) on the programs of a bundle: first on read-only kernels whose bytes are known, which says what the
counters count, then on three shapes in both arms. Prints a table: sectors the multiprocessors read from the L2, times 32 bytes,
over what the plan requests; bytes from memory, over the distinct bytes. Needs only Python's standard library.
"""

import argparse
import csv
import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path

BASE = [
    "lts__t_sectors_srcunit_tex_op_read.sum",
    "dram__bytes_read.sum",
    "gpu__time_duration.sum",
]
MORE = [
    "l1tex__m_xbar2l1tex_read_bytes.sum",
    "lts__t_sectors_op_read.sum",
    "sm__inst_executed_pipe_tensor.sum",
    "smsp__cycles_active.avg",
]
# Requests, shared, own, query heads, KV heads: W2 at 2048, W3 at 32 and at 128 requests.
SHAPES = [(32, 2048, 128, 52, 52), (32, 8192, 128, 32, 8), (128, 2048, 128, 32, 8)]
SECTOR_BYTES = 32


def run_ncu(command, kernels, metrics, skip, count):
    """Rows of a profile: {metric: value} a launch, or None where ncu failed."""
    arguments = [
        "ncu",
        "--target-processes",
        "all",
        "--clock-control",
        "none",
        "--csv",
        "--print-units",
        "base",
        "-k",
        f"regex:{kernels}",
    ]
    arguments += ["--launch-skip", str(skip), "--launch-count", str(count), "--metrics", ",".join(metrics), *command]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    lines = done.stdout.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        print(f"ncu failed ({done.returncode}): {(done.stderr or done.stdout)[-400:]}", file=sys.stderr)
        return None
    launches = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        value = row.get("Metric Value", "").replace(",", "")
        launches.setdefault(row["ID"], {"kernel": row["Kernel Name"]})[row["Metric Name"]] = float(value or "nan")
    return list(launches.values())


def usable_metrics(program):
    """All metrics if ncu knows them, else the ones that matter."""
    known = run_ncu([*program("01_ceilings"), "--only", "read16"], "plain_read|bulk_read", BASE + MORE, 1, 1)
    return BASE + MORE if known else BASE


def median(launches, metric):
    values = sorted(launch[metric] for launch in launches if metric in launch)
    return values[len(values) // 2] if values else float("nan")


def calibrate(program, metrics, out):
    print(f"{'calibration':<22}{'bytes':>14}{'sectors x 32 / bytes':>22}{'memory / bytes':>16}{'us':>9}")
    for what in ("read64", "bulk64"):
        n_bytes = int(what[4:]) << 20
        launches = run_ncu([*program("01_ceilings"), "--only", what], "plain_read|bulk_read", metrics, 0, 3)
        if not launches:
            continue
        sectors, memory, us = (median(launches, metric) for metric in BASE)
        print(f"{what:<22}{n_bytes:>14}{sectors * SECTOR_BYTES / n_bytes:>22.3f}{memory / n_bytes:>16.3f}{us / 1e3:>9.1f}")
        out.append({"what": what, "requested_bytes": n_bytes, "distinct_bytes": n_bytes, **launches[0]})


def profile_arm(bench, metrics, shape, arm, folder):
    requests, shared, own, heads, kv_heads = shape
    numbers = Path(folder) / "numbers.json"
    command = [*bench, "--device", "cuda", "--runs", "1", "--arms", arm]
    command += ["--requests", str(requests), "--shared", str(shared), "--own", str(own)]
    command += ["--heads", str(heads), "--kv-heads", str(kv_heads), "--json", str(numbers)]
    subprocess.run(command, capture_output=True, timeout=120, check=False)
    launches = run_ncu(command, "attention_kernel", metrics, 4, 3)
    if not launches or not numbers.exists():
        return None
    run = json.loads(numbers.read_text(encoding="utf-8"))["runs"][0]
    return launches, run


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bundle", default="build/device")
    parser.add_argument("--csv", default="counters.csv")
    arguments = parser.parse_args()
    bundle = Path(arguments.bundle).resolve()

    def program(name):
        return [str(bundle / "run"), name]

    # The whole program, or the one that has this command alone.
    bench = [*program("baton"), "bench", "attention"] if (bundle / "bin" / "baton").exists() else program("attention_bench")
    metrics = usable_metrics(program)
    out = []
    calibrate(program, metrics, out)
    print(
        f"\n{'requests, shared, own':<22}{'arm':<7}{'requested MB':>13}{'sectors x 32 / it':>19}{'memory MB':>11}{'/ distinct':>11}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for shape in SHAPES:
            for arm in ("paged", "relay"):
                profiled = profile_arm(bench, metrics, shape, arm, folder)
                if profiled is None:
                    print(f"{shape[0]}, {shape[1]}, {shape[2]}: {arm}: no counters")
                    continue
                launches, run = profiled
                sectors, memory = median(launches, BASE[0]), median(launches, BASE[1])
                requested = run["arms"][0]["kv_bytes_requested"]
                name = f"{shape[0]}, {shape[1]}, {shape[2]}"
                print(
                    f"{name:<22}{arm:<7}{requested / 1e6:>13.1f}{sectors * SECTOR_BYTES / requested:>19.3f}"
                    f"{memory / 1e6:>11.1f}{memory / run['distinct_bytes']:>11.2f}"
                )
                sizes = {"requested_bytes": requested, "distinct_bytes": run["distinct_bytes"], "query_bytes": run["query_bytes"]}
                out += [{"what": f"{name} {arm}", **sizes, **launch} for launch in launches]
    names = ["what", "kernel", "requested_bytes", "distinct_bytes", "query_bytes", *metrics]
    with Path(arguments.csv).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names, restval="")
        writer.writeheader()
        writer.writerows(out)
    return 0 if out else 1


if __name__ == "__main__":
    sys.exit(main())
