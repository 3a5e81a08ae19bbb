#!/usr/bin/env python3
"""Decode and prefill of `baton bench decode` beside llama.cpp, built from the source that its Python package carries.

    bench/peers/llama_cpp.py                                 everything: some 50 minutes on two cores
    bench/peers/llama_cpp.py --quick                         the 110m shape, 2048 shared tokens
    bench/peers/llama_cpp.py --shapes 110m --requests 32     some cells
    bench/peers/llama_cpp.py --only-print                    the table of what was measured before

A cell is a shape, a number of shared tokens and a number of requests. In each of --runs rounds llama-batched-bench runs
(-pps: the prompt is stored once; 32 new tokens for each request, no prompt of their own), then `baton bench decode` with the
arms relay and paged (--own 0 --new 32), each in a process of its own, with random bf16 weights of the same sizes and the same
number of threads. Rates are medians of the rounds. Before the first round llama.cpp tries its ways with a few new tokens, and
the fastest is measured: flash attention on or off, KV in f16 (its default) or bf16.

What is counted. Neither count holds prefill: llama-batched-bench times 32 steps of one token for each request, right after
the prompt, and samples nothing; Baton times the 31 steps after the first one, with sampling (greedy), planning and
committing. Both are tokens / time. Prefill is the shared prompt, once: llama.cpp's S_PP, and Baton's registration of a prefix
of 512 tokens.

A round in which other programs had more than --others of the processors is repeated. Each round is written to --json, and a
call with the same file continues where the last one ended. Needs python3 with venv, cmake, ninja or make, a C++ compiler, and
the network for PyPI (llama-cpp-python, gguf, numpy, scikit-build-core).
"""

import argparse
import json
import os
import pathlib
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WAYS = {
    "f16": ["-fa", "off", "-ctk", "f16", "-ctv", "f16"],
    "bf16": ["-fa", "off", "-ctk", "bf16", "-ctv", "bf16"],
    "f16, flash": ["-fa", "on", "-ctk", "f16", "-ctv", "f16"],
    "bf16, flash": ["-fa", "on", "-ctk", "bf16", "-ctv", "bf16"],
}
N_NEW = 32
N_TRIAL = 4  # new tokens where a way is tried
PREFILL_SHARED = 512
BUILD_FLAGS = [
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=ON",
    "-DGGML_OPENMP=ON",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_SERVER=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_TOOLS=ON",
    "-DLLAMA_OPENSSL=OFF",
]


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


def run(command: list, **options) -> str:
    """The standard output of a command; ends this program with its last lines if it fails."""
    command = [str(word) for word in command]
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        sys.exit(f"llama_cpp.py: {' '.join(command)} ended with {done.returncode}:\n{tail}")
    return done.stdout


