"""The generated parts of docs/report/README.md, docs/results.md and README.md: Markdown tables of bench/results."""

import statistics

import readme
import selection
import tables_attention
import tables_families
import tables_goals
import tables_paper
import tables_quantised
import tables_servers
import tables_several
from findings import beside_others, joined
from markdown_parts import OLDER, markdown, marked, number, percent, with_notes
from quantities import (
    ARMS,
    MODEL_NAMES,
    PUBLISHED_NAMES,
    all_arms,
    duration,
    paged_over_plain,
    part,
    peer_names,
    published_ratio,
    ratio,
    repeated,
    sustained_rates,
)
from selection import spread

LENGTHS, ATTENTION, COUNTERS = (0, "lengths"), (1, "attention"), (1, "attention_counters")
FLASH, OFFLINE = (2, "flash_decoding"), (3, "offline")
MMLU, INTERACTIVE, SYNTHETIC, MODELS = (4, "mmlu"), (5, "interactive"), (6, "synthetic"), (7, "models")
ABLATIONS, BEYOND, TREES = (8, "ablations"), (9, "beyond"), (9, "trees")
PROMPT_PHASE, PEERS, LLAMA_SERVER = (10, "prompt_phase"), (11, "peers"), (11, "llama_server_cpu")
FAMILIES = (11, "families")
SEVERAL, QUANTISED = (12, "several_gpus"), (13, "quantised")


NOT_MEASURED = "Not measured yet."


def marked_point(text, results, **point):
    """A row's first cell, marked if an arm at its point is of an earlier build."""
    return marked(text, results, *(results.one(arm, **point) for arm in ARMS))


def offline_row(results, **point):
    found = [results.one(arm, **point) for arm in ARMS]
    cells = [number(one and one.rate("num_requests")) + (" (cut)" if one and one.raw("cut") else "") for one in found]
    spreads = [spread(one.rates("num_requests")) for one in found if one]
    largest = max((value for value in spreads if value is not None), default=None)
    return [*cells, number(ratio(results, "paged", **point)), number(ratio(results, "unshared", **point)), percent(largest)]


OFFLINE_HEADER = ["relay, requests/s", "paged", "unshared", "relay / paged", "relay / unshared", "spread"]


def reread_rate(relay, paged):
    """The bytes that relay does not read, over the seconds that the paged arm takes longer, in TB/s."""
    saved = relay and relay.get("kv_bytes_saved")
    if not saved or paged is None or paged.raw("cut") or paged["elapsed_time"] <= 1.02 * relay["elapsed_time"]:
        return None
    return saved / (paged["elapsed_time"] - relay["elapsed_time"]) / 1e12


def offline(results, published):
    rows = []
    for shared in results.values("shared"):
        them = [published_ratio(published, 3, over, shared=shared) for over in ("paged", "unshared")]
        relay = results.one("relay", shared=shared)
        again = reread_rate(relay, results.one("paged", shared=shared))
        rows.append([marked_point(str(shared), results, shared=shared), *offline_row(results, shared=shared),
                     number(relay and relay.rate(), 0), number(again, 1), *map(number, them)])  # fmt: skip
    header = ["system prompt", *OFFLINE_HEADER, "relay, output tokens/s", "paged reads the prefix again at, TB/s",
              "the paper: over vLLM-PS", "the paper: over vLLM"]  # fmt: skip
    return with_notes(markdown(header, rows), results)


def cost(results, _published, price_per_hour=3.0):
    rows = []
    for shared in results.values("shared"):
        cells = []
        for arm in ARMS:
            one = results.one(arm, shared=shared)
            cells.append(number(one and price_per_hour / 3600 / one.rate() * 1e6, 3))
        rows.append([marked_point(str(shared), results, shared=shared), *cells])
    text = markdown(["system prompt", "relay", "paged", "unshared"], rows)
    what = "US dollars for a million generated tokens, prompts included, if the GPU costs"
    older = f" {results.older(OLDER)}" if OLDER in text else ""
    return f"{text}\n\n{what} {price_per_hour:.2f} an hour.{older}"


