#!/usr/bin/env python3
"""llama.cpp's server beside `baton serve`, both driven by `baton bench serve`: experiment 11 on a CPU. Random weights.

    bench/peers/llama_server.py --baton build/cpu-release/bin/baton            some ten minutes on two cores
    bench/peers/llama_server.py --groups 2 --per-group 8 --runs 1              a small one

The requests are SGLang's generated-shared-prefix: groups of prompts behind a system prompt each, sent as token ids, greedy,
of fixed answer lengths, at most --concurrency at a time, the rest waiting. In each of --runs rounds every arm starts a
server of its own, so that caches are cold, answers one load and stops:

    relay, paged        `baton serve` in these arms
    llama-server        built from the source in llama.cpp's Python package (llama_cpp.py), its defaults: prompt cache on, one
                        slot for each concurrent request

A load in which other programs had more than --others of the processors is repeated, at most --patience times; the row
says what they had in the last one. Rows go to bench/results/experiment_11_llama_server_cpu.json as each round ends.
Needs what llama_cpp.py needs, and the data folder (BATON_TEST_DATA or --data) for a tokenizer of Baton's.
"""

import argparse
import json
import os
import pathlib
import shlex
import sys
import tempfile
import time

import llama_cpp
from llama_cpp import BUILD_FLAGS, HERE, ROOT, Peer, run, say
from server_process import served

sys.path.insert(0, str(ROOT / "bench/experiments"))

import machine  # noqa: E402
import result_rows  # noqa: E402
import serving  # noqa: E402
import workloads  # noqa: E402

EXPERIMENT, FILE = 11, "experiment_11_llama_server_cpu.json"
SLACK_TOKENS = 32  # of a slot's context, beyond the longest request
LEFT_OUT = ("input_lens", "output_lens", "ttfts", "itls", "generated_texts", "errors")


class ServerPeer(Peer):
    """llama-server, and a model file with a vocabulary."""

    target = "llama-server"
    build = "build-server"
    flags = [flag for flag in BUILD_FLAGS if "SERVER" not in flag] + ["-DLLAMA_BUILD_SERVER=ON", "-DLLAMA_USE_PREBUILT_UI=OFF"]

    def model(self, shape: str) -> pathlib.Path:
        file = self.work / f"{shape}-vocabulary.gguf"
        if not file.exists():
            say(f"writing {file.name}")
            run([self.python, HERE / "random_gguf.py", ROOT / "bench/shapes" / shape, file, "--vocabulary"])
        return file


def server_command(arm: str, peer: ServerPeer, options: argparse.Namespace, port: int) -> list:
    if arm == "llama-server":
        length = options.system + options.question + options.output + SLACK_TOKENS
        return [peer.program, "-m", peer.model(options.shape), "--host", "127.0.0.1", "--port", port, "-np", options.concurrency,
                "-c", length * options.concurrency, "-t", options.threads, "-tb", options.threads, "--no-webui",
                "--alias", "bench"]  # fmt: skip
    return [options.baton, "serve", workloads.model_folder(options.shape, options.data), "--load-format", "dummy", "--host",
            "127.0.0.1", "--port", port, "--served-model-name", "bench", "--log-level", "warning", "--threads", options.threads,
            "--max-num-seqs", options.concurrency, *serving.ARM_FLAGS[arm]]  # fmt: skip


def vocabulary_of(shape: str) -> int:
    return json.loads((ROOT / "bench/shapes" / shape / "config.json").read_text(encoding="utf-8"))["vocab_size"]


def load_arguments(options: argparse.Namespace, rate: str) -> list:
    return ["--dataset-name", "generated-shared-prefix", "--gsp-num-groups", options.groups, "--gsp-prompts-per-group",
            options.per_group, "--gsp-system-prompt-len", options.system, "--gsp-question-len", options.question,
            "--gsp-output-len", options.output, "--vocab-size", vocabulary_of(options.shape), "--request-rate", rate,
            "--max-concurrency", options.concurrency, "--ignore-eos", "--temperature", 0, "--num-warmups", 0]  # fmt: skip


