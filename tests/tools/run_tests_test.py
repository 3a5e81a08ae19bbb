"""Proves that tools/run_tests says what ran: short and long tests, what fails, hangs or is not there, and the processor time."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

RUN_TESTS = Path(__file__).resolve().parents[2] / "tools/run_tests"

LONG = """add_test(good_long_test "/bin/true")
set_tests_properties(good_long_test PROPERTIES LABELS long)
"""
BUSY = f"""add_test(busy "{sys.executable}" -c "import time\nwhile time.process_time() < 1.2: pass")
"""
HANGS = """add_test(hangs "/bin/sleep" 60)
set_tests_properties(hangs PROPERTIES TIMEOUT 1)
"""


def run(tests, *arguments):
    with tempfile.TemporaryDirectory() as build:
        (Path(build) / "CTestTestfile.cmake").write_text(tests, encoding="utf-8")
        done = subprocess.run([RUN_TESTS, build, *arguments], capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    return done.returncode, lines[-1] if lines else "", done.stdout + done.stderr


class RunTests(unittest.TestCase):
    def test_leaves_long_tests_out_runs_them_alone_or_with_the_others(self):
        tests = 'add_test(a_test "/bin/true")\nadd_test(b_test "/bin/true")\n' + LONG
        cases = [((), 2), (("short",), 2), (("long",), 1), (("all",), 3), (("all", "^a"), 1), (("short", "^a|^good"), 1)]
        for arguments, n in cases:
            with self.subTest(arguments=arguments):
                status, last, said = run(tests, *arguments)
                self.assertEqual(status, 0, said)
                self.assertTrue(last.startswith(f"{n} tests ran, {n} passed, 0 failed: 0.0"), said)

    def test_counts_what_fails_hangs_or_is_not_there(self):
        tests = 'add_test(good "/bin/true")\nadd_test(bad "/bin/false")\nadd_test(absent "/no/such/program")\n' + HANGS
        status, last, said = run(tests)
        self.assertNotEqual(status, 0, said)
        self.assertTrue(last.startswith("3 tests ran, 1 passed, 2 failed, 1 could not run: "), said)
        for name in ("bad", "absent", "hangs"):
            self.assertRegex(said, rf"- {name} \(")

    def test_counts_the_processor_time_of_the_tests(self):
        status, last, said = run(BUSY)
        self.assertEqual(status, 0, said)
        minutes = float(last.split(": ")[1].split(" ")[0])
        self.assertGreaterEqual(minutes, 0.02, said)

    def test_says_when_nothing_ran_or_the_kind_is_unknown(self):
        status, last, said = run('add_test(good "/bin/true")\n', "long")
        self.assertNotEqual(status, 0, said)
        self.assertTrue(last.startswith("0 tests ran"), said)
        status, _, said = run('add_test(good "/bin/true")\n', "180")
        self.assertEqual(status, 2, said)
        self.assertIn("180 is not short, long or all", said)


if __name__ == "__main__":
    unittest.main()
