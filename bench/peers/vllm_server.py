#!/usr/bin/env python3
"""vLLM's server under Poisson arrivals, driven by `baton bench serve`, beside the arms of experiment 5. Random weights.

    bench/peers/vllm_server.py --baton PROGRAM --shape llama-2-7b --shared 2048 --rates 4,8,12

ShareGPT lengths behind one system prompt, as experiment 5 sends them to `baton serve`: the same flags and seeds, prompts as
token ids, arrivals for --arrival-seconds at each rate. The server is loaded once for an arm (those of vllm_engine.py), with at
most 256 sequences, 16,384 batched tokens and CUDA graphs. Llama-2's tokenizer, which the data folder has, turns answers into
text. Machine and packages: engine_pack.py.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import engine_measure
import engine_points
import vllm_engine
from engine_points import MAX_BATCHED_TOKENS, MAX_MODEL_LEN, MAX_NUM_SEQS
from peer_rows import ROOT, Rows, failure
from server_process import served

sys.path.insert(0, str(ROOT / "bench/experiments"))

import serving  # noqa: E402
import workloads  # noqa: E402

FILE, EXPERIMENT = "experiment_05_interactive.json", 5
READY_SECONDS = 240
LEFT_OUT = ("input_lens", "output_lens", "ttfts", "itls", "generated_texts", "errors")


def server_command(options, port):
    settings = vllm_engine.ARMS[options.arm]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", port,
               "--model", workloads.model_folder(options.shape, options.data), "--served-model-name", "bench",
               "--load-format", "dummy", "--dtype", "bfloat16", "--max-model-len", MAX_MODEL_LEN, "--max-num-seqs", MAX_NUM_SEQS,
               "--max-num-batched-tokens", MAX_BATCHED_TOKENS, "--kv-cache-memory-bytes", int(1e9 * options.kv_gb), "--seed", 0,
               "--compilation-config", json.dumps({"cudagraph_capture_sizes": vllm_engine.GRAPH_SIZES}),
               "--disable-uvicorn-access-log",
               "--enable-prefix-caching" if settings.get("prefix_caching", True) else "--no-enable-prefix-caching"]  # fmt: skip
    if settings.get("cascade"):
        command.append("--no-disable-cascade-attn")
    if "backend" in settings:
        command += ["--attention-backend", settings["backend"]]
    return command


def load(options, url, rate, folder):
    """One rate. Returns (numbers, command). Errors: CalledProcessError."""
    n_requests = max(1, round(rate * options.arrival_seconds))
    arguments = ["--dataset-name", "sharegpt", "--dataset-path", engine_points.sharegpt_table(options.data), "--num-prompts",
                 n_requests, "--prefix-len", options.shared, "--seed", round(rate * 10), "--request-rate", rate, "--ignore-eos",
                 "--label", options.arm, "--vocab-size", engine_points.n_vocab(options.shape)]  # fmt: skip
    words = [*shlex.split(options.baton), "bench", "serve", "--base-url", url, "--model", "bench", *arguments,
             "--save-result", "--result-dir", folder, "--result-filename", "result.json"]  # fmt: skip
    subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL, timeout=10 * options.arrival_seconds)
    numbers = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    kept = {key: value for key, value in numbers.items() if key not in LEFT_OUT}
    return kept, shlex.join(map(str, ["baton", "bench", "serve", *arguments]))


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baton", required=True, help="the program with `bench serve`, with arguments if need be")
    parser.add_argument("--shape", choices=sorted(engine_measure.PARAMETERS_GB), default="llama-2-7b")
    arms = [arm for arm, settings in vllm_engine.ARMS.items() if "linear_backend" not in settings]
    parser.add_argument("--arm", choices=arms, default="vllm")
    parser.add_argument("--shared", type=int, default=2048, help="tokens of the system prompt")
    parser.add_argument("--rates", default="4,8,12,16", help="requests a second, separated by commas")
    parser.add_argument("--arrival-seconds", type=float, default=45)
    parser.add_argument("--seconds", type=float, default=600, help="no rate begins later than this")
    parser.add_argument("--data", help="folder of the data (default: BATON_TEST_DATA)")
    parser.add_argument("--results", type=Path, default=ROOT / "bench/results", help=f"folder of {FILE}")
    options = parser.parse_args()
    options.kv_gb = engine_measure.GPU_SHARE * engine_measure.gpu_gb() - engine_measure.PARAMETERS_GB[options.shape]
    return options


def main():
    options = parse_options()
    deadline = time.monotonic() + options.seconds
    vllm_engine.environment(options.arm)
    import vllm

    rows = Rows(options.results / FILE, EXPERIMENT, f"vllm {vllm.__version__}")
    port = serving.free_port()
    command = server_command(options, port)
    name = f"{options.arm}-{options.shared}"
    with tempfile.TemporaryDirectory() as scratch, served(command, port, Path(scratch) / "server.log", READY_SECONDS):
        print(f"{options.arm} serves {options.shape} after {time.monotonic() - rows.begin:.0f} s", flush=True)
        for rate in map(float, options.rates.split(",")):
            if time.monotonic() + options.arrival_seconds > deadline:
                print(f"{options.arm} {name}, {rate}/s: left out, the {options.seconds:.0f} s are over", flush=True)
                continue
            rows.begins()
            point = {"model": options.shape, "dataset": "sharegpt", "shared": options.shared, "rate": rate}
            try:
                numbers, rows.command = load(options, f"http://127.0.0.1:{port}", rate, Path(scratch))
                rows.add(name, point | {"requests": numbers["num_prompts"]}, options.arm, numbers)
                print(f"{options.arm} {name}, {rate}/s: {numbers['request_throughput']:.2f} requests/s, "
                      f"TTFT {numbers['mean_ttft_ms']:.0f} ms, TPOT {numbers['mean_tpot_ms']:.1f} ms", flush=True)  # fmt: skip
            except (subprocess.SubprocessError, OSError, KeyError, ValueError) as error:
                rows.add(name, point, options.arm, {}, failure(error))
                print(f"{options.arm} {name}, {rate}/s FAILED: {failure(error)}", flush=True)


if __name__ == "__main__":
    main()
