"""Where the time of a decode step goes: `python3 tools/kernel_timeline.py kernels.tsv [steps]`, from tools/kernel_timeline.cpp.

A step begins with resolve_rows. Of each kind of step (its kernels and their blocks) the last `steps` are used, 20 unless
told. A kernel counts from the end of the kernel before it (of the latest end so far) to its own end, so the
counts add up to the step. Microseconds: "a step" is the sum of a kernel's launches in a step, "each" that of one launch,
"gap" the part of "each" before its own start (negative: it started that much before the kernel before it ended), all
medians over steps.
"""
import collections
import pathlib
import re
import statistics
import sys


def short_name(name):
    found = re.findall(r"\d([a-z][a-z_]*_kernel)", name) or re.findall(r"\d([a-z][a-z_]{4,})", name)
    return found[-1] if found else name[:40]


def is_product(name):
    return any(part in name for part in ("gemm", "nvjet", "cutlass", "splitK"))


def role(kernels, i):
    """The kernel's name; before a product's, that of its matrix, told by its neighbours."""
    name = kernels[i][5]
    if not is_product(name):
        return name
    before = kernels[i - 1][5] if i > 0 else ""
    after = kernels[i + 1][5] if i + 1 < len(kernels) else ""
    if "rope" in after:
        matrix = "qkv"
    elif "activation" in after:
        matrix = "gate_up"
    elif "attention" in before or "merge" in before:
        matrix = "o"
    elif "activation" in before:
        matrix = "down"
    else:
        matrix = "other"
    return f"{matrix} {name}"


def main():
    path, n_steps = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20
    rows = []
    for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
        start, end, blocks, threads, shared, name = line.split("\t")
        rows.append((int(start), int(end), int(blocks), int(threads), int(shared), short_name(name)))
    rows.sort()
    steps, step = [], []
    for row in rows:
        if "resolve" in row[5] and step:
            steps.append(step)
            step = []
        step.append(row)
    kinds = collections.defaultdict(list)
    for step in steps[1:]:
        if "resolve" in step[0][5]:
            kinds[tuple((row[5], row[2]) for row in step)].append(step)
    for names, of_kind in kinds.items():
        if len(of_kind) < n_steps:
            continue
        chosen = of_kind[-n_steps:]
        totals = collections.defaultdict(list)
        gaps = collections.defaultdict(list)
        shape = {}
        for step in chosen:
            last_end = step[0][0]
            sums = collections.Counter()
            for i, row in enumerate(step):
                key = role(step, i)
                sums[key] += max(0, row[1] - last_end)
                gaps[key].append((row[0] - last_end) / 1e3)
                shape[key] = (row[2], row[3], row[4])
                last_end = max(last_end, row[1])
            for key, value in sums.items():
                totals[key].append(value / 1e3)
        length = statistics.median((max(r[1] for r in s) - s[0][0]) / 1e3 for s in chosen)
        print(f"{len(of_kind)} steps of {len(names)} kernels, {length:.0f} us a step")
        print("| kernel | launches | us a step | each | gap | blocks x threads, KiB set |")
        for key, values in sorted(totals.items(), key=lambda item: -statistics.median(item[1])):
            n = len(gaps[key]) // len(chosen)
            total = statistics.median(values)
            blocks, threads, shared = shape[key]
            times = f"{total:.0f} | {total / n:.2f} | {statistics.median(gaps[key]):.2f}"
            print(f"| {key} | {n} | {times} | {blocks} x {threads}, {shared} |")


main()
