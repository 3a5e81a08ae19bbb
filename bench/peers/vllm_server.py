#!/usr/bin/env python3
"""vLLM's server beside `baton serve` on one GPU under the same Poisson arrivals, driven by `baton bench serve`. Random weights.

    bench/peers/vllm_server.py --baton PROGRAM --shape llama-3-8b --shared 2048 --rates 16,48,80

ShareGPT's lengths behind one system prompt, prompts as token ids, arrivals for --arrival-seconds at each rate, --rounds times.
Both servers stand on the GPU all the time and have the same --kv-gb for keys and values; a load runs on one while the other
waits for requests, and the first one alternates. Both have at most 256 sequences and else their defaults (vLLM: prefix
caching, CUDA graphs, torch.compile; arms: those of vllm_engine.py). Warm-up requests before each load have its system prompt, so
that both have it cached; seeds are equal for both and new for each rate and round.

The tokenizer is made up: each id of the shape's vocabulary has a text of its own, so that every generated token is sent as text
at once. Rows go to experiment_05_servers.json as each load ends; they say what share of a processor each process of a server
had. A table of medians comes last. Machine and packages: engine_pack.py.
"""

import argparse
import contextlib
import importlib.metadata
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import engine_points
import vllm_engine
from engine_points import MAX_NUM_SEQS
from peer_rows import ROOT, Rows, failure, machine
from server_process import served

sys.path.insert(0, str(ROOT / "bench/experiments"))

import serving  # noqa: E402

FILE, EXPERIMENT = "experiment_05_servers.json", 5
READY_SECONDS = 300
N_WARMUPS = 16
LEFT_OUT = ("input_lens", "output_lens", "ttfts", "itls", "generated_texts", "errors", "tokenizer_id")
SHOWN = {"request_throughput": "requests/s", "mean_tpot_ms": "a token, ms", "p99_tpot_ms": "99%", "median_ttft_ms": "first, ms",
         "p99_ttft_ms": "99%", "p99_itl_ms": "between, 99%", "mean_e2el_ms": "whole, ms", "processors": "processors"}  # fmt: skip


def byte_characters():
    """The character that stands for each byte in a byte-level vocabulary."""
    printable = [byte for byte in range(256) if 33 <= byte <= 126 or 161 <= byte <= 172 or byte >= 174]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def made_up_tokenizer(n_vocab):
    """tokenizer.json of a byte-level vocabulary: the 256 bytes, then a word of its own for each id, with a space before it."""
    characters = byte_characters()
    vocabulary = {characters[byte]: byte for byte in range(256)}
    vocabulary |= {f"{characters[ord(' ')]}w{i:06}": i for i in range(256, n_vocab)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocabulary, "merges": []}  # fmt: skip
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": level, "post_processor": None, "decoder": level, "model": model}  # fmt: skip


def write_model(shape, folder):
    """A folder that both servers take: the shape's config.json with a made-up tokenizer beside it. Returns it."""
    config = json.loads((engine_points.shape_folder(shape) / "config.json").read_text(encoding="utf-8"))
    files = {
        "config.json": config,
        "tokenizer.json": made_up_tokenizer(config["vocab_size"]),
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False},
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value), encoding="utf-8")
    return folder


def vllm_command(options, model, port):
    settings = vllm_engine.ARMS[options.arm]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", port, "--model", model,
               "--served-model-name", "bench", "--load-format", "dummy", "--dtype", "bfloat16", "--max-num-seqs", MAX_NUM_SEQS,
               "--kv-cache-memory-bytes", int(1e9 * options.kv_gb), "--gpu-memory-utilization", 0.5, "--seed", 0,
               "--disable-uvicorn-access-log",
               "--enable-prefix-caching" if settings.get("prefix_caching", True) else "--no-enable-prefix-caching"]  # fmt: skip
    if settings.get("cascade"):
        command.append("--no-disable-cascade-attn")
    if "backend" in settings:
        command += ["--attention-backend", settings["backend"]]
    if settings.get("eager"):
        command.append("--enforce-eager")
    return command


def baton_command(options, model, port):
    return [*shlex.split(options.baton), "serve", model, "--load-format", "dummy", "--device", options.device,
            "--host", "127.0.0.1", "--port", port, "--served-model-name", "bench", "--log-level", "warning",
            "--max-num-seqs", MAX_NUM_SEQS, "--kv-cache-memory-bytes", int(1e9 * options.kv_gb)]  # fmt: skip


def processor_seconds(group):
    """{name: processor seconds} of the processes of a process group that are running."""
    seconds = {}
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            begin, _, rest = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")
            fields = rest.split()
            if int(fields[2]) == group:
                name = begin.partition("(")[2]
                seconds[name] = seconds.get(name, 0) + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds


def shares(before, after, wall):
    """{name: processors in use} between two readings of processor_seconds(); names that used less than a hundredth are left out."""
    used = {name: round((seconds - before.get(name, 0)) / wall, 3) for name, seconds in after.items()}
    return {name: share for name, share in used.items() if share >= 0.01}


