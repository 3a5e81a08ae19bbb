"""One `baton serve` process, which ends when its owner does."""

from __future__ import annotations

import collections
import logging
import os
import re
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable

ADDRESS = re.compile(r"\baddress=http://127\.0\.0\.1:(\d+)\b")
LAST_LINES = 20


class BatonProcess:
    """Starts the program on a port that the system chooses, passes its log on, and says when it ends.

    A thread of its own starts the process and reads its log until the end. The kernel sends SIGTERM to the process when this
    thread is gone, so a replica that is killed leaves no server behind.
    """

    def __init__(self, command: list[str], log: logging.Logger, on_end: Callable[[str], None]) -> None:
        """`on_end` gets a sentence, on the thread of the log, when the process ended without stop()."""
        self._command = command
        self._log = log
        self._on_end = on_end
        self._stopping = False
        self._last_lines: collections.deque[str] = collections.deque(maxlen=LAST_LINES)
        self._process: subprocess.Popen[str] | None = None
        self._failure: str | None = None
        self._port: int | None = None
        self._thread = threading.Thread(target=self._run, name="baton-log", daemon=True)

    @property
    def url(self) -> str:
        """The address of the server, once start() returned."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int | None:
        """The process id, once start() returned."""
        return self._process.pid if self._process else None

    def start(self, timeout_s: float) -> None:
        """Start the process and wait until /health answers 200. Raises RuntimeError with the last lines of its log."""
        self._thread.start()
        deadline = time.monotonic() + timeout_s
        while not self._is_healthy():
            if self._failure is not None:
                raise RuntimeError(self._failure)
            if time.monotonic() > deadline:
                self.stop(0)
                raise RuntimeError(f"{self._name()} was not ready within {timeout_s:g} s{self._tail()}")
            time.sleep(0.05)

    def stop(self, timeout_s: float) -> None:
        """SIGTERM, which lets running requests finish; SIGKILL after `timeout_s`."""
        self._stopping = True
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _run(self) -> None:
        """The thread: starts the process, passes its lines on, and waits for its end."""
        bound = ["setpriv", "--pdeathsig", "TERM", "--"] if shutil.which("setpriv") else []
        try:
            self._process = subprocess.Popen(
                [*bound, *self._command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env=os.environ | {"NO_COLOR": "1"},
            )
        except OSError as error:
            self._failure = f"{self._name()} did not start: {error}"
            return
        for line in self._process.stdout:
            self._read(line.rstrip("\n"))
        code = self._process.wait()
        how = f"ended with exit code {code}" if code >= 0 else f"was ended by signal {-code}"
        self._failure = f"{self._name()} {how}{self._tail()}"
        if not self._stopping:
            self._on_end(self._failure)

    def _read(self, line: str) -> None:
        self._last_lines.append(line)
        self._log.info("%s", line)
        found = ADDRESS.search(line) if self._port is None else None
        if found:
            self._port = int(found[1])

    def _is_healthy(self) -> bool:
        if self._port is None or self._failure is not None:
            return False
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def _name(self) -> str:
        return f"`{' '.join(self._command[:3])}`"

    def _tail(self) -> str:
        return "".join(f"\n  {line}" for line in self._last_lines)