def mmlu(results, _published):
    rows = []
    for shots in results.values("shots"):
        found = [results.one(arm, shots=shots) for arm in ARMS]
        times = [number(one and one["elapsed_time"]) + (" (cut)" if one and one.raw("cut") else "") for one in found]
        relay, whole = found[0], next(one for one in found if one)
        ratios = [relay.rate("num_requests") / one.rate("num_requests") if relay and one else None for one in found[1:]]
        unequal = whole.raw("num_unequal_answers")
        spreads = [value for one in found if one and (value := spread(one.rates("num_requests"))) is not None]
        largest, accuracy = percent(max(spreads, default=None)), percent(whole.get("accuracy"))
        rows.append([str(shots), number(whole.get("num_requests"), 0), *times, *map(number, ratios), largest,
                     "-" if unequal is None else str(unequal), accuracy])  # fmt: skip
    header = ["solved questions", "questions", "relay, s", "paged, s", "unshared, s", "relay / paged, questions/s",
              "relay / unshared", "spread", "unequal answers", "accuracy"]  # fmt: skip
    return with_notes(markdown(header, rows), results)


def sustained_text(value):
    rate, exceeded = value
    if rate is None:
        return "below the lowest rate"
    return number(rate, 1) if exceeded else f"at least {rate:g}"


def interactive(results, _published):
    rows, names = [], all_arms(results)
    for shared, levels in sustained_rates(results).items():
        for level, arms in levels.items():
            cells = [sustained_text(arms[arm]) if arm in arms else "-" for arm in names]
            relay, paged = arms.get("relay", (None, False)), arms.get("paged", (None, False))
            quotient = sustained_ratio(relay, paged)[0]
            bound = "at least " if quotient and not relay[1] else ""
            rows.append([str(shared), f"{level:g} s", *cells, bound + number(quotient)])
    header = ["system prompt", "latency a token", "relay, requests/s", *names[1:], "relay / paged"]
    return with_notes(markdown(header, rows), results)


def interactive_rates(results, _published):
    rows = []
    order = {arm: index for index, arm in enumerate(all_arms(results))}
    for one in sorted(results.measured, key=lambda one: (one.point["shared"], order[one.arm], one.point["rate"])):
        rows.append([str(one.point["shared"]), one.arm, f"{one.point['rate']:g}", number(one["completed"], 0),
                     number(one["request_throughput"]), number(1e3 * one["latency_per_token_s"], 1),
                     number(one["mean_ttft_ms"], 0), number(one["p99_ttft_ms"], 0), number(one["mean_tpot_ms"], 1),
                     number(one["p99_tpot_ms"], 1), percent(one.get("prefix_hit_rate"))])  # fmt: skip
    header = ["system prompt", "arm", "offered, requests/s", "requests", "served, requests/s", "latency a token, ms",
              "TTFT mean, ms", "p99", "TPOT mean, ms", "p99", "prefix hits"]  # fmt: skip
    return markdown(header, rows)


def synthetic(results, published):
    rows = []
    for own, output in sorted({(one.point["own"], one.point["output"]) for one in results.measured}):
        for shared in results.values("shared"):
            point = {"own": own, "output": output, "shared": shared}
            if results.find(**point):
                them = published_ratio(published, 6, "unshared", **point)
                cell = marked_point(str(shared), results, **point)
                rows.append([f"({own}, {output})", cell, *offline_row(results, **point), number(them)])
    return with_notes(markdown(["lengths", "system prompt", *OFFLINE_HEADER, "the paper: over vLLM"], rows), results)


def models(results, published):
    rows = []
    for model in dict.fromkeys(one.point["model"] for one in results.measured):
        for shared in results.values("shared"):
            point = {"model": model, "shared": shared}
            if found := results.find(**point):
                name = MODEL_NAMES.get(model, model)
                them = []
                for over in ("paged", "unshared"):
                    for gpu in ("A100", "A40"):
                        value = published_ratio(published, 7, over, model=name, shared=shared, gpu=gpu)
                        them += [f"{value:.2f} ({gpu}, over {PUBLISHED_NAMES[over]})"] if value else []
                cells = [model, marked_point(str(shared), results, **point), str(found[0].point["requests"])]
                rows.append([*cells, *offline_row(results, **point), "; ".join(them) or "-"])
    header = ["shape", "system prompt", "requests", *OFFLINE_HEADER, "the paper"]
    return with_notes(markdown(header, rows), results)


