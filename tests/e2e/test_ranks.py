"""Tensor parallelism over processes: equal answers, and what happens when a rank dies or hangs.

`BATON_RANK_KILLS=200` kills that many servers' ranks at random moments; the suite does a few. `BATON_RANK_SEED` repeats a run.
`BATON_RANK_DEVICE=cuda` runs the ranks on GPUs, and `BATON_MOST_RANKS` says how many there are.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest
from conftest import BINARY

N_KILLS = int(os.environ.get("BATON_RANK_KILLS", "6"))
SEED = int(os.environ.get("BATON_RANK_SEED", str(random.randrange(1 << 30))))
DEVICE = os.environ.get("BATON_RANK_DEVICE", "cpu")
N_RANKS = [n for n in (2, 4) if n <= int(os.environ.get("BATON_MOST_RANKS", "4"))]
DTYPE = "float32" if DEVICE == "cpu" else "bfloat16"
MOST_SECONDS = 10.0
PROMPT = {
    "model": "demo",
    "messages": [{"role": "user", "content": "What does the trail lamp cost?"}],
    "max_tokens": 200,
}


def children_of(process: int) -> list[int]:
    """Return the processes that `process` has started."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            fields = stat.read_text().rsplit(")", 1)[1].split()
            if int(fields[1]) == process:
                found.append(int(stat.parent.name))
    return sorted(found)


