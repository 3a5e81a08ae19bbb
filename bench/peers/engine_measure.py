"""What the engines of experiments 11 to 13 have in common: options, whole jobs, decode steps, rows.

An engine has
    forget()                      empties its prefix cache, so that the run after it finds nothing
    whole([(prompt, n)])          runs requests; (seconds, prompt tokens found in the cache or None)
    step_ms(prompts, n) or None   milliseconds a step while all requests run; None: only whole runs can be timed
    first_tokens(prompts, n)      [(milliseconds to the first token, prompt tokens found in the cache, answer)]; cached points only
    settings()                    what it decided, for the rows
    stop()                        ends its processes and this one
"""

import argparse
import fcntl
import statistics
import sys
import time
from pathlib import Path

import drawn_requests
import engine_points
import prefix_cases
from engine_points import DECODE_NEW, DECODE_OWN
from peer_rows import ROOT, Rows, failure, machine

PARAMETERS_GB = {"llama-2-7b": 13.5, "llama-3-8b": 16.1, "llama-30b": 65.1, "gpt-oss-20b": 13.8, "ministral-3-8b": 17.0,
                 "qwen3.5-27b": 53.8, "qwen3.5-35b-a3b": 69.3, "qwen3.5-4b": 8.4}  # fmt: skip
GPU_SHARE = 0.776  # of a GPU's memory for weights and KV; the rest is for activations, graphs and the CUDA context
H200_MIB = 143_771  # where nvidia-smi is not there to say


def repeat_until(attempt, message, seconds=5):
    """Calls attempt() until it is true: a scheduler may still be freeing blocks of the last run. Errors: RuntimeError."""
    end = time.monotonic() + seconds
    while not attempt():
        if time.monotonic() > end:
            raise RuntimeError(message)
        time.sleep(0.1)


def spread(values):
    return round((max(values) - min(values)) / statistics.median(values), 4)


def measure_job(engine, point, options, is_late):
    """The numbers of `baton bench throughput` for an arm."""
    requests = engine_points.requests_of(point, options.data)
    times, cached = [], None
    while len(times) < options.runs and not (times and is_late(1.1 * max(times))):
        engine.forget()
        seconds, cached = engine.whole(requests)
        times.append(round(seconds, 4))
    n_in, n_out, middle = sum(len(p) for p, _ in requests), sum(n for _, n in requests), statistics.median(times)
    return {
        "elapsed_time": middle,
        "elapsed_times": times,
        "spread": spread(times),
        "num_requests": len(requests),
        "total_input_tokens": n_in,
        "total_output_tokens": n_out,
        "total_num_tokens": n_in + n_out,
        "requests_per_second": len(requests) / middle,
        "tokens_per_second": (n_in + n_out) / middle,
        "output_tokens_per_second": n_out / middle,
        "prefix_hit_rate": None if cached is None else cached / n_in,
    }


def measure_decode(engine, point, options, is_late):
    """The numbers of `baton bench decode` for an arm, by the time between steps, and by the difference of two whole runs:
    once as a check, or in every repetition of an engine whose steps cannot be timed."""
    n_requests, shared = point.about["requests"], point.about["shared"]
    vocabulary = engine_points.n_vocab(point.shape)
    requests = drawn_requests.random_requests(vocabulary, n_requests, DECODE_OWN, 1, 7, prefix_len=shared)
    prompts = [prompt for prompt, _ in requests]
    if n_requests > 1:
        engine.whole(requests[:1])  # the shared prompt first, as a cache would have it
    engine.whole([(prompt, 2) for prompt in prompts])
    steps, differences = [], []
    for repetition in range(options.runs if options.no_difference else max(3, options.runs)):
        if repetition and is_late(10):
            break
        step_ms = engine.step_ms(prompts, DECODE_NEW + 12)
        steps += [] if step_ms is None else [round(step_ms, 4)]
        if step_ms is None or not (differences or options.no_difference):
            long, short = (engine.whole([(prompt, n) for prompt in prompts])[0] for n in (DECODE_NEW + 8, 8))
            differences.append(round((long - short) / DECODE_NEW * 1e3, 4))
    measured = steps or differences
    rates = [round(n_requests / ms * 1e3, 2) for ms in measured]
    return {
        "tokens_per_s": rates,
        "median_tokens_per_s": statistics.median(rates),
        "spread": spread(rates),
        "step_ms": statistics.median(measured),
        "step_ms_of_runs": measured,
        "step_ms_by_difference": differences,
    }


