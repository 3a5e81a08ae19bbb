"""Figures of the experiments that run whole jobs: 3, 4, 6, 7, 10 and parts of 9."""

from quantities import ARMS, MODEL_NAMES, PUBLISHED_NAMES, part, peer_names, published_ratio, ratio
from style import COLORS, MARKERS, OTHER_COLORS, about, bars, finish, line, log_ticks, older_of, panels, plain_y


def half_range(values):
    return (max(values) - min(values)) / 2 if len(values) > 1 else None


def offline_throughput(results, published):
    lengths = results.values("shared")
    model, n_requests = results.measured[0].point["model"], results.measured[0].point["requests"]
    title = f"Offline throughput, ShareGPT lengths: {model}, {n_requests} requests behind one system prompt, caches cold"
    figure, axes = panels(title, about(results), 2, width=4.6, height=3.5)
    places = [max(length, 32) for length in lengths]  # 0 has a place of its own on the logarithmic axis
    for arm in ARMS:
        found = [results.one(arm, shared=shared) for shared in lengths]
        rates = [one and one.rates("num_requests") for one in found]
        medians = [one and one.rate("num_requests") for one in found]
        errors = [of and half_range(of) for of in rates]
        hollow = older_of(results, found)
        line(axes[0], places, medians, f"Baton, {arm}", COLORS[arm], marker=MARKERS[arm], errors=errors, hollow=hollow)
        them = [published.one(3, "requests_per_second", shared=shared, arm=arm) for shared in lengths]
        if results.is_gpu:
            line(axes[0], places, them, f"the paper's {PUBLISHED_NAMES[arm]}, A100, vLLM 0.2.6", COLORS[arm], dashed=True)
    axes[0].set_ylabel("requests/s")
    axes[0].set_ylim(bottom=0)
    for over in ("paged", "unshared"):
        ratios = [ratio(results, over, shared=shared) for shared in lengths]
        hollow = older_of(results, [results.one("relay", shared=shared) for shared in lengths])
        line(axes[1], places, ratios, f"Baton, relay over {over}", COLORS[over], marker=MARKERS[over], hollow=hollow)
        them = [published_ratio(published, 3, over, shared=shared) for shared in lengths]
        if results.is_gpu:
            line(axes[1], places, them, f"the paper, relay over {PUBLISHED_NAMES[over]}", COLORS[over], dashed=True)
    axes[1].axhline(1, color="#999999", linewidth=0.8)
    axes[1].set_ylabel("ratio of requests/s")
    axes[1].set_ylim(bottom=0)
    for axis in axes:
        axis.set_xscale("log", base=2)
        axis.set_xticks(places, [f"{length:g}" for length in lengths], fontsize=7)
        axis.minorticks_off()
        axis.set_xlabel("system prompt, tokens")
    return finish(figure, axes, 3)


def mmlu_time(results, _published):
    shots = results.values("shots")
    model = results.measured[0].point["model"]
    figure, axes = panels(f"MMLU: time for all questions, {model}, one answer token each", results.about(), 1, width=6.4)
    series = []
    for arm in ARMS:
        found = [results.one(arm, shots=count) for count in shots]
        series.append((f"Baton, {arm}", COLORS[arm], [one and one["elapsed_time"] for one in found]))
    bars(axes[0], [f"{count} solved questions in front" for count in shots], series)
    axes[0].set_ylabel("seconds")
    return finish(figure, axes, 3)


def synthetic_throughput(results, published):
    kinds = sorted({(one.point["own"], one.point["output"]) for one in results.measured})
    lengths = results.values("shared")
    model = results.measured[0].point["model"]
    figure, axes = panels(f"Offline throughput with equal lengths: {model}, caches cold", about(results), len(kinds))
    for axis, (own, output) in zip(axes, kinds, strict=True):
        for arm in ARMS:
            found = [results.one(arm, own=own, output=output, shared=shared) for shared in lengths]
            medians = [one and one.rate("num_requests") for one in found]
            hollow = older_of(results, found)
            line(axis, lengths, medians, f"Baton, {arm}", COLORS[arm], marker=MARKERS[arm], hollow=hollow)
            which = {"own": own, "output": output, "arm": arm}
            them = [published.one(6, "requests_per_second", shared=shared, **which) for shared in lengths]
            if results.is_gpu:
                line(axis, lengths, them, f"the paper's {PUBLISHED_NAMES[arm]}, A100", COLORS[arm], dashed=True)
        log_ticks(axis, lengths)
        axis.set_ylim(bottom=0)
        axis.set_title(f"prompt {own}, answer {output} tokens")
        axis.set_xlabel("system prompt, tokens")
        axis.set_ylabel("requests/s")
    return finish(figure, axes, 3)


