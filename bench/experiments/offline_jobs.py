"""Jobs of `baton bench throughput`, `bench decode` and `bench attention`, which several experiments share.

Estimates are of one H200, from rows of 2026-11-22 to 29.
"""

import dataclasses

from harness import ARMS, Job

# Billions of parameters that a step reads, KV bytes a token in bf16 (bench/shapes/README.md).
SHAPES = {
    "phi-2": (2.78, 327_680),
    "llama-2-7b": (6.74, 524_288),
    "mistral-7b": (7.24, 131_072),
    "llama-3-8b": (8.03, 131_072),
    "qwen3-8b": (8.19, 147_456),
    "llama-2-13b": (13.02, 819_200),
    "llama-30b": (32.53, 1_597_440),
    "codellama-34b": (33.74, 196_608),
    "gemma-2-9b": (9.24, 344_064),
    "ministral-3-8b": (8.49, 139_264),
    "qwen3-30b-a3b": (30.53, 98_304),
    "gpt-oss-20b": (5.23, 49_152),  # experts in 4 bits
    "deepseek-v2-lite": (15.71, 31_104),
    "glm-4.7-flash": (29.94, 54_144),
    "qwen3.5-27b": (26.90, 65_536),
    "qwen3.5-35b-a3b": (34.66, 20_480),
}
SHAREGPT_OWN, SHAREGPT_OUTPUT = 251, 231  # tokens, means of what vLLM's filter leaves (experiment 0)
MAX_NUM_SEQS = 256
ARM_SECONDS = 100  # a run is cut then, and counts what has finished
READ_BYTES_PER_S = 3.6e12
AGAIN_BYTES_PER_S = 9e12  # of a prefix that another request of the step has read
PREFILL_FLOPS = 38_000 * 2 * 8.03e9  # measured on an H200 (targets: 38,000 tokens/s of Llama-3-8B)
SLOWER, FASTER = {"phi-2": 1.3}, 0.94  # steps than by the rows of 2026-11-22, which the other numbers follow
N_WARM_UPS = 64  # requests before the first run, at most: graphs are captured when the engine loads
GPU_KV_BYTES = 118e9  # what 0.9 of an H200 leaves for weights and keys and values


def load_seconds(shape):
    """The start of a process with random weights, which the GPU draws, graphs of steps and the end included."""
    return 3 + 0.13 * SHAPES[shape][0]


def offline_seconds(shape, n_requests, shared, own, output, arm, longest=None):
    """Estimate of one run: prefill at the measured rate, and steps that read weights and contexts. `longest`: of the answers,
    where they differ; after most have ended few run on."""
    billions, token_bytes = SHAPES[shape]
    weights = 2e9 * billions
    copies = n_requests if arm == "unshared" else 1
    prefill = (n_requests * own + copies * shared) * 2e9 * billions / PREFILL_FLOPS
    kv_bytes = GPU_KV_BYTES - weights
    private = own + output + (shared if arm == "unshared" else 0)
    rows = max(1, min(MAX_NUM_SEQS, n_requests, kv_bytes / token_bytes / private))
    first = rows * (own + output / 2 + (shared if arm == "unshared" else 0)) + shared
    again = (rows - 1) * shared if arm == "paged" else 0
    step = (1.4 * weights + token_bytes * first) / READ_BYTES_PER_S + token_bytes * again / AGAIN_BYTES_PER_S + 0.0005
    n_steps = n_requests * output / rows
    tail = max(0, (longest or output) - n_steps) * (1.15 * weights / READ_BYTES_PER_S + 0.0004)
    return prefill + (n_steps * step + tail) * SLOWER.get(shape, FASTER)


def longest_answer(n_requests):
    """Of so many of ShareGPT's requests, about."""
    return 2_250 if n_requests >= 750 else 1_050 if n_requests >= 300 else 850 if n_requests >= 50 else 650


@dataclasses.dataclass(frozen=True)
class AlsoOf:
    """Another experiment's job that is the same work: its rows are written along with those of the job that runs."""

    experiment: tuple  # number and name
    job: str
    point: dict
    arms: tuple = ARMS[:2]


def model_arguments(settings, shape):
    """The shape with random weights on a GPU; the demo model in the small scales."""
    return ["--device", settings.device, *(["--shape", shape] if settings.is_full else [])]


def model_name(settings, shape):
    return shape if settings.is_full else "demo"


def numbers_of(entry, *dropped):
    """What a tool said of an arm, without its name and without what a row says elsewhere."""
    return {key: value for key, value in entry.items() if key not in {"arm", "error", *dropped}}


def over(ranks):
    """Flags of a model over several GPUs; none for one."""
    return ["--tensor-parallel-size", ranks] if ranks > 1 else []


def stored(quantization):
    """Flags of weights in another form than the 16 bits of a shape."""
    return ["--quantization", quantization] if quantization not in (None, "none") else []


