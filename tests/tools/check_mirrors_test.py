"""Proves that tools/check_mirrors.py can fail: a good tree passes, and each missing counterpart in it is found."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CHECK = Path(__file__).resolve().parents[2] / "tools/check_mirrors.py"

CASE = "TEST(Norm, divides_by_the_root_mean_square) { norm(backend, {}); }\n"
GOOD = {
    "src/apps/main.cpp": "",
    "src/bench/main.cpp": "",
    "src/kernels/ops.h": "void norm(Backend& backend, const NormArgs& args);\n",
    "src/kernels/ops.cpp": "void norm(Backend& backend, const NormArgs& args) {}\n",
    "src/kernels/backend.h": "  virtual void norm(const NormArgs& args) = 0;\n",
    "src/kernels/cpu/norm.cpp": "void CpuBackend::norm(const NormArgs& args) {}\n",
    "src/io/file.cpp": "",
    "tests/CMakeLists.txt": "baton_tests(kernels LINK baton_cpu)\nbaton_tests(io LINK baton_io)\n",
    "tests/kernels/norm_test.cpp": CASE,
    "tests/kernels/ops_test.cpp": CASE,
    "tests/io/file_test.cpp": CASE,
}
MORE_SOURCES = {
    **GOOD,
    "src/io/file_mapped.cpp": "",
    "src/io/page.cpp": "",
    "src/io/hub/url.cpp": "",
    "tests/io/hub/url_test.cpp": CASE,
    "tests/io/file_test.cpp": '#include "io/page.h"\n' + CASE,
}
WITH_CUDA = {
    **GOOD,
    "src/kernels/cuda/norm.cu": "void CudaBackend::norm(const NormArgs& args) {}\n",
    "src/kernels/cuda/warp.cuh": "",
}

# Files changed or removed (None) in a good tree, and what must be said.
SEEDED = [
    (GOOD, {"src/kernels/ops.cpp": ""}, "src/kernels/ops.cpp: operation norm"),
    (GOOD, {"src/kernels/backend.h": ""}, "src/kernels/backend.h: operation norm"),
    (GOOD, {"src/kernels/cpu/norm.cpp": ""}, "src/kernels/cpu/*: operation norm"),
    (GOOD, {"tests/kernels/norm_test.cpp": "TEST(A, b) {}\n", "tests/kernels/ops_test.cpp": "TEST(A, b) {}\n"},
     "tests/kernels/*_test.cpp: operation norm"),
    (GOOD, {"src/kernels/ops.h": ""}, "declares no operation"),
    (WITH_CUDA, {"src/kernels/cuda/norm.cu": ""}, "src/kernels/cuda/*: operation norm"),
    (GOOD, {"tests/io/file_test.cpp": None}, "src/io/file.cpp: has no file_test.cpp"),
    (MORE_SOURCES, {"tests/io/file_test.cpp": CASE}, "src/io/page.cpp: has no page_test.cpp"),
    (MORE_SOURCES, {"src/io/hub/reply.cpp": ""}, "src/io/hub/reply.cpp: has no reply_test.cpp in tests/io/hub"),
    (GOOD, {"tests/io/hub/files.cpp": ""}, "tests/io/hub/files.cpp: is not named *_test.cpp"),
    (MORE_SOURCES, {"src/io/filemap.cpp": ""}, "src/io/filemap.cpp: has no filemap_test.cpp"),
    (GOOD, {"tests/io/file_test.cpp": "int nothing;\n"}, "tests/io/file_test.cpp: holds no test case"),
    (GOOD, {"tests/text/bpe_test.cpp": CASE}, "has no baton_tests(text ...)"),
    (GOOD, {"tests/text/deep/bpe_test.cpp": CASE}, "has no baton_tests(text ...)"),
    (GOOD, {"tests/io/deep/bpe_test.cpp": CASE, "tests/io/deep/files.cpp": ""}, "tests/io/deep/files.cpp: is not named *_test.cpp"),
    (GOOD, {"tests/io/files.cpp": ""}, "tests/io/files.cpp: is not named *_test.cpp"),
    (GOOD, {"src/apps/main.cpp": None}, "src/apps/main.cpp on the list UNTESTED does not exist"),
    (GOOD, {"src/text/jinja_lexer.cpp": ""}, "src/text/jinja_lexer.cpp: has no jinja_lexer_test.cpp"),
    (GOOD, {"tests/apps/main_test.cpp": CASE, "tests/CMakeLists.txt": GOOD["tests/CMakeLists.txt"] + "baton_tests(apps)\n"},
     "take it off the list UNTESTED"),
]


def run_check(files):
    with tempfile.TemporaryDirectory() as root:
        for name, text in files.items():
            if text is None:
                continue
            path = Path(root) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, CHECK, root], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


class CheckMirrors(unittest.TestCase):
    def test_good_trees_pass(self):
        for tree in (GOOD, MORE_SOURCES, WITH_CUDA):
            status, said = run_check(tree)
            self.assertEqual(status, 0, said)

    def test_each_missing_counterpart_is_found_and_named(self):
        for tree, changes, expected in SEEDED:
            with self.subTest(expected=expected):
                status, said = run_check({**tree, **changes})
                self.assertEqual(status, 1, said)
                self.assertIn(expected, said)


if __name__ == "__main__":
    unittest.main()
