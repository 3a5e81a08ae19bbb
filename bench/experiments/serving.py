"""A server for the length of a job, and `baton bench serve` against it."""

import contextlib
import json
import socket
import time
import urllib.error
import urllib.request

from harness import CommandFailed, OutOfTime
from offline_jobs import MAX_NUM_SEQS
from result_rows import REPOSITORY
from workloads import model_folder

ARM_FLAGS = {
    "relay": [],
    "paged": ["--attention", "paged"],
    "unshared": ["--attention", "paged", "--no-enable-prefix-caching"],
}
READY_SECONDS = 120


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def served_model(settings, shape):
    """Arguments of `baton serve` for the model: random weights in the shape, or the demo model in the small scales."""
    if settings.is_full:
        return [model_folder(shape, settings.data), "--load-format", "dummy"]
    return [REPOSITORY / "models" / "demo"]


@contextlib.contextmanager
def server(runner, shape, arm):
    """Runs `baton serve` in an arm and gives (its URL, its command line). Errors: CommandFailed if it ends before
    it is ready."""
    settings, port = runner.settings, free_port()
    arguments = ["serve", *served_model(settings, shape), "--device", settings.device, "--host", "127.0.0.1", "--port", port]
    arguments += ["--served-model-name", "bench", "--log-level", "warning", *ARM_FLAGS[arm]]
    arguments += ["--max-num-seqs", MAX_NUM_SEQS] if settings.is_full else []
    with (runner.scratch / "server.log").open("w+", encoding="utf-8", errors="replace") as log:
        process = runner.start(arguments, log)
        command = runner.command
        try:
            wait_until_ready(runner, process, f"http://127.0.0.1:{port}/health", log)
            yield f"http://127.0.0.1:{port}", command
        finally:
            runner.stop(process)


def wait_until_ready(runner, process, url, log):
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            log.seek(0)
            raise CommandFailed("baton serve ended: " + " / ".join(log.read().splitlines()[-2:]))
        if runner.seconds_left() <= 0:
            raise OutOfTime("while the server loaded")
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError), urllib.request.urlopen(url, timeout=2):
            return
        time.sleep(0.2)
    raise CommandFailed(f"baton serve was not ready within {READY_SECONDS} s")


def wanted_of_answers(settings):
    """Flags of `baton bench serve`. Random weights generate ids of the whole vocabulary, and of most the shapes' tokenizer (32,000
    tokens of Llama-2) has no text: without their ids no chunk would say that they came."""
    return ["--extra-body", json.dumps({"return_token_ids": True})] if settings.is_full else []


def load(runner, url, arguments):
    """One `baton bench serve` at one rate; returns its numbers."""
    folder = runner.scratch / "serve"
    folder.mkdir(exist_ok=True)
    path = folder / "result.json"
    path.unlink(missing_ok=True)
    begin = time.monotonic()
    saved = ["--save-result", "--result-dir", folder, "--result-filename", path.name]
    runner.run(["bench", "serve", "--base-url", url, "--model", "bench", *arguments, *wanted_of_answers(runner.settings), *saved])
    runner.begin = begin
    report = json.loads(path.read_text(encoding="utf-8"))
    # Names, flags and paths stand in the row's command.
    return {key: value for key, value in report.items() if key == "first_errors" or isinstance(value, int | float)}
