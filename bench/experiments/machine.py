"""The machine and the program that a result belongs to."""

import hashlib
import os
import re
import shutil
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
    """[(name, driver, memory in MiB, its own identifier)] of this host, by nvidia-smi; [] if it has none."""
    query = "--query-gpu=name,driver_version,memory.total,uuid"
    lines = output_of(["nvidia-smi", query, "--format=csv,noheader,nounits"]).splitlines()
    fields = [[field.strip() for field in line.split(",")] for line in lines]
    return [(name, driver, int(float(memory)), own) for name, driver, memory, own in (row for row in fields if len(row) == 4)]


def visible_gpus():
    """Numbers of the GPUs that this process may use, as CUDA_VISIBLE_DEVICES says; None where it says nothing, or names them
    otherwise."""
    numbers = [word.strip() for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    return [int(number) for number in numbers] if all(number.isdigit() for number in numbers) else None


def describe(device, n_cores, numbers=None):
    """`device` is cpu or cuda; `n_cores` is how many processor cores a command may use, `numbers` are those of the GPUs that it
    uses."""
    host = {"cpu": processor(), "cores": n_cores, "memory_gb": memory_gb()}
    if device != "cuda":
        return {"device": f"{host['cpu']}, {n_cores} cores", **host}
    found = gpus()
    if not found:
        return {"device": "CUDA device unknown to nvidia-smi", **host}
    used = [found[number] for number in numbers or visible_gpus() or [0] if number < len(found)] or found[:1]
    name, driver, memory_mib, _ = used[0]
    about = {"device": name, "driver": driver, "gpu_memory_mib": memory_mib, "gpus_of_the_host": len(found)}
    return {**about, "gpus": [own.removeprefix("GPU-")[:8] for *_, own in used], **host}


def commit_of(binary):
    """The commit that the program was built from, as `baton --version` says it; "unknown" without the program."""
    match = re.search(r"\(commit ([^)]+)\)", output_of([*binary, "--version"]))
    return match.group(1) if match else os.environ.get("BATON_COMMIT", "unknown")


CUDA_MODULE = "libbaton_cuda.so"


def build_of(binary):
    """Hashes of what is measured: `program`, of the program, that of the benchmarks beside it and their libraries, and `cuda`,
    of the module with the kernels, where there is one. {} without the program."""
    program = shutil.which(binary[0])
    if program is None:
        return {}
    program = Path(program).resolve()
    folders = [os.environ.get("BATON_MODULE_PATH"), program.parent.parent / "lib", program.parent]
    libraries = {}  # by name: the first folder that has one is the one that it is loaded from
    for folder in filter(None, folders):
        for path in sorted(Path(folder).glob("libbaton_*.so")):
            libraries.setdefault(path.name, path)
    module = libraries.pop(CUDA_MODULE, None)
    benches = program.with_name("baton-bench")
    programs = [program, benches] if benches.exists() else [program]
    parts = {"program": [*programs, *libraries.values()], "cuda": [module] if module else []}
    return {name: hash_of(paths) for name, paths in parts.items() if paths}


def hash_of(paths):
    """The first 12 digits of the SHA-256 of files, one after another."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
