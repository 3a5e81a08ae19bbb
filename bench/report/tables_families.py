"""Decode steps of other families of models (experiment 11), beside vLLM where it ran."""

from markdown_parts import markdown, number, percent, with_notes
from quantities import ARMS
from selection import is_other_program, spread

WEIGHTS = {"none": "bf16", None: "its own"}


def steps(results, _published):
    """Relay, paged and vLLM behind a shared prompt, by model, form of weights and number of requests."""
    cases = {}
    for one in results.measured:
        key = (one.point["model"], one.point.get("quantization"), one.point["requests"])
        cases.setdefault(key, {})[one.arm] = one
    rows = []
    for (model, weights, requests), arms in sorted(cases.items(), key=lambda case: (case[0][0], case[0][1] or "", case[0][2])):
        relay, paged = (arms.get(arm) for arm in ARMS[:2])
        other = next((one for one in arms.values() if is_other_program(one.rows[0])), None)
        times = [one and one["step_ms"] for one in (relay, paged, other)]
        spreads = [spread(one.repetitions("tokens_per_s")) or 0 for one in (relay, paged, other) if one]
        ratios = [time / times[0] if time and times[0] else None for time in times[1:]]
        version = other.rows[-1]["commit"] if other else "-"
        rows.append([model, WEIGHTS.get(weights, weights), str(requests), *map(number, times), version, *map(number, ratios),
                     percent(max(spreads))])  # fmt: skip
    header = ["shape", "weights", "requests", "relay, ms a step", "paged", "vLLM", "its version", "paged / relay", "vLLM / relay",
              "spread"]  # fmt: skip
    return with_notes(markdown(header, rows), results) if rows else ""
