"""The generated parts of docs/report/README.md: Markdown tables of bench/results."""

import statistics

import selection
from quantities import (
    ARMS,
    MODEL_NAMES,
    PUBLISHED_NAMES,
    WEIGHT_BYTES,
    decode_bound,
    eq_10,
    head_kinds,
    heads_text,
    model_us,
    part,
    published_ratio,
    ratio,
    sustained_rates,
)
from selection import spread

LENGTHS, ATTENTION, COUNTERS = (0, "lengths"), (1, "attention"), (1, "attention_counters")
FLASH, OFFLINE = (2, "flash_decoding"), (3, "offline")
MMLU, INTERACTIVE, SYNTHETIC, MODELS = (4, "mmlu"), (5, "interactive"), (6, "synthetic"), (7, "models")
ABLATIONS, BEYOND, TREES = (8, "ablations"), (9, "beyond"), (9, "trees")
PROMPT_PHASE, PEERS = (10, "prompt_phase"), (11, "peers")


NOT_MEASURED = "Not measured yet."


def markdown(header, rows):
    lines = [f"| {' | '.join(header)} |", "|" + "---|" * len(header)]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows])


def number(value, digits=2, unit=""):
    return "-" if value is None else f"{value:,.{digits}f}{unit}"


def percent(share):
    return "-" if share is None else f"{100 * share:.0f}%"


def about(results):
    """The line under a table: machine, date, commit, one of the commands."""
    command = results.measured[0].rows[0]["command"]
    return f"{results.about()}. For example: `{command}`."


def failures(results):
    """Lines for points that did not run."""
    lines = []
    for row in results.failures:
        needed, there = row["numbers"].get("bytes_needed"), row["numbers"].get("bytes_available")
        memory = f" (needs {needed:,} bytes, {there:,} available)" if needed and there else ""
        lines.append(f"- did not run: {row['job']}, {row['arm']}: {row['error']}{memory}")
    return "\n".join(dict.fromkeys(lines))


def with_notes(table, results):
    return "\n\n".join(text for text in (table, failures(results), about(results)) if text)


def attention(results, published):
    blocks = []
    for kind in head_kinds(results):
        requests, own = results.values("requests")[-1], results.values("own")[0]
        rows = []
        for shared in results.values("shared"):
            which = {"heads": kind[0], "kv_heads": kind[1], "requests": requests, "own": own, "shared": shared}
            found = {arm: results.one(arm, **which) for arm in ARMS}
            if not found["relay"]:
                continue
            relay = found["relay"]
            rate = relay["read_bytes_per_us"]
            us = {arm: one and one["median_us"] for arm, one in found.items()}
            model = model_us("unshared", relay.point, rate) / model_us("relay", relay.point, rate)
            published_us = [
                published.one(1, "us", requests=requests, own=own, shared=shared, arm=arm) if kind[0] == 52 else None
                for arm in ("unshared", "relay")
            ]
            rows.append([
                str(shared), *(number(us[arm], 1) for arm in ARMS), number(relay["floor_us"], 1),
                percent(relay["floor_us"] / us["relay"]),
                number(us["paged"] / us["relay"]) if us["paged"] else "-",
                number(us["unshared"] / us["relay"]) if us["unshared"] else "-",
                number(eq_10(shared, own, requests)), number(model),
                number(published_us[0] / published_us[1]) if all(published_us) else "-",
                percent(relay.get("spread")),
            ])  # fmt: skip
        header = ["shared", "relay, us", "paged, us", "unshared, us", "floor, us", "floor / relay", "paged / relay",
                  "unshared / relay", "Eq. 10", "byte model", "the paper, A100", "spread"]  # fmt: skip
        blocks.append(f"{heads_text(kind)}; {requests} requests, own context {own}:\n\n{markdown(header, rows)}")
    return with_notes("\n\n".join(blocks), results)


def counters(results, _published):
    """What the multiprocessors read from the L2 and what came from memory, by Nsight Compute."""
    rows = []
    for one in results.measured:
        point = one.point
        l2, memory = (statistics.median(one.repetitions(key)) for key in ("l2_read_bytes", "memory_bytes"))
        us = statistics.median(one.repetitions("kernel_ns")) / 1e3
        case = f"{point['requests']} x ({point['shared']} + {point['own']}), {point['heads']} / {point['kv_heads']} heads"
        rows.append([case, one.arm,
                     number(one["asked_bytes"] / 1e6, 1), number(l2 / one["asked_bytes"]), number(memory / 1e6, 1),
                     number(memory / one["distinct_bytes"]), number(one["query_bytes"] / point["requests"] / 1e3, 1),
                     number(us, 1), number(memory / us / 1e6)])  # fmt: skip
    header = ["requests x (shared + own)", "arm", "asked by the plan, MB", "L2 reads / asked", "from memory, MB",
              "memory / distinct", "query and output KB a request", "kernel, us", "memory, TB/s"]  # fmt: skip
    return with_notes(markdown(header, rows), results)


