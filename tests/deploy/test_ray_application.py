"""Two replicas behind a real Ray Serve: what clients send and get passes through unchanged, and a lost replica is replaced.

Skipped where Ray is not installed. Starts a Ray instance of its own on this machine, which takes half a minute.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import BINARY, DEPLOY

ray = pytest.importorskip("ray", reason="Ray is not installed (deploy/ray/requirements.txt)")
yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
if not BINARY.exists():
    pytest.skip(f"there is no {BINARY}", allow_module_level=True)

from baton_ray.application import build  # noqa: E402
from ray import serve  # noqa: E402

QUESTION = {"messages": [{"role": "user", "content": "What does the blue mug cost?"}], "temperature": 0, "max_tokens": 16}
SMALL = {"threads": 1, "kv-cache-memory-bytes": "64M"}


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> dict:
        """The body as an object."""
        return json.loads(self.body)


class Address:
    """A server to ask."""

    def __init__(self, port: int) -> None:
        """On this machine."""
        self.port = port

    def ask(self, path: str, body: dict | bytes | None = None, method: str | None = None) -> Answer:
        """One request and its answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        connection.request(method or ("GET" if data is None else "POST"), path, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())


def whereabouts(application: str = "baton") -> list[dict]:
    """The replicas that answer; none while Ray does not know yet that one has died."""
    handle = serve.get_deployment_handle("BatonReplica", application)
    try:
        found = handle.broadcast("whereabouts").results(timeout_s=60)
    except ray.exceptions.RayActorError:
        return []
    return [one for one in found if isinstance(one, dict)]


def until(holds: Callable[[], bool], seconds: float) -> bool:
    """Whether something holds before the time is over."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def total(address: Address, sample: str) -> float:
    """The sum of the samples that begin with a pattern, over all replicas."""
    page = address.ask("/metrics").body.decode()
    return sum(float(value) for value in re.findall(rf"^{sample}.*\}} (\S+)$", page, re.MULTILINE))


def busy_replicas(address: Address) -> set[str]:
    """The replicas that run requests now."""
    page = address.ask("/metrics").body.decode()
    return set(re.findall(r'^vllm:num_requests_running\{.*replica="(\w+)"\} [1-9]', page, re.MULTILINE))


@pytest.fixture(scope="module")
def direct() -> Iterator[Address]:
    """A server without Ray, to compare with."""
    flags = [word for name, value in SMALL.items() for word in (f"--{name}", str(value))]
    command = [BINARY, "serve", "demo", "--host", "127.0.0.1", "--port", "0", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        found = next(match for line in process.stdout if (match := re.search(r"http://127\.0\.0\.1:(\d+)", line)))
        threading.Thread(target=process.stdout.read, daemon=True).start()
        yield Address(int(found[1]))
        process.terminate()


@pytest.fixture(scope="module")
def replicas() -> Iterator[Address]:
    """The application of serve.yaml with two replicas."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = yaml.safe_load((DEPLOY / "ray/serve.yaml").read_text())["applications"][0]["args"]
    two = {"min_replicas": 2, "max_replicas": 2}
    changed = {"binary": str(BINARY), "autoscaling": two, "flags": arguments["flags"] | SMALL, "health_check_period_s": 2}
    ray.init("local", num_cpus=4, include_dashboard=False, object_store_memory=100_000_000, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(build(arguments | changed), name="baton", route_prefix="/")
    servers = [Path("/proc") / str(found["pid"]) for found in whereabouts()]
    assert len(servers) == 2
    yield Address(port)
    servers = [Path("/proc") / str(found["pid"]) for found in whereabouts()]
    serve.shutdown()
    ray.shutdown()
    assert until(lambda: not any(server.exists() for server in servers), 60), "a server outlived its replica"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/models/none", None),
        ("/nothing", None),
        ("/v1/chat/completions", QUESTION | {"top_p": 4}),
        ("/v1/chat/completions", QUESTION | {"model": "other"}),
        ("/v1/chat/completions", b"{"),
        ("/v1/messages", {"model": "demo", "messages": [], "max_tokens": -1}),
        ("/v1/responses", {"model": "demo", "input": 7}),
        ("/v1/prefixes", {"id": "a", "text": ""}),
        ("/v1/embeddings", {"input": "a"}),
    ],
)
def test_refusals_are_the_servers_own(replicas: Address, direct: Address, path: str, body: dict | bytes | None) -> None:
    through, alone = replicas.ask(path, body), direct.ask(path, body)
    assert through.status == alone.status >= 400
    assert re.sub(rb"req_\w+", b"", through.body) == re.sub(rb"req_\w+", b"", alone.body)
    assert through.headers["content-type"] == alone.headers["content-type"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
def test_streams_are_the_servers_own(replicas: Address, direct: Address, path: str) -> None:
    body = QUESTION | {"stream": True, "model": "demo"}
    if path == "/v1/responses":
        body = {"model": "demo", "input": "What does the blue mug cost?", "stream": True, "temperature": 0, "max_output_tokens": 16}
    through, alone = replicas.ask(path, body), direct.ask(path, body)
    assert through.status == alone.status == 200
    assert through.headers["content-type"] == alone.headers["content-type"]
    changes = rb'"(?:\w*id|created\w*|completed_at)":(?:"[^"]*"|\d+)'
    assert re.sub(changes, b"", through.body) == re.sub(changes, b"", alone.body)


def test_an_answer_comes_while_it_is_computed(replicas: Address) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", replicas.port, timeout=60)
    body = QUESTION | {"stream": True, "max_tokens": 1500, "ignore_eos": True}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    began = time.monotonic()
    assert answer.read1(100)
    first = time.monotonic() - began
    assert answer.read().endswith(b"data: [DONE]\n\n")
    assert first < (time.monotonic() - began) / 2


def test_a_client_that_leaves_ends_its_request(replicas: Address) -> None:
    body = QUESTION | {"stream": True, "max_tokens": 3500, "ignore_eos": True}
    with socket.create_connection(("127.0.0.1", replicas.port), timeout=60) as client:
        data = json.dumps(body).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n"
        client.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + data)
        assert client.recv(100)

    assert until(lambda: total(replicas, r'vllm:request_success_total\{[^}]*finished_reason="abort"') >= 1, 20)
    assert until(lambda: total(replicas, r"vllm:num_requests_running\{") == 0, 20)


