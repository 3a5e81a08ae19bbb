#!/usr/bin/env python3
"""What a tenant that floods costs another one with the same weight: the other's time to first token, beside that of alone.

    bench/tenants/two_tenants.py [--rounds 4] [--seconds 15] [--floods prompts,answers,choices] [--prompt-tokens 200,2000]
                                 [--one-key]

Tenant B streams one request after another, with new prompt tokens and 16 tokens of answer. Tenant A's clients, in a process of
their own, flood: "prompts" sends prompts of 2,000 new tokens, "answers" asks for 400 tokens, "choices" for 16 choices of 200
tokens. Rounds of alone and of flood follow each other. Each tenant has a key of --api-key-file; with --one-key both use the same,
which shows what the keys are for. The exit code is 1 if B's median is over --most (3) times that of alone.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import multiprocessing
import pathlib
import random
import shlex
import statistics
import sys
import threading
import time
from multiprocessing.connection import Connection

from side_channel import FIRST_TOKEN, LAST_TOKEN
from tenant_keys import KEY_OF, write_key_file
from tenant_server import BINARY, Tenant, TenantServer, machine, version

FLOODS = {
    "prompts": {"prompt_len": 2000, "max_tokens": 4},
    "answers": {"prompt_len": 100, "max_tokens": 400},
    "choices": {"prompt_len": 100, "max_tokens": 200, "n": 16},
}
N_CLIENTS = 48
HEADINGS = (
    "A's flood",
    "keys",
    "B's prompt",
    "B's requests alone, flooded",
    "B's first token alone",
    "flooded",
    "ratio",
    "A's requests",
    "both, flooded: generated tokens/s, rows/s",
)
GENERATED = "vllm:generation_tokens_total"
ROWS = "vllm:iteration_tokens_total_sum"
SETTLE_SECONDS = 2.0  # from the beginning of a flood to the first measured request
PAUSE_SECONDS = 0.05


def tokens(rng: random.Random, n: int) -> list[int]:
    """Random tokens that no tenant has sent."""
    return [rng.randrange(FIRST_TOKEN, LAST_TOKEN) for _ in range(n)]


def flood(port: int, key: str, name: str, pipe: Connection) -> None:
    """Tenant A's clients, until the pipe says so; sends back how many requests ended, were refused or cut."""
    ends = threading.Event()
    fields = dict(FLOODS[name])
    prompt_len = fields.pop("prompt_len")
    counts = {"answered": 0, "refused": 0}
    lock = threading.Lock()

    def client(i: int) -> None:
        rng = random.Random(f"{name} {i} {time.time()}")
        tenant = Tenant(port, key)
        while not ends.is_set():
            try:
                tenant.first_token(tokens(rng, prompt_len), **fields)
                what = "answered"
            except (RuntimeError, OSError):
                what = "refused"
                tenant.close()
                time.sleep(0.1)
            with lock:
                counts[what] += 1
        tenant.close()

    for i in range(N_CLIENTS):
        threading.Thread(target=client, args=(i,), daemon=True).start()
    pipe.poll(None)
    ends.set()
    with lock:
        pipe.send(counts)


@contextlib.contextmanager
def flooding(port: int, key: str, name: str, totals: dict[str, int]):
    """A flood around the measured requests; its connections are cut at its end."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=flood, args=(port, key, name, theirs), daemon=True)
    process.start()
    time.sleep(SETTLE_SECONDS)
    try:
        yield
    finally:
        ours.send("end")
        for what, n in ours.recv().items():
            totals[what] = totals.get(what, 0) + n
        process.kill()
        process.join()


def times_of(tenant: Tenant, rng: random.Random, seconds: float, prompt_len: int) -> list[float]:
    """Times to the first token of B's requests, one after another."""
    seen = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        seen.append(tenant.first_token(tokens(rng, prompt_len), max_tokens=16).seconds)
        time.sleep(PAUSE_SECONDS)
    return seen


def summary(values: list[float]) -> str:
    """Median, and the tenth and ninetieth percentile."""
    if len(values) < 2:
        return ", ".join(f"{1e3 * value:.1f} ms" for value in values)
    deciles = statistics.quantiles(values, n=10)
    return f"{1e3 * statistics.median(values):.1f} ms ({1e3 * deciles[0]:.1f} to {1e3 * deciles[-1]:.1f})"


@dataclasses.dataclass
class Work:
    """What the server has computed for both tenants in some seconds."""

    seconds: float = 0
    tokens: float = 0  # generated
    rows: float = 0  # prompt tokens and generated tokens computed

    def __str__(self) -> str:
        """Rates."""
        return f"{self.tokens / self.seconds:,.0f}, {self.rows / self.seconds:,.0f}"


@contextlib.contextmanager
def counting(server: TenantServer, work: Work):
    """Adds what the server computes meanwhile."""
    begin, tokens, rows = time.monotonic(), server.metric(GENERATED), server.metric(ROWS)
    yield
    work.tokens += server.metric(GENERATED) - tokens
    work.rows += server.metric(ROWS) - rows
    work.seconds += time.monotonic() - begin


def measure(options: argparse.Namespace, name: str, prompt_len: int) -> float:
    """One flood against a fresh server and B's prompts of one length; prints its row and returns the ratio of medians."""
    rng = random.Random(options.seed)
    alone: list[float] = []
    flooded: list[float] = []
    totals: dict[str, int] = {}
    work = Work()
    with write_key_file() as key_file:
        flags = ["--kv-cache-memory-bytes", "256M", "--log-level", "warning", "--api-key-file", key_file]
        flags += shlex.split(options.flags)
        with TenantServer(options.baton, flags) as server:
            b = Tenant(server.port, KEY_OF["b"])
            times_of(b, rng, 1, prompt_len)
            for _ in range(options.rounds):
                alone += times_of(b, rng, options.seconds, prompt_len)
                key = KEY_OF["b" if options.one_key else "a"]
                with flooding(server.port, key, name, totals), counting(server, work):
                    flooded += times_of(b, rng, options.seconds, prompt_len)
                time.sleep(SETTLE_SECONDS)  # what was cut off ends
    ratio = statistics.median(flooded) / statistics.median(alone)
    keys = "one key" if options.one_key else "two keys"
    counts = f"{totals.get('answered', 0)} answered, {totals.get('refused', 0)} refused"
    cells = [name, keys, str(prompt_len), f"{len(alone)}, {len(flooded)}", summary(alone), summary(flooded), f"{ratio:.2f}", counts]
    cells.append(str(work))
    print(f"| {' | '.join(cells)} |", flush=True)
    return ratio


def main() -> int:
    """Return 0 if every ratio is within --most."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baton", type=pathlib.Path, default=BINARY)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=15, help="of alone and of flood in each round")
    parser.add_argument("--floods", default=",".join(FLOODS))
    parser.add_argument("--prompt-tokens", default="200,2000", help="lengths of B's prompts (default: 200,2000)")
    parser.add_argument("--most", type=float, default=3, help="times that B's median may be that of alone")
    parser.add_argument("--one-key", action="store_true", help="both tenants use the same key")
    parser.add_argument("--flags", default="", help="more flags for baton serve, as one argument")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"{version(options.baton)}; {machine()}")
    print(f"command: bench/tenants/two_tenants.py {shlex.join(sys.argv[1:])}\n")
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}", flush=True)
    lengths = [int(n) for n in options.prompt_tokens.split(",")]
    ratios = [measure(options, name, n) for n in lengths for name in options.floods.split(",")]
    return 1 if max(ratios) > options.most else 0


if __name__ == "__main__":
    sys.exit(main())
