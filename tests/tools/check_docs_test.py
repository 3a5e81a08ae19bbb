"""Proves that tools/check_docs.py can fail: a good document passes, and each name that leads nowhere is found."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CHECK = Path(__file__).resolve().parents[2] / "tools/check_docs.py"

GOOD = """# Title
`src/io/file.h`, `src/io/*.h`, `src/io/file.{h,cpp}`, `io/file.h`, `build/cpu-release/bin/baton`, `bench/shapes/NAME/config.json`,
`make test`, `/v1/models`, `GET /health`, `application/json`, `tests/io`, [the licence](LICENSE), [far away](https://a.example/b).
"""
TREE = {"Makefile": "test: build\n", "LICENSE": "", "src/io/file.h": "", "src/io/file.cpp": "", "tests/io/file_test.cpp": ""}

# A line added to the document, and what must be said.
SEEDED = [
    ("`src/io/absent.h`", "`src/io/absent.h` does not exist"),
    ("`io/absent.h`", "`io/absent.h` does not exist"),
    ("`src/io/file.{h,cu}`", "`src/io/file.cu` does not exist"),
    ("`tests/text/*.cpp`", "`tests/text/*.cpp` does not exist"),
    ("`docs/plan.md`", "`docs/plan.md` does not exist"),
    ("[the plan](plan.md)", "the link to plan.md leads nowhere"),
    ("`NO_INSTALL=1 make fly`", "`make fly` is not a target"),
]


def run_check(document):
    with tempfile.TemporaryDirectory() as root:
        for name, text in {**TREE, "README.md": document}.items():
            path = Path(root) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, CHECK, root], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


class CheckDocs(unittest.TestCase):
    def test_a_good_document_passes(self):
        status, said = run_check(GOOD)
        self.assertEqual(status, 0, said)
        self.assertIn("1 documents", said)

    def test_a_comment_that_cites_an_absent_document_is_found(self):
        TREE["src/io/file.cpp"] = "/// As docs/plan.md says.\n"
        try:
            status, said = run_check(GOOD)
        finally:
            TREE["src/io/file.cpp"] = ""
        self.assertEqual(status, 1, said)
        self.assertIn("src/io/file.cpp:1: the comment cites docs/plan.md", said)

    def test_each_name_that_leads_nowhere_is_found(self):
        for line, expected in SEEDED:
            with self.subTest(line=line):
                status, said = run_check(GOOD + line + "\n")
                self.assertEqual(status, 1, said)
                self.assertIn(expected, said)
                self.assertIn("README.md:4:", said)


if __name__ == "__main__":
    unittest.main()