def test_metrics_are_those_of_both_replicas(replicas: Address) -> None:
    page = replicas.ask("/metrics").body.decode()
    assert len(set(re.findall(r'^vllm:num_requests_running\{.*replica="(\w+)"\}', page, re.MULTILINE))) == 2
    assert page.count("# TYPE vllm:num_requests_running gauge") == 1


def test_a_prefix_is_registered_with_both_replicas(replicas: Address) -> None:
    text = (DEPLOY.parent / "models/demo/catalogue.txt").read_text()
    made = replicas.ask("/v1/prefixes", {"id": "shop", "text": text})
    assert made.status in (200, 201), made.body
    for number in range(12):
        named = QUESTION | {"prefix": "shop", "max_tokens": 1, "cache_salt": str(number)}
        assert replicas.ask("/v1/chat/completions", named).status == 200
    assert replicas.ask("/v1/prefixes/shop", method="DELETE").status == 200
    for number in range(6):
        named = QUESTION | {"prefix": "shop", "max_tokens": 1, "cache_salt": f"again {number}"}
        assert replicas.ask("/v1/chat/completions", named).status == 404


def test_stored_responses_are_found_wherever_they_are(replicas: Address) -> None:
    for number in range(6):
        made = replicas.ask("/v1/responses", {"model": "demo", "input": f"Number {number}?", "max_output_tokens": 4, "store": True})
        identity = made.json()["id"]
        assert replicas.ask(f"/v1/responses/{identity}").json()["id"] == identity
        more = {"model": "demo", "input": "And?", "max_output_tokens": 4, "previous_response_id": identity}
        assert replicas.ask("/v1/responses", more).status == 200
        assert replicas.ask(f"/v1/responses/{identity}", method="DELETE").status == 200
        assert replicas.ask(f"/v1/responses/{identity}").status == 404


def test_a_body_beyond_the_limit_is_refused(replicas: Address) -> None:
    answer = replicas.ask("/v1/chat/completions", b" " * (32 * 1024 * 1024 + 1))
    assert answer.status == 413
    assert "33554432" in answer.json()["error"]["message"]


def test_the_servers_log_is_in_rays(replicas: Address) -> None:
    logs = Path(ray._private.worker.global_worker.node.get_logs_dir_path()) / "serve"
    texts = [path.read_text() for path in logs.glob("replica_*BatonReplica*.log")]
    assert sum("event=serving" in text for text in texts) == 2


@pytest.mark.parametrize("which", ["pid", "actor_pid"])
def test_a_killed_replica_loses_no_request_without_a_reason(replicas: Address, which: str) -> None:
    assert until(lambda: len(whereabouts()) == 2, 60)
    answers: list[Answer] = []
    body = {"stream": True, "max_tokens": 3500, "ignore_eos": True}

    def one(number: int) -> None:
        answers.append(replicas.ask("/v1/chat/completions", QUESTION | body | {"cache_salt": f"{which} {number}"}))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    assert until(lambda: bool(busy_replicas(replicas)), 60)
    victim = next(found for found in whereabouts() if found["replica"] in busy_replicas(replicas))
    os.kill(victim[which], signal.SIGKILL)
    for thread in threads:
        thread.join()
    assert len(answers) == 8
    for answer in answers:
        assert answer.body.endswith(b"data: [DONE]\n\n") or answer.status == 503
        assert b'"finish_reason":"length"' in answer.body or b"lost" in answer.body
    assert any(b"a replica was lost" in answer.body or b"the replica was lost" in answer.body for answer in answers)
    assert until(lambda: len(whereabouts()) == 2, 60), "the replica was not replaced"
    assert replicas.ask("/v1/chat/completions", QUESTION).status == 200


def test_replicas_are_added_under_load_and_taken_away_afterwards(replicas: Address) -> None:
    quick = {"upscale_delay_s": 1, "downscale_delay_s": 2, "metrics_interval_s": 0.5, "look_back_period_s": 2}
    scaling = quick | {"min_replicas": 1, "max_replicas": 2, "target_ongoing_requests": 2}
    settings = {"binary": str(BINARY), "flags": SMALL, "autoscaling": scaling, "cpus_per_replica": 0.5}
    serve.run(build(settings), name="scaled", route_prefix="/scaled")
    assert len(whereabouts("scaled")) == 1
    is_over = threading.Event()
    failures: list[Answer] = []

    def client(number: int) -> None:
        body = QUESTION | {"stream": True, "max_tokens": 500, "ignore_eos": True, "cache_salt": str(number)}
        while not is_over.is_set():
            answer = replicas.ask("/scaled/v1/chat/completions", body)
            if not answer.body.endswith(b"data: [DONE]\n\n") or b'"error"' in answer.body:
                failures.append(answer)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    try:
        assert until(lambda: len(whereabouts("scaled")) == 2, 60)
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    servers = [Path("/proc") / str(found["pid"]) for found in whereabouts("scaled")]
    assert until(lambda: sum(server.exists() for server in servers) == 1, 90), "no server ended with its replica"
    assert failures == []
    serve.delete("scaled")
