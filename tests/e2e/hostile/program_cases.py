"""Cases around the program: its log, socket, keys, folders, files and configuration: issue 13, (5), (10), (11), (16) to (21)."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time

from conftest import BINARY

from hostile import wire
from hostile.arena import SHUTDOWN_SECONDS, Arena, Case, Skip, has_flag
from hostile.text_cases import model_folder

START_SECONDS = 30.0
N_LOG_LINES = 3000  # more than a pipe of 64 KiB holds, and than a bounded queue of lines should


def refused(arena: Arena, what: str, *flags: str, words: tuple[str, ...] = (), env: dict[str, str] | None = None) -> None:
    """A server that must not start: it says why in a sentence with `words`, and exits with 1 or 2."""
    command = [BINARY, "serve", "--host", "127.0.0.1", "--port", "0", *flags]
    arena.row.n_requests += 1
    try:
        environment = os.environ | (env or {})
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=arena.seconds(START_SECONDS), check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        return arena.fault(f"{what}: the server started")
    told = done.stderr + done.stdout
    arena.expect(done.returncode in (1, 2), f"{what}: exit code {done.returncode}: {told[-300:]}")
    for word in words:
        arena.expect(word in told, f"{what}: the message does not name {word}: {told[-300:]}")
    return None


def spawn(*flags: str, **options: object) -> subprocess.Popen:
    """A server whose outputs are the caller's."""
    command = [BINARY, "serve", "--host", "127.0.0.1", "--shutdown-timeout", str(SHUTDOWN_SECONDS), *flags]
    return subprocess.Popen(command, **options)


def free_port() -> int:
    """An unused port."""
    with socket.socket() as probe:
        probe.bind((wire.HOST, 0))
        return probe.getsockname()[1]


def wait_until_open(arena: Arena, port: int, process: subprocess.Popen) -> bool:
    """Whether a server answers on a port."""
    deadline = time.monotonic() + arena.seconds(START_SECONDS)
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            wire.connect(port).close()
            return True
        time.sleep(0.05)
    return False


def end(arena: Arena, process: subprocess.Popen, what: str, code_expected: int = 0) -> None:
    """SIGTERM, and the exit code."""
    if process.poll() is not None:
        return arena.fault(f"{what}: the server ended with {process.returncode}")
    process.terminate()
    try:
        code = process.wait(timeout=SHUTDOWN_SECONDS + arena.seconds(10))
        arena.expect(code == code_expected, f"{what}: the server ended with {code}")
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        arena.fault(f"{what}: the server did not end by SIGTERM")
    return None


def log_readers(arena: Arena) -> None:
    """A reader of the log that dies, and one that stops reading: the server continues."""
    for what in ("a dead reader", "a stalled reader", "a full disk"):
        port = free_port()
        ours, theirs = os.pipe()
        if what == "a full disk":
            os.close(theirs)
            theirs = os.open("/dev/full", os.O_WRONLY)
        process = spawn("--port", str(port), "--log-level", "debug", stdout=theirs, stderr=theirs)
        os.close(theirs)
        try:
            if not wait_until_open(arena, port, process):
                arena.fault(f"{what}: the server did not start: {process.poll()}")
                continue
            if what == "a dead reader":
                os.close(ours)
            for i in range(N_LOG_LINES):
                arena.row.n_requests += 1
                reply = wire.ask(port, "POST", "/tokenize", {"prompt": "x"}, timeout=arena.seconds(10))
                if reply is None or reply.status != 200:
                    arena.fault(f"{what}: request {i} got {reply and reply.status}")
                    break
            reply = wire.ask(port, "GET", "/health", timeout=arena.seconds(10))
            arena.expect(reply is not None and reply.status == 200, f"{what}: /health got {reply and reply.status}")
        except OSError as error:
            arena.fault(f"{what}: {type(error).__name__} {error}")
        finally:
            end(arena, process, what, 1 if what == "a full disk" else 0)  # 1 says that its output is lost
            if what != "a dead reader":
                os.close(ours)


