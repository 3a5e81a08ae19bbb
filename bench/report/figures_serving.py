"""Figures of experiment 5 and of the data's lengths."""

from quantities import ARMS, LEVELS_S, all_arms
from style import COLORS, MARKERS, OTHER_COLORS, finish, line, panels, plain_y


def interactive_latency(results, published):
    lengths = results.values("shared")
    model = results.measured[0].point["model"]
    title = f"Interactive serving: {model}, ShareGPT lengths, Poisson arrivals"
    figure, axes = panels(title, results.about(), len(lengths), width=4.0, height=3.5)
    for axis, shared in zip(axes, lengths, strict=True):
        for arm in all_arms(results):
            found = sorted(results.find(arm, shared=shared), key=lambda one: one.point["rate"])
            rates = [one.point["rate"] for one in found]
            latencies = [one["latency_per_token_s"] for one in found]
            if arm in ARMS:
                line(axis, rates, latencies, f"Baton, {arm}", COLORS[arm], marker=MARKERS[arm])
            elif found:
                line(axis, rates, latencies, f"{found[0].rows[0]['commit']}, its server", OTHER_COLORS[0], marker="D")
        for arm, name in (("relay", "RelayAttention"), ("unshared", "vLLM")) if results.is_gpu else ():
            rows = sorted(published.find(5, shared=shared, arm=arm), key=lambda row: row["rate"])
            xs, ys = [row["rate"] for row in rows], [row["latency_per_output_token_s"] for row in rows]
            line(axis, xs, ys, f"the paper's {name}, A100", COLORS[arm], dashed=True)
        for level in LEVELS_S:
            axis.axhline(level, color="#999999", linewidth=0.8, linestyle=":")
        plain_y(axis, log=True)
        axis.set_title(f"system prompt of {shared} tokens")
        axis.set_xlabel("requests/s offered")
        axis.set_ylabel("mean latency / output tokens, s (log)")
    return finish(figure, axes, 3)


def length_distributions(results, _published):
    names = list(dict.fromkeys(one.point["dataset"] for one in results.measured))
    counted = max(row["date"][:10] for row in results.rows)
    about = f"Lengths as the data sets have them, counted {counted}; sources: docs/benchmarks.md"
    figure, axes = panels("Lengths of the requests in the data", about, 2, -(-len(names) // 2), width=4.4, height=2.6)
    for axis, name in zip(axes, names, strict=False):
        for index, one in enumerate(results.find(dataset=name)):
            edges, shares = one.raw("edges"), one.raw("shares")
            color = [COLORS["relay"], COLORS["paged"], OTHER_COLORS[2]][index]
            axis.stairs(shares, edges, color=color, label=one.arm, fill=False, linewidth=1.6)
            axis.axvline(one["mean"], color=color, linewidth=0.8, linestyle=":")
        axis.set_xscale("log", base=2)
        axis.set_xlim(left=4)
        axis.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        axis.set_title(name)
        axis.set_xlabel("tokens (dotted: the mean)")
        axis.set_ylabel("share of requests")
    for axis in axes[len(names) :]:
        axis.set_visible(False)
    return finish(figure, axes, 3)