def measure(arm: str, rate: str, peer: ServerPeer, options: argparse.Namespace) -> dict:
    """One round of an arm: the row."""
    with tempfile.TemporaryDirectory() as scratch:
        port, folder = serving.free_port(), pathlib.Path(scratch)
        server = server_command(arm, peer, options, port)
        arguments = load_arguments(options, rate)
        begin = time.monotonic()
        wall, busy, own = time.monotonic(), llama_cpp.busy_seconds(), llama_cpp.own_seconds()
        with served(server, port, folder / "server.log"):
            run([options.baton, "bench", "serve", "--base-url", f"http://127.0.0.1:{port}", "--model", "bench", *arguments,
                 "--save-result", "--result-dir", folder, "--result-filename", "result.json"])  # fmt: skip
        others = llama_cpp.busy_seconds() - busy - llama_cpp.own_seconds() + own
        numbers = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    point = {"model": options.shape, "dataset": "generated-shared-prefix", "groups": options.groups,
             "requests": options.groups * options.per_group, "shared": options.system, "own": options.question,
             "output": options.output, "concurrency": options.concurrency, "rate": rate}  # fmt: skip
    commands = [shlex.join(map(str, command)) for command in (server, ["baton", "bench", "serve", *arguments])]
    kept = {key: value for key, value in numbers.items() if key not in LEFT_OUT}
    return {
        "experiment": EXPERIMENT,
        "job": "llama-server",
        "point": point,
        "arm": arm,
        "numbers": kept | {"processors_of_others": round(others / (time.monotonic() - wall) / os.cpu_count(), 3)},
        "command": "; ".join(commands).replace(f"{ROOT}/", "").replace(f"{options.work}/", ""),
        "commit": peer.version if arm == "llama-server" else machine.commit_of([str(options.baton)]),
        "machine": machine.describe("cpu", options.threads),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seconds": round(time.monotonic() - begin, 1),
    }


def measure_calmly(arm: str, rate: str, peer: ServerPeer, options: argparse.Namespace) -> dict:
    """The row of the first round in which others left the processors alone, or of the last one."""
    for _ in range(options.patience + 1):
        row = measure(arm, rate, peer, options)
        share = row["numbers"]["processors_of_others"]
        if share <= options.others:
            break
        say(f"{arm}: others had {100 * share:.0f}% of the processors")
    return row


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/peers/llama_cpp", help="where llama.cpp is built")
    parser.add_argument("--baton", type=pathlib.Path, default=ROOT / "build/cpu-release/bin/baton")
    parser.add_argument("--shape", default="110m", help="folder of bench/shapes")
    parser.add_argument("--arms", default="llama-server,relay,paged")
    parser.add_argument("--rates", default="inf", help="requests a second, separated by commas; inf: all at once")
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--per-group", type=int, default=16)
    parser.add_argument("--system", type=int, default=1024, help="tokens of a group's system prompt")
    parser.add_argument("--question", type=int, default=64, help="tokens of a request's own prompt")
    parser.add_argument("--output", type=int, default=64, help="tokens of an answer")
    parser.add_argument("--concurrency", type=int, default=16, help="most requests at a time")
    parser.add_argument("--runs", type=int, default=3, help="rounds")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--others", type=float, default=0.1, help="share of the processors that other programs may have")
    parser.add_argument("--patience", type=int, default=3, help="repetitions of a disturbed load, at most")
    parser.add_argument("--data", help="folder of the data (default: BATON_TEST_DATA)")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "bench/results", help="folder of the result file")
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    options.work, options.baton = options.work.resolve(), options.baton.resolve()
    peer = ServerPeer(options.work, options.threads)
    peer.prepare()
    for rate in options.rates.split(","):
        for number in range(options.runs):
            for arm in options.arms.split(","):
                row = measure_calmly(arm, rate, peer, options)
                result_rows.append(options.results / FILE, row)
                numbers = row["numbers"]
                say(f"round {number + 1}, {arm}, rate {rate}: {numbers['output_throughput']:.1f} output tokens/s, "
                    f"{numbers['completed']} requests in {numbers['duration']:.1f} s, TTFT {numbers['mean_ttft_ms']:.0f} ms, "
                    f"TPOT {numbers['mean_tpot_ms']:.1f} ms; "
                    f"others had {100 * numbers['processors_of_others']:.0f}% of the processors")  # fmt: skip


if __name__ == "__main__":
    main()
