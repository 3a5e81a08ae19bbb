"""Proves that tools/check_picture.py can fail: a good picture passes, and each seeded fault in picture or code is found."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CHECK = Path(__file__).resolve().parents[2] / "tools/check_picture.py"

PICTURE = """# Architecture

```mermaid
graph TD
  %% includes of src
  kernels_cpu[kernels/cpu]
  engine --> model & grammar
  grammar --> core
  kernels --> core
  kernels_cpu --> kernels
  model --> kernels
```

```mermaid
graph TD
  %% includes of src/engine
  engine --> step
```
"""
SOURCES = {
    "src/core/result.h": "",
    "src/kernels/ops.h": '#include "core/result.h"\n',
    "src/kernels/cpu/norm.cpp": '#include "kernels/ops.h"\n#include "core/result.h"\n',
    "src/model/decoder.h": '#include "kernels/ops.h"\n',
    "src/grammar/grammar.h": '#include "core/result.h"\n',
    "src/engine/engine.h": '#include "engine/step/sampler.h"\n#include "model/decoder.h"\n#include "kernels/ops.h"\n',
    "src/engine/step/sampler.h": '#include "grammar/grammar.h"\n#include <vector>\n',
}

# A text of the picture, what stands there instead, and what must be said.
SEEDED = [
    ("  model --> kernels\n", "  model\n", "src: the picture lacks model --> kernels (model/decoder.h)"),
    ("grammar --> core", "grammar --> core & kernels", "src: the picture shows grammar --> kernels, which no file includes along"),
    ("model --> kernels", "model --> kernels & core", "src: the picture shows model --> core, which no file includes along"),
    ("engine --> model", "engine --> kernels & model", "shows engine --> kernels, which follows from other arrows"),
    ("[kernels/cpu]", "[kernels/gpu]", "src: the picture lacks kernels/cpu"),
    ("[kernels/cpu]", "[kernels/gpu]", "src: the picture shows kernels/gpu, which is not a folder of the code"),
    ("engine --> step", "step --> engine", "src/engine: the picture lacks engine --> step (engine/engine.h)"),
    ("%% includes of src\n", "", "ARCHITECTURE.md: has no picture of src"),
]


def run_check(document, sources=SOURCES, arguments=()):
    with tempfile.TemporaryDirectory() as root:
        for name, text in {**sources, "ARCHITECTURE.md": document}.items():
            path = Path(root) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, "-B", CHECK, *arguments, root], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


class CheckPicture(unittest.TestCase):
    def test_a_good_picture_passes(self):
        status, said = run_check(PICTURE)
        self.assertEqual(status, 0, said)
        self.assertIn("2 pictures", said)

    def test_each_fault_of_the_picture_is_found(self):
        for text, instead, expected in SEEDED:
            with self.subTest(instead=instead, expected=expected):
                self.assertIn(text, PICTURE)
                status, said = run_check(PICTURE.replace(text, instead, 1))
                self.assertEqual(status, 1, said)
                self.assertIn(expected, said)

    def test_a_new_include_is_found(self):
        sources = {**SOURCES, "src/model/config.h": '#include "grammar/grammar.h"\n'}
        status, said = run_check(PICTURE, sources)
        self.assertEqual(status, 1, said)
        self.assertIn("src: the picture lacks model --> grammar (model/config.h)", said)
        self.assertIn("engine --> grammar, which follows from other arrows", said)

    def test_the_picture_that_it_prints_passes(self):
        status, said = run_check("", arguments=["--print", "src"])
        self.assertEqual(status, 0, said)
        status, said = run_check(f"```mermaid\n{said}```\n")
        self.assertEqual(status, 0, said)


if __name__ == "__main__":
    unittest.main()