class Server:
    """One server that runs, and the rows of its loads."""

    def __init__(self, arm, command, process, port, rows):
        self.arm, self.command, self.process, self.port, self.rows = arm, command, process, port, rows

    def load(self, options, rate, number, folder):
        """One round at one rate. Returns the numbers of the row. Errors: SubprocessError, OSError, KeyError, ValueError."""
        n_requests = max(1, round(rate * options.arrival_seconds))
        arguments = ["--dataset-name", "sharegpt", "--dataset-path", engine_points.sharegpt_table(options.data), "--num-prompts",
                     n_requests, "--prefix-len", options.shared, "--seed", round(rate * 10) + number, "--request-rate", rate,
                     "--ignore-eos", "--num-warmups", N_WARMUPS, "--label", self.arm,
                     "--vocab-size", engine_points.n_vocab(options.shape), *shlex.split(options.more)]  # fmt: skip
        words = [*shlex.split(options.baton), "bench", "serve", "--base-url", f"http://127.0.0.1:{self.port}", "--model", "bench",
                 *arguments, "--save-result", "--result-dir", folder, "--result-filename", "result.json"]  # fmt: skip
        (folder / "result.json").unlink(missing_ok=True)
        self.rows.command = shlex.join(map(str, [*self.command, ";", "baton", "bench", "serve", *arguments]))
        begin, before = time.monotonic(), processor_seconds(self.process.pid)
        subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL,
                       timeout=30 + 8 * options.arrival_seconds)  # fmt: skip
        used = shares(before, processor_seconds(self.process.pid), time.monotonic() - begin)
        numbers = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        kept = {key: value for key, value in numbers.items() if key not in LEFT_OUT}
        return kept | {"processors": round(sum(used.values()), 3), "processors_of": used}


def measure(server, options, rate, number, folder):
    """One load, its row and its line. Returns its numbers, or None if it failed."""
    server.rows.begins()
    job = f"{server.arm}-{options.shared}-round-{number}"
    point = {"model": options.shape, "dataset": "sharegpt", "shared": options.shared, "rate": rate, "round": number}
    try:
        numbers = server.load(options, rate, number, folder)
    except (subprocess.SubprocessError, OSError, KeyError, ValueError) as error:
        server.rows.add(job, point, server.arm, {}, failure(error))
        print(f"{server.arm} {rate:g}/s round {number} FAILED: {failure(error)}", flush=True)
        return None
    server.rows.add(job, point | {"requests": numbers["num_prompts"]}, server.arm, numbers)
    print(f"{server.arm} {rate:g}/s round {number}: {numbers['completed']} of {numbers['num_prompts']} requests, "
          f"{numbers['failed']} failed, {numbers['duration']:.1f} s, {numbers['processors_of']}", flush=True)  # fmt: skip
    return numbers


def table(results):
    """Medians with the least and the largest of the rounds. results: {(rate, arm): [numbers]}."""
    lines = ["| rate | arm | " + " | ".join(SHOWN.values()) + " |", "|---" * (len(SHOWN) + 2) + "|"]
    for (rate, arm), rounds in results.items():
        cells = []
        for key in SHOWN:
            values = sorted(numbers[key] for numbers in rounds)
            ends = f" ({values[0]:.4g}-{values[-1]:.4g})" if values[0] != values[-1] else ""
            cells.append(f"{statistics.median(values):.4g}{ends}")
        lines.append(f"| {rate:g} | {arm} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def run_loads(options, servers, folder, deadline, results):
    """Rounds of all rates, as far as the time goes. Adds to results: {(rate, arm): [numbers]}."""
    for number in range(1, options.rounds + 1):
        for rate in options.rates:
            order = servers if (number + options.rates.index(rate)) % 2 else servers[::-1]
            for server in order:
                if time.monotonic() + 2 * options.arrival_seconds > deadline:
                    print(f"{server.arm} {rate:g}/s round {number}: left out, the {options.seconds:.0f} s are over", flush=True)
                elif numbers := measure(server, options, rate, number, folder):
                    results.setdefault((rate, server.arm), []).append(numbers)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baton", required=True, help="the program with `serve` and `bench serve`, with arguments if need be")
    parser.add_argument("--shape", default="llama-3-8b", help="folder of bench/shapes")
    others = {"linear_backend", "ranks", "prefix_match_unit"}
    arms = [arm for arm, settings in vllm_engine.ARMS.items() if not settings.keys() & others]
    parser.add_argument("--arm", choices=arms, default="vllm", help="vLLM's settings")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="Baton's")
    parser.add_argument("--shared", type=int, default=2048, help="tokens of the system prompt")
    parser.add_argument("--rates", default="16,48,80", help="requests a second, separated by commas")
    parser.add_argument("--arrival-seconds", type=float, default=15)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--kv-gb", type=float, default=40, help="memory of each server for keys and values")
    parser.add_argument("--more", default="", help="more flags of `baton bench serve`")
    parser.add_argument("--seconds", type=float, default=600, help="no load begins later than this")
    parser.add_argument("--data", help="folder of the data (default: BATON_TEST_DATA)")
    parser.add_argument("--results", type=Path, default=ROOT / "bench/results", help=f"folder of {FILE} and of the servers' logs")
    options = parser.parse_args()
    options.rates = [float(rate) for rate in options.rates.split(",")]
    return options


def main():
    begin = time.monotonic()
    options = parse_options()
    engine_points.sharegpt_table(options.data)  # before anything is loaded
    options.results.mkdir(parents=True, exist_ok=True)
    vllm_engine.environment(options.arm)
    versions = {options.arm: f"vllm {importlib.metadata.version('vllm')}", "relay": machine.commit_of(shlex.split(options.baton))}
    makers, results = {options.arm: vllm_command, "relay": baton_command}, {}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("vllm_server.py: stopped"))  # the servers must not stay behind
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as running:
        model, servers = write_model(options.shape, Path(scratch) / options.shape), []
        for arm, make in makers.items():
            port = serving.free_port()
            command = make(options, model, port)
            process = running.enter_context(served(command, port, options.results / f"server_{arm}.log", READY_SECONDS))
            servers.append(Server(arm, command, process, port, Rows(options.results / FILE, EXPERIMENT, versions[arm])))
            print(f"{arm} serves {options.shape} after {time.monotonic() - begin:.0f} s", flush=True)
        try:
            run_loads(options, servers, Path(scratch), begin + options.seconds, results)
        finally:
            print(table(results), flush=True)


if __name__ == "__main__":
    main()
