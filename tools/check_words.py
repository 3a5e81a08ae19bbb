#!/usr/bin/env python3
"""Checks the words of comments, messages, help texts, test names and documents against the house style (CONTRIBUTING.md).

    tools/check_words.py [PATH...]

A row of WORDS has a pattern, what may stand in its place, and exceptions: texts in which the word is right. PATH is a file or a
folder; without one, every file that git knows is read, except those of SKIPPED. The check reads comments, strings and names of
tests in C++, JavaScript and Python, and Markdown outside of code. It does not read other identifiers, nor strings without a space.

Prints one line for each hit and exits 1, or one line and exits 0. Needs only Python's standard library.
"""

import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

# (pattern, what to say instead, texts in which it is right)
WORDS = [
    (
        r"\bbehind\b",
        "after, for, below, on top of",
        r"behind ([\w'-]+ ){0,5}(proxy|proxies|server|router|balancer|mutex|lock|Ray Serve|service|ingress|gateway)\b"
        r"|behind ([\w'-]+ ){0,5}(prompts?|prefix(es)?|catalogue)\b"
        r"|(left|stays?|leaves?) (\w+ ){0,3}behind|Look-behind|(fall|move)\w* behind",
    ),
    (r"\bthose (that|who|which)\b", "the noun", None),
    (r"\bnobody\b", "no client, no thread, nothing: the noun", None),
    (r"\b(somebody|whoever)\b", "the caller, the thread, the client: the noun", None),
    (
        r"\bwho\b",
        "which, or the noun; who is for people",
        r"^\W*who are you|\b(people|person|users?|operators?|readers?|clients?"
        r"|strangers?|authors?|anyone|who does what) who\b|\bwho does what\b",
    ),
    (
        r"\bproducts\b",
        "matmuls, GEMMs",
        r"\b(dot|inner|outer|scalar|cross|partial|exact) products\b|products of (the )?(catalogue|shop|magnitude)"
        r"|products (in f32|and minimi|accept)|products, minimi|two more products|products that overflow",
    ),
    (r"\bfills? of\b|\b(a|the|its|each) fill\b(?! character)|\bfills\b(?= (end|begin|run|wait))", "prefill", None),
    (r"\bclaim(s|ed)?\b", "priority, need; say, state", r"\b(no|any|the|a) claims? (that|to be|beyond|without)\b"),
    (r"\b(goes|go|going|went|gone) on\b", "continues", r"\b(goes|go) on (a|the|standard)\b|^\W*go on\W*$"),
    (r"\b(takes?|took|taking) along\b|\btakes its \w+ along\b", "includes, removes too", None),
    (r"\banew\b", "again", None),
    (r"\bcrew\b", "thread pool", None),
    (r"\brecordings?\b|\brecorded graphs?\b", "captured graph", r"recording rules?"),
    (r"\bis no (?=(call|flag|folder|integer|object|rank|string|token|tool|type)\b)", "is not a", r"\bthere is no "),
    (r"\bas (it|they) likes?\b", "freely", None),
]
COMPILED = [(re.compile(word, re.IGNORECASE), say, right and re.compile(right, re.IGNORECASE)) for word, say, right in WORDS]

# Recorded bytes, raw results, experiments, and the table itself.
SKIPPED = re.compile(
    r"bench/results/|docs/report/|tests/goldens/|tests/fuzz/seeds/|models/|workshop/|CONTRIBUTING\.md|tools/(demo_model|goldens)/"
    r"|(tests/)?tools/check_words"
)
C_LIKE = {".h", ".cpp", ".cu", ".cuh", ".js"}
C_TEXT = re.compile(r'//(.*)|"((?:[^"\\]|\\.)*)"' + r"|'(?:[^'\\]|\\.)'")
TEST_NAME = re.compile(r"^\s*(?:TEST\w*\((?:\w+, )?|def (?=test_))(\w+)")
EXPRESSION = re.compile(r"\{[^{}]*\}")  # of an f-string
INLINE_CODE = re.compile(r"`[^`]*`|\]\([^)]*\)")


def words(string):
    """A string, or nothing where it is one word: a name or data."""
    return string if " " in string.strip() else ""


def c_texts(text):
    """(line number, text) of comments, strings and names of tests."""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("#include"):
            continue
        for match in C_TEXT.finditer(line):
            yield number, INLINE_CODE.sub("", match.group(1)) if match.group(1) else words(match.group(2) or "")
        if match := TEST_NAME.match(line):
            yield number, match.group(1).replace("_", " ")


def python_texts(text):
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            for number, line in enumerate(token.string.splitlines(), start=token.start[0]):
                yield number, EXPRESSION.sub("", line if token.type == tokenize.COMMENT else words(line))
    for number, line in enumerate(text.splitlines(), start=1):
        if match := TEST_NAME.match(line):
            yield number, match.group(1).replace("_", " ")


def markdown_texts(text):
    is_code = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("```"):
            is_code = not is_code
        elif not is_code and not line.startswith("    "):
            yield number, INLINE_CODE.sub("", line)


def hash_texts(text):
    yield from enumerate(text.splitlines(), start=1)


def texts(path):
    """(line number, text) of what a reader reads in a file."""
    content = path.read_text(encoding="utf-8")
    if path.suffix in C_LIKE:
        return c_texts(content)
    if path.suffix == ".py" or content.startswith("#!/usr/bin/env python3"):
        return python_texts(content)
    return markdown_texts(content) if path.suffix == ".md" else hash_texts(content)


def is_read(path):
    known = C_LIKE | {".py", ".md", ".html", ".cmake", ".yaml"}
    if path.suffix in known or path.name in ("Makefile", "CMakeLists.txt"):
        return True
    return path.suffix == "" and path.read_bytes()[:2] == b"#!"


def files(root, arguments):
    listed = subprocess.run(["git", "-C", root, "ls-files", "--", *arguments], capture_output=True, text=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        found = [root / name for name in listed.stdout.splitlines()]
    else:
        given = [root / argument for argument in arguments] or [root]
        found = [path for one in given for path in (sorted(one.rglob("*")) if one.is_dir() else [one])]
    named = {(root / argument).resolve() for argument in arguments}
    return [
        path
        for path in found
        if path.is_file() and is_read(path) and (path.resolve() in named or not SKIPPED.match(path.relative_to(root).as_posix()))
    ]


def hits(path):
    for number, text in texts(path):
        for word, say, right in COMPILED:
            for match in word.finditer(text):
                if right and any(one.start() <= match.start() < one.end() for one in right.finditer(text)):
                    continue
                yield number, match.group(0), say, text.strip()


def main(arguments):
    root = Path.cwd()
    if not arguments:
        root = Path(__file__).resolve().parent.parent
    found = files(root, arguments)
    n_hits = 0
    for path in found:
        for number, word, say, text in hits(path):
            n_hits += 1
            print(f"{path.relative_to(root).as_posix()}:{number}: '{word}' ({say}): {text}")
    if n_hits:
        print(f"check_words: {n_hits} hits in {len(found)} files")
        return 1
    print(f"check_words: {len(found)} files, nothing that the house style says otherwise")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