def trees(results, _published):
    """PAT's trees: relay, and in brackets paged over relay and the share of the floor, a column for each head shape."""
    kinds = head_kinds(results)
    rows = []
    for tree in dict.fromkeys(one.point["tree"] for one in results.measured):
        cells = []
        for kind in kinds:
            which = {"tree": tree, "heads": kind[0], "kv_heads": kind[1]}
            relay, paged = results.one("relay", **which), results.one("paged", **which)
            if not relay:
                cells.append(number(paged and paged["median_us"], 1))
                continue
            us = relay["median_us"]
            cells.append(f"{us:,.1f} ({paged['median_us'] / us:.2f}; {100 * relay['floor_us'] / us:.0f}%)")
        rows.append([tree, *cells])
    header = ["tree", *(f"{kind[0]} / {kind[1]} heads, us" for kind in kinds)]
    return with_notes(markdown(header, rows), results)


def starred(value):
    return "-" if value is None else number(value, 1) + "*"


def flash_decoding(results, _published):
    rows = []
    for one in sorted(results.find("split"), key=lambda one: -one.point["requests"]):
        case = {"requests": one.point["requests"], "own": one.point["own"]}
        unsplit = results.one("unsplit", **case)
        quoted = one.raw("references") or {}
        names = ("FlashAttention-2", "eager", "FlashInfer", "cuDNN", "Flash-Decoding, A100")
        others = {name: results.one(name, **case) for name in names}
        times = [number(others[name]["median_us"], 1) if others[name] else starred(quoted.get(name)) for name in names]
        rows.append([f"{case['requests']} x {case['own']}", number(one["median_us"], 1), percent(one.get("spread")),
                     number(unsplit and unsplit["median_us"], 1), number(one.get("read_us", one["floor_us"]), 1),
                     *times])  # fmt: skip
    header = ["requests x context", "Baton, us", "spread", "unsplit, us", "read, us", "FlashAttention-2", "eager", "FlashInfer",
              "cuDNN", "Flash-Decoding, A100"]  # fmt: skip
    note = "*: quoted. The A100's are the Flash-Decoding authors'; the others were measured on an H200 on 2026-11-20."
    return with_notes(f"{markdown(header, rows)}\n\n{note}", results)


def context_curve(results, _published):
    found = sorted((one for one in results.measured if "context" in one.point), key=lambda one: one.point["context"])
    read = max((one["read_bytes_per_us"] for one in results.find("split")), default=None)
    rows = []
    for one in found:
        weights = WEIGHT_BYTES.get(one.point["model"])
        bound = decode_bound(one, weights, read) if weights and read and results.is_gpu else None
        speed = one["median_tokens_per_s"]
        rows.append([str(one.point["context"]), number(speed, 1), percent(spread(one.repetitions("tokens_per_s"))),
                     number(bound, 1), percent(speed / bound if bound else None)])  # fmt: skip
    header = ["context", "tokens/s", "spread", "bound, tokens/s", "share of the bound"]
    return markdown(header, rows) if rows else ""


def offline_row(results, **point):
    found = [results.one(arm, **point) for arm in ARMS]
    cells = [number(one and one.rate("num_requests")) + (" (cut)" if one and one.raw("cut") else "") for one in found]
    spreads = [spread(one.rates("num_requests")) for one in found if one]
    largest = max((value for value in spreads if value is not None), default=None)
    return [*cells, number(ratio(results, "paged", **point)), number(ratio(results, "unshared", **point)), percent(largest)]


OFFLINE_HEADER = ["relay, requests/s", "paged", "unshared", "relay / paged", "relay / unshared", "spread"]


def offline(results, published):
    rows = []
    for shared in results.values("shared"):
        them = [published_ratio(published, 3, over, shared=shared) for over in ("paged", "unshared")]
        relay = results.one("relay", shared=shared)
        rows.append([str(shared), *offline_row(results, shared=shared), number(relay and relay.rate(), 0), *map(number, them)])
    header = ["system prompt", *OFFLINE_HEADER, "relay, output tokens/s", "the paper: over vLLM-PS", "the paper: over vLLM"]
    return with_notes(markdown(header, rows), results)


def cost(results, _published, price_per_hour=3.0):
    rows = []
    for shared in results.values("shared"):
        cells = []
        for arm in ARMS:
            one = results.one(arm, shared=shared)
            cells.append(number(one and price_per_hour / 3600 / one.rate() * 1e6, 3))
        rows.append([str(shared), *cells])
    text = markdown(["system prompt", "relay", "paged", "unshared"], rows)
    what = "US dollars for a million generated tokens, prompts included, if the GPU costs"
    return f"{text}\n\n{what} {price_per_hour:.2f} an hour."