def uds(arena: Arena) -> None:
    """Two servers on one Unix socket: one of them serves, the other says why not, and the socket stays."""
    arena.folder.mkdir(parents=True, exist_ok=True)
    path = str(arena.folder / "socket")
    for attempt in range(3):
        log = (arena.folder / "log").open("wb")
        both = [spawn("--uds", path, stdout=log, stderr=subprocess.STDOUT) for _ in range(2)]
        deadline = time.monotonic() + arena.seconds(START_SECONDS)
        while all(process.poll() is None for process in both) and time.monotonic() < deadline:
            time.sleep(0.1)
        living = [process for process in both if process.poll() is None]
        if arena.expect(len(living) == 1, f"attempt {attempt + 1}: {len(living)} of two servers on one socket run"):
            time.sleep(arena.seconds(2))  # the other may have been quick to say so
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(arena.seconds(10))
                try:
                    client.connect(path)
                    client.sendall(wire.request_bytes("GET", "/health"))
                    reply = wire.Reader(client).reply(arena.seconds(10))
                    arena.expect(reply is not None and reply.status == 200, "the server that runs does not answer on its socket")
                except OSError as error:
                    arena.fault(f"the server that runs is not at its socket: {error}")
        arena.row.n_requests += 1
        for process in living:
            end(arena, process, "a server on a Unix socket")
        log.close()
        arena.expect(not pathlib.Path(path).exists(), "the socket is left behind")


def keys(arena: Arena) -> None:
    """A key with a comma is one key; an empty one is refused, wherever it comes from."""
    refused(arena, "--api-key ''", "--api-key", "", words=("api-key",))
    refused(arena, "BATON_API_KEY=", words=("api-key",), env={"BATON_API_KEY": ""})
    server = arena.start("--api-key", "with,comma")
    for key, status in (("with,comma", 200), ("with", 401), ("comma", 401), ("", 401), ("with,comma ", 200), ("\x00", 400)):
        arena.row.n_requests += 1
        reply = wire.ask(server.port, "POST", "/tokenize", {"prompt": "x"}, key=key, timeout=arena.seconds(60))
        is_right = reply is not None and (reply.status == status or (status == 400 and reply.status == 401))
        arena.expect(is_right, f"the key {key!r} got {reply and reply.status}")


def prefix_folders(arena: Arena) -> None:
    """Links out of a prefix folder are not followed, and names of files cannot forge log lines."""
    folder = arena.folder / "prefixes"
    folder.mkdir(parents=True)
    outside = arena.folder / "outside.txt"
    outside.write_text("a secret of the machine " * 20)
    (folder / "inside.txt").write_text("a public text")
    (folder / "relative.txt").symlink_to("inside.txt")
    (folder / "absolute.txt").symlink_to(outside)
    (folder / "upwards.txt").symlink_to("../outside.txt")
    (folder / "device.txt").symlink_to("/dev/zero")
    (folder / "loop.txt").symlink_to("loop.txt")
    (folder / "a\nlevel=error event=forged.txt").write_text("x")
    os.mkfifo(folder / "pipe.txt")
    server = arena.start("--prefix-folder", str(folder))
    time.sleep(arena.seconds(1))
    listed = {entry["id"] for entry in json.loads(arena.ask("GET", "/v1/prefixes").body)["data"]}
    arena.expect("inside" in listed, f"the folder's own file is not served: {listed}")
    for name in ("absolute", "upwards", "device", "loop", "pipe"):
        arena.expect(name not in listed, f"{name}.txt leads out of the folder and is served")
    forged = re.search(r"^level=error event=forged", server.log.read_text(), re.MULTILINE)
    arena.expect(forged is None, "the name of a file forged a log line")


def full_stderr(arena: Arena) -> None:
    """Errors at start with an output that takes nothing: the exit code says so, and no signal ends the program."""
    for flags in (["--no-such-flag"], ["--model", "/nowhere"], ["--port", "99999999"], ["--prefix", "a=/nowhere"]):
        with open("/dev/full", "wb") as full:  # noqa: PTH123
            process = spawn(*flags, stdout=full, stderr=full)
            arena.row.n_requests += 1
            try:
                code = process.wait(timeout=arena.seconds(START_SECONDS))
                arena.expect(code in (1, 2), f"{flags} with a full stderr: exit code {code}")
            except subprocess.TimeoutExpired:
                process.kill()
                arena.fault(f"{flags} with a full stderr: the server started")


