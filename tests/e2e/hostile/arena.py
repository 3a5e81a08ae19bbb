"""What a case works with: a server, counters, and faults; and what is checked around every case."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import pathlib
import re
import subprocess
import time
from collections.abc import Callable

from conftest import BINARY, START_SECONDS, Server

from hostile import wire
from hostile.confine import ADDRESS_SPACE, GROUP_BYTES, MB, ControlGroup, make_control_group
from hostile.floods import Attack, Flood
from hostile.watch import Seen, Watch, percentile, status_field

KV_BYTES = 64 * MB  # small, so that all of it is touched in the first round
CLIENT_BYTES = 512 * MB
SHUTDOWN_SECONDS = 5
# Where memory is not confined from outside, the budgets are given, so that resident memory has a bound to be held to.
PLAIN_FLAGS = ["--kv-cache-memory-bytes", str(KV_BYTES), "--client-memory-bytes", str(CLIENT_BYTES)]
FLAGS = ["--shutdown-timeout", str(SHUTDOWN_SECONDS)]
SMALL_SECONDS = 10.0  # within which a small request of another client is answered, unless a case has a limit of its own
SETTLE_SECONDS = 20.0
LATE_END_SECONDS = 5.0  # that an end may take beyond --shutdown-timeout
N_ROUNDS = 3  # of a flood
MOST_ROUNDS = 10  # while memory grows
GROWTH_BYTES = 8 * MB  # memory that grows by more in each of MOST_ROUNDS rounds is a leak; what the allocator keeps is none
LOG_FAULTS = re.compile(r"^.*(?:Sanitizer|runtime error|check failed|terminate called|event=step_stuck).*$", re.MULTILINE)


@dataclasses.dataclass
class Row:
    """One line of the table."""

    case: str
    n_requests: int = 0
    peak_bytes: int = 0
    health_ms: list[float] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    faults: list[str] = dataclasses.field(default_factory=list)
    skipped: str = ""

    def cells(self) -> list[str]:
        """Case, requests, most resident memory, /health p99 and max, verdict."""
        watched = bool(self.health_ms)
        verdict = f"skipped: {self.skipped}" if self.skipped else f"FAULTS: {len(self.faults)}" if self.faults else "ok"
        return [
            self.case,
            str(self.n_requests) if self.n_requests else "",
            f"{self.peak_bytes / MB:.0f} MB" if self.peak_bytes else "",
            f"{percentile(self.health_ms, 0.99):.0f} ms" if watched else "",
            f"{max(self.health_ms):.0f} ms" if watched else "",
            verdict,
        ]


@dataclasses.dataclass
class State:
    """What must be as before when no client is there."""

    files: int
    threads: int
    running: int
    waiting: int
    budgets: int  # the sum of what all budgets have given
    resident: int


@dataclasses.dataclass
class Settings:
    """What the command line says."""

    health_ms: float = 250  # limit of 99% of the answers to /health; the slowest may take four times as long
    minutes: float = 10  # of the vanishing clients
    quick: bool = False
    slow_factor: float = 1  # of all limits of time, not of how long floods last or how often clients come
    memory_factor: float = 1  # of the limit of resident memory


QUICK_SECONDS = 10.0  # of a flood with --quick


class Skip(Exception):
    """A case cannot be tried here; the text says why."""


class Arena:
    """One server and its case."""

    def __init__(self, row: Row, folder: pathlib.Path, confinement: str, settings: Settings) -> None:
        """Nothing is started yet. `confinement`: "", "address space" or "control group"."""
        self.row = row
        self.folder = folder
        self.confinement = confinement
        self.settings = settings
        self.key = ""
        self.small_seconds = SMALL_SECONDS
        self.servers: list[Server] = []
        self.group: ControlGroup | None = None

    def seconds(self, limit: float) -> float:
        """A limit in seconds, times --slow-factor."""
        return limit * self.settings.slow_factor

    def start(self, *flags: str, open_files: int | None = None) -> Server:
        """Start a server, which `server` is from now on."""
        self.folder.mkdir(parents=True, exist_ok=True)
        log = self.folder / f"server-{len(self.servers) + 1}.log"
        limits: dict = {"open_files": open_files, "start_seconds": self.seconds(START_SECONDS)}
        if self.confinement == "address space":
            limits["address_space"] = ADDRESS_SPACE
        if self.confinement == "control group":
            group = make_control_group(GROUP_BYTES)
            if isinstance(group, str):
                raise Skip(group)
            self.group = group
            limits["control_group"] = group.folder
        given = [*FLAGS, *([] if self.confinement else PLAIN_FLAGS), *flags]
        server = Server(log, *given, **limits)
        self.servers.append(server)
        return server

    @property
    def server(self) -> Server:
        """The server that was started last."""
        return self.servers[-1]

    def fault(self, text: str) -> None:
        """Note what is wrong; the same sentence is noted once."""
        if text not in self.row.faults:
            self.row.faults.append(text)

    def expect(self, is_right: bool, text: str) -> bool:
        """Note a fault unless something is right."""
        if not is_right:
            self.fault(text)
        return is_right

    def ask(self, method: str, path: str, body: bytes | dict | None = None, timeout: float = 60) -> wire.Reply:
        """One request to the server; a connection that is cut is a fault, and has status 0. `timeout`: a limit for `seconds`."""
        self.row.n_requests += 1
        try:
            reply = wire.ask(self.server.port, method, path, body, key=self.key, timeout=self.seconds(timeout))
        except OSError as error:
            self.fault(f"{method} {path}: {type(error).__name__} {error}")
            return wire.Reply(0, {}, b"")
        if reply is None:
            self.fault(f"{method} {path}: the connection was cut without an answer")
            return wire.Reply(0, {}, b"")
        return reply

    def metrics(self) -> dict[str, float]:
        """The sum over labels of each metric."""
        values: dict[str, float] = collections.defaultdict(float)
        reply = wire.ask(self.server.port, "GET", "/metrics", timeout=self.seconds(60))
        for line in reply.body.decode().splitlines() if reply else ():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                values[name.split("{")[0]] += float(value)
        return values

    def state(self) -> State:
        """What the server holds now."""
        metrics = self.metrics()
        pid = self.server.process.pid
        return State(
            files=int(metrics["process_open_fds"]),
            threads=status_field(pid, "Threads"),
            running=int(metrics["vllm:num_requests_running"]),
            waiting=int(metrics["vllm:num_requests_waiting"]),
            budgets=int(metrics["baton:budget_used"]),
            resident=1024 * status_field(pid, "VmRSS"),
        )

    def settle(self, before: State, seconds: float = SETTLE_SECONDS) -> State:
        """Wait until the server holds no more than before; what remains after a limit of `seconds` is a fault."""
        seconds = self.seconds(seconds)
        deadline = time.monotonic() + seconds
        while True:
            now = self.state()
            is_clear = (
                now.files <= before.files
                and now.threads <= before.threads
                and not (now.running or now.waiting)
                and now.budgets <= before.budgets
            )
            if is_clear or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        if not is_clear:
            self.fault(f"left over {seconds:g} s after the last client: {now}; before: {before}")
        return now

    def warm_up(self) -> State:
        """A few requests, so that threads and buffers exist; what the server holds then."""
        for _ in range(4):
            self.ask("POST", "/v1/completions", {"prompt": "x", "max_tokens": 4})
            self.ask("POST", "/tokenize", {"prompt": "x"})
            self.ask("GET", "/metrics")
        time.sleep(0.3)
        return self.state()

    def judge(self, seen: Seen, before: State) -> None:
        """Compare what the watcher saw with what is allowed."""
        row = self.row
        row.health_ms += seen.health_ms
        row.n_requests += len(seen.health_ms) + len(seen.small_seconds)
        row.peak_bytes = max(row.peak_bytes, seen.peak_bytes)
        kinds = collections.Counter(seen.health_faults)
        for text, n in kinds.most_common(3):
            self.fault(f"{n} x {text}")
        late = percentile(seen.health_ms, 0.99)
        limit_ms = self.settings.health_ms * self.settings.slow_factor
        if late > limit_ms:
            self.fault(f"99% of /health within {late:.0f} ms; the limit is {limit_ms:g} ms")
        if seen.health_ms and max(seen.health_ms) > 4 * limit_ms:
            self.fault(f"the slowest /health took {max(seen.health_ms):.0f} ms; the limit is {4 * limit_ms:g} ms")
        for text in dict.fromkeys(seen.small_faults):
            self.fault(text)
        self.expect(not seen.small_cuts, f"{seen.small_cuts} small requests were cut without an answer")
        self.expect(bool(seen.small_seconds), "no small request was answered")
        slowest = max(seen.small_seconds, default=0.0)
        most = self.seconds(self.small_seconds)
        self.expect(slowest <= most, f"a small request took {slowest:.0f} s; the limit is {most:g} s")
        if not self.confinement:
            limit = self.settings.memory_factor * (before.resident + KV_BYTES + 1.1 * CLIENT_BYTES)
            if seen.peak_bytes > limit:
                self.fault(f"{seen.peak_bytes / MB:.0f} MB were resident; budgets and cache allow {limit / MB:.0f} MB")
        if seen.small_seconds:
            slowest = max(seen.small_seconds)
            row.notes.append(f"{len(seen.small_seconds)} small requests, slowest {slowest:.1f} s, {seen.small_refusals} refusals")

    def flood(self, attacks: list[Attack], seconds: float) -> None:
        """Rounds of a flood, watched, more of them while memory grows; what each leaves; and SIGTERM in the middle of one."""
        seconds = min(seconds, QUICK_SECONDS) if self.settings.quick else seconds
        before = self.warm_up()
        port, pid = self.server.port, self.server.process.pid
        resident: list[int] = []
        while len(resident) < N_ROUNDS or (self.grows(resident) and len(resident) < MOST_ROUNDS):
            watch = Watch(port, pid, self.key, self.settings.slow_factor)
            flood = Flood(port, attacks, seed=100 * len(resident), slow_factor=self.settings.slow_factor)
            time.sleep(seconds / N_ROUNDS)
            outcomes = flood.stop()
            self.judge(watch.end(), before)
            for name, counts in outcomes.items():
                self.row.n_requests += sum(counts.values())
                self.row.notes.append(f"{name}: {', '.join(f'{n} {what}' for what, n in counts.most_common(8))}")
                wrong = [what for what in counts if what.startswith("500") or "without a reason" in what]
                self.expect(not wrong, f"{name}: answers {wrong}")
            if self.server.process.poll() is not None:
                self.fault(f"the server ended with {self.server.process.returncode}")
                return
            resident.append(self.settle(before).resident)
        after = ", ".join(f"{n / MB:.0f}" for n in resident)
        self.expect(not self.grows(resident), f"resident memory grows from round to round: {after} MB")
        self.row.notes.append(f"resident before {before.resident / MB:.0f}, after {after} MB")
        flood = Flood(port, attacks, seed=1000, slow_factor=self.settings.slow_factor)
        time.sleep(min(3.0, seconds / N_ROUNDS))
        took = self.stop(self.server)
        flood.stop()
        self.row.notes.append(f"SIGTERM under load: {took:.1f} s")

    def grows(self, resident: list[int]) -> bool:
        """Whether each round left more resident than the one before, as the first use of a block of the cache does, too."""
        grown = [later - earlier for earlier, later in itertools.pairwise(resident)]
        return not self.confinement and min(grown) > GROWTH_BYTES

    def stop(self, server: Server) -> float:
        """SIGTERM; seconds until the end. Too long an end, and an exit code other than 0, are faults."""
        begin = time.monotonic()
        server.process.terminate()
        try:
            code = server.process.wait(timeout=SHUTDOWN_SECONDS + self.seconds(20))
        except subprocess.TimeoutExpired:
            self.fault("the server did not end by SIGTERM")
            server.process.kill()
            code = server.process.wait()
        took = time.monotonic() - begin
        self.expect(code == 0, f"the server ended with {code}")
        if took > SHUTDOWN_SECONDS + self.seconds(LATE_END_SECONDS):
            self.fault(f"the end took {took:.1f} s; --shutdown-timeout is {SHUTDOWN_SECONDS} s")
        return took

    def end(self) -> None:
        """Stop every server, and look at the logs."""
        for server in self.servers:
            if server.process.poll() is None:
                self.stop(server)
            elif server.process.returncode != 0:
                self.fault(f"the server ended with {server.process.returncode}")
            for line in LOG_FAULTS.findall(server.log.read_text(errors="replace"))[:5]:
                self.fault(f"log: {line[:300]}")
        if self.group is not None:
            self.row.notes.append(f"control group: at most {self.group.peak_bytes() / MB:.0f} MB")
            self.group.remove()


@dataclasses.dataclass
class Case:
    """A case: its name, what runs it, the flags of its server, and whether it is tried with confined memory too."""

    name: str
    run: Callable[[Arena], None]
    flags: tuple[str, ...] = ()
    key: str = ""
    starts_itself: bool = False
    is_confined: bool = False
    open_files: int | None = None


def has_flag(name: str) -> bool:
    """Whether `baton serve` has a flag."""
    told = subprocess.run([BINARY, "serve", "--help"], capture_output=True, text=True, check=True)
    return f"{name} " in told.stdout


def run_case(case: Case, folder: pathlib.Path, confinement: str, settings: Settings) -> Row:
    """One case from the start of its server to its end."""
    row = Row(f"{case.name} ({confinement})" if confinement else case.name)
    arena = Arena(row, folder, confinement, settings)
    arena.key = case.key
    try:
        if not case.starts_itself:
            arena.start(*case.flags, open_files=case.open_files)
        case.run(arena)
    except Skip as reason:
        row.skipped = str(reason)
    except (OSError, RuntimeError, TimeoutError, ValueError) as error:
        arena.fault(f"{type(error).__name__}: {str(error)[:400]}")
    finally:
        arena.end()
    return row