def ablations(results, _published):
    baton = results.one("baton")
    rows = []
    for arm in dict.fromkeys(one.arm for one in results.measured):
        one = results.one(arm)
        quotient = one.rate("num_requests") / baton.rate("num_requests") if baton and one is not baton else None
        steps = one.get("steps")
        step_ms = 1e3 * one["elapsed_time"] / steps if steps else None
        rows.append([arm, number(one.rate("num_requests")), number(quotient), percent(spread(one.rates("num_requests"))),
                     number(step_ms), percent(one.get("device_busy_share"))])  # fmt: skip
    header = ["", "requests/s", "over Baton as it is", "spread", "ms a step", "device busy"]
    return with_notes(markdown(header, rows), results)


def beyond_jobs(results, _published):
    rows = []
    kinds = (
        ("groups", "groups", "{} system prompts"),
        ("strangers", "share", "{:.0%} strangers"),
        ("nested", "levels", "nested: {}"),
        ("Mooncake conversations", "requests", "Mooncake, {} requests"),
    )
    for name, key, text in kinds:
        of_part = part(results, name)
        for relay in of_part.find("relay"):
            what = relay.point[key]
            if key == "levels":
                what = " x ".join(f"{count} of {length}" for count, length in what)
            hits = percent(relay.get("prefix_hit_rate"))
            cell = marked_point(text.format(what), of_part, **{key: relay.point[key]})
            rows.append([cell, *offline_row(of_part, **{key: relay.point[key]}), hits])
    header = ["job", *OFFLINE_HEADER, "prefix hits"]
    return with_notes(markdown(header, rows), results) if rows else ""


def beyond_steps(results, _published):
    rows = []
    for name in ("few requests", "short prefixes", "long own contexts"):
        of_part = part(results, name)
        for relay in of_part.find("relay"):
            point = {key: relay.point[key] for key in ("requests", "shared", "own")}
            paged = of_part.one("paged", **point)
            if paged:
                largest = max(spread(one.repetitions("tokens_per_s")) or 0 for one in (relay, paged))
                quotient = relay["median_tokens_per_s"] / paged["median_tokens_per_s"]
                times = [number(one["step_ms"]) for one in (relay, paged)]
                rows.append([marked(name, results, relay, paged), *map(str, point.values()), *times, number(quotient),
                             percent(largest)])  # fmt: skip
    header = ["", "requests", "shared", "own", "relay, ms a step", "paged", "tokens/s, relay / paged", "spread"]
    table = markdown(header, rows)
    return (f"{table}\n\n{results.older(OLDER)}" if OLDER in table else table) if rows else ""


def traces(results, _published):
    rows = []
    for one in part(results, "Azure conversations").measured:
        rows.append([one.arm, number(one["completed"], 0), number(one["request_throughput"]), number(one["mean_ttft_ms"], 0),
                     number(one["p99_ttft_ms"], 0), number(one["mean_tpot_ms"], 1), number(one["p99_tpot_ms"], 1)])  # fmt: skip
    header = ["Azure conversations", "requests", "requests/s", "TTFT mean, ms", "p99", "TPOT mean, ms", "p99"]
    older = part(results, "Azure conversations").older()
    return markdown(header, rows) + (f"\n\n{older}" if older else "") if rows else ""


def prompt_phase(results, _published):
    rows = []
    for shared in results.values("shared"):
        for own in results.values("own"):
            point = {"shared": shared, "own": own}
            found = [results.one(arm, **point) for arm in ARMS[:2]]
            if not all(found):
                continue
            spreads = [spread(one.rates("num_requests")) or 0 for one in found]
            rows.append([str(shared), str(own), *(number(one.rate("num_requests"), 1) for one in found),
                         number(ratio(results, "paged", **point)), percent(max(spreads))])  # fmt: skip
    header = ["system prompt", "own tokens", "relay, requests/s", "paged, requests/s", "relay / paged", "spread"]
    return with_notes(markdown(header, rows), results)


