"""The machine and the program that a result belongs to."""

import os
import re
import subprocess
from pathlib import Path


def output_of(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def processor():
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown processor"


def memory_gb():
    for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("MemTotal"):
            return round(int(line.split()[1]) * 1024 / 1e9, 1)
    return 0


def gpus():
    """[(name, driver, memory in MiB)] of this host, by nvidia-smi; [] if it has none."""
    lines = output_of(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader,nounits"]).splitlines()
    fields = [[field.strip() for field in line.split(",")] for line in lines]
    return [(name, driver, int(float(memory))) for name, driver, memory in (row for row in fields if len(row) == 3)]


def describe(device, n_cores):
    """`device` is cpu or cuda; `n_cores` is how many processor cores a command may use."""
    host = {"cpu": processor(), "cores": n_cores, "memory_gb": memory_gb()}
    if device != "cuda":
        return {"device": f"{host['cpu']}, {n_cores} cores", **host}
    found = gpus()
    if not found:
        return {"device": "CUDA device unknown to nvidia-smi", **host}
    name, driver, memory_mib = found[0]
    return {"device": name, "driver": driver, "gpu_memory_mib": memory_mib, "gpus_of_the_host": len(found), **host}


def commit_of(binary):
    """The commit that the program was built from, as `baton --version` says it; "unknown" without the program."""
    match = re.search(r"\(commit ([^)]+)\)", output_of([*binary, "--version"]))
    return match.group(1) if match else os.environ.get("BATON_COMMIT", "unknown")
