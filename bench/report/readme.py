"""The generated parts of README.md and docs/results.md: a few rows of docs/report."""

from markdown_parts import markdown, number
from quantities import ARMS, MODEL_NAMES, duration
from selection import KERNELS, KERNELS_DAY, day_of, has_older_kernels, is_other_program, spread

NAMES = MODEL_NAMES | {"llama-3-8b": "Llama-3-8B"}
JOBS = {
    "gsp-64x16": "{groups} prompts of {shared:,} tokens, 16 requests for each",
    "gsp-4x64": "{groups} prompts of {shared:,} tokens, 64 requests for each",
    "sharegpt-2048": "one prompt of {shared:,} tokens, {requests:,} requests of ShareGPT's lengths",
    "sharegpt-512": "one prompt of {shared:,} tokens, {requests:,} requests of ShareGPT's lengths",
    "strangers-256": "{requests} requests that share nothing",
}
VLLM, CASCADE = "vllm", "vllm-cascade"
COLUMNS = ["Baton", "Baton, `--attention paged`", "vLLM 0.24.0", "vLLM, cascade", "vLLM at best / Baton"]


def times_of(results, name, time_of):
    """Baton's two arms and vLLM's two at a point, by what `time_of` takes; None for what was not measured."""
    return [one and time_of(one) for one in (results.one(arm, name=name) for arm in (*ARMS[:2], VLLM, CASCADE))]


def cells(times):
    relay, paged, plain, cascade = times
    best = min(time for time in (plain, cascade) if time)
    shown = ["not measured" if time is None else number(time) for time in (relay, paged, plain, cascade)]
    return [*shown, number(best / relay)]


def is_comparison(times):
    """Whether Baton and vLLM both ran."""
    return times[0] is not None and any(times[2:])


def older_mark(row):
    """What follows the day of a row of earlier kernels."""
    return " \\*" if has_older_kernels(row) else ""


def about(results, names):
    """Machine and dates in one line."""
    rows = [row for name in names for one in results.find(name=name) for row in one.rows if one.arm in (*ARMS[:2], VLLM, CASCADE)]

    def days(others):
        return " and ".join(sorted({day_of(row) + older_mark(row) for row in rows if is_other_program(row) == others}))

    older = any(map(has_older_kernels, rows))
    mark = f"\n\\* Before Baton's kernels changed last ({KERNELS}, {KERNELS_DAY})." if older else ""
    return f"\n\n{results.device} for each program; Baton on {days(False)}, vLLM 0.24.0 on {days(True)}.{mark}"


def steps(results, _published):
    """Milliseconds of a decode step: points that both Baton and vLLM ran."""
    rows, names = [], []
    for name in dict.fromkeys(one.point["name"] for one in results.measured if one.point.get("dataset") == "decode"):
        times = times_of(results, name, lambda one: one["step_ms"])
        if not is_comparison(times):
            continue
        point = next(one.point for one in results.find(name=name))
        rows.append([f"{NAMES[point['model']]}, {point['requests']} x {point['shared']}", *cells(times)])
        names.append(name)
    return markdown(["shape, requests x shared tokens", *COLUMNS], rows) + about(results, names) if rows else ""


def jobs(results, _published):
    """Seconds of whole jobs."""
    rows, names = [], []
    for name, words in JOBS.items():
        times = times_of(results, name, duration)
        if not is_comparison(times):
            continue
        relay = results.one(ARMS[0], name=name)
        ran = [relay, *(one for arm in (VLLM, CASCADE) if (one := results.one(arm, name=name)))]
        largest = max(spread(one.repetitions("elapsed_times")) or 0 for one in ran)
        day = day_of(relay.rows[-1]) + max(map(older_mark, relay.rows))
        rows.append([NAMES[relay.point["model"]], words.format(**relay.point), *cells(times), f"{100 * largest:.0f}%", day])
        names.append(name)
    return markdown(["shape", "job", *COLUMNS, "spread", "Baton measured"], rows) + about(results, names) if rows else ""
