"""A process that looks at a server from outside while others flood it: /health, a small request, resident memory."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import pathlib
import re
import threading
import time
from multiprocessing.connection import Connection

from hostile import wire

HEALTH_EVERY = 0.025  # seconds
SMALL_EVERY = 0.5
HEALTH_TIMEOUT = 30.0
SMALL_TIMEOUT = 60.0  # for a small request with its refusals and repetitions
SMALL = {"prompt": "x", "max_tokens": 1}


@dataclasses.dataclass
class Seen:
    """What the watcher saw."""

    health_ms: list[float] = dataclasses.field(default_factory=list)
    health_faults: list[str] = dataclasses.field(default_factory=list)
    small_seconds: list[float] = dataclasses.field(default_factory=list)
    small_refusals: int = 0
    small_cuts: int = 0  # connections that ended without an answer
    small_faults: list[str] = dataclasses.field(default_factory=list)
    peak_bytes: int = 0


def percentile(values: list[float], share: float) -> float:
    """The value below which a share of them lies (nearest rank); 0 without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def status_field(pid: int, field: str) -> int:
    """A number of /proc/PID/status; 0 when the process is gone."""
    with contextlib.suppress(OSError):
        found = re.search(rf"{field}:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())
        return int(found[1]) if found else 0
    return 0


def watch_health(port: int, timeout: float, ends: threading.Event, seen: Seen) -> None:
    """Ask for /health on a new connection each time, as a load balancer's probe does, and wait `timeout` seconds for each."""
    while not ends.wait(HEALTH_EVERY):
        begin = time.monotonic()
        try:
            reply = wire.ask(port, "GET", "/health", timeout=timeout)
            what = "was cut" if reply is None else f"got {reply.status} {reply.body[:100]!r}" if reply.status != 200 else ""
        except OSError as error:
            what = f"{type(error).__name__} {error}"
        if what:
            seen.health_faults.append(f"/health: {what}")
        else:
            seen.health_ms.append(1000 * (time.monotonic() - begin))


def watch_small(port: int, key: str, timeout: float, ends: threading.Event, seen: Seen) -> None:
    """Send small requests; one that is refused for want of room is repeated as Retry-After says, for `timeout` seconds."""
    while not ends.wait(SMALL_EVERY):
        begin = time.monotonic()
        last = "no answer"
        while time.monotonic() - begin < timeout:
            try:
                reply = wire.ask(port, "POST", "/v1/completions", SMALL, key=key, timeout=timeout)
                last = "the connection was cut" if reply is None else ""
            except OSError as error:
                last = f"{type(error).__name__} {error}"
                reply = None
            if reply is None:
                seen.small_cuts += 1
            if reply is not None and reply.status == 200:
                seen.small_seconds.append(time.monotonic() - begin)
                break
            if reply is not None:
                last = f"{reply.status} {reply.body[:200]!r}"
                if reply.status not in (429, 503):
                    seen.small_faults.append(f"a small request got {last}")
                    break
            seen.small_refusals += 1
            pause = float(reply.headers.get("retry-after", 1)) if reply else 0.2
            if ends.wait(min(pause, 5.0)):
                return
        else:
            seen.small_faults.append(f"a small request was not answered in {timeout:g} s: {last}")


def run(port: int, pid: int, key: str, slow_factor: float, pipe: Connection) -> None:
    """Watch until the pipe says so, and send back what was seen."""
    seen = Seen()
    ends = threading.Event()
    threads = [
        threading.Thread(target=watch_health, args=(port, slow_factor * HEALTH_TIMEOUT, ends, seen)),
        threading.Thread(target=watch_small, args=(port, key, slow_factor * SMALL_TIMEOUT, ends, seen)),
    ]
    for thread in threads:
        thread.start()
    while not pipe.poll(0.05):
        seen.peak_bytes = max(seen.peak_bytes, 1024 * status_field(pid, "VmRSS"))
    ends.set()
    for thread in threads:
        thread.join()
    seen.peak_bytes = max(seen.peak_bytes, 1024 * status_field(pid, "VmRSS"))
    pipe.send(seen)


class Watch:
    """The process, which watches from `__init__` to `end`."""

    def __init__(self, port: int, pid: int, key: str = "", slow_factor: float = 1) -> None:
        """Start to watch; `slow_factor` multiplies how long each request waits for its answer."""
        self.pipe, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=run, args=(port, pid, key, slow_factor, theirs), daemon=True)
        self.process.start()

    def end(self) -> Seen:
        """Stop, and return what was seen."""
        self.pipe.send("end")
        seen = self.pipe.recv()
        self.process.join()
        return seen
