"""Random clients against one server in a tiny cache, with restarts in between: `make soak SOAK_FLAGS="--minutes 30"`.

Every accepted request must end as it should or say why it did not; after each life of the server nothing may run, wait or hold a
block, and its memory must not have grown. The server is ended by SIGTERM while requests are under way, and must exit with 0.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(
    os.environ.get("BATON_BINARY", ROOT / "build/cpu-release/bin/baton")
)
START_SECONDS = 120
FLAGS = [
    "--kv-cache-memory-bytes",
    "14M",
    "--max-model-len",
    "2000",
    "--max-num-seqs",
    "24",
    "--max-num-queued-reqs",
    "200",
]
BAD_BODIES = [
    "{",
    "[]",
    '{"prompt": 5}',
    '{"prompt": [-1]}',
    '{"prompt": "a", "deadline_ms": 0}',
    '{"prompt": "a", "n": 0}',
]
N_TOKENS = 1000  # of the demo model, some of which end an answer


class Server:
    """One life of `baton serve` over the demo model."""

    def __init__(self, log: pathlib.Path) -> None:
        """Start it and wait until it answers."""
        with log.open("wb") as output:
            command = [BINARY, "serve", "--host", "127.0.0.1", "--port", "0", *FLAGS]
            self.process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + START_SECONDS
        while not (found := re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text())):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not start:\n{log.read_text()}")
            time.sleep(0.05)
        self.port = int(found[1])

    def metrics(self) -> dict[str, float]:
        """Return the sum over labels of each metric."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/metrics")
        values: dict[str, float] = collections.defaultdict(float)
        for line in connection.getresponse().read().decode().splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                values[name.split("{")[0]] += float(value)
        return values


