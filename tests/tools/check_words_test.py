"""Proves that tools/check_words.py can fail: a good tree passes, and each word is found where readers read it, and not in code."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CHECK = Path(__file__).resolve().parents[2] / "tools/check_words.py"

GOOD = {
    "src/a.cpp": '#include "behind/nobody.h"\n/// Clients who wait behind a proxy.\nint behind = nobody(claim); // dot products\n',
    "tests/a_test.cpp": 'TEST(A, reads_what_follows) { EXPECT_EQ(behind, "after"); }\n',
    "tools/a.py": '"""Reads a file."""\nbehind = nobody + claim\n',
    "docs/a.md": "# A\n`behind` [here](behind.md)\n\n    code behind\n\n```\nnobody\n```\n",
}

# A file, a line that is added to it, and what must be said.
SEEDED = [
    ("src/a.cpp", "// The text behind the answer.", "src/a.cpp:4: 'behind' (after,"),
    ("src/a.cpp", 'const char* k = "the tokens behind it";', "src/a.cpp:4: 'behind'"),
    ("src/a.cpp", "/// Those that wait.", "'Those that' (the noun)"),
    ("src/a.cpp", "/// Nobody reads it.", "'Nobody' (no client, no thread, nothing"),
    ("src/a.cpp", "/// Frees it, whoever asks.", "'whoever'"),
    ("src/a.cpp", "/// The thread who waits.", "'who' (which"),
    ("src/a.cpp", "/// Two products of 16 rows.", "'products' (matmuls"),
    ("src/a.cpp", "/// Ends a fill.", "'a fill' (prefill)"),
    ("src/a.cpp", "/// The claim of a leaf.", "'claim' (priority"),
    ("src/a.cpp", "/// It goes on with the next.", "'goes on' (continues)"),
    ("src/a.cpp", "/// Deleting takes its prompt along.", "'takes its prompt along' (includes"),
    ("src/a.cpp", "/// Begins anew.", "'anew' (again)"),
    ("src/a.cpp", "/// A text that is no object.", "'is no ' (is not a)"),
    ("src/a.cpp", "/// Replays a recording.", "'recording' (captured graph)"),
    ("tests/a_test.cpp", "TEST(A, nobody_waits) {}", "tests/a_test.cpp:2: 'nobody'"),
    ("tools/a.py", "x = 1  # the row behind it", "tools/a.py:3: 'behind'"),
    ("tools/a.py", '"""Goes on."""', "tools/a.py:3: 'Goes on'"),
    ("tools/a.py", "def test_nobody_waits(): pass", "tools/a.py:3: 'nobody'"),
    ("docs/a.md", "The rows behind it.", "docs/a.md:9: 'behind'"),
]


def run_check(files, *arguments):
    with tempfile.TemporaryDirectory() as root:
        for name, text in files.items():
            path = Path(root) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        command = [sys.executable, "-B", CHECK, *arguments]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


class CheckWords(unittest.TestCase):
    def test_a_good_tree_passes(self):
        status, said = run_check(GOOD, ".")
        self.assertEqual(status, 0, said)
        self.assertIn("4 files", said)

    def test_each_word_is_found(self):
        for name, line, expected in SEEDED:
            with self.subTest(file=name, line=line):
                status, said = run_check({**GOOD, name: GOOD[name] + line + "\n"}, ".")
                self.assertEqual(status, 1, said)
                self.assertIn(expected, said)
                self.assertIn("1 hits", said)

    def test_only_the_given_paths_are_read(self):
        files = {**GOOD, "src/b.h": "/// Nobody.\n"}
        self.assertEqual(run_check(files, "docs", "src/a.cpp")[0], 0)
        self.assertEqual(run_check(files, "src")[0], 1)


if __name__ == "__main__":
    unittest.main()
