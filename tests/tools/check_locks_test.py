"""Proves that tools/check_locks.py can fail: a good tree passes, and each wrong use of a lock or a thread is found."""

import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHECK = ROOT / "tools/check_locks.py"
HAS_CLANG = shutil.which("clang++-16") or shutil.which("clang++")

HEADER = """#pragma once
#include "core/mutex.h"
namespace baton {
class Two {
 public:
  void set(int value) {
    const MutexLock lock(mutex_);
    set_locked(value);
    changed_.notify_all();
  }
  void wait();
  int value();
  void both();

 private:
  void set_locked(int value) BATON_REQUIRES(mutex_) { value_ = value; }

  Mutex mutex_;
  Mutex later_;
  Condition changed_;
  Mutex first_ BATON_ACQUIRED_BEFORE(mutex_);
  int value_ BATON_GUARDED_BY(mutex_) = 0;
  int other_ BATON_GUARDED_BY(later_) = 0;
  int sum_ BATON_GUARDED_BY(first_) = 0;
};
}  // namespace baton
"""
SOURCE = """#include "core/two.h"
#include <thread>
#include "core/thread_name.h"
namespace baton {
void Two::wait() {
  const MutexLock lock(mutex_);
  while (value_ == 0) changed_.wait(mutex_);
}
int Two::value() {
  MutexLock lock(mutex_);
  lock.unlock();
  {
    const MutexLock again(mutex_);
    const MutexUnlock meanwhile(mutex_);
  }
  if (mutex_.try_lock()) {
    const MutexLock held(mutex_, std::adopt_lock);
    return value_;
  }
  lock.lock();
  return value_;
}
void Two::both() {
  const MutexLock first(first_);
  const MutexLock lock(mutex_);
  sum_ = value_;
}
std::thread start() {
  return std::thread([] { name_this_thread("two"); });
}
std::thread other() {
  return std::thread(thread_body("other", [] {}));
}
}  // namespace baton
"""
GOOD = {
    "ARCHITECTURE.md": "| `two`, `other` | count |\n",
    "src/core/mutex.h": (ROOT / "src/core/mutex.h").read_text(encoding="utf-8"),
    "src/core/thread_name.h": "#pragma once\nnamespace baton {\nvoid name_this_thread(const char* name);\n"
    "template <class Body>\nBody thread_body(const char* name, Body body) {\n  return body;\n}\n}\n",
    "src/core/two.h": HEADER,
    "src/core/two.cpp": SOURCE,
    "src/core/alone.cpp": "int main() {}\n",
}

# What is changed in one file of the good tree, and what must be said about it.
SEEDED_TEXT = [
    ("src/core/two.h", "  Mutex later_;", "  std::mutex later_;", "std::mutex has no annotations"),
    ("src/core/two.h", "#pragma once", "#pragma once\n#include <condition_variable>", "<condition_variable> has no annotations"),
    (
        "src/core/two.cpp",
        "const MutexLock first(first_)",
        "const std::scoped_lock first(first_)",
        "std::scoped_lock has no annotations",
    ),
    ("src/core/two.h", "other_ BATON_GUARDED_BY(later_)", "other_", "no annotation says what later_ guards"),
    ("src/core/two.cpp", 'name_this_thread("two");', "", "1 threads start here, and 0 name themselves"),
    ("src/core/two.cpp", '"two"', '"three"', "does not list the thread `three`"),
    ("src/core/two.cpp", '"two"', '"a name of sixteen"', "more than 15 bytes"),
    ("src/core/two.cpp", '"other"', '"third"', "does not list the thread `third`"),
]
SEEDED_USE = [
    ("src/core/two.cpp", "  const MutexLock lock(mutex_);\n  while", "  while", "requires holding mutex 'mutex_'"),
    ("src/core/two.h", "    const MutexLock lock(mutex_);\n", "", "calling function 'set_locked' requires holding mutex 'mutex_'"),
    ("src/core/two.h", " BATON_REQUIRES(mutex_) {", " {", "writing variable 'value_' requires holding mutex 'mutex_'"),
    ("src/core/two.cpp", "  lock.lock();\n", "", "reading variable 'value_' requires holding mutex 'mutex_'"),
    (
        "src/core/two.cpp",
        "changed_.wait(mutex_)",
        "changed_.wait(later_)",
        "calling function 'wait' requires holding mutex 'later_'",
    ),
    (
        "src/core/two.cpp",
        "first(first_);\n  const MutexLock lock(mutex_);",
        "lock(mutex_);\n  const MutexLock first(first_);",
        "must be acquired before",
    ),
    ("src/core/two.cpp", "  const MutexLock first(first_);", "  mutex_.lock();", "acquiring mutex 'mutex_' that is already held"),
    (
        "src/core/two.cpp",
        "  const MutexLock first(first_);",
        "  later_.lock();\n  const MutexLock first(first_);",
        "is still held at the end of function",
    ),
    ("src/core/two.cpp", "    return value_;\n  }", "  }\n  value_ = 1;", "writing variable 'value_' requires holding mutex"),
    ("src/core/two.cpp", "  sum_ = value_;", "  sum_ = value_", "expected ';'"),
]


def run_check(files, *flags):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        build = root / "build"
        build.mkdir()
        entries = [
            {
                "directory": str(build),
                "file": str(root / name),
                "command": f"c++ -I{root}/src -O2 -std=c++20 -o x.o -c {root / name}",
            }
            for name in files
            if name.endswith(".cpp")
        ]
        (build / "compile_commands.json").write_text(json.dumps(entries), encoding="utf-8")
        command = [sys.executable, CHECK, *(flag.format(build=build) for flag in flags), root]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


class CheckLocks(unittest.TestCase):
    def check_that_it_is_found(self, seeded, *flags):
        for name, old, new, expected in seeded:
            with self.subTest(file=name, new=new):
                self.assertIn(old, GOOD[name])
                status, said = run_check({**GOOD, name: GOOD[name].replace(old, new, 1)}, *flags)
                self.assertEqual(status, 1, said)
                self.assertIn(expected, said)
                self.assertIn(f"{name}:", said)

    def test_a_good_tree_passes(self):
        status, said = run_check(GOOD)
        self.assertEqual(status, 0, said)
        self.assertIn("3 mutexes with annotations, 2 names of threads", said)

    def test_what_the_text_shows_is_found(self):
        self.check_that_it_is_found(SEEDED_TEXT)

    @unittest.skipUnless(HAS_CLANG, "this machine has no clang++")
    def test_the_analysis_passes_a_good_tree_and_skips_what_sees_no_mutex(self):
        status, said = run_check(GOOD, "--build", "{build}")
        self.assertEqual(status, 0, said)
        self.assertIn("analysed 1 units", said)

    @unittest.skipUnless(HAS_CLANG, "this machine has no clang++")
    def test_wrong_uses_of_locks_are_found(self):
        self.check_that_it_is_found(SEEDED_USE, "--build", "{build}")

    def test_a_build_that_is_not_there_fails(self):
        status, said = run_check(GOOD, "--build", "{build}/none")
        self.assertEqual(status, 1, said)


if __name__ == "__main__":
    unittest.main()