def mmlu(results, _published):
    rows = []
    for shots in results.values("shots"):
        found = [results.one(arm, shots=shots) for arm in ARMS]
        seconds = [one and one["elapsed_time"] for one in found]
        whole = next(one for one in found if one)
        ratios = [number(other / seconds[0]) if other and seconds[0] else "-" for other in seconds[1:]]
        unequal = whole.raw("num_unequal_answers")
        rows.append([str(shots), number(whole.get("num_requests"), 0), *(number(value) for value in seconds), *ratios,
                     "-" if unequal is None else str(unequal), percent(whole.get("accuracy"))])  # fmt: skip
    header = ["solved questions", "questions", "relay, s", "paged, s", "unshared, s", "paged / relay", "unshared / relay",
              "unequal answers", "accuracy"]  # fmt: skip
    return with_notes(markdown(header, rows), results)


def sustained_text(value):
    rate, exceeded = value
    if rate is None:
        return "below the lowest rate"
    return number(rate, 1) if exceeded else f"at least {rate:g}"


def interactive(results, _published):
    rows = []
    for shared, levels in sustained_rates(results).items():
        for level, arms in levels.items():
            cells = [sustained_text(arms[arm]) if arm in arms else "-" for arm in ARMS]
            relay, paged = arms.get("relay", (None, False)), arms.get("paged", (None, False))
            quotient = relay[0] / paged[0] if relay[0] and paged[0] and relay[1] and paged[1] else None
            rows.append([str(shared), f"{level:g} s", *cells, number(quotient)])
    header = ["system prompt", "latency a token", "relay, requests/s", "paged", "unshared", "relay / paged"]
    return with_notes(markdown(header, rows), results)


def interactive_rates(results, _published):
    rows = []
    order = {arm: index for index, arm in enumerate(ARMS)}
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
                rows.append([f"({own}, {output})", str(shared), *offline_row(results, **point), number(them)])
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
                cells = [model, str(shared), str(found[0].point["requests"])]
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
            rows.append([text.format(what), *offline_row(of_part, **{key: relay.point[key]}), hits])
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
                rows.append([name, *map(str, point.values()), *times, number(quotient), percent(largest)])
    header = ["", "requests", "shared", "own", "relay, ms a step", "paged", "tokens/s, relay / paged", "spread"]
    return markdown(header, rows) if rows else ""


def traces(results, _published):
    rows = []
    for one in part(results, "Azure conversations").measured:
        rows.append([one.arm, number(one["completed"], 0), number(one["request_throughput"]), number(one["mean_ttft_ms"], 0),
                     number(one["p99_ttft_ms"], 0), number(one["mean_tpot_ms"], 1), number(one["p99_tpot_ms"], 1)])  # fmt: skip
    header = ["Azure conversations", "requests", "requests/s", "TTFT mean, ms", "p99", "TPOT mean, ms", "p99"]
    return markdown(header, rows) if rows else ""


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


def losses(folder):
    """Every cell in which relay is slower than the paged arm, by how much and with which spread."""
    rows, n_cells = [], 0
    for number_of, stem in (OFFLINE, SYNTHETIC, MODELS, BEYOND, PROMPT_PHASE):
        results = selection.load(folder, number_of, stem)
        for relay in results.find("relay"):
            paged = next((one for one in results.find("paged") if one.point == relay.point), None)
            if paged is None or not (relay.repetitions("elapsed_times") or relay.repetitions("tokens_per_s")):
                continue
            n_cells += 1
            if relay.repetitions("elapsed_times"):
                both = [one.rates("num_requests") for one in (relay, paged)]
            else:
                both = [one.repetitions("tokens_per_s") for one in (relay, paged)]
            quotient = statistics.median(both[0]) / statistics.median(both[1])
            if quotient < 1:
                spreads = [spread(values) or 0 for values in both]
                shown = {key: value for key, value in relay.point.items() if key not in ("dataset", "output", "new")}
                point = ", ".join(f"{key} {value}" for key, value in shown.items())
                rows.append([f"{number_of}", point, number(quotient, 3), percent(max(spreads))])
    for number_of, stem in (ATTENTION, TREES):
        results = selection.load(folder, number_of, stem)
        for relay in results.find("relay"):
            paged = next((one for one in results.find("paged") if one.point == relay.point), None)
            n_cells += paged is not None
            if paged and paged["median_us"] < relay["median_us"]:
                lengths_of = ("tree",) if "tree" in relay.point else ("requests", "shared", "own")
                point = ", ".join(f"{key} {relay.point[key]}" for key in ("heads", "kv_heads", *lengths_of))
                spreads = percent(max(relay["spread"], paged["spread"]))
                rows.append([f"{number_of}", point, number(paged["median_us"] / relay["median_us"], 3), spreads])
    if n_cells == 0:
        return NOT_MEASURED
    told = f"{len(rows)} of {n_cells} cells."
    if not rows:
        return told
    return f"{told}\n\n" + markdown(["experiment", "cell", "speed of relay over paged", "spread"], rows)


