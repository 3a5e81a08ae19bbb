#!/usr/bin/env python3
"""Writes the generated parts of docs/report/README.md, docs/results.md and README.md from bench/results.

    bench/report/fill.py                          rewrites what stands between the markers
    bench/report/fill.py --check                  1 if a document is not what the results say
    bench/report/fill.py --print offline cost     some parts, for other results (--results DIR) or prices (--price-per-hour)

A part stands between <!-- generated: NAME --> and <!-- end -->; tables.py has the names. figure-NAME is a link to
docs/report/figures/NAME.svg, so draw.py goes first; finding-NAME are sentences of findings.py.
"""

import argparse
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).resolve().parent))

import findings  # noqa: E402
import selection  # noqa: E402
import tables  # noqa: E402

PART = re.compile(r"(<!-- generated: ([a-z0-9_-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def figure(name, figures):
    """The link to a figure, or a sentence where nothing has been drawn yet."""
    path = figures / f"{name}.svg"
    return f"![{name.replace('_', ' ')}](figures/{path.name})" if path.exists() else "No figure yet: not measured."


def filled(text, folder, figures):
    """The document with its generated parts written again. Errors: KeyError for a part that has no table."""
    published = selection.Published(folder)

    def part(match):
        kind, _, name = match.group(2).partition("-")
        if kind == "figure":
            new = figure(name, figures)
        elif kind == "finding":
            new = textwrap.fill(findings.finding(name, folder), 118, break_long_words=False, break_on_hyphens=False)
        else:
            new = tables.block(match.group(2), folder, published)
        return f"{match.group(1)}{new}\n{match.group(3)}"

    return PART.sub(part, text)


DOCUMENTS = [ROOT / "docs" / "report" / "README.md", ROOT / "docs" / "results.md", ROOT / "README.md"]


def main():
    parser = argparse.ArgumentParser(description="Writes the generated parts of the report, docs/results.md and README.md")
    parser.add_argument("--results", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--document", type=Path, nargs="+", default=DOCUMENTS)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--print", nargs="+", metavar="NAME", help=f"parts: {', '.join([*tables.BLOCKS, *tables.WHOLE])}")
    parser.add_argument("--price-per-hour", type=float, default=3.0, help="of the GPU, for the part cost (default: 3.00)")
    arguments = parser.parse_args()
    if arguments.print:
        folder = arguments.results
        published = selection.Published(folder if (folder / selection.PUBLISHED).exists() else ROOT / "bench" / "results")
        for name in arguments.print:
            more = {"price_per_hour": arguments.price_per_hour} if name == "cost" else {}
            print(tables.block(name, folder, published, **more) + "\n")
        return 0
    n_parts, stale = 0, []
    for document in arguments.document:
        text = document.read_text(encoding="utf-8")
        wanted = filled(text, arguments.results, document.parent / "figures")
        n_parts += len(PART.findall(text))
        if wanted != text:
            stale.append(document)
            if not arguments.check:
                document.write_text(wanted, encoding="utf-8")
    if not arguments.check:
        print(f"report: {n_parts} parts written")
        return 0
    for document in stale:
        print(f"{document}: not what the results say; run bench/report/fill.py")
    if not stale:
        print("report: its tables are those of the results")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
