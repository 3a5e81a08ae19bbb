"""A Baton server over the demo model for the whole session, and an unmodified OpenAI client."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import openai
import pytest
from saying import write_saying_model

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
BINARY = pathlib.Path(os.environ.get("BATON_BINARY", ROOT / "build/cpu-release/bin/baton"))
START_SECONDS = 60


class Server:
    """One `baton serve` process on a free loopback port."""

    def __init__(
        self,
        log: pathlib.Path,
        *flags: str,
        port: int = 0,
        open_files: int | None = None,
        address_space: int | None = None,
        control_group: pathlib.Path | None = None,
        start_seconds: float = START_SECONDS,
    ) -> None:
        """Start it with `flags`, allowed so many open files and bytes of address space, and wait until it answers.

        `port` 0 is any free port.
        `control_group` is the folder of a control group that the process joins before it becomes the server.
        """
        limits = {"nofile": open_files, "as": address_space}
        limit = [f"--{name}={most}" for name, most in limits.items() if most is not None]
        limit = ["prlimit", *limit] if limit else []
        if control_group is not None:
            limit = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(control_group), *limit]
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [*limit, BINARY, "serve", "--host", "127.0.0.1", "--port", str(port), *flags],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + start_seconds
        while True:
            found = re.search(r"http://127\.0\.0\.1:(\d+)", self.log.read_text())
            if found:
                break
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not start:\n{self.log.read_text()}")
            time.sleep(0.05)
        self.port = int(found[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def client(self, **options: object) -> openai.OpenAI:
        """Return an unmodified OpenAI client of this server."""
        settings: dict = {"base_url": f"{self.url}/v1", "api_key": "none", "max_retries": 0} | options
        return openai.OpenAI(**settings)

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.process.terminate()
        return self.process.wait(timeout=START_SECONDS)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the catalogue registered as `shop`."""
    log = tmp_path_factory.mktemp("server") / "log"
    running = Server(log, "--prefix", f"shop={ROOT / 'models/demo/catalogue.txt'}")
    yield running
    assert running.stop() == 0, log.read_text()


@pytest.fixture(scope="session")
def client(server: Server) -> openai.OpenAI:
    """A client of the session's server."""
    return server.client()


@pytest.fixture(scope="session")
def catalogue() -> str:
    """The text of the shared prompt."""
    return (ROOT / "models/demo/catalogue.txt").read_text()


@pytest.fixture(scope="session")
def questions() -> list[dict]:
    """Questions about the catalogue with their answers."""
    lines = (ROOT / "models/demo/questions.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def saying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    """Return a function that starts a server of a model which says given texts (saying.py), or finds the one that it has started.

    `flags` are those of the server; the other arguments are write_saying_model's.
    """
    started: dict[str, Server] = {}

    def start(texts: str | bytes | dict, *, flags: tuple[str, ...] = (), **settings: object) -> Server:
        key = repr((texts, flags, settings))
        if key not in started:
            folder = write_saying_model(tmp_path_factory.mktemp("said") / "model", texts, **settings)
            log = folder.parent / "log"
            known = ("--served-model-name", "said", "demo", "--kv-cache-memory-bytes", "64M")
            started[key] = Server(log, str(folder), *known, *flags)
        return started[key]

    yield start
    for server in started.values():
        assert server.stop() == 0, server.log.read_text()
