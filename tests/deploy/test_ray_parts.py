"""The parts of the Ray application that need no cluster: prompts, the choice of a replica, pages of metrics, settings."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import BINARY, DEPLOY

pytest.importorskip("ray", reason="Ray is not installed (deploy/ray/requirements.txt)")

from baton_ray.application import Settings, build, command_line  # noqa: E402
from baton_ray.errors import error_body, error_events  # noqa: E402
from baton_ray.metrics_pages import merge_pages  # noqa: E402
from baton_ray.passed_request import PassedRequest, prompt_text  # noqa: E402
from baton_ray.prefix_router import ReplicaChoice, block_hashes  # noqa: E402
from baton_ray.process import BatonProcess  # noqa: E402
from baton_ray.replica import whole_events  # noqa: E402


def choice(**changed: float) -> ReplicaChoice:
    """A policy with small blocks."""
    settings = {"block_chars": 4, "max_blocks": 64, "capacity": 1000, "min_match": 0.2, "max_imbalance": 8}
    return ReplicaChoice(**(settings | changed))


def place(policy: ReplicaChoice, prompt: str, loads: dict[str, int]) -> str:
    """Choose, and remember."""
    replica = policy.rank(prompt, loads)[0]
    policy.sent(prompt, replica)
    return replica


def test_a_block_hash_covers_all_text_before_it() -> None:
    first, second = block_hashes("aaaabbbbcccc", 4, 64), block_hashes("xaaabbbbcccc", 4, 64)
    assert len(first) == 3
    assert not set(first) & set(second)
    assert block_hashes("aaaabbbbdd", 4, 64) == first[:2]
    assert len(block_hashes("", 4, 64)) == len(block_hashes("abc", 4, 64)) == 1
    assert len(block_hashes("abcd" * 100, 4, 64)) == 64


def test_sixteen_prompts_spread_evenly_and_stay_where_they_are() -> None:
    policy, loads = choice(), {"a": 0, "b": 0}
    shared = [f"{n:04d}" * 20 for n in range(16)]
    first = {prompt: place(policy, prompt + "ask me", loads) for prompt in shared}
    assert sorted(first.values()).count("a") == 8
    order = random.Random(1)
    for _ in range(200):
        prompt = order.choice(shared)
        assert place(policy, prompt + str(order.random()), loads) == first[prompt]


def test_the_longest_known_beginning_wins() -> None:
    policy = choice()
    policy.sent("base" * 4, "a")
    policy.sent("base" * 4 + "more" * 4, "b")
    assert policy.rank("base" * 4 + "more" * 4 + "this", {"a": 0, "b": 5})[0] == "b"


def test_an_overloaded_replica_gets_neither_known_nor_new_prompts() -> None:
    policy = choice()
    policy.sent("base" * 4, "a")
    assert policy.rank("base" * 4, {"a": 8, "b": 0})[0] == "a"
    assert policy.rank("base" * 4, {"a": 9, "b": 0})[0] == "b"
    assert policy.rank("news" * 4, {"a": 1, "b": 12})[0] == "a"


def test_an_empty_replica_does_not_get_all_new_prompts() -> None:
    policy, loads = choice(), {"old": 0, "new": 0}
    for number in range(50):
        policy.sent(f"{number:04d}" * 4, "old")
    for number in range(8):
        loads[place(policy, f"x{number:03d}" * 4, loads)] += 1
    assert loads["old"] >= 3


def test_a_beginning_that_is_a_small_part_does_not_bind() -> None:
    policy = choice()
    policy.sent("base" + "aaaa" * 15, "a")
    assert policy.rank("base" + "bbbb" * 15, {"a": 0, "b": 0})[0] == "b"


def test_requests_without_a_prompt_go_where_the_load_is_lowest() -> None:
    policy = choice()
    policy.sent("base", "a")
    assert policy.rank("", {"a": 1, "b": 2}) == ["a", "b"]


def test_a_lost_replica_is_forgotten_and_old_blocks_too() -> None:
    policy = choice(capacity=4)
    policy.sent("base" * 4, "a")
    policy.keep_only(["b"])
    policy.sent("xxxx", "b")
    assert policy.rank("base" * 4, {"a": 0, "b": 0})[0] == "a"  # it holds the fewest, not the prompt
    policy.sent("base" * 4, "b")
    policy.sent("news" * 4, "b")
    assert policy.rank("base" * 4, {"b": 0, "c": 0})[0] == "c"


@pytest.mark.parametrize(
    ("path", "fields", "text"),
    [
        (
            "/v1/chat/completions",
            {"messages": [{"role": "system", "content": "A"}, {"role": "user", "content": "B"}]},
            "system\nA user\nB",
        ),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "text", "text": "B"}]}]}, "user\nB"),
        ("/v1/completions", {"prompt": "A"}, "A"),
        ("/v1/completions", {"prompt": [1, 2]}, "1 2"),
        ("/v1/messages", {"system": "A", "messages": [{"role": "user", "content": "B"}]}, "A\nuser\nB"),
        ("/v1/responses", {"instructions": "A", "input": "B"}, "A\nB"),
        ("/v1/chat/completions", {"model": "demo:shop", "messages": []}, "shop"),
        ("/v1/chat/completions", {"cache_salt": "s", "prefix": "shop", "messages": []}, "s\nshop"),
        ("/v1/chat/completions", {"messages": 7.5}, "-"),
    ],
)
def test_the_text_of_a_prompt(path: str, fields: dict, text: str) -> None:
    assert PassedRequest("POST", path, [], json.dumps(fields).encode()).prompt == text
    assert prompt_text(fields) == text


@pytest.mark.parametrize("body", [b"", b"no json", b"[1]", b"\xff"])
def test_bodies_that_are_no_object_are_left_to_the_replica(body: bytes) -> None:
    assert PassedRequest("POST", "/v1/completions?x=1", [], body).prompt == "-"
    assert PassedRequest("GET", "/v1/models", [], body).prompt == ""


def test_only_the_request_travels() -> None:
    request = PassedRequest("POST", "/v1/completions", [("a", "b")], b'{"prompt": "' + b"x" * 1000 + b'"}')
    assert len(request.prompt) == 1000
    packed = pickle.dumps(request)
    assert len(packed) < 1400
    assert pickle.loads(packed).prompt == request.prompt


def test_pages_of_metrics_become_one() -> None:
    page = '# HELP a_total Text of a.\n# TYPE a_total counter\na_total{x="1"} 2\n# HELP b Text.\n# TYPE b gauge\nb 3\n'
    assert merge_pages({"r1": page, "r2": page}) == (
        "# HELP a_total Text of a.\n# TYPE a_total counter\n"
        'a_total{x="1",replica="r1"} 2\na_total{x="1",replica="r2"} 2\n'
        '# HELP b Text.\n# TYPE b gauge\nb{replica="r1"} 3\nb{replica="r2"} 3\n'
    )


async def _collect(pieces: list[bytes]) -> list[bytes]:
    async def stream():
        for piece in pieces:
            yield piece

    return [events async for events in whole_events(stream())]


def test_event_streams_are_cut_after_events_only() -> None:
    text = b"data: 1\n\ndata: 2\n\ndata: [DONE]\n\n"
    for cut in range(len(text)):
        got = asyncio.run(_collect([text[:cut], text[cut:]]))
        assert b"".join(got) == text
        assert all(part.endswith(b"\n\n") for part in got)
    assert asyncio.run(_collect([b"data: 1\n\nda", b"ta"])) == [b"data: 1\n\n", b"data"]


def test_errors_have_the_form_of_their_route() -> None:
    assert json.loads(error_body("/v1/chat/completions", 503, "why"))["error"]["code"] == 503
    assert json.loads(error_body("/v1/messages", 503, "why")) == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "why"},
    }
    assert error_events("/v1/completions", "why").endswith(b"\n\ndata: [DONE]\n\n")
    for path in ("/v1/messages", "/v1/responses"):
        assert error_events(path, "why").startswith(b"event: error\ndata: {")


def test_flags_become_a_command_line() -> None:
    flags = {"max_num_seqs": 4, "--prefix": ["a=1", "b=2"], "enforce-eager": True}
    command = command_line(Settings(binary="/b", model="m", tensor_parallel_size=2, gpus=True, flags=flags))
    assert command == [
        *("/b", "serve", "m", "--host", "127.0.0.1", "--port", "0", "--tensor-parallel-size", "2", "--device", "cuda"),
        *("--max-num-seqs", "4", "--prefix", "a=1", "--prefix", "b=2", "--enforce-eager"),
    ]


@pytest.mark.parametrize(
    "wrong", [{"router": "best"}, {"flags": {"port": 1}}, {"flags": {"--tensor_parallel_size": 2}}, {"modle": "m"}]
)
def test_settings_that_mean_nothing_are_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match=str(next(iter(wrong)))):
        build(wrong)


def test_the_configurations_in_the_tree_make_applications() -> None:
    yaml = pytest.importorskip("yaml")
    for path in (DEPLOY / "ray").glob("*.yaml"):
        for application in yaml.safe_load(path.read_text())["applications"]:
            build(application["args"])


def test_a_program_that_cannot_start_says_why() -> None:
    log = logging.getLogger("test")
    with pytest.raises(RuntimeError, match=r"did not start|ended with exit code"):
        BatonProcess(["/no/such/baton", "serve"], log, lambda _: None).start(10)
    with pytest.raises(RuntimeError, match=r"ended with exit code 3\n  no such model"):
        BatonProcess(["sh", "-c", "echo no such model; exit 3"], log, lambda _: None).start(10)
    with pytest.raises(RuntimeError, match="was not ready within 0.2 s"):
        BatonProcess(["sleep", "60"], log, lambda _: None).start(0.2)


@pytest.mark.skipif(not BINARY.exists(), reason=f"there is no {BINARY}")
def test_a_process_that_is_killed_is_reported_and_one_that_is_stopped_is_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    ends: list[str] = []
    ended = threading.Event()

    def note(sentence: str) -> None:
        ends.append(sentence)
        ended.set()

    command = [str(BINARY), "serve", "demo", "--host", "127.0.0.1", "--port", "0", "--kv-cache-memory-bytes", "64M"]
    process = BatonProcess(command, logging.getLogger("test"), note)
    process.start(60)
    assert any("event=serving" in line for line in caplog.messages)
    subprocess.run(["kill", "-9", str(process.pid)], check=True)
    assert ended.wait(10)
    assert "was ended by signal 9" in ends[0] or "exit code 137" in ends[0]

    stopped = BatonProcess(command, logging.getLogger("test"), note)
    stopped.start(60)
    stopped.stop(30)
    time.sleep(0.2)
    assert len(ends) == 1


@pytest.mark.skipif(not BINARY.exists(), reason=f"there is no {BINARY}")
def test_a_server_ends_with_its_owner(tmp_path: Path) -> None:
    script = (
        "import logging, sys, time\n"
        "from baton_ray.process import BatonProcess\n"
        f"p = BatonProcess([{str(BINARY)!r}, 'serve', 'demo', '--host', '127.0.0.1', '--port', '0',"
        " '--kv-cache-memory-bytes', '64M'], logging.getLogger(), print)\n"
        "p.start(60)\nprint(p.pid, flush=True)\ntime.sleep(600)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    server = Path("/proc") / owner.stdout.readline().strip()
    assert server.exists()
    owner.kill()
    owner.wait()
    deadline = time.monotonic() + 20
    while server.exists() and "State:\tZ" not in (server / "status").read_text() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not server.exists() or "State:\tZ" in (server / "status").read_text()
