#!/usr/bin/env python3
"""Draws and sums up what `baton bench attention --device cuda --json FILE` measured.

    tools/plot_attention.py attention.json [--torch torch_attention.csv] [--fp8 attention_fp8.json]
                            [--plots bench/results] [--summary]

--plots writes h200-w1.svg, h200-w2.svg and h200-w3.svg: both arms, the floor, PyTorch of the same run where its file is given, and
the figures of other programs that the bench put beside each line. --summary prints one line a case: times, goal, the best peer of
the same run and of those figures, and whether the line passes against both. Needs only Python's standard library.
"""

import argparse
import csv
import json
import math
import sys
from pathlib import Path
from xml.sax.saxutils import escape

COLORS = {
    "relay": "#c1121f",
    "paged": "#1d3557",
    "floor": "#8d99ae",
    "read": "#8d99ae",
    "goal": "#2a9d8f",
}
PALETTE = ["#f4a261", "#6a4c93", "#43aa8b", "#bc6c25", "#577590"]


def load_torch(path):
    """{(table, requests, shared, own): {variant: us}} of torch_attention.py's lines; {} without a file."""
    if not path or not Path(path).exists():
        return {}
    found = {}
    with Path(path).open(encoding="utf-8", newline="") as file:
        for row in csv.reader(file):
            if len(row) < 8 or row[7] == "failed" or not row[2].isdigit():
                continue
            table, variant, requests, shared, own = row[0], row[1], int(row[2]), int(row[3]), int(row[4])
            found.setdefault((table, requests, shared, own), {})[f"torch {variant}"] = float(row[7])
    return found


def key_of(run):
    return run["table"], run["requests"], run["shared"], run["own"]


def times_of(run):
    return {arm["arm"]: arm["median_us"] for arm in run["arms"]}


def best_of(run):
    times = times_of(run)
    return times.get("relay", times.get("paged"))


# ---- The summary ---------------------------------------------------------------------------------------------------------


def summary(report, torch):
    titles = ("table", 5), ("req", 4), ("own", 6), ("shared", 6), ("paged", 8), ("relay", 8), ("floor", 7), ("goal", 7)
    titles += ("torch", 8), ("peer", 7)
    lines = [" ".join(f"{title:>{width}}" for title, width in titles) + "  verdict"]
    passed = {}
    for run in report["runs"]:
        times, us = times_of(run), best_of(run)
        same_run = min(torch.get(key_of(run), {}).values(), default=math.inf)
        peers = [value for name, value in run.get("references", {}).items() if "A100" not in name]
        peer = min(peers, default=math.inf)
        goal = run.get("goal_us", math.inf)
        faults = []
        if us > goal:
            faults.append(f"goal +{us - goal:.1f}")
        if us >= min(peer, same_run):
            faults.append(f"peer +{us - min(peer, same_run):.1f}")
        plain = run.get("references", {}).get("plain, shared pages")
        if plain and times.get("paged", 0) > 1.10 * plain:
            faults.append(f"paged {times['paged'] / plain:.2f} x plain")
        if "relay" in times and "paged" in times and times["relay"] > 1.02 * times["paged"]:
            faults.append(f"relay {times['relay'] / times['paged']:.2f} x paged")
        passed.setdefault(run["table"], []).append(not faults)

        def cell(value, width):
            return f"{value:>{width}.2f}" if value is not None and math.isfinite(value) else f"{'-':>{width}}"

        case = f"{run['table']:>5} {run['requests']:>4} {run['own']:>6} {run['shared']:>6}"
        numbers = (times.get("paged"), 8), (times.get("relay"), 8), (run["floor_us"], 7), (goal, 7), (same_run, 8), (peer, 7)
        lines.append(f"{case} {' '.join(cell(*number) for number in numbers)}  {'; '.join(faults) or 'pass'}")
    for table, results in passed.items():
        lines.append(f"{table}: {sum(results)} of {len(results)} lines pass")
    lines += [
        f"planning, {plan['table']}: {plan['plan_us'] + plan['pack_us']:.1f} us, {plan['step_bytes'] / 1024:.1f} KB"
        for plan in report.get("planning", [])
    ]
    return "\n".join(lines)


