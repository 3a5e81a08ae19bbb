#!/usr/bin/env python3
"""Prints what quantised weights and activations cost in quality: top-1 agreement, KL divergence and perplexity.

    tools/weight_quality.py BATON [--dtype DTYPE] [--stories FOLDER --texts FILE]

BATON is a program (build/cpu-release/bin/baton). It serves the demo model in DTYPE (bfloat16) and then with each scheme, and
scores the same tokens each time: the right answers to the demo's questions, behind its catalogue. With --stories
(model-stories260K/hf of the test data) and --texts (text-corpora/tinystories_1000.json.zst) the same of that model, on its kind
of stories.

A position counts as agreed where both give the highest probability to the same token. The divergence is from DTYPE to the
scheme, in nats a token, with all tokens that one of the two has not among its 20 most likely taken for one: a little less than
the whole divergence. int4 with a scale for 32 columns is a checkpoint that `baton quantize` writes. Needs Python's standard
library, and zstd for a packed FILE.
"""

import argparse
import contextlib
import json
import math
import re
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / "models/demo"
N_TOP = 20
N_STORIES = 100
QUESTIONS_A_CONVERSATION = 16
ROWS = {
    "not quantised": [],
    "fp8": ["--quantization", "fp8"],
    "fp8, activations too": ["--quantization", "fp8", "--activation-dtype", "fp8"],
    "int8": ["--quantization", "int8"],
    "int8, activations too": ["--quantization", "int8", "--activation-dtype", "int8"],
    "int4, 128 columns": ["--quantization", "int4"],
    "int4, 128 columns, activations in int8": ["--quantization", "int4", "--activation-dtype", "int8"],
    "int4, 128 columns, output layer too": ["--quantization", "int4", "--quantize-lm-head"],
    "int4, 32 columns": None,
}


def lines_of(command, text):
    """The JSON lines that a program answers."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def demo_rows(baton):
    """Conversations about the catalogue as token ids, and the positions of the answers in each."""
    catalogue = (DEMO / "catalogue.txt").read_text(encoding="utf-8").strip()
    questions = [json.loads(line) for line in (DEMO / "questions.jsonl").read_text(encoding="utf-8").splitlines()]
    talks = []
    for first in range(0, len(questions), QUESTIONS_A_CONVERSATION):
        messages = [{"role": "system", "content": catalogue}]
        for question in questions[first : first + QUESTIONS_A_CONVERSATION]:
            messages += [question["messages"][-1], {"role": "assistant", "content": question["answer"]}]
        talks.append(json.dumps({"messages": messages, "add_generation_prompt": False}))
    begin, end = (
        lines_of([baton, "tokenize", "--no-special-tokens"], json.dumps(word) + "\n")[0][0] for word in ("<|assistant|>", "<|end|>")
    )
    for rendered in lines_of([baton, "render", "--tokens"], "\n".join(talks) + "\n"):
        ids, places, is_answer = rendered["prompt_token_ids"], [], False
        for place, token in enumerate(ids):
            if is_answer:
                places.append(place)
            is_answer = token != end and (is_answer or token == begin)
        yield ids, places


def story_rows(baton, folder, file):
    """Stories as token ids, of which all but the first are scored."""
    is_packed = file.suffix == ".zst"
    text = subprocess.run(["zstd", "-dcq", file], capture_output=True, check=True).stdout if is_packed else file.read_bytes()
    lines = "".join(json.dumps(story) + "\n" for story in json.loads(text)[:N_STORIES])
    for ids in lines_of([baton, "tokenize", str(folder)], lines):
        yield ids[:500], range(1, min(500, len(ids)))


@contextlib.contextmanager
def serving(baton, model, dtype, flags):
    """A server of the model; its address."""
    command = [baton, "serve", *model, "--host", "127.0.0.1", "--port", "0", "--dtype", dtype, "--max-num-seqs", "2", *flags]
    with tempfile.TemporaryFile() as log, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as server:
        try:
            address = re.search(r"http://\S+", server.stdout.readline())
            if address is None:
                log.seek(0)
                sys.exit(f"weight_quality: {' '.join(command)}:\n{log.read().decode()}")
            yield address[0]
        finally:
            server.terminate()


def scores(address, rows):
    """Of each scored position its token and the logarithms of the most likely tokens, by id."""
    for ids, places in rows:
        body = {"prompt": ids, "max_tokens": 1, "temperature": 0, "prompt_logprobs": N_TOP}
        request = urllib.request.Request(
            address + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as answer:
            listed = json.load(answer)["choices"][0]["prompt_logprobs"]
        for place in places:
            yield ids[place], {int(token): entry["logprob"] for token, entry in listed[place].items()}


def divergence(reference, other):
    """In nats, from `reference` to `other`; see the head of this file."""
    total, p_rest, q_rest = 0.0, 1.0, 1.0
    for token in reference.keys() & other.keys():
        p, q = math.exp(reference[token]), math.exp(other[token])
        total += p * (reference[token] - other[token])
        p_rest, q_rest = p_rest - p, q_rest - q
    return total + (p_rest * math.log(p_rest / q_rest) if p_rest > 0 < q_rest else 0)


def compare(reference, other):
    """Agreement, divergence and perplexity of `other`."""
    n = len(reference)
    agreed = sum(max(a, key=a.get) == max(b, key=b.get) for (_, a), (_, b) in zip(reference, other, strict=True))
    kl = sum(divergence(a, b) for (_, a), (_, b) in zip(reference, other, strict=True))
    loss = -sum(top[token] for token, top in other)
    return agreed / n, max(0.0, kl / n), math.exp(loss / n)


def print_table(baton, dtype, name, model, rows):
    """One table of all schemes."""
    rows = list(rows)
    print(f"{name}: {sum(len(places) for _, places in rows)} tokens\n")
    print("| weights | top-1 agreement | KL, nats a token | perplexity |\n|---|---|---|---|")
    reference = None
    for title, flags in ROWS.items():
        with tempfile.TemporaryDirectory() as folder:
            served = [str(model)] if model else []
            if flags is None:
                served = [f"{folder}/int4"]
                command = [baton, "quantize", str(model) if model else "demo", *served, "--scheme", "int4", "--group", "32"]
                subprocess.run(command, check=True, capture_output=True)
            with serving(baton, served, dtype, flags or []) as address:
                found = list(scores(address, rows))
        reference = reference or found
        agreement, kl, perplexity = compare(reference, found)
        print(f"| {title} | {100 * agreement:.2f}% | {kl:.5f} | {perplexity:.4f} |", flush=True)
    print()


def main():
    """Measures the models that are there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("baton")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--stories", type=Path)
    parser.add_argument("--texts", type=Path)
    arguments = parser.parse_args()
    print_table(arguments.baton, arguments.dtype, "demo", None, demo_rows(arguments.baton))
    if arguments.stories and arguments.texts:
        rows = story_rows(arguments.baton, arguments.stories, arguments.texts)
        print_table(arguments.baton, arguments.dtype, "stories260K", arguments.stories, rows)


if __name__ == "__main__":
    main()