class Peer:
    """llama.cpp in a folder of its own."""

    target = "llama-batched-bench"
    build = "build"
    flags = BUILD_FLAGS

    def __init__(self, work: pathlib.Path, jobs: int):
        self.work = work
        self.jobs = jobs
        self.python = work / "venv/bin/python"
        self.program = work / self.build / "bin" / self.target
        self.version = ""

    def prepare(self) -> None:
        self.work.mkdir(parents=True, exist_ok=True)
        if not self.python.exists():
            say("making a virtual environment")
            run([sys.executable, "-m", "venv", self.work / "venv"])
            run([self.python, "-m", "pip", "install", "-q", "gguf", "numpy", "scikit-build-core"])
        source = self.source()
        self.version = source.name.replace("llama_cpp_python-", "llama-cpp-python ")
        if not self.program.exists():
            say(f"building {self.version} (some minutes)")
            flags = self.flags + (["-G", "Ninja"] if shutil.which("ninja") else [])
            said = run(["cmake", "-S", source / "vendor/llama.cpp", "-B", self.work / self.build, *flags])
            (self.work / "configure.log").write_text(said)
            run(["cmake", "--build", self.work / self.build, "-j", self.jobs, "--target", self.target])
        self.version += self.version_of_build()

    def source(self) -> pathlib.Path:
        found = sorted(self.work.glob("llama_cpp_python-*/vendor/llama.cpp"))
        if not found:
            say("downloading llama-cpp-python from PyPI")
            # Its own build requirements come as wheels: without isolation they are the ones installed above.
            run([self.python, "-m", "pip", "download", "-q", "--no-deps", "--no-build-isolation", "--no-binary",
                 "llama-cpp-python", "llama-cpp-python", "-d", self.work / "sdist"])  # fmt: skip
            run(["tar", "-xzf", next((self.work / "sdist").glob("*.tar.gz")), "-C", self.work])
            found = sorted(self.work.glob("llama_cpp_python-*/vendor/llama.cpp"))
        return found[-1].parent.parent

    def version_of_build(self) -> str:
        """What the build says of itself, ", llama.cpp 0.5.0, ggml 0.25.3": the package carries no history."""
        text = ""
        for line in (self.work / "configure.log").read_text().splitlines():
            for name in ("llama.cpp", "ggml"):
                if line.startswith(f"-- {name} version: "):
                    text += f", {name} {line.split(': ')[1].strip()}"
        return text

    def model(self, shape: str) -> pathlib.Path:
        file = self.work / f"{shape}.gguf"
        if not file.exists():
            say(f"writing {file.name}")
            run([self.python, HERE / "random_gguf.py", ROOT / "bench/shapes" / shape, file])
        return file

    def measure(self, shape: str, shared: int, requests: int, n_new: int, way: str, threads: int) -> dict:
        """One run: decode and prefill tokens a second. One store for all sequences (-kvu), so that the prompt is there once."""
        context = shared + requests * n_new + 64
        lines = run([self.program, "-m", self.model(shape), "-c", context, "-b", 2048, "-ub", 512, "-npp", shared, "-ntg", n_new,
                     "-npl", requests, "-pps", "-kvu", "-t", threads, "-tb", threads, *WAYS[way],
                     "--output-format", "jsonl"])  # fmt: skip
        found = [json.loads(line) for line in lines.splitlines() if line.startswith("{")]
        if len(found) != 1:
            sys.exit(f"llama_cpp.py: llama-batched-bench gave {len(found)} results for {shape} {shared} x {requests}:\n{lines}")
        return {"decode": found[0]["speed_tg"], "prefill": found[0]["speed_pp"]}


def measure_baton(baton: pathlib.Path, work: pathlib.Path, shape: str, shared: int, requests: int, threads: int) -> dict:
    """One run of both arms; the way of counting is as in `measure`."""
    file = work / "baton.json"
    run([baton, "bench", "decode", "--shape", ROOT / "bench/shapes" / shape, "--shared", shared, "--requests", requests,
         "--own", 0, "--new", N_NEW, "--runs", 1, "--arms", "relay,paged", "--threads", threads, "--json", file])  # fmt: skip
    found = json.loads(file.read_text())
    result = {run["arm"]: run["median_tokens_per_s"] for run in found["runs"]}
    return {**result, "prefill": found["prefill_tokens_per_s"], "version": found["version"], "device": found["device"],
            "dtype": f"{found['weight_dtype']} weights, {found['kv_dtype']} KV"}  # fmt: skip


def choose_way(peer: Peer, options: argparse.Namespace, cell: dict) -> None:
    """Not at full length: prompts that long cost minutes each."""
    length = min(cell["shared"], options.trial_shared)
    for way in WAYS:
        cell["trials"][way] = peer.measure(cell["shape"], length, cell["requests"], N_TRIAL, way, options.threads)["decode"]
    cell["way"] = max(cell["trials"], key=cell["trials"].get)
    say(f"  llama.cpp is fastest with KV in {cell['way']}")