def fp8_summary(report, fp8):
    """Lines over the cases whose 16-bit keys and values fill 64 MiB or more: fp8 is to need at most 0.65 of the time."""
    goal, ratios = 0.65, []
    short = {key_of(run): best_of(run) for run in fp8["runs"]}
    for run in report["runs"]:
        if run["distinct_bytes"] >= 64 << 20 and key_of(run) in short:
            ratios.append((short[key_of(run)] / best_of(run), key_of(run)))
    ratios.sort(reverse=True)
    reached = sum(ratio <= goal for ratio, _ in ratios)
    lines = [f"fp8 keys and values: {reached} of {len(ratios)} lines take at most {goal} of 16-bit ones"]
    lines += [f"    {ratio:.2f}  {' '.join(map(str, key))}" for ratio, key in ratios[:5]]
    return "\n".join(lines)


# ---- Drawing -------------------------------------------------------------------------------------------------------------


class Panel:
    """Lines over shared places of x, both axes logarithmic: y in microseconds."""

    HEIGHT, LEFT, BOTTOM, TOP = 300, 52, 44, 26

    def __init__(self, title, x_title, ticks, width):
        self.title, self.x_title, self.ticks, self.width, self.series = title, x_title, ticks, width, []

    def add(self, name, values, color, dashed=False):
        if any(value is not None for value in values):
            self.series.append((name, values, color, dashed))

    def bounds(self):
        values = [value for _, series, _, _ in self.series for value in series if value is not None]
        return math.log10(min(values) * 0.85), math.log10(max(values) * 1.15)

    def svg(self, left, top):
        low, high = self.bounds()
        plot_width, plot_height = self.width - self.LEFT - 28, self.HEIGHT - self.BOTTOM - self.TOP
        last = max(len(self.ticks) - 1, 1)

        def x_of(i):
            return left + self.LEFT + plot_width * i / last

        def y_of(value):
            return top + self.TOP + plot_height * (1 - (math.log10(value) - low) / (high - low))

        parts = [f'<text x="{left + self.LEFT}" y="{top + 16}" class="title">{escape(self.title)}</text>']
        for decade in range(math.floor(low), math.ceil(high) + 1):
            for factor in (1, 2, 3, 5, 7) if high - low < 1 else (1, 2, 5):
                value = factor * 10.0**decade
                if low <= math.log10(value) <= high:
                    y = y_of(value)
                    parts.append(f'<line x1="{x_of(0):.1f}" y1="{y:.1f}" x2="{x_of(last):.1f}" y2="{y:.1f}" class="grid"/>')
                    parts.append(f'<text x="{x_of(0) - 6:.1f}" y="{y + 4:.1f}" class="end">{value:g}</text>')
        for i, tick in enumerate(self.ticks):
            parts.append(f'<text x="{x_of(i):.1f}" y="{top + self.HEIGHT - self.BOTTOM + 14}" class="middle">{escape(tick)}</text>')
        middle = left + self.LEFT + plot_width / 2
        parts.append(f'<text x="{middle:.1f}" y="{top + self.HEIGHT - 8}" class="middle">{escape(self.x_title)}</text>')
        for _, values, color, dashed in self.series:
            points = [(x_of(i), y_of(value)) for i, value in enumerate(values) if value is not None]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            dash = ' stroke-dasharray="5 4"' if dashed else ""
            parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.8"{dash}/>')
            if not dashed:
                parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{color}"/>' for x, y in points]
        return "\n".join(parts)