def paired_cells(folder):
    """Of each cell with both arms: its experiment, its point in words, the speed of relay over paged, and the larger
    spread, None where both ran once."""
    for number_of, stem in (OFFLINE, SYNTHETIC, MODELS, BEYOND, PROMPT_PHASE, FAMILIES, SEVERAL, QUANTISED):
        results = selection.load(folder, number_of, stem)
        for relay in results.find("relay"):
            paged = next((one for one in results.find("paged") if one.point == relay.point), None)
            if paged is None or not (relay.repetitions("elapsed_times") or relay.repetitions("tokens_per_s")):
                continue
            if relay.repetitions("elapsed_times"):
                both = [one.rates("num_requests") for one in (relay, paged)]
            else:
                both = [one.repetitions("tokens_per_s") for one in (relay, paged)]
            shown = {key: value for key, value in relay.point.items() if key not in ("dataset", "output", "new")}
            point = ", ".join(f"{key} {value}" for key, value in shown.items())
            spreads = [of for values in both if (of := spread(values)) is not None]
            yield number_of, point, statistics.median(both[0]) / statistics.median(both[1]), max(spreads, default=None)
    for number_of, stem in (ATTENTION, TREES):
        results = selection.load(folder, number_of, stem)
        for relay in results.find("relay"):
            paged = next((one for one in results.find("paged") if one.point == relay.point), None)
            if paged is None:
                continue
            lengths_of = ("tree",) if "tree" in relay.point else ("requests", "shared", "own")
            point = ", ".join(f"{key} {relay.point[key]}" for key in ("heads", "kv_heads", *lengths_of))
            yield number_of, point, paged["median_us"] / relay["median_us"], max(relay["spread"], paged["spread"])


ONCE = 0.02  # what a difference of two single runs must exceed


def losses(folder):
    """Cells in which relay is slower than the paged arm by more than 1% and by more than the spread; how many others."""
    cells = list(paired_cells(folder))
    if not cells:
        return NOT_MEASURED
    behind = [cell for cell in cells if cell[2] < 1]
    clear = [cell for cell in behind if 1 - cell[2] > (ONCE if cell[3] is None else max(0.01, cell[3]))]
    clear.sort(key=lambda cell: cell[2])
    noise = len(behind) - len(clear)
    told = f"{len(clear)} of {len(cells)} cells, by more than 1% and more than their spread, or 2% where each arm ran once"
    if noise:
        told += f"; {noise} more by less, of which the slowest is at {min(c[2] for c in behind if c not in clear):.3f}"
    if not clear:
        return told + "."
    rows = [[f"{number_of}", point, number(value, 3), percent(spreads)] for number_of, point, value, spreads in clear]
    return f"{told}.\n\n" + markdown(["experiment", "cell", "speed of relay over paged", "spread"], rows)


def peers(results, _published):
    """Each point beside the other engines: seconds of jobs, milliseconds of steps, each with its spread; vLLM's two arms over
    relay."""
    arms = [arm for arm in all_arms(results) if arm != ARMS[2]]
    vllms = [arm for arm in (readme.VLLM, readme.CASCADE) if arm in arms]
    rows = []
    for name in peer_names(results):
        found = {arm: results.one(arm, name=name) for arm in arms}
        times = {arm: duration(one) for arm, one in found.items()}
        others = [time for arm, time in times.items() if time and arm not in ARMS]

        def over_relay(time, relay=times[ARMS[0]]):
            return number(time / relay if time and relay else None)

        shown = [number(times[arm]) + with_spread(one) for arm, one in found.items()]
        unit = "ms a step" if name.startswith("decode") else "s"
        rows.append([name, unit, *shown, *(over_relay(times[arm]) for arm in vllms), over_relay(min(others, default=None))])
    header = ["point", "", *arms, *(f"{arm} / relay" for arm in vllms), "best other engine / relay"]
    table = markdown(header, rows) + "\n\nIn brackets: the spread of repeated runs."
    return with_notes(table, results)


def with_spread(one):
    """What follows a time: the spread of its repetitions, if there are several."""
    values = repeated(one)
    return f" ({percent(spread(values))})" if len(values) > 1 else ""


def llama_server(results, _published):
    """llama.cpp's server and Baton's on a CPU, driven by the same load."""
    rows = []
    for one in results.measured:
        rates = [row["numbers"]["output_throughput"] for row in one.rows]
        rows.append([one.arm, number(statistics.median(rates), 1), f"{min(rates):.1f} to {max(rates):.1f}", str(len(rates)),
                     number(one["mean_ttft_ms"], 0), number(one["mean_tpot_ms"], 1),
                     percent(one.get("processors_of_others"))])  # fmt: skip
    header = ["", "output tokens/s, median", "all rounds", "rounds", "TTFT mean, ms", "TPOT mean, ms", "used by others"]
    return with_notes(markdown(header, rows), results)