def measure_cached(engine, point, options, is_late):
    """What each case of prefix_cases.py found in the cache, and its times to the first token. All cases run twice, and the
    times are those of the second pass, as far as it comes: kernels are compiled in the first one."""
    vocabulary, rows = engine_points.n_vocab(point.shape), {}
    for n_passes in (1, 2):
        for number, case in enumerate(prefix_cases.CASES):
            if is_late(2):
                break
            engine.forget()
            row = prefix_cases.run(engine.first_tokens, case, vocabulary, number)
            rows[number] = row | {"pass": n_passes}
            print(f"{options.arm} {point.shape} pass {n_passes}, {prefix_cases.line(row)}", flush=True)
    return {"cases": list(rows.values())}


MEASURERS = {"job": measure_job, "decode": measure_decode, "cached": measure_cached}


def measure(engine, rows, point, options):
    rows.begins()
    measurer = MEASURERS[point.kind]
    try:
        numbers = measurer(engine, point, options, lambda more: time.monotonic() + more > options.deadline)
        rows.add(point.name, options.in_row(point), options.arm, numbers | {"settings": engine.settings()})
        shown = {key: numbers[key] for key in ("elapsed_times", "step_ms_of_runs", "step_ms_by_difference") if key in numbers}
        print(f"{options.arm} {point.name}: {shown}", flush=True)
    except Exception as error:  # whatever an engine says of one point, the next one is tried
        rows.add(point.name, options.in_row(point), options.arm, {}, failure(error))
        print(f"{options.arm} {point.name} FAILED: {failure(error)}", flush=True)


def parse_options(program, description, arms, quantisations=()):
    """The options of an engine's program, which can have its weights in these forms. Ends it if they ask for the list, or
    for no point."""
    parser = argparse.ArgumentParser(prog=program, description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=sorted(PARAMETERS_GB), help="folder of bench/shapes")
    parser.add_argument("--points", default="", help="names, separated by commas; other shapes' are passed over (default: all)")
    parser.add_argument("--arm", choices=arms, default=next(iter(arms)))
    parser.add_argument("--or", dest="others", default="", metavar="ARM,ARM", help="what to try when that one does not load")
    parser.add_argument("--runs", type=int, default=2, help="runs of a job; a decode point has at least 3")
    parser.add_argument("--no-difference", action="store_true",
                        help="decode points: --runs repetitions, without the check by the difference of two whole runs")
    parser.add_argument("--seconds", type=float, default=600, help="no point and no repetition begins later than this")
    parser.add_argument("--kv-gb", type=float,
                        help="memory for keys and values on each GPU (default: what the weights leave of 0.776 of it)")
    parser.add_argument("--data", help="folder with ShareGPT_stat.csv (default: BATON_TEST_DATA)")
    if quantisations:
        parser.add_argument("--quantization", choices=quantisations,
                            help="the weights' form; rows are experiment 13's, also those of none, which is 16 bits")
    parser.add_argument("--turn", type=Path, metavar="FILE",
                        help="engines with the same file load side by side, and then measure one after the other")
    parser.add_argument("--results", type=Path, default=ROOT / "bench/results", help="folder of the result files")
    parser.add_argument("--list", action="store_true", help="print the points and end")
    options = parser.parse_args()
    if options.list:
        for point in engine_points.POINTS.values():
            print(f"{point.name:24} {point.shape:12} {point.kind:7} {point.about}")
        sys.exit(0)
    if not options.shape:
        sys.exit(f"{program}: --shape is missing")
    try:
        options.points = engine_points.chosen([name for name in options.points.split(",") if name], options.shape)
    except KeyError as name:
        sys.exit(f"{program}: --points {name}: no such point; --list prints them")
    if not options.points:
        sys.exit(f"{program}: none of the points has the shape {options.shape}")
    options.others = [arm for arm in options.others.split(",") if arm]
    if unknown := set(options.others) - set(arms):
        sys.exit(f"{program}: --or {','.join(sorted(unknown))}: no such arm")
    options.deadline = time.monotonic() + options.seconds
    options.ranks = arms[options.arm].get("ranks", 1)
    options.quantization = getattr(options, "quantization", None)
    if options.ranks > 1 and options.quantization:
        sys.exit(f"{program}: --quantization is for one GPU")
    options.in_row = lambda point: row_point(point, options.ranks, options.quantization)
    options.turn = Turn(options.turn) if options.turn else None
    options.kv_gb = options.kv_gb or GPU_SHARE * gpu_gb() - PARAMETERS_GB[options.shape] / options.ranks
    return options


