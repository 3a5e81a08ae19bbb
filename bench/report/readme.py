"""The generated parts of README.md: a few rows of docs/report, for who reads no further."""

from markdown_parts import markdown, number
from quantities import ARMS, MODEL_NAMES, duration
from selection import spread

NAMES = MODEL_NAMES | {"llama-3-8b": "Llama-3-8B"}
JOBS = {
    "gsp-64x16": "{groups} prompts of {shared:,} tokens, 16 requests behind each",
    "gsp-4x64": "{groups} prompts of {shared:,} tokens, 64 requests behind each",
    "sharegpt-2048": "one prompt of {shared:,} tokens, {requests:,} requests of ShareGPT's lengths",
    "sharegpt-512": "one prompt of {shared:,} tokens, {requests:,} requests of ShareGPT's lengths",
    "strangers-256": "{requests} requests that share nothing",
}


def best_of(found):
    """The least time of the other engines' arms; None without any."""
    return min((time for time in found if time), default=None)


def others(results, name):
    return [one for one in results.find(name=name) if one.arm.startswith("vllm")]


def steps(results, _published):
    """Milliseconds of a decode step: points that both Baton and vLLM ran."""
    rows = []
    for name in dict.fromkeys(one.point["name"] for one in results.measured if one.point.get("dataset") == "decode"):
        relay, paged = (results.one(arm, name=name) for arm in ARMS[:2])
        best = best_of(one["step_ms"] for one in others(results, name))
        if relay is None or best is None:
            continue
        point = next(one.point for one in others(results, name))
        case = f"{NAMES[point['model']]}, {point['requests']} x {point['shared']}"
        rows.append([case, number(relay["step_ms"]), number(paged and paged["step_ms"]), number(best),
                     number(best / relay["step_ms"])])  # fmt: skip
    header = ["shape, requests x shared tokens", "Baton", "Baton, `--attention paged`", "vLLM 0.24.0", "vLLM / Baton"]
    return markdown(header, rows) if rows else ""


def jobs(results, _published):
    """Seconds of whole jobs."""
    rows = []
    for name, words in JOBS.items():
        relay, paged = (results.one(arm, name=name) for arm in ARMS[:2])
        best = best_of(duration(one) for one in others(results, name))
        if relay is None or best is None:
            continue
        largest = max(spread(one.repetitions("elapsed_times")) or 0 for one in (relay, *others(results, name)))
        rows.append([NAMES[relay.point["model"]], words.format(**relay.point), number(duration(relay)), number(duration(paged)),
                     number(best), number(best / duration(relay)), f"{100 * largest:.0f}%"])  # fmt: skip
    header = ["shape", "job", "Baton", "Baton, `--attention paged`", "vLLM 0.24.0", "vLLM / Baton", "spread"]
    return markdown(header, rows) if rows else ""