def is_running(process: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Ranks:
    """A server of several ranks, which may end at any moment."""

    def __init__(self, log: pathlib.Path, n_ranks: int, *flags: str) -> None:
        """Start the server."""
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [
                    BINARY,
                    "serve",
                    "demo",
                    "--device",
                    DEVICE,
                    "--host",
                    "127.0.0.1",
                    "--port",
                    "0",
                    "--tensor-parallel-size",
                    str(n_ranks),
                    *flags,
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.n_ranks = n_ranks
        self.n_answers = 0

    def text(self) -> str:
        """Return what the ranks have logged."""
        return self.log.read_text(errors="replace")

    def url(self) -> str | None:
        """Return where the server answers, once it does."""
        found = re.search(r"http://127\.0\.0\.1:\d+", self.text())
        return found[0] if found else None

    def wait_until(self, holds, seconds: float) -> bool:
        """Wait until `holds()`; False if that takes too long."""
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def wait_ready(self) -> list[int]:
        """Wait until the server answers and return the processes of ranks 1 and up."""
        assert self.wait_until(lambda: self.url() or self.process.poll() is not None, 60), self.text()
        assert self.process.poll() is None, self.text()
        return children_of(self.process.pid)

    def ask(self) -> None:
        """Send requests, one after the other, until one fails."""
        while (url := self.url()) is None and self.process.poll() is None:
            time.sleep(0.02)
        with contextlib.suppress(OSError, urllib.error.URLError):
            while url is not None:
                self.answer(url, PROMPT)
                self.n_answers += 1

    @staticmethod
    def answer(url: str, body: dict) -> dict:
        """Return the answer to a chat completion."""
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())

    def watch_health(self, seen: list[tuple[int, str]]) -> None:
        """Collect what /health answers until the server is gone."""
        while self.process.poll() is None:
            if (url := self.url()) is not None:
                try:
                    with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
                        seen.append((answer.status, ""))
                except urllib.error.HTTPError as error:
                    seen.append((error.code, error.read().decode()))
                except (OSError, urllib.error.URLError):
                    pass
            time.sleep(0.1)

    def stop(self) -> None:
        """Kill what still runs."""
        for process in [*children_of(self.process.pid), self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def ranks(tmp_path):
    """Return a function that starts a server of n ranks; what still runs is killed at the end."""
    started = []

    def start(n_ranks: int, *flags: str) -> Ranks:
        started.append(Ranks(tmp_path / f"ranks{len(started)}.log", n_ranks, *flags))
        return started[-1]

    yield start
    for each in started:
        each.stop()


def shared_memory() -> set[str]:
    """Return the names of shared memory that outlives its processes."""
    return {path.name for path in pathlib.Path("/dev/shm").glob("*")}


def generate_command(n_ranks: int, *flags: str) -> list[str | pathlib.Path]:
    """Return the command of `baton generate` that reads its prompts from standard input."""
    command = [BINARY, "generate", "demo", "--device", DEVICE, "--prompts", "-"]
    return [*command, "--tensor-parallel-size", str(n_ranks), *flags]


@pytest.mark.parametrize("n_ranks", N_RANKS)
def test_answers_are_those_of_one_rank(n_ranks):
    lines = "\n".join(
        json.dumps(
            {
                "prompt": f"Item {i} of the catalogue is",
                "max_tokens": 16,
                "temperature": 0,
            }
        )
        for i in range(4)
    )
    answers = []
    for n in (1, n_ranks):
        done = subprocess.run(
            generate_command(n, "--dtype", DTYPE),
            input=lines,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answers.append([json.loads(line)["text"] for line in done.stdout.splitlines()])
    assert len(answers[0]) == 4
    assert answers[0] == answers[1]


@pytest.mark.parametrize("n_ranks", N_RANKS)
def test_batch_invariant_answers_have_the_same_bits_however_the_work_is_cut(n_ranks):
    prompts = [f"Item {i} of the catalogue, which has {'very ' * (7 * i)}many items, is" for i in range(12)]
    lines = "\n".join(json.dumps({"prompt": prompt, "max_tokens": 16, "logprobs": 1}) for prompt in prompts)

    def ids_and_logprobs(*flags: str) -> list[tuple]:
        command = generate_command(n_ranks, "--batch-invariant", "--dtype", DTYPE, *flags)
        done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        outputs = [json.loads(line) for line in done.stdout.splitlines()]
        return [(output["token_ids"], output["logprobs"]) for output in outputs]

    together = ids_and_logprobs()
    assert len(together) == len(prompts)
    assert all(logprobs for _, logprobs in together)
    assert ids_and_logprobs("--max-num-seqs", "1") == together
    assert ids_and_logprobs("--attention", "paged", "--enforce-eager") == together
    assert ids_and_logprobs("--max-num-batched-tokens", "32", "--no-enable-prefix-caching") == together


def test_all_ranks_log_at_the_level_of_rank_0():
    for level, logs in (("info", True), ("warning", False)):
        command = generate_command(2, "--log-level", level)
        done = subprocess.run(
            command, input='{"prompt": "a", "max_tokens": 1}', capture_output=True, text=True, timeout=60, check=True
        )
        assert ("event=rank_loaded" in done.stderr) == logs, done.stderr


def test_sigterm_ends_all_ranks_in_order(ranks):
    served = ranks(N_RANKS[-1])
    others = served.wait_ready()
    assert len(others) == served.n_ranks - 1
    # As a terminal or a supervisor does it: the signal goes to every process.
    for process in [*others, served.process.pid]:
        os.kill(process, signal.SIGTERM)
    assert served.process.wait(MOST_SECONDS) == 0, served.text()
    assert not any(is_running(process) for process in others)
    assert "rank_lost" not in served.text()


def kill_one(served: Ranks, chance: random.Random) -> None:
    """Kill a rank, a third of the time before the server is ready and else under load, and check how the service ends."""
    asking = threading.Thread(target=served.ask)
    asking.start()
    seen: list[tuple[int, str]] = []
    watching = threading.Thread(target=served.watch_health, args=(seen,))
    watching.start()
    was_ready = chance.random() > 1 / 3
    if was_ready:
        served.wait_ready()
        assert served.wait_until(lambda: served.n_answers > 0, 30), "nothing is asked"
        time.sleep(chance.uniform(0, 1))
    else:
        assert served.wait_until(lambda: len(children_of(served.process.pid)) == served.n_ranks - 1, 30), served.text()
        time.sleep(chance.uniform(0, 0.5))
    others = children_of(served.process.pid)
    victim = chance.choice([served.process.pid, *others])
    begin = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    code = served.process.wait(MOST_SECONDS)
    assert served.wait_until(lambda: not any(is_running(each) for each in others), MOST_SECONDS), served.text()
    seconds = time.monotonic() - begin
    asking.join(MOST_SECONDS)
    watching.join(MOST_SECONDS)
    assert seconds < MOST_SECONDS, (seconds, served.text())
    assert not asking.is_alive(), "a request has no answer"
    if victim == served.process.pid:
        return
    assert code == 1, (code, served.text())
    sentences = [line for line in served.text().splitlines() if line.startswith("baton serve: ")]
    assert len(sentences) == 1, served.text()
    assert re.search(rf"rank \d+ \(process {victim}\)", sentences[0]), sentences
    if was_ready:
        told = [text for status, text in seen if status == 503]
        assert told, seen[-5:]
        assert f"process {victim}" in told[0], told


def test_a_killed_rank_ends_the_service_whenever_it_dies(ranks):
    print(f"BATON_RANK_SEED={SEED}")
    chance = random.Random(SEED)
    memory_before = shared_memory()
    for _ in range(N_KILLS):
        kill_one(ranks(chance.choice(N_RANKS)), chance)
    assert shared_memory() == memory_before


def test_a_stopped_rank_ends_the_service(ranks):
    served = ranks(2)
    (other,) = served.wait_ready()
    seen: list[tuple[int, str]] = []
    watching = threading.Thread(target=served.watch_health, args=(seen,))
    watching.start()
    os.kill(other, signal.SIGSTOP)
    assert served.process.wait(MOST_SECONDS) == 1, served.text()
    watching.join(MOST_SECONDS)
    assert not is_running(other)
    assert "has given no sign of life" in served.text()
    assert any(status == 503 and "no sign of life" in text for status, text in seen), seen[-5:]


def test_a_rank_that_stands_still_for_a_moment_continues(ranks):
    served = ranks(2)
    (other,) = served.wait_ready()
    for process in (other, served.process.pid):
        os.kill(process, signal.SIGSTOP)
        time.sleep(2)
        os.kill(process, signal.SIGCONT)
    answer = served.answer(served.url(), PROMPT | {"max_tokens": 4})
    assert answer["usage"]["completion_tokens"] == 4
    assert "rank_lost" not in served.text()


def test_the_other_ranks_end_when_rank_0_stands_still(ranks):
    served = ranks(N_RANKS[-1], "--rank-hang-timeout", "2")
    others = served.wait_ready()
    os.kill(served.process.pid, signal.SIGSTOP)
    assert served.wait_until(lambda: not any(is_running(each) for each in others), MOST_SECONDS)
    os.kill(served.process.pid, signal.SIGCONT)
    assert served.process.wait(MOST_SECONDS) == 1, served.text()
    assert re.search(r"baton serve: rank \d \(process \d+\)", served.text()), served.text()
    told = "rank 0 (process " + str(served.process.pid) + ") has given no sign of life for 2.0 s"
    assert told in served.text(), "rank 0's limit counts on the other ranks"


def test_a_rank_that_cannot_load_ends_the_start_with_its_sentence(tmp_path):
    done = subprocess.run(
        [
            BINARY,
            "serve",
            "demo",
            "--port",
            "0",
            "--tensor-parallel-size",
            "3",
            "--rank",
            "1",
            "--world-size",
            "2",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "both must be equal" in done.stderr


def test_ranks_of_a_launcher_find_each_other(tmp_path):
    """Start the processes as mpirun does: the same command, told apart by the environment."""
    line = json.dumps({"prompt": "The catalogue", "max_tokens": 4, "temperature": 0})
    started = []
    for rank in (1, 0):
        place = {
            "OMPI_COMM_WORLD_RANK": str(rank),
            "OMPI_COMM_WORLD_SIZE": "2",
            "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
        }
        process = subprocess.Popen(
            generate_command(2, "--master-port", "29517"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **place},
        )
        started.append(process)
    second, first = started
    output, errors = first.communicate(line, timeout=60)
    assert first.returncode == 0, errors
    assert json.loads(output)["text"]
    _, errors = second.communicate(timeout=60)
    assert second.returncode == 0, errors