def busy_seconds() -> float:
    """What all processes and the host's other guests have had of the processors so far."""
    fields = [int(field) for field in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    user, nice, system, _idle, _wait, irq, softirq, steal = fields
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """What our programs that have ended had of them."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure_round(peer: Peer, options: argparse.Namespace, cell: dict) -> None:
    """Adds a round to the cell, or, if others used the processors meanwhile, to what was disturbed."""
    shape, shared, requests = cell["shape"], cell["shared"], cell["requests"]
    wall, busy, own = time.monotonic(), busy_seconds(), own_seconds()
    theirs = peer.measure(shape, shared, requests, N_NEW, cell["way"], options.threads)
    ours = measure_baton(options.baton, options.work, shape, shared, requests, options.threads)
    others = (busy_seconds() - busy - own_seconds() + own) / (time.monotonic() - wall) / os.cpu_count()
    is_kept = others <= options.others or len(cell["disturbed"]) >= 2 * options.runs
    cell["rounds" if is_kept else "disturbed"].append({"llama": theirs, "baton": ours, "others": others})
    what = f"round {len(cell['rounds'])} of {options.runs}" if is_kept else "disturbed"
    say(f"  {what}: llama.cpp {theirs['decode']:.1f}, "
        f"paged {ours['paged']:.1f}, relay {ours['relay']:.1f} tokens/s; prefill {theirs['prefill']:.0f} and "
        f"{ours['prefill']:.0f}; others had {100 * others:.0f}% of the processors")  # fmt: skip


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.{1 if statistics.median(values) < 100 else 0}f} ± " + (
        f"{50 * (max(values) - min(values)) / statistics.median(values):.0f}%"
    )


def column(cell: dict, side: str, what: str) -> list[float]:
    return [one[side][what] for one in cell["rounds"]]


def row_of(cell: dict) -> str:
    llama, paged, relay = column(cell, "llama", "decode"), column(cell, "baton", "paged"), column(cell, "baton", "relay")
    middle = statistics.median(llama)
    return (
        f"| {cell['shape']} | {cell['shared']} | {cell['requests']} | {spread(llama)} | {cell['way']} | {spread(paged)} "
        f"| {spread(relay)} | {statistics.median(paged) / middle:.2f} | {statistics.median(relay) / middle:.2f} "
        f"| {statistics.median(relay) / statistics.median(paged):.2f} |"
    )


def prefill_rows(cells: list[dict]) -> list[str]:
    rows = []
    for shape in dict.fromkeys(cell["shape"] for cell in cells):
        these = [cell for cell in cells if cell["shape"] == shape and cell["shared"] == PREFILL_SHARED]
        theirs = [value for cell in these for value in column(cell, "llama", "prefill")]
        ours = [value for cell in these for value in column(cell, "baton", "prefill")]
        if theirs:
            ratio = statistics.median(ours) / statistics.median(theirs)
            rows.append(f"| {shape} | {PREFILL_SHARED} | {spread(theirs)} | {spread(ours)} | {ratio:.2f} |")
    return rows


def table(state: dict) -> str:
    order = {shape: i for i, shape in enumerate(dict.fromkeys(cell["shape"] for cell in state["cells"]))}
    measured = [cell for cell in state["cells"] if cell["rounds"]]
    cells = sorted(measured, key=lambda cell: (order[cell["shape"]], cell["shared"], cell["requests"]))
    ours = cells[-1]["rounds"][0]["baton"]
    lines = [
        f"Command: `{state['command']}`; {state['runs']} rounds; {state['threads']} threads.",
        f"{ours['version']}, {ours['dtype']}; {state['peer']}, bf16 weights.",
        f"{state['machine']}; {ours['device']}.",
        "",
        "Decode, tokens a second, median ± half the spread:",
        "",
        "| shape | shared | requests | llama.cpp | its KV | paged | relay | paged / llama.cpp | relay / llama.cpp "
        "| relay / paged |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *map(row_of, cells),
    ]
    prefill = prefill_rows(cells)
    if prefill:
        titles = ["| shape | tokens | llama.cpp | Baton | ratio |", "|---|---|---|---|---|"]
        lines += ["", "Prefill, tokens a second:", "", *titles, *prefill]
    return "\n".join(lines)


def machine() -> str:
    processors = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in processors if line.startswith("model name")), platform.processor())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{model}, {os.cpu_count()} processors, {memory:.0f} GiB, {platform.system()} {platform.release()}"


def cell_of(state: dict, shape: str, shared: int, requests: int, again: bool) -> dict:
    """The cell of the file; a new one if there is none, or if it is to be measured again."""
    is_wanted = [(cell["shape"], cell["shared"], cell["requests"]) == (shape, shared, requests) for cell in state["cells"]]
    if True in is_wanted and not again:
        return state["cells"][is_wanted.index(True)]
    state["cells"] = [cell for cell, wanted in zip(state["cells"], is_wanted, strict=True) if not wanted]
    state["cells"].append({"shape": shape, "shared": shared, "requests": requests, "trials": {}, "rounds": [], "disturbed": []})
    return state["cells"][-1]


def words(text: str) -> list[str]:
    return text.split(",")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/peers/llama_cpp", help="where llama.cpp is built")
    parser.add_argument("--baton", type=pathlib.Path, default=ROOT / "build/cpu-release/bin/baton")
    parser.add_argument("--shapes", type=words, default=["110m", "tinyllama-1.1b"], help="folders of bench/shapes, commas between")
    parser.add_argument("--shared", type=words, default=["2048", "512", "4096"], help="tokens of the shared prompt")
    parser.add_argument("--requests", type=words, default=["32", "8", "1"])
    parser.add_argument("--runs", type=int, default=3, help="rounds of a cell")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--trial-shared", type=int, default=512, help="shared tokens at most where ways are tried")
    parser.add_argument("--others", type=float, default=0.1, help="share of the processors that others may have in a round; with "
                        "more it is repeated, at most twice as often as there are rounds")  # fmt: skip
    parser.add_argument("--stop-after", type=float, default=0, help="seconds after which no round begins; 0: never")
    parser.add_argument("--json", type=pathlib.Path, help="what was measured; default: WORK/cells.json")
    parser.add_argument("--quick", action="store_true", help="the 110m shape and 2048 shared tokens only")
    parser.add_argument("--again", action="store_true", help="measure cells that the file has")
    parser.add_argument("--only-print", action="store_true", help="the table of what the file has")
    options = parser.parse_args()
    options.work = options.work.resolve()
    options.json = options.json or options.work / "cells.json"
    if options.quick:
        options.shapes, options.shared = ["110m"], ["2048"]
    return options


def main() -> None:
    options = parse_options()
    state = json.loads(options.json.read_text()) if options.json.exists() else {"cells": []}
    if options.only_print:
        print(table(state))
        return
    if not options.baton.exists():
        sys.exit(f"llama_cpp.py: there is no {options.baton}: run make")
    peer = Peer(options.work, len(os.sched_getaffinity(0)))
    peer.prepare()
    state |= {"command": " ".join(["bench/peers/llama_cpp.py", *sys.argv[1:]]), "peer": peer.version, "machine": machine(),
              "threads": options.threads, "runs": options.runs}  # fmt: skip
    began = time.monotonic()
    # The same prompt length on every shape first: the cells that say most come early.
    wanted = [(shape, int(shared), int(n)) for shared in options.shared for shape in options.shapes for n in options.requests]
    for i, (shape, shared, requests) in enumerate(wanted):
        cell = cell_of(state, shape, shared, requests, options.again)
        if len(cell["rounds"]) < options.runs:
            say(f"cell {i + 1} of {len(wanted)}: {shape}, {shared} shared, {requests} request{'s' if requests > 1 else ''}")
        while len(cell["rounds"]) < options.runs:
            if options.stop_after and time.monotonic() - began > options.stop_after:
                sys.exit("llama_cpp.py: --stop-after: call again to continue")
            if not cell["trials"]:
                choose_way(peer, options, cell)
            measure_round(peer, options, cell)
            options.json.write_text(json.dumps(state, indent=1))
    print(table(state))


if __name__ == "__main__":
    main()
