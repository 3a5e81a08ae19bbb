#!/usr/bin/env python3
"""Does the time to the first token tell one tenant what another has asked?

    bench/tenants/side_channel.py [--pairs 2000] [--arms cache_salt,keys,off] [--prefix-tokens 256]

For each pair, tenant A sends a new private prompt. Then tenant B sends two requests in random order: one begins with A's prompt,
the other with tokens that no tenant has sent. Their times to the first token are compared by Welch's t, of all times and of those
below the 90th percentile of both together (outliers hide small differences). |t| < 4.5 in both tells nothing.

Arms: cache_salt: each tenant's requests carry a salt of its own. keys: each tenant has a key of --api-key-file, and no request a
salt. off: neither; this arm must show the difference, else the benchmark proves nothing. The exit code is 1 if an arm does not
show what it should, or if `cached_tokens` of a salted arm tells of the other tenant.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import pathlib
import random
import statistics
import sys

from tenant_keys import KEY_OF, write_key_file
from tenant_server import BINARY, Tenant, TenantServer, machine, version

THRESHOLD = 4.5
N_WARM_UP = 20
FIRST_TOKEN, LAST_TOKEN = 300, 1000  # of the demo model's vocabulary; none of them ends an answer
HEADINGS = (
    "arm",
    "pairs",
    "shares A's prompt: median (standard deviation)",
    "does not",
    "abs(t)",
    "abs(t) below the 90th percentile",
    "difference of means that 4.5 would need",
    "most cached_tokens",
    "verdict",
)
ARMS = ("cache_salt", "keys", "off")


@dataclasses.dataclass
class Times:
    """Times to the first token of one kind of request, and what the usage said."""

    seconds: list[float] = dataclasses.field(default_factory=list)
    cached: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Welch:
    """Welch's t of two samples, and the difference of means at which |t| would reach the threshold."""

    t: float
    visible_seconds: float


def welch(one: list[float], other: list[float]) -> Welch:
    """The difference of the means over the square root of the sum of the variances of the means."""
    error = math.sqrt(statistics.variance(one) / len(one) + statistics.variance(other) / len(other))
    return Welch((statistics.fmean(one) - statistics.fmean(other)) / error, THRESHOLD * error)


def cropped(one: list[float], other: list[float]) -> tuple[list[float], list[float]]:
    """The times below the 90th percentile of both together."""
    limit = sorted(one + other)[int(0.9 * (len(one) + len(other)))]
    return [x for x in one if x < limit], [x for x in other if x < limit]


def measure(arm: str, binary: pathlib.Path, n_pairs: int, prefix_len: int, seed: int) -> tuple[Times, Times]:
    """Times of B's requests that begin with A's prompt, and of the others."""
    flags = ["--kv-cache-memory-bytes", "256M", "--log-level", "warning"]
    with write_key_file() as key_file:
        flags += ["--api-key-file", key_file] if arm == "keys" else []
        return ask_pairs(arm, TenantServer(binary, flags), n_pairs, prefix_len, seed)


def ask_pairs(arm: str, started: TenantServer, n_pairs: int, prefix_len: int, seed: int) -> tuple[Times, Times]:
    """The requests of all pairs, and the server's end."""
    with started as server:
        keys = KEY_OF if arm == "keys" else {"a": "", "b": ""}
        salts = {"a": "salt of a", "b": "salt of b"} if arm == "cache_salt" else {"a": "", "b": ""}
        a, b = (Tenant(server.port, keys[name], salts[name]) for name in ("a", "b"))
        rng = random.Random(seed)
        shared, foreign = Times(), Times()

        def tokens(n: int) -> list[int]:
            return [rng.randrange(FIRST_TOKEN, LAST_TOKEN) for _ in range(n)]

        for i in range(N_WARM_UP + n_pairs):
            private = tokens(prefix_len)
            a.first_token(private + tokens(8))
            two = [(shared, private), (foreign, tokens(prefix_len))]
            rng.shuffle(two)
            for times, prefix in two:
                seen = b.first_token(prefix + tokens(8))
                if i >= N_WARM_UP:
                    times.seconds.append(seen.seconds)
                    times.cached.append(seen.cached_tokens)
    return shared, foreign


def main() -> int:
    """Return 0 if every arm shows what it should."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baton", type=pathlib.Path, default=BINARY)
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--prefix-tokens", type=int, default=256)
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path, help="file for all times")
    options = parser.parse_args()
    print(f"{version(options.baton)}; {machine()}")
    print(f"command: bench/tenants/side_channel.py {' '.join(sys.argv[1:])}\n", flush=True)
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}", flush=True)
    n_wrong = 0
    seen = {}
    for arm in options.arms.split(","):
        shared, foreign = measure(arm, options.baton, options.pairs, options.prefix_tokens, options.seed)
        whole, low = welch(shared.seconds, foreign.seconds), welch(*cropped(shared.seconds, foreign.seconds))
        largest = max(abs(whole.t), abs(low.t))
        most_cached = max(shared.cached + foreign.cached)
        is_silent = largest < THRESHOLD and most_cached == 0
        is_right = abs(whole.t) > THRESHOLD and min(shared.cached) > 0 if arm == "off" else is_silent
        n_wrong += not is_right
        verdict = ("tells, as it should" if arm == "off" else "tells nothing") if is_right else "WRONG"
        cells = [
            arm,
            str(options.pairs),
            *(f"{1e3 * statistics.median(x.seconds):.3f} ms ({1e3 * statistics.stdev(x.seconds):.3f})" for x in (shared, foreign)),
            f"{abs(whole.t):.2f}",
            f"{abs(low.t):.2f}",
            f"{1e6 * whole.visible_seconds:.0f} us, {1e6 * low.visible_seconds:.0f} us",
            str(most_cached),
            verdict,
        ]
        print(f"| {' | '.join(cells)} |", flush=True)
        seen[arm] = {"shared": shared.seconds, "foreign": foreign.seconds}
    if options.json:
        options.json.write_text(json.dumps({"version": version(options.baton), "machine": machine(), "arms": seen}) + "\n")
    return 1 if n_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
