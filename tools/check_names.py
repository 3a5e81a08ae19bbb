#!/usr/bin/env python3
"""Checks that no two headers of src/ define the same name in the same namespace: types, aliases and constants; and that no
source file defines one of a header of its layer in an anonymous namespace.

    tools/check_names.py [ROOT]

Two layers share the namespace baton, and no compiler sees both definitions if no file includes both headers. Files that are
compiled in one group share their anonymous namespaces, whose names hide those of headers in the other files of the group,
without a warning. Prints one line for each pair and exits 1, or one line and exits 0. Needs only Python's standard library.
Functions may be overloaded, so they are not compared.
"""

import re
import sys
from pathlib import Path

SUFFIXES = {".h", ".cuh"}
OPENED = re.compile(r"^namespace (?:([\w:]+) )?\{")
CLOSED = re.compile(r"^\}  // namespace")
DEFINED = [
    re.compile(r"^(?:struct|class|union|enum class) (\w+)\b(?!::|<|[^{]*;)"),
    re.compile(r"^using (\w+) ="),
    re.compile(r"^(?:inline )?constexpr [\w:<>, ]+[ &*](k\w+)(?:\[[^]]*\])* ?[={]"),
]


def names_of(path):
    """(namespace, name, line number) of what a file defines; members are indented and so none of them. An anonymous namespace
    is "" at the end."""
    namespaces = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if opened := OPENED.match(line):
            namespaces.append(opened.group(1) or "")
        elif CLOSED.match(line) and namespaces:
            namespaces.pop()
        else:
            for pattern in DEFINED:
                if match := pattern.match(line):
                    yield "::".join(namespaces), match.group(1), number


def layer_of(shown):
    """The files that may be compiled in one group."""
    folders = shown.split("/")[1:-1]
    return "/".join(folders[:2]) if folders[:2] == ["kernels", "cuda"] else folders[0]


def hidden_names(root, first):
    """A line for each name of a header that an anonymous namespace of its layer defines too."""
    for source in sorted((root / "src").rglob("*.cpp")):
        shown = source.relative_to(root).as_posix()
        for namespace, name, number in names_of(source):
            header = first.get((namespace.removesuffix("::"), name)) if namespace.endswith("::") else None
            if header is not None and layer_of(header) == layer_of(shown):
                yield f"{shown}:{number}: {name} hides that of {header} in files that are compiled together with this one"


def main(arguments):
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    headers = sorted(path for path in (root / "src").rglob("*") if path.suffix in SUFFIXES)
    if not headers:
        print(f"check_names: no headers in {root / 'src'}")
        return 1
    first = {}
    n_faults = 0
    for header in headers:
        shown = header.relative_to(root).as_posix()
        for namespace, name, number in names_of(header):
            before = first.setdefault((namespace, name), shown)
            if before != shown:
                print(f"{shown}:{number}: {namespace}::{name} is defined in {before} too")
                n_faults += 1
    hidden = list(hidden_names(root, first))
    for line in hidden:
        print(line)
    if n_faults or hidden:
        return 1
    print(f"check_names: {len(first)} names in {len(headers)} headers, each defined once")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
