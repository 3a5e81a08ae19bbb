"""One look for all figures, and SVG files with the same bytes each time."""

import io
import textwrap
from pathlib import Path

import matplotlib

matplotlib.use("svg")

import matplotlib.pyplot as plt  # noqa: E402

COLORS = {"relay": "#c1121f", "paged": "#1d3557", "unshared": "#6c757d", "split": "#c1121f", "unsplit": "#1d3557"}
MODEL_COLOR, FLOOR_COLOR = "#2a9d8f", "#adb5bd"
OTHER_COLORS = ["#f4a261", "#6a4c93", "#43aa8b", "#bc6c25", "#577590"]
MARKERS = {"relay": "o", "paged": "s", "unshared": "^"}

SETTINGS = {
    "svg.hashsalt": "baton",
    "svg.fonttype": "none",  # text stays text: small files, and the same bytes on every machine
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica"],
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.grid": True,
    "grid.color": "#e5e5e5",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.7,
    "lines.markersize": 4,
    "figure.facecolor": "white",
}


def older_of(results, found):
    """Of each measurement whether a build before the newest made it."""
    return [results.is_marked(one) for one in found]


def about(results, mark="hollow"):
    """The line under a figure; with points of earlier builds, it says how they are marked."""
    older = any(map(results.is_marked, results.measured))
    return results.about() + (f"; {mark}: of a build before the newest" if older else "")


TITLE_INCHES, LEGEND_INCHES, ABOUT_INCHES = 0.23, 0.2, 0.24


def panels(title, about, n_columns, n_rows=1, width=3.6, height=3.0):
    """A figure with room for its title and legend above and machine, date and commit below; returns (figure, list
    of axes). finish() must follow."""
    matplotlib.rcParams.update(SETTINGS)
    size = (max(width * n_columns, 7.2), height * n_rows)
    figure, axes = plt.subplots(n_rows, n_columns, figsize=size, squeeze=False, layout="constrained")
    figure.baton_title = "\n".join(textwrap.wrap(title, int(size[0] * 10)))
    figure.baton_about = "\n".join(textwrap.wrap(about, int(size[0] * 16.5)))
    return figure, [axis for row in axes for axis in row]


def finish(figure, axes, n_columns=4):
    """Puts title, one legend for all panels, and the line about the machine around the panels."""
    handles = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    n_rows = -(-len(handles) // n_columns)
    title_inches = 0.1 + TITLE_INCHES * (1 + figure.baton_title.count("\n"))
    above = title_inches + LEGEND_INCHES * n_rows + 0.1
    width, height = figure.get_size_inches()
    below = ABOUT_INCHES + 0.13 * figure.baton_about.count("\n")
    height += above + below
    figure.set_size_inches(width, height)
    figure.get_layout_engine().set(rect=(0, below / height, 1, 1 - (above + below) / height))
    figure.text(0.5, 1 - 0.1 / height, figure.baton_title, ha="center", va="top", fontsize=11, fontweight="bold")
    figure.text(0.5, 0.06 / height, figure.baton_about, ha="center", va="bottom", fontsize=7, color="#555555")
    if handles:
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, 1 - title_inches / height), "borderaxespad": 0.2}
        figure.legend(list(handles.values()), list(handles), ncols=n_columns, **place)
    return figure


def line(axis, xs, ys, label, color, dashed=False, marker="o", errors=None, hollow=None):
    """A line through the points that have a value; those of `hollow` have hollow markers."""
    holes = [(x, y) for x, y, is_hollow in zip(xs, ys, hollow or [], strict=False) if is_hollow and y is not None]
    pairs = [(x, y, e) for x, y, e in zip(xs, ys, errors or [None] * len(xs), strict=True) if y is not None]
    if not pairs:
        return
    xs, ys, errors = zip(*pairs, strict=True)
    style = {"color": color, "label": label, "linestyle": (0, (4, 3)) if dashed else "-", "marker": "" if dashed else marker}
    if any(errors):
        axis.errorbar(xs, ys, yerr=[e or 0 for e in errors], capsize=2.5, elinewidth=0.9, **style)
    else:
        axis.plot(xs, ys, **style)
    if holes:
        axis.plot(*zip(*holes, strict=True), linestyle="", marker=marker, color=color, markerfacecolor="white", zorder=3)


def log_ticks(axis, xs, base=2):
    """A logarithmic x axis with a tick at each value."""
    axis.set_xscale("log", base=base)
    axis.set_xticks(xs, [f"{x:g}" if x < 10000 else f"{x / 1024:g}K" for x in xs], fontsize=7)
    axis.minorticks_off()


def plain_y(axis, log=False):
    """Numbers without powers of ten."""
    if log:
        axis.set_yscale("log")
        low, high = axis.get_ylim()
        subs = (1, 1.5, 2, 3, 5, 7) if high / low < 15 else (1, 2, 5)
        axis.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=subs if high / low < 2000 else (1,)))
    axis.yaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda y, _: f"{y:g}"))
    axis.yaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())


def bars(axis, groups, series, labels=True, marks=()):
    """Bars side by side: `series` is [(name, color, [value or None])] over the groups. Of a group only the bars with a value
    take room, all of one width. Groups whose index is in `marks` get a mark beside their name."""
    n_widest = max((sum(bool(values[group]) for _, _, values in series) for group in range(len(groups))), default=1)
    width, taken = 0.84 / max(n_widest, 1), [0] * len(groups)
    size = 6.5 if n_widest * len(groups) <= 40 else 5.5
    for name, color, values in series:
        there = [group for group, value in enumerate(values) if value]
        n_bars = [sum(bool(other[group]) for _, _, other in series) for group in there]
        places = [group + width * (taken[group] + 0.5 - n / 2) for group, n in zip(there, n_bars, strict=True)]
        for group in there:
            taken[group] += 1
        drawn = axis.bar(places, [values[group] for group in there], width * 0.92, color=color, label=name)
        if labels:
            texts = [f"{value:.0f}" if value >= 100 else f"{value:.3g}" for value in (values[group] for group in there)]
            axis.bar_label(drawn, texts, fontsize=size, padding=1.5)
    for group in range(len(groups)):
        if not taken[group]:
            axis.annotate("-", (group, 0), (0, 2), textcoords="offset points", ha="center", fontsize=size)
    groups = [f"{group} †" if index in marks else group for index, group in enumerate(groups)]
    axis.set_xticks(range(len(groups)), groups, fontsize=8)
    axis.grid(axis="x", visible=False)


def svg_of(figure):
    """The bytes of a figure: no date, no random ids."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    text = buffer.getvalue().decode("utf-8")
    return "\n".join(part.rstrip() for part in text.splitlines()) + "\n"


def save(figure, path):
    Path(path).write_text(svg_of(figure), encoding="utf-8")
