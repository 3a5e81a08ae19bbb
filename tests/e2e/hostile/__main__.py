"""`make hostile`: every case against a server of its own, and a table of what was seen; the exit code is 1 if anything was wrong.

    make hostile HOSTILE_FLAGS="--minutes 1 --only stalled --report FILE"

Cases marked as such run again with 2.5 GB of address space and in a control group of 3 GB, with the server's default budgets.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

from conftest import BINARY

from hostile import grammar_cases, key_cases, load_cases, program_cases, request_cases, text_cases, tool_cases
from hostile.arena import Row, Settings, run_case
from hostile.floods import allow_files

CONFINEMENTS = ("none", "address space", "control group")
CASES = [
    *load_cases.CASES,
    *request_cases.CASES,
    *text_cases.CASES,
    *tool_cases.CASES,
    *grammar_cases.CASES,
    *program_cases.CASES,
    *key_cases.CASES,
]
HEADINGS = ["case", "requests", "most resident", "/health p99", "max", "verdict"]


def table(rows: list[Row]) -> str:
    """The rows as a Markdown table."""
    cells = [HEADINGS, *(row.cells() for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(HEADINGS))]
    lines = [f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |" for line in cells]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def machine() -> str:
    """Processor, cores and system."""
    names = [line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    return f"{names[0] if names else platform.machine()}, {len(names)} threads, {platform.system()} {platform.release()}"


def main() -> int:
    """Return 0 if nothing was wrong."""
    parser = argparse.ArgumentParser(prog="hostile", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="of the vanishing clients (default: 10)")
    parser.add_argument("--only", default="", help="run the cases whose name contains this")
    parser.add_argument("--confine", choices=[*CONFINEMENTS, "all"], default="all", help="limits of memory (default: all)")
    parser.add_argument("--health-ms", type=float, default=250, help="limit of 99%% of the answers to /health (default: 250)")
    parser.add_argument(
        "--slow-factor",
        type=float,
        default=1,
        help="multiplies the time limits of clients and checks, --health-ms included, for a server that is slow by "
        "itself: 10 under asan, 20 under tsan (default: 1)",
    )
    parser.add_argument(
        "--memory-factor",
        type=float,
        default=1,
        help="multiplies how much memory may be resident, for a server that keeps notes on its memory: 3 under tsan (default: 1)",
    )
    parser.add_argument("--quick", action="store_true", help="floods of 10 seconds, and no wait for the deadlines of bodies")
    parser.add_argument("--report", type=pathlib.Path, help="file for everything that was seen, in JSON")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    options = parser.parse_args()
    for flag, factor in {"--slow-factor": options.slow_factor, "--memory-factor": options.memory_factor}.items():
        if not factor >= 1:
            parser.error(f"{flag} is {factor:g}; it is at least 1")
    cases = [case for case in CASES if options.only in case.name]
    if options.list:
        print("\n".join(case.name for case in cases))
        return 0
    allow_files()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="baton-hostile-"))
    version = subprocess.run([BINARY, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    print(f"{version}\n{machine()}; logs in {folder}", flush=True)
    rows: list[Row] = []
    for confinement in CONFINEMENTS if options.confine == "all" else (options.confine,):
        confined = "" if confinement == "none" else confinement
        for case in cases:
            if confined and not case.is_confined:
                continue
            begin = time.monotonic()
            settings = Settings(options.health_ms, options.minutes, options.quick, options.slow_factor, options.memory_factor)
            row = run_case(case, folder / f"{len(rows) + 1}", confined, settings)
            rows.append(row)
            print(f"{row.case}: {row.cells()[-1]} ({time.monotonic() - begin:.0f} s)", flush=True)
            for note in row.notes:
                print(f"  {note}")
            for fault in row.faults[:20]:
                print(f"  FAULT: {fault[:300]}")
            if len(row.faults) > 20:
                print(f"  and {len(row.faults) - 20} more faults")
            sys.stdout.flush()
    if options.report:
        seen = {"version": version, "machine": machine(), "options": vars(options), "rows": list(map(dataclasses.asdict, rows))}
        options.report.write_text(json.dumps(seen, default=str, indent=1) + "\n")
    print(f"\n{table(rows)}")
    n_faults = sum(len(row.faults) for row in rows)
    print(f"\n{len(rows)} cases, {n_faults or 'no'} faults")
    return 1 if n_faults else 0


if __name__ == "__main__":
    sys.exit(main())
