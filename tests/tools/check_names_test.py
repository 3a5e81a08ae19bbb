"""Proves that tools/check_names.py can fail: a good tree passes, and each name that two headers define is found."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CHECK = Path(__file__).resolve().parents[2] / "tools/check_names.py"

HEADER = """#pragma once
namespace baton {{
{text}
}}  // namespace baton
"""

GOOD = {
    "src/core/a.h": HEADER.format(
        text="class Later;\nstruct One {\n  struct Row {};\n};\ninline constexpr std::int32_t kMost = 1;\nint to_string(int);"
    )
    + "template <>\nstruct std::hash<baton::One> {};\n",
    "src/engine/b.h": HEADER.format(text="struct One;\nstruct Two {\n  struct Row {};\n};\nint to_string(long);")
    + "template <>\nstruct std::hash<baton::Two> {};\n",
    "src/jinja/c.h": "namespace baton::jinja {\nstruct One {};\n}  // namespace baton::jinja\n",
}


def run_check(files):
    with tempfile.TemporaryDirectory() as root:
        for name, text in files.items():
            path = Path(root) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return subprocess.run([sys.executable, CHECK, root], capture_output=True, text=True, check=False)


class CheckNames(unittest.TestCase):
    def test_a_good_tree_passes(self):
        done = run_check(GOOD)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_each_kind_of_second_definition_is_found(self):
        seeded = [
            ("One", "struct One {};"),
            ("One", "using One = int;"),
            ("One", "enum class One : int { a };"),
            ("kMost", "inline constexpr std::size_t kMost = 2;"),
        ]
        for name, text in seeded:
            with self.subTest(text):
                done = run_check(GOOD | {"src/server/d.h": HEADER.format(text=text)})
                self.assertEqual(done.returncode, 1)
                self.assertIn(f"src/server/d.h:3: baton::{name} is defined in src/core/a.h too", done.stdout)

    def test_a_name_of_a_header_in_an_anonymous_namespace_of_its_layer_is_found(self):
        text = "namespace baton {\nnamespace {\nconstexpr int kMost = 2;\nstruct Row {};\n}  // namespace\n}  // namespace baton\n"
        done = run_check(GOOD | {"src/core/limits/e.cpp": text})
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout.count("hides"), 1)
        self.assertIn("src/core/limits/e.cpp:3: kMost hides that of src/core/a.h in files", done.stdout)
        for place in ("src/server/e.cpp", "src/kernels/cuda/e.cpp"):
            self.assertEqual(run_check(GOOD | {place: text}).returncode, 0, "another layer")
        other = text.replace("namespace baton", "namespace baton::other")
        self.assertEqual(run_check(GOOD | {"src/core/e.cpp": other}).returncode, 0, "another namespace")

    def test_an_empty_tree_fails(self):
        self.assertEqual(run_check({"src/a.txt": ""}).returncode, 1)


if __name__ == "__main__":
    unittest.main()
