"""Random clients against one server in a tiny cache, which is ended and started again: `make soak SOAK_FLAGS="--minutes 30"`.

Clients speak three dialects, with tools, schemas, grammars, stored conversations, prefixes and guesses; they leave, reset, read
slowly and send nonsense, with keys that come and go (SIGHUP), some of them with quotas. The cache has a tier in host memory, and
prefixes are stored over lives. Every accepted request must end as it should or say why it did not, and `/health` must answer
within 250 ms. The server lives once for half of the time and then shortly
a few times; lives end by SIGTERM with time to drain, without, by two SIGTERMs and by SIGKILL, all while requests are under way.
Now and then in a life the clients pause: then nothing may run or wait, no block may be held that is not pinned, and memory,
threads and open files must be what they were. What is wrong is told, and the exit code is 1.

`make soak PRESET=cpu-asan` and `PRESET=cpu-tsan` run it on a program with sanitizers, whose finds are faults too (with the
options of build/PRESET/test_environment); memory may then grow more, for they keep records of what was freed.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import functools
import http.client
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

from soak_clients import JSON, MAX_MODEL_LEN, ROOT, Clients, change_files
from soak_keys import ADMIN, write_keys

HERE = pathlib.Path(__file__).resolve().parent
BINARY = pathlib.Path(os.environ.get("BATON_BINARY", ROOT / "build/cpu-release/bin/baton"))
FLAGS = f"--kv-cache-memory-bytes 16M --max-model-len {MAX_MODEL_LEN} --max-num-seqs 24 --max-num-queued-reqs 40".split()
FLAGS += "--kv-offloading-size 0.01 --prefix-store-bytes 32M".split()
PREFIX = f"shop={ROOT / 'models/demo/catalogue.txt'}"
SPECULATION = '{"method": "ngram", "num_speculative_tokens": 4}'
ENDINGS = ("abort", "drain", "twice", "kill")  # of the short lives, in turn; the long one drains
LATE_SECONDS = 1.0  # for which clients continue asking a server that ends
START_SECONDS = 120
END_SECONDS = 120  # for what drains
SHORT_LIVES = 6
HEALTH_MS = 250
SIGHUP_EVERY = 5  # seconds
PAUSE_EVERY = 60  # seconds
LOG_FAULTS = re.compile(r"^.*(?:Sanitizer|runtime error|check failed|event=step_stuck| error event=).*$", re.MULTILINE)


@dataclasses.dataclass
class Build:
    """What a program with or without sanitizers may take."""

    name: str
    growth_mb: float  # resident memory after the first third of a life
    patience: float  # times as long as without


def build_of(environment: str) -> Build:
    """What the program is, by the options its tests run with."""
    if "ASAN_OPTIONS" in environment:
        return Build("address and undefined-behaviour sanitizers", 60, 10)
    if "TSAN_OPTIONS" in environment:
        return Build("thread sanitizer", 120, 10)
    return Build("no sanitizer", 8, 1)


def test_environment() -> str:
    """The options of the program's sanitizers, as its build folder says them."""
    file = BINARY.resolve().parents[1] / "test_environment"
    return file.read_text() if file.exists() else ""


@functools.cache
def watches_folders() -> bool:
    """Whether the program has --prefix-folder: one from before it, to compare with, has not."""
    told = subprocess.run([BINARY, "serve", "--help"], capture_output=True, text=True, check=True)
    return "--prefix-folder" in told.stdout


