"""Where the time of a decode step goes, and what memory does meanwhile: kernels.tsv comes from tools/kernel_timeline.cpp.

    python3 tools/kernel_timeline.py kernels.tsv
    python3 tools/kernel_timeline.py kernels.tsv --skip 2     prints SKIP
    ncu --graph-profiling node --cache-control none --clock-control none --print-kernel-base mangled --print-units base \
      --page raw --csv --metrics dram__bytes_read.sum,dram__bytes_write.sum --launch-skip SKIP \
      baton-bench decode --shape FOLDER --new 4 ... > bytes.csv
    python3 tools/kernel_timeline.py kernels.tsv --bytes bytes.csv

A step begins with resolve_rows. Of each kind of step (its kernels and their blocks) the last `--steps` are used. A kernel
counts from the end of the kernel before it (of the latest end so far) to its own end, so the counts add up to the step.
Microseconds: "a step" is the sum of a kernel's launches in a step, "each" that of one launch, "gap" the part of "each"
before its own start (negative: it started that much before the kernel before it ended), all medians over steps. With
counters, MB are the bytes read from and written to memory in a step, TB/s those over "a step"; the last row is the step,
and its share of `--rate` is the share of the step in which memory is busy. ncu takes about 20 ms for each kernel, so it
counts few steps of a model of the same shape with two layers (FOLDER has its config.json), all numbers of requests in one
run with otherwise the same flags; SKIP is the number of kernels that such a model runs before its first decode steps. The
bytes of a launch are those of the kernels with the same name, matrix and blocks in a step with the same set of these. For
ncu kernels run one after another, so what one fetches ahead for the next is counted where the instructions are.
"""

import argparse
import collections
import csv
import pathlib
import re
import statistics


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
    second = kernels[i + 2][5] if i + 2 < len(kernels) else ""
    if "rope" in after:
        matrix = "qkv"
    elif "activation" in after or (is_product(after) and "norm" in second):  # it may have the activation at its end
        matrix = "gate_up"
    elif "attention" in before or "merge" in before:
        matrix = "o"
    elif "activation" in before or (is_product(before) and "norm" in after):
        matrix = "down"
    else:
        matrix = "other"
    return f"{matrix} {name}"


def kind_of(step):
    return tuple((row[5], row[2]) for row in step)


def signature_of(step):
    """The same for any number of layers."""
    return frozenset((role(step, i), row[2]) for i, row in enumerate(step))


def split_steps(rows):
    """Rows between one resolve_rows and the next; what comes before the first and after the last is no whole step."""
    begins = [i for i, row in enumerate(rows) if "resolve" in row[5]]
    return [rows[begin:end] for begin, end in zip(begins, begins[1:], strict=False)]


def kernels_before(rows, n_steps, n_layers):
    """How many kernels a model of `n_layers` runs before the steps of fewest rows, of the kinds that occur `n_steps` times."""
    steps = split_steps(rows)
    kinds = {kind for kind, n in collections.Counter(map(kind_of, steps)).items() if n >= n_steps}
    first = min(kinds, key=lambda kind: sum(blocks for name, blocks in kind if name.startswith("norm")))
    n_kernels = next(i for i, row in enumerate(rows) if "resolve" in row[5])
    for step in steps:
        if kind_of(step) == first:
            break
        ropes = [i for i, row in enumerate(step) if "rope_append" in row[5]]
        n_kernels += len(step) - (ropes[1] - ropes[0]) * (len(ropes) - n_layers)
    return n_kernels


def read_kernels(path):
    rows = []
    for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
        start, end, blocks, threads, shared, name = line.split("\t")
        if not name.startswith(("copy", "fill", "call ")):  # kernels only
            rows.append((int(start), int(end), int(blocks), int(threads), int(shared), short_name(name)))
    return sorted(rows)


def read_bytes(path):
    """Bytes of a launch in the last step of each signature in ncu's file, by its role."""
    lines = [line for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines() if line.startswith('"')]
    table = csv.DictReader(lines)
    rows = []
    for row in table:
        if not row["ID"].isdigit():
            continue  # the line of units
        blocks = 1
        for part in re.findall(r"\d+", row["Grid Size"]):
            blocks *= int(part)
        n_bytes = sum(float(row[name].replace(",", "")) for name in ("dram__bytes_read.sum", "dram__bytes_write.sum"))
        rows.append((n_bytes, 0, blocks, 0, 0, short_name(row["Kernel Name"])))
    bytes_of = {}
    for step in split_steps(rows):
        launches = collections.defaultdict(list)
        for i, row in enumerate(step):
            launches[role(step, i)].append(row[0])
        bytes_of[signature_of(step)] = {key: statistics.mean(values) for key, values in launches.items()}
    return bytes_of


def print_kind(kind, steps, bytes_of, arguments):
    chosen = steps[-arguments.steps :]
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
    length = statistics.median((max(row[1] for row in step) - step[0][0]) / 1e3 for step in chosen)
    counted = bytes_of.get(signature_of(chosen[0]))
    megabytes = {key: counted[key] / 1e6 * (len(gaps[key]) // len(chosen)) for key in totals} if counted else {}
    print(f"{len(steps)} steps of {len(kind)} kernels, {length:.0f} us a step")
    print("| kernel | launches | us a step | each | gap |" + (" MB | TB/s |" if counted else "") + " blocks x threads, KiB set |")
    for key, values in sorted(totals.items(), key=lambda item: -statistics.median(item[1])):
        n = len(gaps[key]) // len(chosen)
        total = statistics.median(values)
        blocks, threads, shared = shape[key]
        times = f"{total:.0f} | {total / n:.2f} | {statistics.median(gaps[key]):.2f}"
        traffic = f" {megabytes[key]:.1f} | {megabytes[key] / max(total, 1e-9):.2f} |" if counted else ""
        print(f"| {key} | {n} | {times} |{traffic} {blocks} x {threads}, {shared} |")
    if counted:
        total = sum(megabytes.values())
        busy = f"{total / length:.2f}, {total / length / arguments.rate:.0%} busy"
        print(f"| the step | {len(kind)} | {length:.0f} | - | - | {total:.1f} | {busy} | - |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", help="the file of tools/kernel_timeline.cpp")
    parser.add_argument("--steps", type=int, default=20, help="use so many of each kind, leave out kinds with fewer (20)")
    parser.add_argument("--skip", type=int, metavar="LAYERS", help="print ncu's --launch-skip for so many layers, at least 2")
    parser.add_argument("--bytes", metavar="FILE", help="ncu's counters of such steps")
    parser.add_argument("--rate", type=float, default=4.565, help="TB/s that memory can be read at (4.565: an H200's)")
    arguments = parser.parse_args()
    if arguments.skip:
        print(kernels_before(read_kernels(arguments.kernels), arguments.steps, arguments.skip))
        return
    kinds = collections.defaultdict(list)
    for step in split_steps(read_kernels(arguments.kernels))[1:]:
        kinds[kind_of(step)].append(step)
    bytes_of = read_bytes(arguments.bytes) if arguments.bytes else {}
    for kind, steps in kinds.items():
        if len(steps) >= arguments.steps:
            print_kind(kind, steps, bytes_of, arguments)


if __name__ == "__main__":
    main()