def lengths(results, _published):
    rows = []
    for one in results.measured:
        rows.append([one.point["dataset"], one.arm, number(one["n"], 0), number(one["mean"], 0), number(one["median"], 0),
                     number(one["p90"], 0), number(one["p99"], 0), number(one["largest"], 0)])  # fmt: skip
    return markdown(["data", "tokens of", "n", "mean", "median", "p90", "p99", "largest"], rows)


BLOCKS = {
    "lengths": (LENGTHS, lengths),
    "attention": (ATTENTION, tables_attention.attention),
    "attention-peers": (ATTENTION, tables_attention.attention_peers),
    "attention-counters": (COUNTERS, tables_attention.counters),
    "flash-decoding": (FLASH, tables_attention.flash_decoding),
    "context-curve": (FLASH, tables_attention.context_curve),
    "offline": (OFFLINE, offline),
    "cost": (OFFLINE, cost),
    "mmlu": (MMLU, mmlu),
    "mmlu-paper": (MMLU, tables_paper.mmlu),
    "interactive": (INTERACTIVE, interactive),
    "interactive-rates": (INTERACTIVE, interactive_rates),
    "servers": ((5, "servers"), tables_servers.servers),
    "synthetic": (SYNTHETIC, synthetic),
    "models": (MODELS, models),
    "models-paper": (MODELS, tables_paper.models),
    "ablations": (ABLATIONS, ablations),
    "beyond-jobs": (BEYOND, beyond_jobs),
    "trees": (TREES, tables_attention.trees),
    "beyond-steps": (BEYOND, beyond_steps),
    "traces": (BEYOND, traces),
    "prompt-phase": (PROMPT_PHASE, prompt_phase),
    "peers": (PEERS, peers),
    "families": (FAMILIES, tables_families.steps),
    "llama-server": (LLAMA_SERVER, llama_server),
    "several-steps": (SEVERAL, tables_several.steps),
    "several-jobs": (SEVERAL, tables_several.jobs),
    "quantised-steps": (QUANTISED, tables_quantised.steps),
    "quantised-jobs": (QUANTISED, tables_quantised.jobs),
    "readme-steps": (PEERS, readme.steps),
    "readme-jobs": (PEERS, readme.jobs),
}


def goal_row(text, goal, value, note=""):
    reached = "-" if value is None else "yes" if value >= goal else "no"
    return [text, number(goal), number(value, 3), reached, note]


def sustained_ratio(relay, paged):
    """(ratio, note) of two sustained rates, each with whether a measured rate exceeded the level."""
    if not (relay[0] and paged[0]):
        return None, "the lowest rate measured was too much"
    if not paged[1]:
        return None, "the paged arm sustains more than the highest rate measured"
    return relay[0] / paged[0], "" if relay[1] else "at least: relay sustains more than the highest rate measured"


def goals(folder, _published):
    """What was asked of Llama-2-7B with ShareGPT lengths, and what came out."""
    offline_results, interactive_results = selection.load(folder, *OFFLINE), selection.load(folder, *INTERACTIVE)
    attention_results = selection.load(folder, *ATTENTION)
    rows = []
    rates = [one for arm in ARMS[:2] for one in interactive_results.find(arm, shared=2048)]
    older = sorted({one.rows[0]["commit"][:7] for one in rates if interactive_results.is_marked(one)})
    of_rates = f"rates of {joined(older)}, before the newest build" if older else ""
    for shared, goal in ((512, 1.2), (1024, 1.45), (2048, 1.95)):
        value = ratio(offline_results, "paged", shared=shared)
        distance = paged_over_plain(attention_results, shared)
        note = "on another day paged attention alone took 1.28 to 1.41 times as long as FlashInfer's plain decode"
        if distance:
            note = f"paged attention alone takes {distance:.2f} times as long as the fastest plain decode of other libraries"
        rows.append(goal_row(f"offline, relay over paged, system prompt of {shared}", goal, value, note))
    over = [ratio(offline_results, "unshared", shared=shared) for shared in offline_results.values("shared")]
    best = max((value for value in over if value), default=None)
    rows.append(goal_row("offline, relay over unshared, best point", 4.36, best))
    wins, behind = beside_others(selection.load(folder, *PEERS))
    ahead, points = wins, wins + len(behind)
    if points:
        reached = "yes" if ahead == points else "no"
        rows.append(["points ahead of every other engine measured (experiment 11)", str(points), str(ahead), reached, ""])
    levels = sustained_rates(interactive_results).get(2048, {})
    for level, arms in levels.items():
        value, note = sustained_ratio(*(arms.get(arm, (None, False)) for arm in ("relay", "paged")))
        note = "; ".join(text for text in (note, of_rates) if text)
        rows.append(goal_row(f"sustained rate at {level:g} s a token, system prompt of 2048, relay over paged", 1.9, value, note))
    return markdown(["", "goal", "measured", "reached", ""], rows)


