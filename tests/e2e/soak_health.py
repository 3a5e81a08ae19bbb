"""Asks a server for /health ten times a second, beside the clients of soak.py: one line for each second, with the slowest answer.

    soak_health.py PORT

Ends when the server refuses connections. It is a process of its own, so that Python's other threads do not count. A look for
which the machine had no processor (the pause before it was longer than told) says nothing of the server and is left out.
"""

from __future__ import annotations

import http.client
import sys
import time

PAUSE = 0.1
MACHINE_LATE = 0.02  # seconds that the machine was late to end a pause


def main() -> None:
    """Print the slowest milliseconds of each second, the statuses, and the looks that were left out."""
    port = int(sys.argv[1])
    while True:
        slowest, statuses, left_out = 0.0, set(), 0
        for _ in range(10):
            before = time.monotonic()
            time.sleep(PAUSE)
            begin = time.monotonic()
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                connection.request("GET", "/health")
                statuses.add(connection.getresponse().status)
                connection.close()
            except (OSError, http.client.HTTPException):
                return
            milliseconds = 1000 * (time.monotonic() - begin)
            if begin - before - PAUSE > MACHINE_LATE:
                left_out += 1
            else:
                slowest = max(slowest, milliseconds)
        print(f"{slowest:.1f} {','.join(map(str, sorted(statuses)))} {left_out}", flush=True)


if __name__ == "__main__":
    main()