class Clients:
    """Threads that ask for random things until they are told to stop, and what came of it."""

    def __init__(self, port: int, n_clients: int, seed: int) -> None:
        """Start them."""
        self.port = port
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.lock = threading.Lock()
        self.is_over = False  # set before the server is told to end
        shared = random.Random(seed)
        self.prefixes = [
            [shared.randrange(300, N_TOKENS) for _ in range(n)]
            for n in (16, 100, 500, 900)
        ]
        self.threads = [
            threading.Thread(target=self.run, args=(random.Random(f"{seed} {i}"),))
            for i in range(n_clients)
        ]
        for thread in self.threads:
            thread.start()

    def run(self, rng: random.Random) -> None:
        """One client: mostly one request after another, now and then a pause."""
        while not self.is_over:
            if rng.random() < 0.02:
                time.sleep(rng.random() * 0.5)
            outcome = self.ask(rng)
            with self.lock:
                self.outcomes[outcome] += 1

    def body(self, rng: random.Random) -> dict:
        """A request that is to be accepted."""
        prefix = rng.choice(self.prefixes)[: rng.randrange(1, 900)]
        body: dict = {
            "prompt": prefix
            + [rng.randrange(300, N_TOKENS) for _ in range(rng.randrange(1, 200))],
            "max_tokens": rng.choice([1, 4, 30, 120]),
            "temperature": rng.choice([0, 1]),
            "ignore_eos": True,
        }
        if rng.random() < 0.2:
            body["priority"] = rng.randrange(-2, 3)
        if rng.random() < 0.15:
            body["deadline_ms"] = rng.randrange(1, 2000)
        if rng.random() < 0.15:
            body["n"] = rng.randrange(2, 5)
        if rng.random() < 0.1:
            body["cache_salt"] = f"tenant {rng.randrange(3)}"
        return body

    def ask(self, rng: random.Random) -> str:
        """One request and what came of it; an outcome that begins with WRONG fails the soak."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            kind = rng.random()
            if kind < 0.05:
                status = self.post(connection, rng.choice(BAD_BODIES)).status
                return (
                    "refused"
                    if status in (400, 503)
                    else f"WRONG: nonsense got {status}"
                )
            body = self.body(rng)
            if kind < 0.3:
                return self.leave(connection, body, rng)
            return (
                self.stream(connection, body)
                if kind < 0.65
                else self.whole(connection, body)
            )
        except (OSError, http.client.HTTPException) as error:
            return (
                "cut off by the end"
                if self.is_over
                else f"WRONG: {type(error).__name__} {error}"
            )
        finally:
            connection.close()

    def post(
        self, connection: http.client.HTTPConnection, body: str
    ) -> http.client.HTTPResponse:
        """Send a request and wait for the head of its answer."""
        connection.request(
            "POST", "/v1/completions", body, {"Content-Type": "application/json"}
        )
        return connection.getresponse()

    def leave(
        self, connection: http.client.HTTPConnection, body: dict, rng: random.Random
    ) -> str:
        """Close the connection before or in the middle of the answer."""
        text = json.dumps(body | {"stream": True, "max_tokens": 400})
        if rng.random() < 0.5:
            connection.request(
                "POST", "/v1/completions", text, {"Content-Type": "application/json"}
            )
        else:
            self.post(connection, text).read(rng.randrange(1, 3000))
        return "left"

    def stream(self, connection: http.client.HTTPConnection, body: dict) -> str:
        """A stream, which must end with [DONE]."""
        response = self.post(connection, json.dumps(body | {"stream": True}))
        text = response.read()
        if response.status == 503:
            return "turned away"
        if response.status != 200 or not text.endswith(b"data: [DONE]\n\n"):
            return (
                f"WRONG: a stream got {response.status} and ended with {text[-60:]!r}"
            )
        return (
            "cut off by the end" if b'"error"' in text and self.is_over else "streamed"
        )

    def whole(self, connection: http.client.HTTPConnection, body: dict) -> str:
        """An answer in one piece, whose tokens are counted."""
        response = self.post(connection, json.dumps(body))
        answer = json.loads(response.read())
        if response.status == 503:
            return "turned away"
        if response.status != 200:
            return f"WRONG: {response.status} {answer}"
        reasons = {choice["finish_reason"] for choice in answer["choices"]}
        if reasons == {"length"}:
            asked = body["max_tokens"] * body.get("n", 1)
            got = answer["usage"]["completion_tokens"]
            return "answered" if got == asked else f"WRONG: {got} tokens of {asked}"
        is_late = reasons <= {"length", "abort"} and "deadline_ms" in body
        return "cut by its deadline" if is_late else f"WRONG: ended by {reasons}"

    def join(self) -> None:
        """Wait for all of them."""
        for thread in self.threads:
            thread.join()


def wait_until_idle(server: Server) -> dict[str, float]:
    """Return the metrics once nothing runs or waits, or after ten seconds."""
    for _ in range(100):
        metrics = server.metrics()
        if (
            metrics["vllm:num_requests_running"] + metrics["vllm:num_requests_waiting"]
            == 0
        ):
            break
        time.sleep(0.1)
    return metrics


def live(
    folder: pathlib.Path, number: int, options: argparse.Namespace, seconds: float
) -> list[str]:
    """One life of the server: load, a look at what is left, load again, SIGTERM. Returns what was wrong."""
    faults = []
    log = folder / f"server-{number}.log"
    server = Server(log)
    rss_mb = []
    outcomes: collections.Counter[str] = collections.Counter()
    try:
        for part in range(4):
            clients = Clients(
                server.port, options.clients, options.seed + 10 * number + part
            )
            time.sleep(seconds / 4)
            if part == 3:
                clients.is_over = True
                server.process.terminate()
                clients.join()
                outcomes += clients.outcomes
                break
            clients.is_over = (
                True  # no new requests; those under way still end as they should
            )
            clients.join()
            outcomes += clients.outcomes
            metrics = wait_until_idle(server)
            rss_mb.append(metrics["process_resident_memory_bytes"] / 1e6)
            left = {
                name: metrics[f"vllm:{name}"]
                for name in (
                    "num_requests_running",
                    "num_requests_waiting",
                    "kv_cache_usage_perc",
                )
            }
            if any(left.values()):
                faults.append(f"left over without a client: {left}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            server.process.terminate()
        code = server.process.wait(timeout=START_SECONDS)
    if code != 0:
        faults.append(f"the server ended with {code}; its log is {log}")
    # What a first minute touches for the first time is no leak.
    if len(rss_mb) == 3 and rss_mb[2] > 1.2 * rss_mb[1] + 10:
        faults.append(f"memory grew: {rss_mb} MB")
    faults += [
        f"{count} x {outcome}"
        for outcome, count in outcomes.items()
        if outcome.startswith("WRONG")
    ]
    told = ", ".join(
        f"{count} {outcome}" for outcome, count in sorted(outcomes.items())
    )
    print(
        f"life {number}: {told}; {metrics['vllm:num_preemptions_total']:.0f} preemptions; {[round(mb) for mb in rss_mb]} MB",
        flush=True,
    )
    return faults


def main() -> int:
    """Return 0 if nothing was wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument(
        "--lives", type=int, default=5, help="times the server is started"
    )
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="baton-soak-"))
    faults = []
    for number in range(options.lives):
        faults += live(folder, number, options, 60 * options.minutes / options.lives)
    print("\n".join(faults) if faults else "nothing was wrong")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