NAMES = {
    "synthetic": "equal lengths (6)",
    "ablations": "the lessons of issue 421 (8)",
    "beyond-jobs": "many prompts, nested prefixes, strangers and Mooncake's conversations (9)",
    "trees": "PAT's trees (9)",
    "traces": "Azure's conversations (9)",
    "attention-peers": "other libraries' attention beside experiment 1",
    "families": "decode steps of other families (11)",
    "servers": "vLLM's server beside Baton's (5)",
    "several-steps": "decode steps over several GPUs (12)",
    "several-jobs": "whole jobs over several GPUs (12)",
    "quantised-steps": "decode steps with weights in 8 and 4 bits (13)",
    "quantised-jobs": "experiment 3's jobs with weights in 8 and 4 bits (13)",
}


EXPERIMENTS = (LENGTHS, ATTENTION, COUNTERS, FLASH, OFFLINE, MMLU, INTERACTIVE, SYNTHETIC, MODELS, ABLATIONS, BEYOND, TREES,
               PROMPT_PHASE, PEERS, FAMILIES, SEVERAL, QUANTISED)  # fmt: skip


def builds(folder, _published):
    """Which points that are shown are of the newest build, and which of earlier programs."""
    newest, rows = None, []
    for number_of, stem in EXPERIMENTS:
        results = selection.load(folder, number_of, stem)
        newest = newest or (results.is_gpu and results.build) or None
        ours = [one for one in results.measured if not selection.is_other_program(one.rows[0])]
        if not ours or not results.is_gpu:
            continue
        older = [one for one in ours if any(map(results.is_older, one.rows))]
        of = sorted({f"{selection.day_of(row)} ({row['commit'][:7]})" for one in older for row in one.rows})
        gpu, name = results.device.removeprefix("NVIDIA ").split(" ")[0], f"{number_of}, {stem.replace('_', ' ')}"
        rows.append([name, gpu, str(len(ours) - len(older)), str(len(older)), ", ".join(of) or "-"])
    if not rows:
        return NOT_MEASURED
    if newest:
        hashes = "hashes of the program and of the CUDA module"
        told = f"The newest build is {newest[0]} ({hashes}; commit {newest[1]}), of {newest[2]}."
    else:
        told = f"No row names a build yet; rows of before {selection.KERNELS_DAY} are of kernels that have changed since."
    header = ["experiment", "GPU", "arms and points of the newest build", "of earlier ones", "these"]
    return f"{told}\n\n{markdown(header, rows)}"


def missing(folder, published):
    """The parts of the report that have no results."""
    names = [NAMES.get(name, name) for name in BLOCKS if block(name, folder, published) == NOT_MEASURED]
    if not names:
        return "Every part has results."
    head = "Without results on a GPU so far; `bench/experiments` has the scripts:"
    return "\n".join([head, "", *(f"- {name}" for name in names)])


WHOLE = {
    "losses": lambda folder, _published: losses(folder),
    "goals": goals,
    "missing": missing,
    "builds": builds,
    "step-goals": tables_goals.steps_and_jobs,
    "jobs-on-an-h100": tables_several.jobs_on_an_h100,
}


def block(name, folder, published, **more):
    """The text of a generated part; a sentence where nothing was measured yet."""
    if name in WHOLE:
        return WHOLE[name](folder, published)
    (number_of, stem), write = BLOCKS[name]
    results = selection.load(folder, number_of, stem)
    return (write(results, published, **more) if results else "") or NOT_MEASURED
