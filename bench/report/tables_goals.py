"""Issue 40's goals for one H200 beside what was measured: decode steps and whole jobs of experiment 11."""

import selection
from markdown_parts import markdown, number, percent
from quantities import ARMS, duration
from readme import NAMES

# Milliseconds of a step by shape, requests and shared tokens; seconds of jobs.
STEPS = {
    ("llama-3-8b", 1, 2048): 3.70, ("llama-3-8b", 8, 2048): 3.80, ("llama-3-8b", 32, 2048): 4.0, ("llama-3-8b", 64, 2048): 4.5,
    ("llama-3-8b", 128, 2048): 5.4, ("llama-3-8b", 256, 2048): 7.8, ("llama-3-8b", 128, 8192): 6.2,
    ("llama-2-7b", 1, 2048): 3.45, ("llama-2-7b", 32, 2048): 4.35, ("llama-2-7b", 128, 2048): 7.0,
}  # fmt: skip
JOBS = {"gsp-64x16": 16, "gsp-4x64": 3.4, "strangers-256": 7.6}
SHARES = {1: 0.91, 32: 0.88, 128: 0.75, 256: 0.62}  # of the time in which memory is busy, Llama-3-8B after 2048 shared tokens
# Bytes of weights that a step reads (all but the embedding), and of a token's keys and values.
STEP_BYTES = {"llama-3-8b": (15.01e9, 131_072), "llama-2-7b": (13.21e9, 524_288)}
READ_BYTES_PER_MS = 4.565e9  # of a plain read on an H200


def busy(one):
    """Distinct bytes of a step over what memory could have been read in its time."""
    weights, token = STEP_BYTES[one.point["model"]]
    tokens = one.point["shared"] + one.point["requests"] * (one.point["own"] + one.point["new"] / 2)
    return (weights + token * tokens) / READ_BYTES_PER_MS / one["step_ms"]


def steps_and_jobs(folder, _published):
    """Each goal, what was measured, whether it is reached; of steps the share of the time in which memory is busy, and its goal."""
    results, rows = selection.load(folder, 11, "peers"), []
    if "H200" not in results.device:
        return "Not measured yet."
    for (model, requests, shared), goal in STEPS.items():
        one = results.one(ARMS[0], model=model, dataset="decode", requests=requests, shared=shared)
        share = SHARES.get(requests) if (model, shared) == ("llama-3-8b", 2048) else None
        what = f"{NAMES[model]}, a step of {requests} x {shared}, ms"
        rows.append([what, *judged(goal, one and one["step_ms"]), percent(one and busy(one)), percent(share)])
    for name, goal in JOBS.items():
        rows.append([f"job {name}, s", *judged(goal, duration(results.one(ARMS[0], name=name))), "-", "-"])
    header = ["", "goal", "measured", "reached", "memory busy", "its goal"]
    older = results.older()
    return markdown(header, rows) + (f"\n\n{older}" if older else "")


def judged(goal, value):
    reached = "-" if value is None else "yes" if value <= goal else "no"
    return [number(goal), number(value), reached]