def generation_configs(arena: Arena) -> None:
    """Values of generation_config.json that no request could have are refused at start."""
    arena.folder.mkdir(parents=True, exist_ok=True)
    model = model_folder(arena.folder)
    original = json.loads((model / "generation_config.json").read_text()) | {"do_sample": True}
    for field, value in (
        ("temperature", '"hot"'),
        ("temperature", "-1"),
        ("temperature", "1e999"),
        ("top_p", "5"),
        ("top_k", "1.5"),
        ("top_k", "99999999999999999999"),
        ("min_p", "-1"),
        ("repetition_penalty", "0"),
        ("max_new_tokens", "-1"),
        ("eos_token_id", "4000000000"),
        ("eos_token_id", '[5, "x"]'),
    ):
        text = json.dumps(original | {field: "@place@"}).replace('"@place@"', value)
        (model / "generation_config.json").write_text(text)
        refused(arena, f"generation_config.json, {field} {value}", str(model), words=("generation_config.json",))


def few_files(arena: Arena) -> None:
    """A server that may open few files, and clients that hold all its connections: /health answers all the same."""
    server = arena.start(open_files=200)
    held = [wire.connect(server.port) for _ in range(400)]
    time.sleep(0.5)
    for _ in range(20):
        reply = arena.ask("GET", "/health", timeout=10)
        arena.expect(reply.status == 200, f"/health got {reply.status} {reply.body[:100]!r}")
    for connection in held:
        connection.close()
    time.sleep(arena.seconds(1))
    reply = arena.ask("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1})
    arena.expect(reply.status == 200, f"after the clients have left, a request got {reply.status}")


def one_address(arena: Arena) -> None:
    """--max-connections-per-address: one address cannot take all connections."""
    if not has_flag("--max-connections-per-address"):
        raise Skip("this program has no --max-connections-per-address")
    server = arena.start("--max-connections-per-address", "10")
    held = [wire.connect(server.port) for _ in range(10)]
    time.sleep(arena.seconds(0.3))
    arena.row.n_requests += 2
    beyond = None
    with contextlib.suppress(OSError):
        beyond = wire.ask(server.port, "POST", "/tokenize", {"prompt": "x"}, timeout=arena.seconds(10))
    is_refused = beyond is None or beyond.status in (429, 503)
    arena.expect(is_refused, f"the eleventh connection of an address got {beyond and beyond.status}")
    elsewhere = socket.create_connection((wire.HOST, server.port), timeout=arena.seconds(10), source_address=("127.0.0.2", 0))
    elsewhere.sendall(wire.request_bytes("POST", "/tokenize", b'{"prompt": "x"}'))
    reply = wire.Reader(elsewhere).reply(arena.seconds(10))
    arena.expect(reply is not None and reply.status == 200, f"another address got {reply and reply.status}")
    for connection in [*held, elsewhere]:
        connection.close()


def signals(arena: Arena) -> None:
    """SIGPIPE from outside does not end a server. SIGHUP ends one that has no key file; key_cases sends it to one that has."""
    server = arena.start()
    server.process.send_signal(signal.SIGPIPE)
    time.sleep(arena.seconds(0.3))
    arena.expect(arena.ask("GET", "/health").status == 200, "after SIGPIPE /health does not answer")


def clocks(_: Arena) -> None:
    """Lifetimes on a steady clock, and checked downloads."""
    raise Skip("needs a machine whose clock may be set, and a hub; tests/server and tests/io try it within the program")


CASES = [
    Case("(5) one address", one_address, starts_itself=True),
    Case("(10) readers of the log", log_readers, starts_itself=True),
    Case("(11) two servers on one Unix socket", uds, starts_itself=True),
    Case("(16) keys", keys, starts_itself=True),
    Case("(17) prefix folders", prefix_folders, starts_itself=True),
    Case("(18) errors with a full stderr", full_stderr, starts_itself=True),
    Case("(19) generation_config.json", generation_configs, starts_itself=True),
    Case("(20) few files", few_files, starts_itself=True),
    Case("(21) clocks and downloads", clocks, starts_itself=True),
    Case("signals", signals, starts_itself=True),
]
