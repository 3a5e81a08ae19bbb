"""The generated parts of README.md and docs/results.md: a few rows of docs/report."""

from markdown_parts import markdown, number, percent
from quantities import ARMS, MODEL_NAMES, duration, repeated
from selection import KERNELS, KERNELS_DAY, build_of, day_of, is_other_program, spread

NAMES = MODEL_NAMES | {"llama-3-8b": "Llama-3-8B"}
JOBS = {
    "gsp-64x16": "{groups} prompts of {shared:,} tokens, 16 requests for each",
    "gsp-4x64": "{groups} prompts of {shared:,} tokens, 64 requests for each",
    "sharegpt-2048": "one prompt of {shared:,} tokens, {requests:,} requests of ShareGPT's lengths",
    "sharegpt-512": "one prompt of {shared:,} tokens, {requests:,} requests of ShareGPT's lengths",
    "strangers-256": "{requests} requests that share nothing",
}
VLLM, CASCADE = "vllm", "vllm-cascade"
COLUMNS = ["Baton", "Baton, `--attention paged`", "vLLM 0.24.0", "vLLM, cascade", "vLLM / Baton", "cascade / Baton"]


def arms_of(results, name):
    """Baton's two arms and vLLM's two at a point; None for what was not measured."""
    return [results.one(arm, name=name) for arm in (*ARMS[:2], VLLM, CASCADE)]


def cells(arms, time_of):
    """Of each arm the time and its spread, and of vLLM's two the time over Baton's."""
    times = [one and time_of(one) for one in arms]
    spreads = [spread(values) if (values := repeated(one)) else None for one in arms]
    shown = [
        "not measured" if time is None else number(time) + (f" ({percent(of)})" if of is not None else "")
        for time, of in zip(times, spreads, strict=True)
    ]
    return [*shown, *(number(time / times[0]) if time else "-" for time in times[2:])]


def is_comparison(arms):
    """Whether Baton and vLLM both ran."""
    return arms[0] is not None and any(arms[2:])


def older_mark(results, row):
    """What follows the day of a row that is not of the newest build."""
    return " \\*" if results.is_older(row) else ""


def about(results, names):
    """Machine, days and builds in one line, and what a star means."""
    rows = [row for name in names for one in results.find(name=name) for row in one.rows if one.arm in (*ARMS[:2], VLLM, CASCADE)]

    def days(others):
        return " and ".join(sorted({day_of(row) + older_mark(results, row) for row in rows if is_other_program(row) == others}))

    kernels = f"Baton's kernels changed last ({KERNELS}, {KERNELS_DAY})"
    since = f"the build {results.build[0]} of {results.build[2]}" if results.build else kernels
    mark = f"\n\\* Before {since}."
    builds = sorted({build_of(row) for row in rows if build_of(row)})
    built = f" (build {' and '.join(builds)})" if builds else ""
    told = f"{results.device} for each program; Baton on {days(False)}{built}, vLLM 0.24.0 on {days(True)}."
    told += " In brackets: the spread of repeated runs."
    return f"\n\n{told}{mark if any(map(results.is_older, rows)) else ''}"


def steps(results, _published):
    """Milliseconds of a decode step: points that both Baton and vLLM ran."""
    rows, names = [], []
    for name in dict.fromkeys(one.point["name"] for one in results.measured if one.point.get("dataset") == "decode"):
        arms = arms_of(results, name)
        if not is_comparison(arms):
            continue
        point = arms[0].point
        rows.append([f"{NAMES[point['model']]}, {point['requests']} x {point['shared']}", *cells(arms, lambda one: one["step_ms"])])
        names.append(name)
    return markdown(["shape, requests x shared tokens", *COLUMNS], rows) + about(results, names) if rows else ""


def jobs(results, _published):
    """Seconds of whole jobs."""
    rows, names = [], []
    for name, words in JOBS.items():
        arms = arms_of(results, name)
        if not is_comparison(arms):
            continue
        relay = arms[0]
        day = day_of(relay.rows[-1]) + max(older_mark(results, row) for row in relay.rows)
        rows.append([NAMES[relay.point["model"]], words.format(**relay.point), *cells(arms, duration), day])
        names.append(name)
    return markdown(["shape", "job", *COLUMNS, "Baton measured"], rows) + about(results, names) if rows else ""
