#!/usr/bin/env python3
"""Checks mutexes and threads: what src/core/mutex.h says of locks holds, and every thread has a name.

    tools/check_locks.py [--build BUILD] [ROOT]

Always, from the text of src/ and python/src/: nothing but core/mutex.h uses the standard library's locks; each mutex is named by
an annotation; each thread that is started names itself, and ARCHITECTURE.md lists the name.

With --build (build/cpu-release, built once) also, by clang's thread-safety analysis (clang++-16 -fsyntax-only): each use of a
guarded member holds its mutex, each function is called with the locks that it requires, and locks are taken in their order. It
reads the sources that the build compiles and that see core/mutex.h.

Prints one line for each violation and exits 1, or what was checked and exits 0.
"""

import argparse
import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

MUTEX_HEADER = "core/mutex.h"
FOLDERS = ["src", "python/src"]
# Sources that only packaging builds; they compile as src/ does.
OTHER_SOURCES = ["python/src/local_model.cpp"]
MOST_NAME = 15  # bytes; the system cuts what is longer

STANDARD_LOCK = re.compile(
    r"#\s*include\s*<(?:mutex|shared_mutex|condition_variable)>"
    r"|\bstd::(?:(?:recursive_|timed_|shared_|recursive_timed_|shared_timed_)?mutex|scoped_lock|lock_guard|unique_lock|shared_lock"
    r"|condition_variable(?:_any)?|once_flag)\b"
)
MUTEX = re.compile(r"^\s*(?:mutable\s+)?Mutex&?\s+(\w+)\s*(?:BATON_\w+\([^)]*\)\s*)?;")
ANNOTATION = re.compile(r"BATON_(?:GUARDED_BY|REQUIRES|EXCLUDES|ACQUIRE|TRY_ACQUIRE|RELEASE)\(([^)]*)\)")
THREAD_START = re.compile(r"\bstd::j?thread\(\[|\b\w*(?:threads_|joining)\.emplace_back\(\[")
NAMED_THREAD = re.compile(r'\b(?:name_this_thread\(|thread_body\(|start_thread\([^;]*?|TaskThread \w+\{)"([^"]+)"')
QUOTED_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def sources(root):
    paths = (path for folder in FOLDERS for path in (root / folder).rglob("*") if path.suffix in {".h", ".cpp", ".cu", ".cuh"})
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in sorted(paths)}


def check_text(name, text, listed):
    """Violations of one file; `listed` is where names of threads must stand."""
    guards = set(re.findall(r"\w+", " ".join(ANNOTATION.findall(text))))
    for number, line in enumerate(text.splitlines(), start=1):
        if name == f"src/{MUTEX_HEADER}":
            break
        if found := STANDARD_LOCK.search(line):
            yield f"{name}:{number}: {found.group(0)} has no annotations; use core/mutex.h"
        if (found := MUTEX.match(line)) and found.group(1) not in guards:
            yield f"{name}:{number}: no annotation says what {found.group(1)} guards"
    n_started, n_named = len(THREAD_START.findall(text)), text.count("name_this_thread(")
    if n_started > n_named:
        yield f"{name}: {n_started} threads start here, and {n_named} name themselves (core/thread_name.h)"
    for thread in NAMED_THREAD.findall(text):
        if len(thread.encode()) > MOST_NAME:
            yield f"{name}: the thread's name '{thread}' has more than {MOST_NAME} bytes"
        if f"`{thread}`" not in listed:
            yield f"{name}: ARCHITECTURE.md does not list the thread `{thread}`"


def seeing_mutexes(files):
    """The files of src/ that include core/mutex.h, directly or not."""
    includes = {name: {f"src/{one}" for one in QUOTED_INCLUDE.findall(text)} for name, text in files.items()}
    seen = {f"src/{MUTEX_HEADER}"}
    while more := {name for name, included in includes.items() if name not in seen and included & seen}:
        seen |= more
    return seen


def commands(root, build, files):
    """(source, directory, clang's arguments) for what is to be analysed."""
    seen = seeing_mutexes(files)
    flags = []
    own = []
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        path = Path(entry["directory"], entry["file"]).resolve()
        words = shlex.split(entry["command"])
        flags = [word for word in words if re.match(r"-(D|I|std|m)", word)]
        flags += [word for at, one in enumerate(words[:-1]) if one == "-isystem" for word in (one, words[at + 1])]
        if path.is_relative_to(build / "src") and path.exists():  # several sources in one
            parts = {Path(one).resolve() for one in QUOTED_INCLUDE.findall(path.read_text(encoding="utf-8"))}
        else:
            parts = {path}
        names = {part.relative_to(root).as_posix() for part in parts if part.is_relative_to(root)}
        if names & seen and all(name.startswith("src/") for name in names):
            own = flags  # those of third-party sources in the build may be another compiler's
            yield path, entry["directory"], flags
    for name in OTHER_SOURCES:
        if name in files:
            yield root / name, root, [*own, f"-I{root}/src", f"-I{root}"]


def analyse(clang, command):
    path, directory, flags = command
    checks = ["-Wno-everything", "-Werror", "-Wthread-safety", "-Wthread-safety-beta"]
    done = subprocess.run(
        [clang, "-fsyntax-only", "-fno-caret-diagnostics", *flags, *checks, str(path)],
        cwd=directory,
        capture_output=True,
        text=True,
    )
    said = [line for line in done.stderr.splitlines() if re.search(r": (fatal )?error: ", line)]
    return said or [f"{path}: clang ended with {done.returncode}"] if done.returncode != 0 else []


def check_build(root, build, files):
    """(violations, a line that says what was analysed)."""
    clang = shutil.which("clang++-16") or shutil.which("clang++")
    if clang is None:
        return ["check_locks: no clang++-16; packaging/packages.txt names it"], ""
    if not (build / "compile_commands.json").exists():
        return [f"check_locks: {build} has no compile_commands.json; build it first"], ""
    todo = list(commands(root, build, files))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        violations = [line.replace(f"{root}/", "") for said in pool.map(lambda one: analyse(clang, one), todo) for line in said]
    if not todo:
        violations.append(f"check_locks: {build} compiles no source with a mutex")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return sorted(set(violations)), f"; analysed {len(todo)} units in {used.ru_utime + used.ru_stime:.0f} processor seconds"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, help="a build folder: also run clang's analysis over what it compiles")
    parser.add_argument("root", type=Path, nargs="?", default=Path(__file__).resolve().parent.parent)
    options = parser.parse_args()
    root = options.root.resolve()
    files = sources(root)
    document = root / "ARCHITECTURE.md"
    listed = document.read_text(encoding="utf-8") if document.exists() else ""
    violations = [one for name, text in files.items() for one in check_text(name, text, listed)]
    analysed = ""
    if options.build:
        found, analysed = check_build(root, options.build.resolve(), files)
        violations += found
    for violation in violations:
        print(violation)
    if violations:
        print(f"check_locks: {len(violations)} violations")
        return 1
    declared = [line for text in files.values() for line in text.splitlines() if MUTEX.match(line) and "Mutex&" not in line]
    n_threads = len({name for text in files.values() for name in NAMED_THREAD.findall(text)})
    print(f"check_locks: {len(declared)} mutexes with annotations, {n_threads} names of threads{analysed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
