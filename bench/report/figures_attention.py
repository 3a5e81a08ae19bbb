"""Figures of experiments 1 and 2: attention alone, and tokens per second against context."""

from quantities import ARMS, WEIGHT_BYTES, decode_bound, eq_10, head_kinds, heads_text, library_us, model_us
from style import (
    COLORS,
    FLOOR_COLOR,
    MARKERS,
    MODEL_COLOR,
    OTHER_COLORS,
    about,
    bars,
    finish,
    line,
    log_ticks,
    older_of,
    panels,
    plain_y,
)


def selected(kind, requests, own):
    return {"heads": kind[0], "kv_heads": kind[1], "requests": requests, "own": own}


def attention_latency(results, published):
    """Time against prefix length, a panel for each batch, multi-head attention."""
    results = results.of_table("free")
    kind, own = head_kinds(results)[0], results.values("own")[0]
    batches, lengths = results.values("requests"), results.values("shared")
    title = f"Attention of one layer: {heads_text(kind)}; own context {own} tokens"
    figure, axes = panels(title, about(results), min(len(batches), 2), -(-len(batches) // 2))
    for axis, requests in zip(axes, batches, strict=False):
        which = selected(kind, requests, own)
        for arm in ARMS:
            found = [results.one(arm, shared=shared, **which) for shared in lengths]
            times = [one and one["median_us"] for one in found]
            hollow = older_of(results, found)
            line(axis, lengths, times, f"Baton, {arm}", COLORS[arm], marker=MARKERS[arm], hollow=hollow)
        floors = [one and one["floor_us"] for one in (results.one("relay", shared=shared, **which) for shared in lengths)]
        line(axis, lengths, floors, "floor: distinct bytes, read once", FLOOR_COLOR, dashed=True)
        for arm in ("relay", "unshared") if kind[0] == 52 else ():
            them = [published.one(1, "us", requests=requests, own=own, shared=shared, arm=arm) for shared in lengths]
            line(axis, lengths, them, f"the paper's {arm}, A100", COLORS[arm], dashed=True)
        log_ticks(axis, lengths)
        plain_y(axis, log=True)
        axis.set_title(f"{requests} requests")
        axis.set_xlabel("shared prefix, tokens")
        axis.set_ylabel("time, us (log)")
    return finish(figure, axes, 3)


def attention_speedup(results, published):
    """Speed-up of relayed over unshared attention with Eq. 10 and the byte model, and over paged."""
    results = results.of_table("free")
    kinds, own = head_kinds(results), results.values("own")[0]
    batches, lengths = results.values("requests"), results.values("shared")
    chosen = [batches[0], batches[-1]] if len(batches) > 1 else batches
    title = f"Relayed attention: measured speed-up and what theory says; own context {own} tokens"
    figure, axes = panels(title, about(results), len(chosen), len(kinds), width=4.2)
    cells = [(kind, requests) for kind in kinds for requests in chosen]
    for axis, (kind, requests) in zip(axes, cells, strict=True):
        which = selected(kind, requests, own)
        found = {arm: [results.one(arm, shared=shared, **which) for shared in lengths] for arm in ARMS}

        def ratio(over, found=found):
            pairs = zip(found[over], found["relay"], strict=True)
            return [above["median_us"] / relay["median_us"] if above and relay else None for above, relay in pairs]

        def model(over, found=found):
            return [
                model_us(over, relay.point, relay["read_bytes_per_us"]) / model_us("relay", relay.point, relay["read_bytes_per_us"])
                if relay
                else None
                for relay in found["relay"]
            ]

        hollow = older_of(results, found["relay"])
        line(axis, lengths, ratio("unshared"), "measured, unshared / relay", COLORS["unshared"], marker="^", hollow=hollow)
        line(axis, lengths, [eq_10(s, own, requests) for s in lengths], "Eq. 10 of the paper", OTHER_COLORS[1], dashed=True)
        line(axis, lengths, model("unshared"), "byte model, unshared / relay", COLORS["unshared"], dashed=True)
        line(axis, lengths, ratio("paged"), "measured, paged / relay", COLORS["paged"], marker="s", hollow=hollow)
        if results.is_gpu:
            line(axis, lengths, model("paged"), "byte model with the L2, paged / relay", COLORS["paged"], dashed=True)
        if kind[0] == 52:
            them = [
                (published.one(1, "us", requests=requests, own=own, shared=s, arm="unshared") or 0)
                / (published.one(1, "us", requests=requests, own=own, shared=s, arm="relay") or 1)
                for s in lengths
            ]
            line(axis, lengths, [value or None for value in them], "the paper's, A100", OTHER_COLORS[0])
        axis.axhline(1, color="#999999", linewidth=0.8)
        log_ticks(axis, lengths)
        plain_y(axis, log=True)
        axis.set_title(f"{requests} requests; {heads_text(kind)}", fontsize=8.5)
        axis.set_xlabel("shared prefix, tokens")
        axis.set_ylabel("speed-up (log)")
    return finish(figure, axes, 3)


def tree_speedups(results, _published):
    """Speed-up of relay over paged for PAT's trees, a panel for each head shape."""
    kinds = head_kinds(results)
    trees = list(dict.fromkeys(one.point["tree"] for one in results.find("relay")))
    title = "Attention over PAT's trees of shared prefixes: time of paged over time of relay"
    figure, axes = panels(title, results.about(), 2, -(-len(kinds) // 2), 5.0, 3.4)
    for axis, kind in zip(axes, kinds, strict=False):
        ratios = []
        for tree in trees:
            which = {"tree": tree, "heads": kind[0], "kv_heads": kind[1]}
            relay, paged = results.one("relay", **which), results.one("paged", **which)
            ratios.append(paged["median_us"] / relay["median_us"] if relay and paged else None)
        bars(axis, trees, [("time of paged / time of relay", COLORS["paged"], ratios)])
        axis.tick_params(axis="x", labelsize=5.5, rotation=90)
        axis.axhline(1, color="#999999", linewidth=0.8)
        axis.set_title(heads_text(kind))
        axis.set_ylabel("speed-up of relay")
    for axis in axes[len(kinds) :]:
        axis.set_visible(False)
    return finish(figure, axes)


REFERENCES = {"FlashAttention-2": 0, "eager": 3, "FlashInfer": 2, "cuDNN": 4, "Flash-Decoding, A100": 1}


def flash_decoding_table(results):
    """The Flash-Decoding table: time of each line, Baton's and the quoted ones."""
    cases = {(one.point["requests"], one.point["own"]) for one in results.find("split")}
    cases = sorted(cases, key=lambda case: (-case[0], case[1]))
    kind = head_kinds(results)[0]
    title = f"The Flash-Decoding table: {heads_text(kind)}, nothing shared"
    figure, axes = panels(title, results.about(), 2, width=4.6, height=3.6)
    axis, places = axes[0], list(range(len(cases)))
    for arm in ("split", "unsplit"):
        found = [results.one(arm, requests=requests, own=own) for requests, own in cases]
        line(axis, places, [one and one["median_us"] for one in found], f"Baton, {arm}", COLORS[arm])
    whole = [results.one("split", requests=requests, own=own) for requests, own in cases]
    line(axis, places, [one["floor_us"] for one in whole], "floor: bytes by read rate", FLOOR_COLOR, dashed=True)
    for name, color in REFERENCES.items():
        same_day = [library_us(results, name, one.point) for one in whole]
        if any(same_day):
            line(axis, places, same_day, name, OTHER_COLORS[color])
            continue
        quoted = [(one.raw("references") or {}).get(name) for one in whole]
        label = f"{name}, published" if "A100" in name else f"{name}, H200, another day"
        line(axis, places, quoted, label, OTHER_COLORS[color], dashed=True)
    axis.set_xticks(places, [f"{requests} x {own}" for requests, own in cases], fontsize=7, rotation=35, ha="right")
    axis.set_xlabel("requests x context")
    axis.set_ylabel("time, us (log)")
    plain_y(axis, log=True)
    context_curve(results, axes[1])
    return finish(figure, axes, 3)


def context_curve(results, axis):
    found = sorted((one for one in results.measured if "context" in one.point), key=lambda one: one.point["context"])
    if not found:
        axis.set_visible(False)
        return
    xs = [one.point["context"] for one in found]
    model = found[0].point["model"]
    line(axis, xs, [one["median_tokens_per_s"] for one in found], f"Baton, {model}, one request", COLORS["relay"])
    rate = max((one["read_bytes_per_us"] for one in results.find("split")), default=None)
    if rate and model in WEIGHT_BYTES and results.is_gpu:
        bounds = [decode_bound(one, WEIGHT_BYTES[model], rate) for one in found]
        line(axis, xs, bounds, "bound: weights and context, read once", MODEL_COLOR, dashed=True)
    log_ticks(axis, xs)
    plain_y(axis)
    axis.set_ylim(bottom=0)
    axis.set_title(f"{model}, one request")
    axis.set_xlabel("context, tokens")
    axis.set_ylabel("tokens/s")
