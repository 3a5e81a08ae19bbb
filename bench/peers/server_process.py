"""A server that runs for the length of a measurement, in a process group of its own."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request


def stop(process: subprocess.Popen) -> None:
    """Ends the group: politely, and what is left of it after 20 s for good."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)


@contextlib.contextmanager
def served(command: list, port: int, log_file: pathlib.Path, ready_seconds: float = 180):
    """A server's process, from when it answers /health on this machine. Ends this program with its last lines if it does not."""
    with log_file.open("w+", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            end = time.monotonic() + ready_seconds
            while True:
                with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).close()
                    break
                if process.poll() is not None or time.monotonic() > end:
                    log.seek(0)
                    sys.exit(f"{command[0]} is not ready:\n" + "\n".join(log.read().splitlines()[-10:]))
                time.sleep(0.2)
            yield process
        finally:
            stop(process)
