#!/usr/bin/env python3
"""Transformers' continuous batching and its static batches on points of experiment 11. Random weights.

    bench/peers/transformers_batching.py --points one-prompt-0,one-prompt-1024,one-prompt-2048

The requests are those of `baton bench throughput` (drawn_requests.py), greedy, of fixed output lengths. Arms:

    transformers            generate_batch, all requests at once; it has no prefix sharing across prompts of one call
    transformers-static     generate, 32 requests at a time; all prompts and answers of a point have one length

Seconds are from the first request handed over to the last answer, after a warm-up of 16 requests. Needs PyTorch, Transformers 5.17
and a GPU; a point takes up to 100 s.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import engine_points
import torch
import transformers
from peer_rows import ROOT, Rows, failure

POINTS = ("one-prompt-0", "one-prompt-1024", "one-prompt-2048")
STATIC_BATCH, N_WARM_UP = 32, 16


def random_model(shape, attention):
    """A Llama of the shape with random weights, in bfloat16 on the GPU."""
    table = json.loads((engine_points.shape_folder(shape) / "config.json").read_text(encoding="utf-8"))
    known = {key: value for key, value in table.items() if key not in {"architectures", "model_type", "torch_dtype"}}
    config = transformers.LlamaConfig(**known)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = transformers.LlamaForCausalLM(config).eval()
    torch.set_default_dtype(before)
    model.set_attn_implementation(attention)
    return model


def continuous(model, prompts, settings):
    """Runs all requests in one call. Returns generated tokens."""
    answers = model.generate_batch(inputs=prompts, generation_config=settings, progress_bar=False)
    return sum(len(answer.generated_tokens) for answer in answers.values())


def static(model, prompts, settings):
    """Runs batches of STATIC_BATCH prompts, one after the other. Returns generated tokens."""
    n_tokens = 0
    for first in range(0, len(prompts), STATIC_BATCH):
        ids = torch.tensor(prompts[first : first + STATIC_BATCH], device="cuda")
        answers = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings)
        n_tokens += (answers.shape[1] - ids.shape[1]) * ids.shape[0]
    return n_tokens


def timed(run, *arguments):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    with torch.no_grad():
        n_tokens = run(*arguments)
    torch.cuda.synchronize()
    return time.perf_counter() - begin, n_tokens


def measure(model, rows, point, arm, run, options):
    """Writes a row. An arm that fails is a row that says so."""
    rows.begins()
    try:
        requests = engine_points.requests_of(point)
        prompts, n_new = [prompt for prompt, _ in requests], point.about["output"]
        settings = transformers.GenerationConfig(max_new_tokens=n_new, do_sample=False, eos_token_id=-1, pad_token_id=0)
        timed(run, model, prompts[:N_WARM_UP], settings)
        times = []
        for _ in range(options.runs):
            seconds, n_tokens = timed(run, model, prompts, settings)
            times.append(round(seconds, 4))
            if n_tokens != len(prompts) * n_new:
                raise RuntimeError(f"{n_tokens} tokens in place of {len(prompts) * n_new}")
        n_in, n_out, middle = sum(map(len, prompts)), len(prompts) * n_new, statistics.median(times)
        numbers = {
            "elapsed_time": middle,
            "elapsed_times": times,
            "spread": round((max(times) - min(times)) / middle, 4),
            "num_requests": len(prompts),
            "total_input_tokens": n_in,
            "total_output_tokens": n_out,
            "total_num_tokens": n_in + n_out,
            "requests_per_second": len(prompts) / middle,
            "tokens_per_second": (n_in + n_out) / middle,
            "output_tokens_per_second": n_out / middle,
            "settings": {"attention": options.attention, "torch": torch.__version__},
        }
        rows.add(point.name, point.in_row, arm, numbers)
        print(f"{arm} {point.name}: {times} s, {n_out / middle:.0f} output tokens/s", flush=True)
    except Exception as error:  # whatever Transformers says of one arm, the next one is tried
        rows.add(point.name, point.in_row, arm, {}, failure(error))
        print(f"{arm} {point.name} FAILED: {failure(error)}", flush=True)
    torch.cuda.empty_cache()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="llama-2-7b", help="folder of bench/shapes")
    parser.add_argument("--points", default=",".join(POINTS), help="names, separated by commas")
    parser.add_argument("--arms", default="transformers,transformers-static")
    parser.add_argument("--attention", default="sdpa", help="Transformers' name of the attention implementation")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=600, help="no arm begins later than this")
    parser.add_argument("--results", type=Path, default=ROOT / "bench/results", help="folder of experiment_11_peers.json")
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    if not torch.cuda.is_available():
        parser.exit(1, "transformers_batching.py: PyTorch finds no GPU here\n")
    torch.manual_seed(0)
    kinds = {"transformers": continuous, "transformers-static": static}
    rows = Rows(options.results / "experiment_11_peers.json", 11, f"transformers {transformers.__version__}")
    model = random_model(options.shape, options.attention)
    print(f"transformers {transformers.__version__}: {options.shape} made", flush=True)
    for point in engine_points.chosen(options.points.split(","), options.shape, ("job",)):
        for arm in options.arms.split(","):
            if time.monotonic() < deadline:
                measure(model, rows, point, arm, kinds[arm], options)
            else:
                print(f"{arm} {point.name}: left out, the {options.seconds:.0f} s are over", flush=True)


if __name__ == "__main__":
    main()