def write_figure(path, title, panels, columns):
    rows = -(-len(panels) // columns)
    legend = {name: (color, dashed) for panel in panels for name, _, color, dashed in panel.series}
    panel_width = panels[0].width
    width, top = columns * panel_width, 30
    per_row = max(1, width // 190)
    legend_rows = -(-len(legend) // per_row)
    height = top + rows * Panel.HEIGHT + 18 * legend_rows + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        "<style>text{font:11px sans-serif;fill:#222}.title{font-weight:bold}.end{text-anchor:end}.middle{text-anchor:middle}"
        ".grid{stroke:#ddd;stroke-width:1}</style>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="12" y="20" style="font-size:14px;font-weight:bold">{escape(title)}</text>',
    ]
    parts += [panel.svg(i % columns * panel_width, top + i // columns * Panel.HEIGHT) for i, panel in enumerate(panels)]
    for i, (name, (color, dashed)) in enumerate(legend.items()):
        x, y = 14 + i % per_row * 190, top + rows * Panel.HEIGHT + 12 + i // per_row * 18
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        parts.append(f'<line x1="{x}" y1="{y - 4}" x2="{x + 22}" y2="{y - 4}" stroke="{color}" stroke-width="2"{dash}/>')
        parts.append(f'<text x="{x + 28}" y="{y}">{escape(name)}</text>')
    parts.append("</svg>")
    path.write_text("\n".join(parts) + "\n", encoding="utf-8")


def panel_of(title, x_title, ticks, runs, torch, width=760):
    panel = Panel(title, x_title, ticks, width)
    for arm in ("relay", "paged"):
        panel.add(f"Baton, {arm}", [times_of(run).get(arm) for run in runs], COLORS[arm])
    panel.add("goal", [run.get("goal_us") for run in runs], COLORS["goal"], dashed=True)
    panel.add("floor", [run["floor_us"] for run in runs], COLORS["floor"], dashed=True)
    if runs[0]["table"] == "W1":
        panel.add("read-only kernel", [run.get("read_us") for run in runs], "#555555", dashed=True)
    names = list(dict.fromkeys(name for run in runs for name in run.get("references", {}) if name not in ("eager", "no sharing")))
    for name, color in zip(names, PALETTE, strict=False):
        panel.add(name, [run.get("references", {}).get(name) for run in runs], color)
    variants = list(dict.fromkeys(name for run in runs for name in torch.get(key_of(run), {}) if name != "torch eager"))
    for name, color in zip(variants, reversed(PALETTE), strict=False):
        panel.add(f"{name}, this run", [torch.get(key_of(run), {}).get(name) for run in runs], color, dashed=True)
    return panel


def draw(report, torch, folder):
    runs_of = {table: [run for run in report["runs"] if run["table"] == table] for table in ("W1", "W2", "W3")}
    if runs := runs_of["W1"]:
        ticks = [
            f"{run['requests']}x{run['own']}" if run["own"] < 10000 else f"{run['requests']}x{run['own'] // 1024}K" for run in runs
        ]
        panel = panel_of("16 query heads, 2 KV heads, d = 128, fp16, us", "requests x context", ticks, runs, torch)
        write_figure(folder / "h200-w1.svg", "The Flash-Decoding table on one H200", [panel], 1)
    if runs := runs_of["W2"]:
        panel = panel_of(
            "52 heads, d = 128, bf16, 32 requests, own 128, us", "shared tokens", [str(run["shared"]) for run in runs], runs, torch
        )
        write_figure(folder / "h200-w2.svg", "The RelayAttention figure on one H200", [panel], 1)
    if runs := runs_of["W3"]:
        panels = []
        for requests, own in dict.fromkeys((run["requests"], run["own"]) for run in runs):
            chosen = [run for run in runs if (run["requests"], run["own"]) == (requests, own)]
            ticks = [str(run["shared"]) for run in chosen]
            panels.append(panel_of(f"{requests} requests, own {own}, us", "shared tokens", ticks, chosen, torch, 430))
        write_figure(folder / "h200-w3.svg", "Llama-3-8B attention (32 and 8 heads, d = 128, bf16) on one H200", panels, 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("report")
    parser.add_argument("--torch")
    parser.add_argument("--fp8")
    parser.add_argument("--plots")
    parser.add_argument("--summary", action="store_true")
    arguments = parser.parse_args()
    report = json.loads(Path(arguments.report).read_text(encoding="utf-8"))
    torch = load_torch(arguments.torch)
    if arguments.plots:
        folder = Path(arguments.plots)
        folder.mkdir(parents=True, exist_ok=True)
        draw(report, torch, folder)
    if arguments.summary or not arguments.plots:
        print(summary(report, torch))
        if arguments.fp8 and Path(arguments.fp8).exists():
            print(fp8_summary(report, json.loads(Path(arguments.fp8).read_text(encoding="utf-8"))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