def gpu_gb():
    """The memory of the first GPU."""
    found = machine.gpus()
    return (found[0][2] if found else H200_MIB) * 2**20 / 1e9


class Turn:
    """The order of engines that share a GPU: all load at once, then one measures while the others wait. A lock of the file,
    which each engine shares from its start until it has loaded, and then holds alone until its process ends."""

    def __init__(self, path):
        self.file = path.open("w", encoding="utf-8")
        fcntl.flock(self.file, fcntl.LOCK_SH)

    def wait(self):
        fcntl.flock(self.file, fcntl.LOCK_EX)


def row_point(point, ranks, quantization=None):
    """What identifies a point in a row: as experiment 12 writes it for several GPUs and 13 for quantised weights, else as
    experiment 11 does."""
    if ranks == 1 and quantization is None:
        return point.in_row
    about = {key: point.about[key] for key in ("shared", "own", "new", "requests") if key in point.about}
    return {"model": point.shape, **about, **({"ranks": ranks} if quantization is None else {"quantization": quantization})}


def file_of_rows(options):
    """The experiment that the rows belong to, and the name of its file."""
    if options.shape in engine_points.OTHER_FAMILIES:
        return 11, "experiment_11_families.json"
    if options.quantization:
        return 13, "experiment_13_quantised.json"
    return (11, "experiment_11_peers.json") if options.ranks == 1 else (12, "experiment_12_several_gpus.json")


def run(options, version, make):
    """Loads the engine that make() gives for options.arm, or else for the first of the others that loads, and does the
    points. `version`: the engine and its version, "vllm 0.24.0"."""
    begin = time.monotonic()
    number, file_name = file_of_rows(options)
    rows = Rows(options.results / file_name, number, version)
    while True:
        try:
            engine = make()
            break
        except Exception as error:
            rows.add("load", {"model": options.shape}, options.arm, {}, failure(error))
            print(f"{options.arm} {options.shape} did not load: {failure(error)}", flush=True)
            if not options.others:
                raise
            options.arm = options.others.pop(0)
    print(f"{options.arm} {options.shape}: engine in {time.monotonic() - begin:.0f} s, {engine.settings()}", flush=True)
    if options.turn:
        options.turn.wait()
    warm_up = drawn_requests.random_requests(engine_points.n_vocab(options.shape), 64, 300, 16, 99, prefix_len=128)
    engine.whole(warm_up)
    for point in options.points:
        if time.monotonic() > options.deadline:
            print(f"{options.arm} {point.name}: left out, the {options.seconds:.0f} s are over", flush=True)
            continue
        measure(engine, rows, point, options)
    engine.stop()