class Server:
    """One life of `baton serve` over the demo model."""

    def __init__(self, log: pathlib.Path, port: int, *flags: str) -> None:
        """Start it and wait until it answers."""
        self.folder = log.with_suffix(".prefixes")
        self.folder.mkdir()
        self.keys = log.with_suffix(".keys.json")
        write_keys(self.keys)
        settings = dict(line.split("=", 1) for line in test_environment().splitlines())
        if "ASAN_OPTIONS" in settings:
            settings["ASAN_OPTIONS"] += ":quarantine_size_mb=16"  # else the quarantine's filling hides what grows
        command = [BINARY, "serve", "--host", "127.0.0.1", "--port", str(port), *FLAGS, "--prefix", PREFIX]
        command += [*flags, *(["--prefix-folder", self.folder] if watches_folders() else [])]
        command += ["--api-key-file", self.keys, "--prefix-store", log.parent / "store"]
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=os.environ | settings)
        deadline = time.monotonic() + START_SECONDS
        while not (found := re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text())):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise RuntimeError(f"the server did not start:\n{log.read_text()}")
            time.sleep(0.05)
        self.port = int(found[1])
        blocks = re.search(r'num_gpu_blocks="(\d+)"', self.request("GET", "/metrics"))
        self.n_blocks = int(blocks[1]) if blocks else 0
        self.n_files = int(self.metrics()["process_open_fds"])  # before the first client
        self.health = log.with_suffix(".health")
        with self.health.open("wb") as output:
            self.watcher = subprocess.Popen([sys.executable, HERE / "soak_health.py", str(self.port)], stdout=output)

    def request(self, method: str, path: str) -> str:
        """Return the body of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, None, JSON | {"Authorization": f"Bearer {ADMIN}"})
        text = connection.getresponse().read().decode()
        connection.close()
        return text

    def change_keys(self, rng: random.Random) -> None:
        """The visitor's key comes or goes, or the file is broken for a while."""
        write_keys(self.keys, rng)
        self.process.send_signal(signal.SIGHUP)

    def health_ms(self) -> list[float]:
        """The slowest answer of /health in each second so far; ends the watcher."""
        self.watcher.kill()
        self.watcher.wait()
        return [float(line.split()[0]) for line in self.health.read_text().splitlines() if len(line.split()) == 3]

    def metrics(self) -> dict[str, float]:
        """Return the sum over labels of each metric."""
        values: dict[str, float] = collections.defaultdict(float)
        for line in self.request("GET", "/metrics").splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                values[name.split("{")[0]] += float(value)
        return values

    def rss_mb(self) -> float:
        """Resident memory."""
        return self.status("VmRSS") / 1024

    def status(self, field: str) -> int:
        """Return a number of /proc/PID/status; 0 when the process is gone."""
        with contextlib.suppress(OSError, ProcessLookupError):
            found = re.search(rf"{field}:\s+(\d+)", pathlib.Path(f"/proc/{self.process.pid}/status").read_text())
            return int(found[1]) if found else 0
        return 0

    def pause(self, second: float, patience: float) -> dict[str, float]:
        """What is left when no client asks: looked at until nothing is, at most a few seconds."""
        for file in self.folder.iterdir():
            file.unlink()
        for entry in json.loads(self.request("GET", "/v1/prefixes"))["data"]:
            if entry["id"].startswith("soak-"):
                self.request("DELETE", f"/v1/prefixes/{entry['id']}")
        deadline = time.monotonic() + 10 * patience
        while True:
            metrics = self.metrics()
            kept = json.loads(self.request("GET", "/v1/prefixes"))["data"]
            held = metrics["vllm:kv_cache_usage_perc"] * self.n_blocks
            left = {
                "running": metrics["vllm:num_requests_running"],
                "waiting": metrics["vllm:num_requests_waiting"],
                "leaked_blocks": round(held) - sum(entry["n_pinned_blocks"] for entry in kept),
                "prefixes": len(kept),
                "open_files": metrics["process_open_fds"],
                "caches_mb": round((metrics["baton:grammar_cache_bytes"] + metrics["baton:stored_response_bytes"]) / 1e6, 1),
            }
            # A connection that a client has reset is closed when the server comes to it.
            is_clear = not (left["running"] or left["waiting"] or left["leaked_blocks"]) and left["open_files"] <= self.n_files
            if (is_clear and len(kept) == 1) or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        return left | {"second": round(second), "rss_mb": round(self.rss_mb(), 1), "threads": self.status("Threads")}


@dataclasses.dataclass
class Life:
    """What one life of the server was like."""

    ended_by: str
    seconds: float = 0
    seconds_to_end: float = 0
    outcomes: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    n_tokens: int = 0
    n_preemptions: float = 0  # until the last pause
    n_guessed: float = 0  # tokens that speculation guessed, until then
    pauses: list[dict] = dataclasses.field(default_factory=list)
    health_ms: list[float] = dataclasses.field(default_factory=list)  # the slowest of each second, until the end began
    rss_mb: list[tuple[float, float]] = dataclasses.field(default_factory=list)  # second, MB
    faults: list[str] = dataclasses.field(default_factory=list)


