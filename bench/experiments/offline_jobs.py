"""Jobs of `baton bench throughput`, `bench decode` and `bench attention`, which several experiments share."""

from harness import ARMS, Job

# Billions of parameters, KV bytes a token in bf16 (bench/shapes/README.md).
SHAPES = {
    "phi-2": (2.78, 327_680),
    "llama-2-7b": (6.74, 524_288),
    "mistral-7b": (7.24, 131_072),
    "llama-3-8b": (8.03, 131_072),
    "qwen3-8b": (8.19, 147_456),
    "llama-2-13b": (13.02, 819_200),
    "llama-30b": (32.53, 1_597_440),
    "codellama-34b": (33.74, 196_608),
}
SHAREGPT_OWN, SHAREGPT_OUTPUT = 251, 231  # tokens, means of what vLLM's filter leaves (experiment 0)
MAX_NUM_SEQS = 256
ARM_SECONDS = 100  # a run is cut then, and counts what has finished
READ_BYTES_PER_S = 3.6e12
PREFILL_FLOPS = 38_000 * 2 * 8.03e9  # measured on an H200 (targets: 38,000 tokens/s of Llama-3-8B)
GPU_KV_BYTES = 118e9  # what 0.9 of an H200 leaves for weights and keys and values


def load_seconds(shape):
    return 8 + 0.8 * SHAPES[shape][0]


def offline_seconds(shape, n_requests, shared, own, output, arm):
    """Estimate of one run on an H200: prefill at the measured rate, and steps that read weights and contexts."""
    billions, token_bytes = SHAPES[shape]
    weights = 2e9 * billions
    copies = n_requests if arm == "unshared" else 1
    prefill = (n_requests * own + copies * shared) * 2e9 * billions / PREFILL_FLOPS
    kv_bytes = GPU_KV_BYTES - weights
    private = own + output + (shared if arm == "unshared" else 0)
    rows = max(1, min(MAX_NUM_SEQS, n_requests, kv_bytes / token_bytes / private))
    read = rows * (own + output / 2) + shared * (1 if arm == "relay" else rows)
    step = (1.4 * weights + token_bytes * read) / READ_BYTES_PER_S + 0.0005
    return prefill + n_requests * output / rows * step


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
    settings, name, shape, dataset, point, seconds, arms=ARMS, runs=None, limit=ARM_SECONDS, ranks=1, quantization=None
):
    """One `baton bench throughput`: its arms interleaved on one engine. `dataset` gives the flags of the requests;
    `limit` cuts a run after so many seconds, 0 never."""
    runs = settings.runs or runs or settings.pick(2, 2, 1)
    batched = settings.pick(16384, 2048)

    def run(runner):
        arguments = ["bench", "throughput", *model_arguments(settings, shape), *dataset(), "--arms", ",".join(arms), "--runs", runs]
        arguments += ["--max-num-seqs", MAX_NUM_SEQS, "--max-num-batched-tokens", batched]
        arguments += ["--time-limit-s", limit, *over(ranks), *stored(quantization)]
        report = runner.report(arguments)
        about = {"model": model_name(settings, shape), **point}
        for entry in report["arms"]:
            numbers = numbers_of(entry) | {"equal_answers": report.get("equal_answers")}
            runner.add(about, entry["arm"], numbers, entry.get("error"))
            if rate := entry.get("output_tokens_per_second"):
                runner.say(f"{entry['arm']}: {rate:.0f} output tokens/s, {entry['elapsed_time']:.1f} s")
            else:
                runner.say(f"{entry['arm']}: {entry.get('error', 'no rate')}")

    return Job(name, seconds, run, ranks)


def estimated(shape, n_requests, shared, own, output, arms, runs, limit=ARM_SECONDS):
    """Seconds of a throughput job: loading, a warm-up and every run."""
    one = sum(min(limit or float("inf"), offline_seconds(shape, n_requests, shared, own, output, arm)) for arm in arms)
    return load_seconds(shape) + 5 + 1.15 * runs * one


def decode_job(
    settings, name, shape, requests, shared, own, point, seconds, arms=("relay", "paged"), new=None, folder=None, ranks=1,
    quantization=None
):  # fmt: skip
    """One `baton bench decode`: steps alone, prompts in the cache before the clock starts. `folder` gives the path of the
    shape where it is not one of bench/shapes."""
    runs = settings.runs or settings.pick(3, 2, 1)
    new = new or settings.pick(64, 16, 4)

    def run(runner):
        of_model = model_arguments(settings, folder() if folder else shape)
        arguments = ["bench", "decode", *of_model, "--requests", ",".join(map(str, requests))]
        arguments += ["--shared", shared, "--own", own, "--new", new, "--runs", runs]
        arguments += ["--arms", ",".join(arms), *over(ranks), *stored(quantization)]
        report = runner.report(arguments, flag="--json")
        for entry in report["runs"]:
            about = {"model": model_name(settings, shape), "shared": shared, "own": own, "new": new}
            about |= {"requests": entry["requests"], **point}
            numbers = numbers_of(entry, "requests") | {"prefill_tokens_per_s": report["prefill_tokens_per_s"]}
            runner.add(about, entry["arm"], numbers)
            runner.say(f"{entry['requests']} requests, {entry['arm']}: {entry['step_ms']:.2f} ms a step")

    return Job(name, seconds, run, ranks)


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
