#!/usr/bin/env python3
"""Weights in 16, 8 and 4 bits on a CPU: `baton bench decode` beside llama.cpp's Q8_0, Q4_0 and Q4_K_M, in turn.

    bench/peers/llama_cpp_quantised.py                          110m, then tinyllama-1.1b
    bench/peers/llama_cpp_quantised.py --shapes 110m --rounds 2
    bench/peers/llama_cpp_quantised.py --only-prepare           builds llama.cpp, writes the files, measures nothing

A round runs each arm of a shape in a process of its own: llama.cpp's and Baton's of about the same bits next to each other.
A process prefills the shared prompt once and then decodes with each number of requests after it, --runs times:
llama_cpp_decode.cpp (which samples nothing) and `baton bench decode --arms relay` (greedy). Weights are random, threads as
many as processors. The table has medians of all rounds, with half the spread, in tokens a second.

llama.cpp runs without its flash attention, with which steps of 110m after 2048 tokens took 1.3 to 5 times as long (a
Xeon with AVX-512 and no BF16), and with keys and values in float16. It always rounds x to 8 bits before it multiplies
quantised weights; Baton does so with --activation-dtype int8. Its output layer is Q8_0 in Q8_0 and Q6_K in the others;
Baton's stays in the model's dtype but for --quantize-lm-head, which gives it the form of the other weights.
On a processor without bf16 matmuls Baton computes bf16 weights in float32 and holds them so; llama.cpp reads 2 bytes of
each and widens them. The table says what Baton took.

Needs what llama_cpp.py needs; --work is a folder of that script's.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time

from llama_cpp import HERE, ROOT, Peer, busy_seconds, machine, own_seconds, run, say, words

FILES = ("bf16", "Q8_0", "Q4_0", "Q4_K_M")
X8, HEAD = ("--activation-dtype", "int8"), ("--quantize-lm-head",)
INT8, INT4 = ("--quantization", "int8"), ("--quantization", "int4")
# Arms in their order: a form of llama.cpp's, or Baton's flags.
ARMS = {
    "llama.cpp Q4_K_M": "Q4_K_M",
    "Baton int4, head too": (*INT4, *HEAD),
    "Baton int4, head too, x in 8 bits": (*INT4, *HEAD, *X8),
    "llama.cpp Q4_0": "Q4_0",
    "Baton int4": INT4,
    "llama.cpp Q8_0": "Q8_0",
    "Baton int8": INT8,
    "Baton int8, head too, x in 8 bits": (*INT8, *HEAD, *X8),
    "llama.cpp bf16": "bf16",
    "Baton bf16": (),
}


class QuantisedPeer(Peer):
    """llama.cpp with its program that writes quantised files, and ours that measures them."""

    target = "llama-batched-bench"
    quantiser = "llama-quantize"

    def __init__(self, work, jobs):
        super().__init__(work, jobs)
        self.bench = work / "llama_cpp_decode"

    def prepare(self):
        super().prepare()
        folder = self.work / self.build
        if not (folder / "bin" / self.quantiser).exists():
            run(["cmake", "--build", folder, "-j", self.jobs, "--target", self.quantiser])
        source = self.source() / "vendor/llama.cpp"
        ours = HERE / "llama_cpp_decode.cpp"
        if not self.bench.exists() or self.bench.stat().st_mtime < ours.stat().st_mtime:
            names = ("src/libllama.a", *(f"ggml/src/libggml{part}.a" for part in ("", "-cpu", "-base")))
            libraries = [folder / name for name in names]
            run(["c++", "-std=c++17", "-O2", f"-I{source}/include", f"-I{source}/ggml/include", ours, *libraries,
                 "-fopenmp", "-lpthread", "-ldl", "-o", self.bench])  # fmt: skip

    def file(self, shape, form):
        """The GGUF file of a shape in one of FILES, written if it is not there."""
        dense = self.model(shape)
        if form == "bf16":
            return dense
        file = self.work / f"{shape}-{form}.gguf"
        if not file.exists():
            say(f"writing {file.name}")
            part = file.with_suffix(".part")
            run([self.work / self.build / "bin" / self.quantiser, dense, part, form, self.jobs])
            part.rename(file)
        return file


def measure_llama(peer, options, shape, form):
    said = run([peer.bench, peer.file(shape, form), options.shared, options.new, options.runs, options.threads, options.flash,
                ",".join(options.requests)])  # fmt: skip
    found = json.loads(said)
    return {"prefill": found["prefill"], "decode": found["decode"]}


def measure_baton(options, shape, flags):
    file = options.work / "baton_quantised.json"
    # The first token of a request is not timed, so llama.cpp's --new steps are Baton's of one more.
    run([options.baton, "bench", "decode", "--shape", ROOT / "bench/shapes" / shape, "--shared", options.shared, "--own", 0,
         "--new", options.new + 1, "--requests", ",".join(options.requests), "--runs", options.runs, "--arms", "relay",
         "--threads", options.threads, "--json", file, *flags])  # fmt: skip
    found = json.loads(file.read_text())
    return {"prefill": found["prefill_tokens_per_s"],
            "decode": {str(of["requests"]): of["tokens_per_s"] for of in found["runs"]},
            "version": found["version"], "dtype": f"{found['weight_dtype']} weights, {found['kv_dtype']} KV",
            "device": f"{found['device']} ({found['features']})"}  # fmt: skip


def measure_arm(peer, options, shape, arm):
    """The numbers of one arm, and the share of the processors that others had meanwhile."""
    wall, busy, own = time.monotonic(), busy_seconds(), own_seconds()
    form = ARMS[arm]
    numbers = measure_llama(peer, options, shape, form) if form in FILES else measure_baton(options, shape, form)
    others = (busy_seconds() - busy - own_seconds() + own) / (time.monotonic() - wall) / os.cpu_count()
    medians = ", ".join(f"{n}: {statistics.median(rates):.1f}" for n, rates in numbers["decode"].items())
    say(f"  {shape} {arm}: {medians} tokens/s; prefill {numbers['prefill']:.0f}; {time.monotonic() - wall:.0f} s; "
        f"others had {100 * others:.0f}% of the processors")  # fmt: skip
    return {"shape": shape, "arm": arm, "others": max(others, 0.0), **numbers}


def with_spread(values):
    middle = statistics.median(values)
    return f"{middle:.{1 if middle < 100 else 0}f} ± {50 * (max(values) - min(values)) / middle:.0f}%"


def table(state):
    rounds = state["rounds"]
    ours = next((one for one in rounds if "version" in one), {})
    lines = [f"{state['command']}; {state['threads']} threads; {state['shared']} shared tokens, {state['new']} steps.",
             f"{state['machine']}; {state['peer']}; {ours.get('version', 'Baton was not run')}, without --quantization: "
             f"{ours.get('dtype', '?')}."]  # fmt: skip
    for shape in dict.fromkeys(one["shape"] for one in rounds):
        of = [one for one in rounds if one["shape"] == shape]
        requests = list(dict.fromkeys(n for one in of for n in one["decode"]))
        lines += ["", f"{shape}, tokens a second:", "", f"| weights | {' | '.join(requests)} | prefill | rounds | others |",
                  "|---" * (len(requests) + 4) + "|"]  # fmt: skip
        for arm in ARMS:
            these = [one for one in of if one["arm"] == arm]
            if these:
                cells = [with_spread([rate for one in these for rate in one["decode"][n]]) for n in requests]
                cells += [with_spread([one["prefill"] for one in these]), str(len(these)),
                          f"{100 * max(one['others'] for one in these):.0f}%"]  # fmt: skip
                lines.append(f"| {arm} | {' | '.join(cells)} |")
    return "\n".join(lines)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/peers/llama_cpp", help="where llama.cpp is built")
    parser.add_argument("--baton", type=pathlib.Path, default=ROOT / "build/cpu-release/bin/baton")
    parser.add_argument("--shapes", type=words, default=["110m", "tinyllama-1.1b"], help="folders of bench/shapes, commas between")
    parser.add_argument("--arms", help="parts of their names, commas between (default: all)")
    parser.add_argument("--shared", type=int, default=2048)
    parser.add_argument("--requests", type=words, default=["1", "8", "32"])
    parser.add_argument("--new", type=int, default=16, help="steps that are timed")
    parser.add_argument("--runs", type=int, default=3, help="times that a process decodes")
    parser.add_argument("--rounds", type=int, default=1, help="times that each arm runs")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--flash", choices=["on", "off"], default="off", help="llama.cpp's flash attention")
    parser.add_argument("--stop-after", type=float, default=0, help="seconds after which no arm begins; 0: never")
    parser.add_argument("--json", type=pathlib.Path, help="what was measured; default: WORK/quantised.json")
    parser.add_argument("--only-prepare", action="store_true", help="build and write files, measure nothing")
    options = parser.parse_args()
    options.work = options.work.resolve()
    options.json = options.json or options.work / "quantised.json"
    options.arms = [arm for arm in ARMS if not options.arms or any(part in arm for part in words(options.arms))]
    if not options.arms:
        sys.exit("llama_cpp_quantised.py: --arms names no arm")
    return options


def main():
    options = parse_options()
    began = time.monotonic()
    if not options.baton.exists() and not options.only_prepare:
        sys.exit(f"llama_cpp_quantised.py: there is no {options.baton}: run make")
    peer = QuantisedPeer(options.work, len(os.sched_getaffinity(0)))
    peer.prepare()
    for shape in options.shapes:
        for form in FILES:
            peer.file(shape, form)
    if options.only_prepare:
        return
    state = {"command": " ".join(["bench/peers/llama_cpp_quantised.py", *sys.argv[1:]]), "machine": machine(),
             "peer": peer.version, "threads": options.threads, "shared": options.shared, "new": options.new,
             "rounds": []}  # fmt: skip
    for shape in options.shapes:
        for _ in range(options.rounds):
            for arm in options.arms:
                if options.stop_after and time.monotonic() - began > options.stop_after:
                    say(f"  {shape} {arm}: left out, the {options.stop_after:.0f} s are over")
                    continue
                state["rounds"].append(measure_arm(peer, options, shape, arm))
                options.json.write_text(json.dumps(state, indent=1))
    print(table(state))


if __name__ == "__main__":
    main()