def judge_pauses(life: Life, n_files: int, build: Build) -> None:
    """Nothing left over, and nothing that grows: files, threads, memory."""
    for pause in life.pauses:
        if pause["running"] or pause["waiting"] or pause["leaked_blocks"] or pause["prefixes"] > 1 or pause["open_files"] > n_files:
            life.faults.append(f"left over without a client ({n_files} files were open before the first): {pause}")
        if pause["threads"] > life.pauses[0]["threads"]:
            life.faults.append(f"more threads than at first: {pause}")
    if life.health_ms and max(life.health_ms) > HEALTH_MS * build.patience:
        late = [(second, ms) for second, ms in enumerate(life.health_ms) if ms > HEALTH_MS * build.patience]
        life.faults.append(f"/health took more than {HEALTH_MS * build.patience:g} ms (second, ms): {late[:20]}")
    # What a first third touches for the first time is no leak, nor is what the caches of grammars and responses hold: these have
    # limits.
    settled = [round(pause["rss_mb"] - pause["caches_mb"], 1) for pause in life.pauses[len(life.pauses) // 3 :]]
    if len(settled) > 1 and settled[-1] > settled[0] + build.growth_mb:
        life.faults.append(f"memory beside the caches grew by more than {build.growth_mb} MB: {settled}")


class Soak:
    """Lives of the server, and the clients of each."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Nothing is started yet."""
        self.options = options
        self.build = build_of(test_environment())
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="baton-soak-"))
        self.began = time.monotonic()
        self.lives: list[Life] = []
        self.port = 0  # the first life's, which the others take over

    def has_priorities(self) -> bool:
        """Whether the server of this life takes requests by priority, and clients say theirs."""
        return len(self.lives) % 3 == 1

    def show(self, life: Life, clients: Clients, seconds: float) -> None:
        """One line that is written over on a terminal."""
        if not sys.stdout.isatty():
            return
        n = sum((life.outcomes + clients.outcomes).values())
        wrong = sum(count for what, count in clients.outcomes.items() if what.startswith("WRONG"))
        total = time.monotonic() - self.began
        memory = f"{life.rss_mb[-1][1]:.0f} MB" if life.rss_mb else ""
        where = f"{total / 60:5.1f} of {self.options.minutes:g} min  life {len(self.lives) + 1} ({life.ended_by}) {seconds:.0f} s"
        print(f"\r{where}  {n} requests  {memory}  {wrong} wrong\033[K", end="", flush=True)

    def load(self, server: Server, life: Life, began: float, until: float, part: int) -> Clients:
        """Clients and changes of the folder from now until a time, with a look at the memory each second."""
        rng = random.Random(f"{self.options.seed} {len(self.lives)} {part} files")
        seed = f"{self.options.seed} {len(self.lives)} {part}"
        clients = Clients(server.port, self.options.clients, seed, self.has_priorities())
        next_signal = began
        while (now := time.monotonic()) < until and server.process.poll() is None:
            life.rss_mb.append((round(now - began, 1), round(server.rss_mb(), 1)))
            self.show(life, clients, now - began)
            change_files(server.folder, rng)
            if now > next_signal:
                server.change_keys(rng)
                next_signal = now + SIGHUP_EVERY
            time.sleep(min(1.0, max(0.0, until - time.monotonic())))
        return clients

    def end(self, server: Server, clients: Clients, life: Life) -> None:
        """End the server while requests are under way; clients continue asking for a moment."""
        life.health_ms = server.health_ms()
        clients.ending.time = time.monotonic()
        clients.ending.kind = {"twice": "abort"}.get(life.ended_by, life.ended_by)
        server.process.send_signal(signal.SIGKILL if life.ended_by == "kill" else signal.SIGTERM)
        if life.ended_by == "twice":
            time.sleep(0.2)
            server.process.send_signal(signal.SIGTERM)
        time.sleep(LATE_SECONDS)
        clients.is_over = True
        try:
            code = server.process.wait(timeout=(END_SECONDS + 30) * self.build.patience)
        except subprocess.TimeoutExpired:
            life.faults.append("the server did not end")
            server.process.kill()
            code = server.process.wait()
        life.seconds_to_end = round(time.monotonic() - clients.ending.time, 1)
        clients.join()
        if code != (-signal.SIGKILL if life.ended_by == "kill" else 0):
            life.faults.append(f"the server ended with {code}")
        if life.ended_by in ("abort", "twice") and life.seconds_to_end > 10 * self.build.patience:
            life.faults.append(f"the server took {life.seconds_to_end} s to end at once")

    def live(self, ended_by: str, seconds: float) -> None:
        """One life of the server: load and pauses in turn, and its end."""
        life = Life(ended_by)
        log = self.folder / f"server-{len(self.lives) + 1}.log"
        flags = ["--shutdown-timeout", str(0 if ended_by == "abort" else END_SECONDS)]
        if len(self.lives) % 2 == 1:  # else those speculate that ask for it
            flags += ["--speculative-config", SPECULATION]
        if self.has_priorities():
            flags += ["--scheduling-policy", "priority"]
        server = Server(log, self.port, *flags)
        self.port = server.port
        began = time.monotonic()
        clients = None
        try:
            n_parts = max(2, round(seconds / PAUSE_EVERY))
            for part in range(n_parts):
                clients = self.load(server, life, began, began + seconds * (part + 1) / n_parts, part)
                if part + 1 == n_parts:
                    self.end(server, clients, life)
                else:
                    clients.is_over = True  # what is under way still ends as it should
                    clients.join()
                    life.pauses.append(server.pause(time.monotonic() - began, self.build.patience))
                    metrics = server.metrics()
                    life.n_preemptions = metrics["vllm:num_preemptions_total"]
                    life.n_guessed = metrics["vllm:spec_decode_num_accepted_tokens_total"]
                life.outcomes += clients.outcomes
                life.n_tokens += clients.n_tokens
        except (OSError, http.client.HTTPException) as error:
            life.faults.append(f"the server does not answer: {type(error).__name__} {error}")
        finally:
            if clients:
                clients.is_over = True
            server.watcher.kill()
            server.process.kill()
            server.process.wait()
        life.seconds = round(time.monotonic() - began, 1)
        judge_pauses(life, server.n_files, self.build)
        life.faults += [f"{count} x {outcome}" for outcome, count in life.outcomes.items() if outcome.startswith("WRONG")]
        life.faults += [f"{log}: {line}" for line in LOG_FAULTS.findall(log.read_text(errors="replace"))[:20]]
        self.lives.append(life)
        self.tell(life)

    def tell(self, life: Life) -> None:
        """A few lines about a life."""
        told = ", ".join(f"{count} {outcome}" for outcome, count in life.outcomes.most_common() if not outcome.startswith("WRONG"))
        clear = "\r\033[K" if sys.stdout.isatty() else ""
        print(f"{clear}life {len(self.lives)}: {life.seconds:.0f} s, ended by {life.ended_by} in {life.seconds_to_end} s: {told}")
        memory = " ".join(f"{pause['rss_mb']:.0f} ({pause['caches_mb']:.0f})" for pause in life.pauses)
        counts = f"{life.n_tokens} tokens, {life.n_preemptions:.0f} preemptions, {life.n_guessed:.0f} guessed"
        print(f"  {counts}; in the pauses {memory} MB (of them caches); /health at most {max(life.health_ms, default=0):.0f} ms")
        if life.pauses:
            print(f"  at the last: {', '.join(f'{what} {value:g}' for what, value in life.pauses[-1].items())}")
        for fault in life.faults:
            print(f"  FAULT: {fault}")
        sys.stdout.flush()

    def report(self) -> dict:
        """Everything that was seen, for --report."""
        version = subprocess.run([BINARY, "--version"], capture_output=True, text=True, check=False).stdout.strip()
        return {
            "program": str(BINARY),
            "version": version,
            "build": self.build.name,
            "options": vars(self.options),
            "flags": FLAGS,
            "lives": [vars(life) for life in self.lives],
        }


def main() -> int:
    """Return 0 if nothing was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=pathlib.Path, help="file for everything that was seen, in JSON")
    options = parser.parse_args()
    soak = Soak(options)
    print(f"{BINARY} ({soak.build.name}), logs in {soak.folder}", flush=True)
    seconds = 60 * options.minutes
    soak.live("drain", seconds / 2)
    for number in range(SHORT_LIVES):
        soak.live(ENDINGS[number % len(ENDINGS)], seconds / 2 / SHORT_LIVES)
    if options.report:
        options.report.write_text(json.dumps(soak.report(), default=str, indent=1) + "\n")
    n_faults = sum(len(life.faults) for life in soak.lives)
    n_requests = sum(sum(life.outcomes.values()) for life in soak.lives)
    print(f"{n_requests} requests in {len(soak.lives)} lives; {n_faults or 'no'} faults")
    return 1 if n_faults else 0


if __name__ == "__main__":
    sys.exit(main())
