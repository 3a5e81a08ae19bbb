"""`cmake --install` in the build folder of a wheel: the programs and what they need, and no Python module."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

BUILD = Path(__file__).resolve().parents[2] / "build" / "cpu-release"


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prefix")
    subprocess.run(["cmake", "--install", str(BUILD), "--prefix", str(folder)], check=True, stdout=subprocess.DEVNULL)
    return folder


def test_the_build_folder_has_the_module() -> None:
    assert list((BUILD / "python" / "baton").glob("_engine.*.so"))


def test_no_module_is_installed(prefix: Path) -> None:
    assert sorted(path.name for path in prefix.iterdir()) == ["bin", "lib", "share"]
    assert not [path for path in prefix.rglob("*") if path.name.startswith("_engine")]


def test_what_is_installed_runs_from_there(prefix: Path) -> None:
    assert {path.name for path in (prefix / "bin").iterdir()} == {"baton", "baton-bench"}
    done = subprocess.run([prefix / "bin" / "baton", "info", "demo", "--json"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["fits"]["memory_bytes"] > 0