def peers_seconds(one):
    """What the table shows of a point: seconds of a whole job, or milliseconds of a decode step."""
    if one is None:
        return None
    if one.repetitions("elapsed_times"):
        return statistics.median(one.repetitions("elapsed_times"))
    return one.get("step_ms")


def peers(results, _published):
    """Each point beside the other engines: seconds of jobs, milliseconds of steps."""
    arms = [*ARMS[:2], *sorted({one.arm for one in results.measured} - set(ARMS))]
    rows = []
    for name in dict.fromkeys(one.point["name"] for one in results.measured):
        times = [peers_seconds(results.one(arm, name=name)) for arm in arms]
        others = [time for time in times[2:] if time]
        quotient = min(others) / times[0] if others and times[0] else None
        unit = "ms a step" if name.startswith("decode") else "s"
        rows.append([name, unit, *map(number, times), number(quotient)])
    return with_notes(markdown(["point", "", *arms, "best other engine / relay"], rows), results)


def lengths(results, _published):
    rows = []
    for one in results.measured:
        rows.append([one.point["dataset"], one.arm, number(one["n"], 0), number(one["mean"], 0), number(one["median"], 0),
                     number(one["p90"], 0), number(one["p99"], 0), number(one["largest"], 0)])  # fmt: skip
    return markdown(["data", "tokens of", "n", "mean", "median", "p90", "p99", "largest"], rows)


BLOCKS = {
    "lengths": (LENGTHS, lengths),
    "attention": (ATTENTION, attention),
    "attention-counters": (COUNTERS, counters),
    "flash-decoding": (FLASH, flash_decoding),
    "context-curve": (FLASH, context_curve),
    "offline": (OFFLINE, offline),
    "cost": (OFFLINE, cost),
    "mmlu": (MMLU, mmlu),
    "interactive": (INTERACTIVE, interactive),
    "interactive-rates": (INTERACTIVE, interactive_rates),
    "synthetic": (SYNTHETIC, synthetic),
    "models": (MODELS, models),
    "ablations": (ABLATIONS, ablations),
    "beyond-jobs": (BEYOND, beyond_jobs),
    "trees": (TREES, trees),
    "beyond-steps": (BEYOND, beyond_steps),
    "traces": (BEYOND, traces),
    "prompt-phase": (PROMPT_PHASE, prompt_phase),
    "peers": (PEERS, peers),
}


def goal_row(text, goal, value, note=""):
    reached = "-" if value is None else "yes" if value >= goal else "no"
    return [text, number(goal), number(value, 3), reached, note]


def goals(folder, _published):
    """What was asked of Llama-2-7B with ShareGPT lengths, and what came out."""
    offline_results, interactive_results = selection.load(folder, *OFFLINE), selection.load(folder, *INTERACTIVE)
    rows = []
    for shared, goal in ((512, 1.2), (1024, 1.45), (2048, 1.95)):
        value = ratio(offline_results, "paged", shared=shared)
        rows.append(goal_row(f"offline, relay over paged, system prompt of {shared}", goal, value))
    over = [ratio(offline_results, "unshared", shared=shared) for shared in offline_results.values("shared")]
    best = max((value for value in over if value), default=None)
    rows.append(goal_row("offline, relay over unshared, best point", 4.36, best))
    levels = sustained_rates(interactive_results).get(2048, {})
    for level, arms in levels.items():
        pair = [arms.get(arm, (None, False)) for arm in ("relay", "paged")]
        value = pair[0][0] / pair[1][0] if all(rate for rate, _ in pair) else None
        note = "" if all(exceeded for _, exceeded in pair) else "an arm sustains more than the highest rate measured"
        rows.append(goal_row(f"sustained rate at {level:g} s a token, system prompt of 2048, relay over paged", 1.9, value, note))
    return markdown(["", "goal", "measured", "reached", ""], rows)


WHOLE = {"losses": lambda folder, _published: losses(folder), "goals": goals}


def block(name, folder, published, **more):
    """The text of a generated part; a sentence where nothing was measured yet."""
    if name in WHOLE:
        return WHOLE[name](folder, published)
    (number_of, stem), write = BLOCKS[name]
    results = selection.load(folder, number_of, stem)
    return (write(results, published, **more) if results else "") or NOT_MEASURED
