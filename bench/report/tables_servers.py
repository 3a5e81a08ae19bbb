"""vLLM's server and Baton's on one GPU in turn under the same arrivals (bench/peers/vllm_server.py)."""

import statistics

from markdown_parts import markdown, number, with_notes
from selection import is_other_program

NUMBERS = ("request_throughput", "latency_per_token_s", "mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "p99_tpot_ms")


def servers(results, _published):
    """A line for each rate and program; the median of its rounds."""
    rounds = {}
    for one in results.measured:
        rounds.setdefault((one.point["rate"], one.arm), []).append(one)
    rows = []
    for (rate, arm), found in sorted(rounds.items()):
        served, latency, *rest = (statistics.median(one[name] for one in found) for name in NUMBERS)
        row = found[0].rows[0]
        program = row["commit"] if is_other_program(row) else f"Baton, {arm}"
        counts = str(found[0].point["requests"]), str(len(found))
        times = [1e3 * latency, *rest]
        rows.append([f"{rate:g}", program, *counts, number(served), *(number(value, 1) for value in times)])
    header = ["offered, requests/s", "server", "requests", "rounds", "served, requests/s", "latency a token, ms", "TTFT mean, ms",
              "p99", "TPOT mean, ms", "p99"]  # fmt: skip
    return with_notes(markdown(header, rows), results)
