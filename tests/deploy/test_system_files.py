"""The systemd unit is read by systemd-analyze, and the container file's packages are the libraries that the program links.

No container was built by these tests, and no unit was started: see docs/deploy.md.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import BINARY, DEPLOY, ROOT

UNIT = DEPLOY / "systemd/baton.service"
ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(not ANALYZE, reason="systemd-analyze is not installed")
needs_binary = pytest.mark.skipif(not BINARY.exists(), reason=f"there is no {BINARY}")
# systemd's measure of what a service may do, from 0 (nothing) to 10 (everything).
MOST_EXPOSURE = 2.0


def install(folder: Path, text: str, override: bool = False) -> Path:
    """The unit in a folder, with a program that exists, and the drop-in for GPUs if wanted."""
    unit = folder / "baton.service"
    unit.write_text(text.replace("/usr/local/bin/baton", str(BINARY if BINARY.exists() else Path("/bin/true"))))
    if override:
        shutil.copytree(DEPLOY / "systemd/baton.service.d", folder / "baton.service.d")
    return unit


def verify(unit: Path) -> str:
    """What systemd finds wrong with a unit."""
    # Manual pages are looked for only where man is.
    done = subprocess.run([ANALYZE, "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).splitlines()
    return "\n".join(line for line in lines if "baton" in line)


@needs_systemd
@pytest.mark.parametrize("override", [False, True], ids=["alone", "with-gpu.conf"])
def test_systemd_understands_the_unit(tmp_path: Path, override: bool) -> None:
    assert verify(install(tmp_path, UNIT.read_text(), override)) == ""


@needs_systemd
@pytest.mark.parametrize("mistake", ["ProtectSytem=strict", "Type=sometimes", "ExecStart=/no/such/program"])
def test_systemd_finds_a_mistake(tmp_path: Path, mistake: str) -> None:
    assert verify(install(tmp_path, UNIT.read_text().replace("Type=exec", mistake))) != ""


@needs_systemd
def test_the_service_may_do_little(tmp_path: Path) -> None:
    unit = install(tmp_path, UNIT.read_text())
    command = [ANALYZE, "security", "--offline=true", f"--threshold={MOST_EXPOSURE * 10:.0f}", "--no-pager", unit]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    # The check can fail: without its protection the unit is far above the limit.
    bare = re.sub(r"(?m)^(Protect|Private|Restrict|SystemCall|Capability|NoNew|Dynamic|Lock).*$", "", UNIT.read_text())
    command[-1] = install(tmp_path, bare)
    assert subprocess.run(command, capture_output=True, text=True, check=False).returncode != 0


@needs_binary
def test_a_service_has_the_time_to_drain() -> None:
    text = UNIT.read_text()
    drain = int(re.search(r"^shutdown-timeout: (\d+)$", (DEPLOY / "systemd/serve.yaml").read_text(), re.MULTILINE)[1])
    assert int(re.search(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)[1]) >= drain + 5


@needs_binary
def test_the_configuration_serves(tmp_path: Path) -> None:
    (tmp_path / "serve.yaml").write_text(
        (DEPLOY / "systemd/serve.yaml").read_text().replace("port: 8000", "port: 0") + "kv-cache-memory-bytes: 64M\n"
    )
    command = [BINARY, "serve", "--config", tmp_path / "serve.yaml"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout:
            if "event=serving" in line:
                break
        else:
            pytest.fail("the server did not start")
        process.terminate()
        process.stdout.read()
        assert process.wait(60) == 0


@needs_binary
@pytest.mark.skipif(not shutil.which("dpkg-query"), reason="this is no Debian")
def test_the_container_has_every_library_that_the_program_links() -> None:
    release = Path("/etc/os-release").read_text()
    if 'VERSION_ID="12"' not in release:
        pytest.skip("the container file names the packages of Debian 12")
    linked: set[str] = set()
    for file in (BINARY, BINARY.with_name("baton-bench"), *(BINARY.parents[1] / "lib").glob("libbaton_*.so")):
        needed = subprocess.run(["objdump", "-p", file], capture_output=True, text=True, check=True).stdout
        names = re.findall(r"NEEDED\s+(\S+)", needed)
        paths = subprocess.run(["ldd", file], capture_output=True, text=True, check=True).stdout
        linked |= {path for name, path in re.findall(r"(\S+) => (\S+)", paths) if name in names and "libbaton" not in name}
    assert linked
    text = (DEPLOY / "container/Dockerfile").read_text()
    named = set(re.findall(r"^\s+([a-z0-9.+-]+) \\$", text, re.MULTILINE)) | {"libc6", "libgcc-s1"}
    for path in linked:
        forms = {os.path.realpath(path), path, path.removeprefix("/usr"), os.path.realpath(path).removeprefix("/usr")}
        found = subprocess.run(["dpkg-query", "-S", *forms], capture_output=True, text=True, check=False).stdout
        owners = {line.split(":")[0] for line in found.splitlines()}
        assert owners & named, f"{path} is of {owners}"


def test_the_container_copies_what_the_build_needs() -> None:
    text = (DEPLOY / "container/Dockerfile").read_text()
    left_out = (DEPLOY / "container/Dockerfile.dockerignore").read_text().split()
    for needed in ("src", "cmake", "models/demo", "bench/shapes", "packaging/install-packages", "CMakePresets.json"):
        assert (ROOT / needed).exists()
        assert not any(needed.startswith(name) for name in left_out)
    assert "--target baton baton-bench " in text, "the image has both programs"
    presets = (ROOT / "CMakePresets.json").read_text()
    for preset in re.findall(r"PRESET=([\w-]+)", text):
        assert f'"{preset}"' in presets
    assert re.search(r"^USER 10001:10001$", text, re.MULTILINE)