def model_speedups(results, published):
    lengths = results.values("shared")[::-1]
    models = list(dict.fromkeys(one.point["model"] for one in results.measured))
    title = "Offline throughput of relay over the other arms, ShareGPT lengths, caches cold"
    figure, axes = panels(title, about(results, "†"), 1, len(lengths), width=7.6, height=2.7)
    for axis, shared in zip(axes, lengths, strict=True):
        series = [
            (f"Baton, relay over {over}", COLORS[over], [ratio(results, over, model=model, shared=shared) for model in models])
            for over in ("paged", "unshared")
        ]
        for over, color in (("paged", OTHER_COLORS[4]), ("unshared", OTHER_COLORS[0])):
            them = []
            for model in models:
                name = MODEL_NAMES.get(model, model)
                of_gpus = [published_ratio(published, 7, over, model=name, shared=shared, gpu=gpu) for gpu in ("A100", "A40")]
                them.append(next((value for value in of_gpus if value), None))
            series.append((f"the paper, over {PUBLISHED_NAMES[over]}, A40 or A100", color, them))
        relays = [results.one("relay", model=model, shared=shared) for model in models]
        marks = [index for index, one in enumerate(relays) if results.is_marked(one)]
        bars(axis, models, [one for one in series if any(one[2])], marks=marks)
        axis.axhline(1, color="#999999", linewidth=0.8)
        axis.set_title(f"system prompt of {shared} tokens")
        axis.set_ylabel("ratio of requests/s")
    return finish(figure, axes, 2)


def ablation_rates(results, _published):
    names = list(dict.fromkeys(one.arm for one in results.measured))
    point = results.measured[0].point
    title = f"Lessons of issue 421, alone: {point['model']}, {point['requests']} requests, ShareGPT lengths, nothing shared"
    figure, axes = panels(title, results.about(), 2, width=4.6)
    found = [results.one(name) for name in names]
    bars(axes[0], names, [("requests/s", COLORS["relay"], [one.rate("num_requests") for one in found])])
    axes[0].set_ylabel("requests/s")
    bars(axes[1], names, [("device busy", COLORS["paged"], [100 * one.get("device_busy_share", 0) for one in found])])
    axes[1].set_ylabel("device busy, percent of the time")
    for axis in axes:
        axis.tick_params(axis="x", labelsize=7, rotation=15)
    return finish(figure, axes)


def prompt_phase(results, _published):
    owns, lengths = results.values("own"), results.values("shared")
    model = results.measured[0].point["model"]
    title = f"Relay in the prompt phase: {model}, own parts behind one cached system prompt, one new token"
    figure, axes = panels(title, results.about(), len(lengths), width=4.4)
    for axis, shared in zip(axes, lengths, strict=True):
        for arm in ARMS[:2]:
            found = [results.one(arm, own=own, shared=shared) for own in owns]
            rates = [one and one.rates("num_requests") for one in found]
            medians = [one and one.rate("num_requests") for one in found]
            errors = [of and half_range(of) for of in rates]
            line(axis, owns, medians, f"Baton, {arm}", COLORS[arm], marker=MARKERS[arm], errors=errors)
        log_ticks(axis, owns)
        plain_y(axis, log=True)
        axis.set_title(f"system prompt of {shared} tokens")
        axis.set_xlabel("own tokens of a request")
        axis.set_ylabel("requests/s (log)")
    return finish(figure, axes, 2)


def job_lines(axis, results, key, x_title, xs=None):
    """Output tokens a second of the arms against a parameter."""
    values = results.values(key)
    for arm in ARMS[:2]:
        found = [results.one(arm, **{key: value}) for value in values]
        rates = [one and one.rates("total_output_tokens") for one in found]
        medians = [one and one.rate() for one in found]
        errors = [of and half_range(of) for of in rates]
        line(axis, xs or values, medians, f"Baton, {arm}", COLORS[arm], marker=MARKERS[arm], errors=errors)
    axis.set_ylim(bottom=0)
    axis.set_xlabel(x_title)
    axis.set_ylabel("output tokens/s")
    return values