def throughput_job(
    settings, name, shape, dataset, point, seconds, arms=ARMS, runs=None, limit=ARM_SECONDS, ranks=1, quantization=None,
    also=()
):  # fmt: skip
    """One `baton bench throughput`: its arms interleaved on one engine. `dataset` gives the flags of the requests;
    `limit` cuts a run after so many seconds, 0 never."""
    runs = settings.runs or runs or settings.pick(2, 2, 1)
    batched = settings.pick(16384, 2048)

    def run(runner):
        arguments = ["bench", "throughput", *model_arguments(settings, shape), *dataset(), "--arms", ",".join(arms), "--runs", runs]
        arguments += ["--max-num-seqs", MAX_NUM_SEQS, "--max-num-batched-tokens", batched]
        arguments += ["--num-warmups", min(point["requests"] // 4, N_WARM_UPS)]
        arguments += ["--time-limit-s", limit, *over(ranks), *stored(quantization)]
        report = runner.report(arguments)
        about = {"model": model_name(settings, shape), **point}
        for entry in report["arms"]:
            numbers = numbers_of(entry) | {"equal_answers": report.get("equal_answers")}
            runner.add(about, entry["arm"], numbers, entry.get("error"))
            for other in also:
                if entry["arm"] in other.arms:
                    runner.add(other.point, entry["arm"], numbers, entry.get("error"), to=(other.experiment, other.job))
            if rate := entry.get("output_tokens_per_second"):
                runner.say(f"{entry['arm']}: {rate:.0f} output tokens/s, {entry['elapsed_time']:.1f} s")
            else:
                runner.say(f"{entry['arm']}: {entry.get('error', 'no rate')}")

    return Job(name, seconds, run, ranks)


def estimated(shape, n_requests, shared, own, output, arms, runs, limit=ARM_SECONDS, longest=None):
    """Seconds of a throughput job: loading, a warm-up, and every run."""
    end = limit or float("inf")
    one = sum(min(end, offline_seconds(shape, n_requests, shared, own, output, arm, longest)) for arm in arms)
    n_warm_up = min(n_requests // 4, N_WARM_UPS)
    most = longest and longest_answer(n_warm_up)
    warm_up = offline_seconds(shape, n_warm_up, shared, own, output, arms[0], most) if n_warm_up else 0
    return load_seconds(shape) + warm_up + runs * one


def decode_seconds(shape, requests, shared, own, new, arms, runs):
    """Seconds of a decode job: loading, the shared prompt, and in each run the prompts of its requests, then steps."""
    billions, token_bytes = SHAPES[shape]
    prefill = 2e9 * billions / PREFILL_FLOPS
    seconds = load_seconds(shape) + shared * prefill
    seconds += max(requests) * own * prefill  # in the cache after the first run
    for n in requests:
        for arm in arms:
            again = (n - 1) * shared if arm == "paged" else 0
            step = (1.7e9 * billions + token_bytes * (n * (own + new / 2) + shared)) / READ_BYTES_PER_S + 0.0004
            seconds += runs * (new * (step + token_bytes * again / AGAIN_BYTES_PER_S) + n * 16 * prefill + 0.02)
    return seconds


def decode_job(
    settings, name, shape, requests, shared, own, point, arms=("relay", "paged"), new=None, runs=None, folder=None, ranks=1,
    quantization=None, flags=()
):  # fmt: skip
    """One `baton bench decode`: steps alone, prompts in the cache before the clock starts. `shared` is a number of tokens or a
    list, `point` what identifies the point beside lengths and requests, or a function that gives it for a number of requests.
    `folder` gives the path of the shape where it is not one of bench/shapes."""
    runs = settings.runs or settings.pick(runs or 2, 2, 1)
    new = new or settings.pick(64, 16, 4)
    lengths = shared if isinstance(shared, list) else [shared]

    def run(runner):
        of_model = model_arguments(settings, folder() if folder else shape)
        arguments = ["bench", "decode", *of_model, "--requests", ",".join(map(str, requests))]
        arguments += ["--shared", ",".join(map(str, lengths)), "--own", own, "--new", new, "--runs", runs]
        arguments += ["--arms", ",".join(arms), *over(ranks), *stored(quantization), *flags]
        report = runner.report(arguments, flag="--json")
        for entry in report["runs"]:
            n = entry["requests"]
            about = {"model": model_name(settings, shape), "shared": entry.get("shared", lengths[0]), "own": own, "new": new}
            about |= {"requests": n, **(point(n) if callable(point) else point)}
            prefill = entry.get("prefill_tokens_per_s", report.get("prefill_tokens_per_s"))
            numbers = numbers_of(entry, "requests", "shared") | {"prefill_tokens_per_s": prefill}
            runner.add(about, entry["arm"], numbers)
            runner.say(f"{n} requests, {about['shared']} shared, {entry['arm']}: {entry['step_ms']:.2f} ms a step")

    seconds = 5
    if settings.is_full:
        once = sum(decode_seconds(shape, requests, length, own, new, arms, runs) for length in lengths)
        seconds = once - (len(lengths) - 1) * load_seconds(shape)
    return Job(name, seconds / ranks**0.5, run, ranks)


def tree_text(case):
    """A tree in PAT's notation: nodes of each level and requests, tokens of each level and of each request."""
    nodes = [level["nodes"] for level in case.get("tree", [])] + [case["requests"]]
    lengths = [level["len"] for level in case.get("tree", [])] + [case["own"]]
    return f"{','.join(map(str, nodes))}_{','.join(map(str, lengths))}"


def attention_rows(runner, report, arm_names=None, is_of_trees=False):
    """Writes a row for each arm of each case of an attention report. `arm_names` renames arms."""
    for case in report["runs"]:
        point = {key: case[key] for key in ("heads", "kv_heads", "head_dim", "requests", "own", "shared", "groups")}
        point |= {"table": case["table"], "kv_dtype": case["kv_dtype"]}
        if is_of_trees:
            point["tree"] = tree_text(case)
        about = ("distinct_bytes", "plain_bytes", "query_bytes", "flops", "floor_us", "read_us", "references")
        shared_numbers = {key: case[key] for key in about if key in case}
        shared_numbers["read_bytes_per_us"] = report["read_bytes_per_us"]
        for entry in case["arms"]:
            runner.add(point, (arm_names or {}).get(entry["arm"], entry["arm"]), numbers_of(entry) | shared_numbers)
    for line in report["left_out"]:
        runner.add({}, "-", {"bytes_needed": None}, error=f"does not fit memory: {line}")
