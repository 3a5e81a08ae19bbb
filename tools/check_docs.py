#!/usr/bin/env python3
"""Checks that documents name what exists: files and folders in backticks and links, and targets of the Makefile; and that comments
of sources cite no document that is not in the tree.

    tools/check_docs.py [ROOT]

Looks at the Markdown files that git knows (all of them where there is no git). Prints one line for each name that leads nowhere
and exits 1, or one line and exits 0. Needs only Python's standard library.
"""

import re
import subprocess
import sys
from pathlib import Path

BACKTICKS = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
PATH = re.compile(r"[\w.*-]+(/[\w.*{},-]+)*/?")
MAKE = re.compile(r"\bmake ([a-z0-9]+)\b")
TARGET = re.compile(r"^\.?([a-z0-9]+):", re.MULTILINE)
# Made by commands, or named as a form to fill in: build/..., NAME.json, x_test.cpp.
NOT_IN_TREE = re.compile(r"^build/|[A-Z]{3,}(?!\.md$|$)|\bx_")
CITED = re.compile(r"[\w./-]+\.md\b")
SOURCES = {".h", ".cpp", ".cu", ".cuh"}
SUFFIXES = (".md", ".py", ".h", ".cpp", ".cu", ".cuh", ".txt", ".json", ".jsonl", ".toml", ".cmake", ".supp", ".log")


def documents(root):
    listed = subprocess.run(["git", "-C", root, "ls-files", "*.md"], capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        return [root / name for name in listed.stdout.split() if (root / name).exists()]
    return sorted(root.rglob("*.md"))


def sources(root):
    """The files whose comments may cite documents."""
    return sorted(path for path in (root / "src").rglob("*") if path.suffix in SOURCES) if (root / "src").is_dir() else []


def braces(name):
    """The names that a pattern like log.{h,cpp} stands for."""
    match = re.search(r"\{([^}]*)\}", name)
    if not match:
        return [name]
    return [full for part in match.group(1).split(",") for full in braces(name[: match.start()] + part + name[match.end() :])]


def exists(root, document, name):
    """Whether a name, from the root, from src/ or from the document's folder, leads somewhere; * stands for anything."""
    return any(any(folder.glob(name.strip("/"))) for folder in (root, root / "src", document.parent))


def is_path(root, name):
    """Whether a word in backticks names a file of the tree, rather than a URL path, a command or a model's name."""
    if not PATH.fullmatch(name) or NOT_IN_TREE.search(name):
        return False
    first = name.split("/")[0]
    in_tree = "/" in name and any((folder / first).is_dir() for folder in (root, root / "src"))
    return in_tree or name.endswith(SUFFIXES) and "/" in name


def check_document(root, document, targets):
    where = document.relative_to(root).as_posix()
    for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), start=1):
        for word in BACKTICKS.findall(line):
            for name in word.split():
                for full in braces(name):
                    if is_path(root, full) and not exists(root, document, full):
                        yield f"{where}:{number}: `{full}` does not exist"
            for target in MAKE.findall(word):
                if target not in targets:
                    yield f"{where}:{number}: `make {target}` is not a target of the Makefile"
        for link in LINK.findall(line):
            if "://" not in link and not link.startswith("mailto:") and not exists(root, document, link):
                yield f"{where}:{number}: the link to {link} leads nowhere"


def check_source(root, source):
    where = source.relative_to(root).as_posix()
    for number, line in enumerate(source.read_text(encoding="utf-8").splitlines(), start=1):
        comment = line.partition("//")[2]
        for name in CITED.findall(comment):
            if not exists(root, source, name):
                yield f"{where}:{number}: the comment cites {name}, which does not exist"


def main(arguments):
    root = Path(arguments[0] if arguments else Path(__file__).resolve().parent.parent).resolve()
    makefile = root / "Makefile"
    targets = set(TARGET.findall(makefile.read_text(encoding="utf-8"))) if makefile.exists() else set()
    found = documents(root)
    wrong = [line for document in found for line in check_document(root, document, targets)]
    wrong += [line for source in sources(root) for line in check_source(root, source)]
    for line in wrong:
        print(line)
    if wrong:
        print(f"check_docs: {len(wrong)} names lead nowhere")
        return 1
    print(f"check_docs: {len(found)} documents, every file and target they name exists")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