def step_bars(axis, results, key, title, name):
    values = results.values(key)
    series = []
    for arm in ARMS[:2]:
        found = [results.one(arm, **{key: value}) for value in values]
        series.append((f"Baton, {arm}", COLORS[arm], [one and one["step_ms"] for one in found]))
    bars(axis, [f"{value:g}" for value in values], series)
    axis.set_title(title)
    axis.set_xlabel(name)
    axis.set_ylabel("a decode step, ms")


def beyond_jobs(results, _published):
    """Many prompts in one batch, nested levels, strangers."""
    model = results.measured[0].point["model"]
    groups, nested, strangers = (part(results, name) for name in ("groups", "nested", "strangers"))
    if not (groups or nested or strangers):
        return None
    figure, axes = panels(f"What the papers lack: whole jobs, {model}, caches cold", results.about(), 3)
    if groups:
        point = groups.measured[0].point
        log_ticks(axes[0], job_lines(axes[0], groups, "groups", "system prompts in one batch"))
        axes[0].set_title(f"{point['requests']} requests, {point['shared']} shared tokens", fontsize=8.5)
    if nested:
        axis, depths = axes[1], [1, 2, 3]
        series = []
        for arm in ARMS[:2]:
            by_depth = {len(one.point["levels"]): one.rate() for one in nested.find(arm)}
            series.append((f"Baton, {arm}", COLORS[arm], [by_depth.get(depth) for depth in depths]))
        bars(axis, [f"{depth}" for depth in depths], series)
        axis.set_title(f"{nested.measured[0].point['shared']} shared tokens in nested prefixes", fontsize=8.5)
        axis.set_xlabel("levels")
        axis.set_ylabel("output tokens/s")
    if strangers:
        job_lines(axes[2], strangers, "share", "share of requests with a prompt of their own")
        axes[2].set_title(f"{strangers.measured[0].point['requests']} requests, strangers among them", fontsize=8.5)
    return finish(figure, axes, 2)


def beyond_steps(results, _published):
    """Few requests, prefixes from short to long, long contexts of the requests' own."""
    few, short, long = (part(results, name) for name in ("few requests", "short prefixes", "long own contexts"))
    if not (few and short and long):
        return None
    figure, axes = panels("What the papers lack: decode steps alone, prompts in the cache", results.about(), 3)
    step_bars(axes[0], few, "requests", f"{few.measured[0].point['shared']} shared tokens", "requests")
    lengths = short.values("shared")
    for arm in ARMS[:2]:
        found = [short.one(arm, shared=shared) for shared in lengths]
        line(axes[1], lengths, [one and one["step_ms"] for one in found], f"Baton, {arm}", COLORS[arm], marker=MARKERS[arm])
    log_ticks(axes[1], lengths)
    axes[1].set_ylim(bottom=0)
    axes[1].set_title(f"{short.measured[0].point['requests']} requests behind one prefix")
    axes[1].set_xlabel("shared tokens")
    axes[1].set_ylabel("a decode step, ms")
    step_bars(axes[2], long, "own", f"{long.measured[0].point['requests']} requests, long own contexts", "own tokens")
    return finish(figure, axes, 2)


PEER_COLORS = {"relay": COLORS["relay"], "paged": COLORS["paged"]}


def beside_peers(results, _published):
    """Seconds of whole jobs and milliseconds of decode steps, beside the other engines."""
    arms = [*ARMS[:2], *sorted({one.arm for one in results.measured} - set(ARMS))]
    names = peer_names(results)
    kinds = [("whole jobs", "s", [name for name in names if not name.startswith("decode")]),
             ("decode steps", "ms a step", [name for name in names if name.startswith("decode")])]  # fmt: skip
    kinds = [kind for kind in kinds if kind[2]]
    title = "Beside the engines people use: random weights, the same requests, caches cold (lower is better)"
    figure, axes = panels(title, results.about(), 1, len(kinds), width=9.5, height=2.9)
    for axis, (what, unit, of_kind) in zip(axes, kinds, strict=True):
        series = []
        for index, arm in enumerate(arms):
            found = [results.one(arm, name=name) for name in of_kind]
            values = [one and (one.get("step_ms") if unit == "ms a step" else one.get("elapsed_time")) for one in found]
            name = f"Baton, {arm}" if arm in ARMS else arm
            series.append((name, PEER_COLORS.get(arm, OTHER_COLORS[index % len(OTHER_COLORS)]), values))
        bars(axis, of_kind, [one for one in series if any(one[2])])
        axis.tick_params(axis="x", labelsize=7, rotation=15)
        axis.set_title(what)
        axis.set_ylabel(unit)
    return finish(figure, axes, 5)
