#!/usr/bin/env python3
"""Checks that the pictures of folders in ARCHITECTURE.md show the includes of the code, no more and no less.

    tools/check_picture.py [--print FOLDER] [ROOT]

A picture is a Mermaid block whose first line is `graph TD` and whose second is `%% includes of FOLDER`: src for the
layers, or a layer such as src/server for its rooms. An arrow A --> B says that files of A include files of B. Arrows
that follow from others are left out: where A includes B and B includes C, the picture needs no arrow from A to C.

Prints one line for each arrow that is missing or wrong and exits 1, or one line and exits 0. --print writes a picture from the
code instead. Needs only Python's standard library.
"""

import argparse
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import check_layers  # noqa: E402

PICTURE = re.compile(r"```mermaid\ngraph TD\n\s*%% includes of (\S+)\n(.*?)```", re.DOTALL)
NODE = re.compile(r"([\w-]+)(?:\[([^\]]+)\])?")


def node_of(path, folder):
    """The box of a picture of `folder` that a file belongs to, or None: its layer, or its room of that layer."""
    layer = check_layers.layer_of(path)
    if folder == "src" or layer is None:
        return layer
    return check_layers.room_of(layer, path) or layer if f"src/{layer}" == folder else None


def includes_of(src, folder):
    """(nodes, arrows) of the code; each arrow with a file that includes along it."""
    nodes, arrows = set(), {}
    for path in sorted(path for path in src.rglob("*") if path.suffix in check_layers.SUFFIXES):
        name = path.relative_to(src).as_posix()
        here = node_of(name, folder)
        if here is None:
            continue
        nodes.add(here)
        for line in path.read_text(encoding="utf-8").splitlines():
            match = check_layers.QUOTED_INCLUDE.match(line)
            there = node_of(match.group(1), folder) if match else None
            if there not in (None, here):
                arrows.setdefault((here, there), name)
    return nodes, arrows


def leads(arrows, begin, end):
    """Whether `end` can be reached from `begin` in two steps or more."""
    waiting, seen = [there for here, there in arrows if here == begin and there != end], set()
    while waiting:
        node = waiting.pop()
        if node == end:
            return True
        if node not in seen:
            seen.add(node)
            waiting += [there for here, there in arrows if here == node]
    return False


def drawn(text):
    """(nodes, arrows) of a picture's text."""
    names, arrows = {}, set()
    for line in text.splitlines():
        steps = [
            [names.setdefault(found.group(1), found.group(2) or found.group(1)) for found in NODE.finditer(part)]
            for part in line.split("-->")
        ]
        for before, after in zip(steps, steps[1:], strict=False):
            arrows |= {(here, there) for here in before for there in after}
    return set(names.values()), arrows


def check(src, folder, text):
    """What is wrong about one picture."""
    nodes, arrows = includes_of(src, folder)
    needed = {arrow for arrow in arrows if not leads(arrows, *arrow)}
    shown_nodes, shown = drawn(text)
    for node in sorted(nodes - shown_nodes):
        yield f"{folder}: the picture lacks {node}"
    for node in sorted(shown_nodes - nodes):
        yield f"{folder}: the picture shows {node}, which is not a folder of the code"
    for here, there in sorted(needed - shown):
        yield f"{folder}: the picture lacks {here} --> {there} ({arrows[here, there]})"
    for here, there in sorted(shown - needed):
        why = "follows from other arrows" if (here, there) in arrows else "no file includes along"
        yield f"{folder}: the picture shows {here} --> {there}, which {why}"


def picture(src, folder):
    """The text of a picture of the code."""
    nodes, arrows = includes_of(src, folder)
    ids = {node: re.sub(r"\W", "_", node) for node in nodes}
    lines = ["graph TD", f"  %% includes of {folder}", *(f"  {ids[node]}[{node}]" for node in sorted(nodes) if ids[node] != node)]
    for here in sorted(nodes):
        after = sorted(ids[end] for begin, end in arrows if begin == here and not leads(arrows, begin, end))
        lines += [f"  {ids[here]} --> {' & '.join(after)}"] if after else []
    return "\n".join(lines)


def main(arguments):
    parser = argparse.ArgumentParser(description="Compares ARCHITECTURE.md's pictures of folders with the code")
    parser.add_argument("--print", metavar="FOLDER", help="write a picture of src or of a layer such as src/server")
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parent.parent)
    options = parser.parse_args(arguments)
    src = options.root / "src"
    if options.print:
        print(picture(src, options.print))
        return 0
    pictures = PICTURE.findall((options.root / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    wrong = [f"ARCHITECTURE.md: {line}" for folder, text in pictures for line in check(src, folder, text)]
    if "src" not in dict(pictures):
        wrong.append("ARCHITECTURE.md: has no picture of src")
    for line in wrong:
        print(line)
    if wrong:
        print("check_picture: `tools/check_picture.py --print FOLDER` draws a picture of the code")
        return 1
    print(f"check_picture: {len(pictures)} pictures of folders, as the includes of the code are")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
