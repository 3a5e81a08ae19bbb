"""What `make wheel` needs and what an installation takes, read from the build's own files: nothing is built here.

tests/python/test_install.py looks at an installation.
"""

import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def recipe(target):
    """The commands that make would run if nothing were there."""
    done = subprocess.run(["make", "-n", "-B", target], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def installs(path):
    """The install commands of a CMakeLists.txt."""
    return re.findall(r"^install\(.*?\)$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


class Wheel(unittest.TestCase):
    def test_takes_its_own_four_packages_and_no_formatter_linter_or_client(self):
        wheel = recipe("wheel")
        self.assertIn("pip install -q --disable-pip-version-check -r packaging/wheel_requirements.txt", wheel)
        for other in ("tests/e2e", "lint", "e2e", "build/venv/", "build/venv-clients", "bench/report"):
            self.assertNotIn(other, wheel)
        groups = re.findall(r"^packaging/install-packages (.*)$", wheel, re.MULTILINE)
        self.assertEqual(sorted({name for group in groups for name in group.split()}), ["build", "wheel"])

    def test_is_what_clients_and_linters_do_not_need(self):
        for target in ("e2e", "lint"):
            self.assertNotIn("wheel_requirements", recipe(target))

    def test_has_an_environment_with_pip(self):
        packages = (ROOT / "packaging" / "packages.txt").read_text(encoding="utf-8")
        self.assertRegex(packages, r"(?m)^wheel +python3-venv ")


class Install(unittest.TestCase):
    def test_leaves_out_the_python_module_which_the_wheel_asks_for(self):
        commands = installs(ROOT / "python" / "CMakeLists.txt")
        self.assertEqual(len(commands), 2)
        for command in commands:
            self.assertIn("COMPONENT python EXCLUDE_FROM_ALL", command)
        project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        self.assertIn('install.components = ["Unspecified", "python"]', project)

    def test_gives_the_wheel_all_that_the_programs_need(self):
        for path in [ROOT / "src" / "CMakeLists.txt", *(ROOT / "src" / "kernels").glob("*/CMakeLists.txt")]:
            for command in installs(path):
                self.assertNotIn("COMPONENT", command, "the wheel takes what has no component")


if __name__ == "__main__":
    unittest.main()
