"""Prefixes as resources over HTTP: registered, used, replaced, capped, deleted, expired."""

from __future__ import annotations

import hashlib
import http.client
import json
import pathlib
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

import openai
import pytest
from conftest import BINARY, Server

PINNED_BLOCKS = 200
NAME = "catalogue"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server without prefixes that may pin few blocks."""
    log = tmp_path_factory.mktemp("prefixes") / "log"
    running = Server(log, "--max-pinned-blocks", str(PINNED_BLOCKS))
    yield running
    assert running.stop() == 0, log.read_text()


def call(server: Server, method: str, path: str, body: dict | None = None) -> tuple[int, dict]:
    """Return status and parsed body."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    text = reply.read().decode()
    connection.close()
    return reply.status, json.loads(text)


def ask(server: Server, prefix: str, question: dict) -> object:
    """One greedy answer behind a prefix."""
    return server.client().chat.completions.create(
        model="demo",
        messages=question["messages"],
        temperature=0,
        max_tokens=96,
        extra_body={"prefix": prefix},
    )


def test_a_prefix_from_registration_to_deletion(bare, catalogue, questions):
    status, made = call(bare, "POST", "/v1/prefixes", {"id": NAME, "text": catalogue, "version": "1"})
    assert status == 200, made
    assert made["n_tokens"] > 1000
    assert made["n_pinned_blocks"] * 16 == made["n_pinned_tokens"]
    answer = ask(bare, NAME, questions[0])
    assert answer.choices[0].message.content == questions[0]["answer"]
    assert answer.usage.prompt_tokens_details.cached_tokens >= made["n_pinned_tokens"]
    listed = call(bare, "GET", "/v1/prefixes")[1]["data"]
    assert [(entry["id"], entry["version"], entry["hits"]) for entry in listed] == [(NAME, "1", 1)]

    status, refused = call(bare, "POST", "/v1/prefixes", {"id": "long", "text": 2 * catalogue[100:]})
    assert status == 400
    assert f"--max-pinned-blocks is {PINNED_BLOCKS}" in refused["error"]["message"]

    status, other = call(bare, "POST", "/v1/prefixes", {"id": NAME, "text": "Open on Sundays.", "version": "2"})
    assert status == 200, other
    assert call(bare, "GET", f"/v1/prefixes/{NAME}")[1]["n_tokens"] < 100

    assert call(bare, "DELETE", f"/v1/prefixes/{NAME}") == (200, {"id": NAME, "object": "prefix", "deleted": True})
    assert call(bare, "DELETE", f"/v1/prefixes/{NAME}")[0] == 404
    with pytest.raises(openai.NotFoundError):
        ask(bare, NAME, questions[0])


def test_a_prefix_expires(bare):
    status, made = call(bare, "POST", "/v1/prefixes", {"id": "brief", "text": "Open for a moment.", "ttl_seconds": 1})
    assert status == 200, made
    assert made["expires_at"] > made["created"]
    deadline = time.monotonic() + 30
    while call(bare, "GET", "/v1/prefixes/brief")[0] == 200 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert call(bare, "GET", "/v1/prefixes/brief")[0] == 404
    assert call(bare, "GET", "/v1/prefixes")[1]["data"] == []


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for what the server brings about; half a minute without it fails the test."""
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.05)


def version_of(text: str) -> str:
    """Return the version that a file's prefix has."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def metric(server: Server, name: str) -> float:
    """Return the value of the metric that begins with `name`."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    return next(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return an empty folder for prefixes."""
    made = tmp_path / "prompts"
    made.mkdir()
    return made


def test_a_folder_of_files_is_the_register(folder, tmp_path, catalogue, questions):
    (folder / "shop.txt").write_text(catalogue)
    (folder / "bad.json").write_text('{"text": ')
    server = Server(tmp_path / "log", "--prefix-folder", str(folder))
    try:
        found = call(server, "GET", "/v1/prefixes/shop")[1]
        assert (found["source"], found["version"]) == ("folder", version_of(catalogue))
        answer = ask(server, "shop", questions[0])
        assert answer.choices[0].message.content == questions[0]["answer"]
        assert answer.usage.prompt_tokens_details.cached_tokens >= found["n_pinned_tokens"]
        assert metric(server, "baton:prefix_files_refused") == 1
        assert "bad.json" in server.log.read_text()

        (folder / "shop.txt").write_text("Open on Sundays.")
        wait_until(lambda: call(server, "GET", "/v1/prefixes/shop")[1]["version"] == version_of("Open on Sundays."))
        temporary = folder / ".next"
        temporary.write_text(catalogue)
        temporary.rename(folder / "shop.txt")
        wait_until(lambda: call(server, "GET", "/v1/prefixes/shop")[1]["version"] == version_of(catalogue))
        assert ask(server, "shop", questions[0]).choices[0].message.content == questions[0]["answer"]

        status, refused = call(server, "DELETE", "/v1/prefixes/shop")
        assert status == 400
        assert "shop.txt" in refused["error"]["message"]
        (folder / "shop.txt").unlink()
        wait_until(lambda: call(server, "GET", "/v1/prefixes/shop")[0] == 404)
        assert server.log.read_text().count("event=prefix_file_refused") == 1
    finally:
        assert server.stop() == 0, server.log.read_text()


def test_a_mounted_config_map_is_followed(folder, tmp_path):
    def mount(version: str, texts: dict[str, str]) -> None:
        """Do what a kubelet does: a new folder, and a link that comes to lead to it at once."""
        (folder / version).mkdir()
        for name, text in texts.items():
            (folder / version / name).write_text(text)
        (folder / "..data_tmp").symlink_to(version)
        (folder / "..data_tmp").replace(folder / "..data")
        for name in texts:
            if not (folder / name).is_symlink():
                (folder / name).symlink_to(f"..data/{name}")

    mount("..1", {"shop.txt": "Sells mugs.", "bank.txt": "Lends."})
    server = Server(tmp_path / "log", "--prefix-folder", str(folder))
    try:
        assert {entry["id"] for entry in call(server, "GET", "/v1/prefixes")[1]["data"]} == {"shop", "bank"}
        mount("..2", {"shop.txt": "Sells cups.", "cafe.json": '{"text": "Pours."}'})
        (folder / "bank.txt").unlink()
        wait_until(
            lambda: {(entry["id"], entry["version"]) for entry in call(server, "GET", "/v1/prefixes")[1]["data"]}
            == {("shop", version_of("Sells cups.")), ("cafe", version_of('{"text": "Pours."}'))}
        )
    finally:
        assert server.stop() == 0, server.log.read_text()


def test_a_prefix_prefill_ends_with_its_prefix_and_with_the_server(tmp_path):
    # One token a step: seconds for a prefix of thousands.
    server = Server(tmp_path / "log", "--max-num-batched-tokens", "1")
    long = {"id": "long", "text": " mug" * 3500}
    answers = []

    def register() -> None:
        answers.append(call(server, "POST", "/v1/prefixes", long))

    for is_last, end in enumerate((lambda: call(server, "DELETE", "/v1/prefixes/long"), server.process.terminate)):
        filler = threading.Thread(target=register)
        filler.start()
        wait_until(lambda: metric(server, "vllm:kv_cache_usage_perc") > 0)
        begin = time.monotonic()
        end()
        filler.join()
        assert time.monotonic() - begin < 20
        status, body = answers.pop()
        assert status == (503 if is_last else 400), body
    assert server.process.wait(timeout=20) == 0, server.log.read_text()


def test_a_folder_that_is_not_there_is_a_usage_error(tmp_path):
    done = subprocess.run(
        [BINARY, "serve", "--prefix-folder", tmp_path / "none"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode != 0
    assert "--prefix-folder" in done.stderr + done.stdout


def test_tools_of_a_prefix_are_those_of_requests_that_bring_them(tmp_path):
    """A list of tools is registered, and every conversation with that list begins with its blocks."""
    tools = [
        {"type": "function", "function": {"name": f"tool_{i}", "parameters": {"type": "object", "properties": {}}}}
        for i in range(20)
    ]
    server = Server(tmp_path / "log")
    made = call(server, "POST", "/v1/prefixes", {"id": "agents", "text": "Be brief.", "tools": tools})[1]
    alone = call(server, "POST", "/v1/prefixes", {"id": "tools", "tools": tools})[1]
    assert made["n_tools"] == alone["n_tools"] == 20
    assert made["n_pinned_tokens"] > 200
    system = {"role": "system", "content": "Be brief."}
    ask = {"role": "user", "content": "What is new?"}

    def cached(**fields: object) -> int:
        body = {"messages": [ask], "max_tokens": 1, **fields}
        usage = call(server, "POST", "/v1/chat/completions", body)[1]["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"]

    assert cached(prefix="agents", tools=tools) >= made["n_pinned_tokens"]
    assert cached(messages=[system, ask], tools=tools) >= made["n_pinned_tokens"]
    assert cached(prefix="tools", tools=tools) >= alone["n_pinned_tokens"]
    assert cached(prefix="agents", tools=tools[1:]) < made["n_pinned_tokens"], "another list is another prompt"
    assert server.stop() == 0, server.log.read_text()


def test_tools_need_a_template_that_shows_them(tmp_path):
    template = tmp_path / "plain.jinja"
    template.write_text("{% for message in messages %}{{ message.content }}{% endfor %}")
    server = Server(tmp_path / "log", "--chat-template", str(template))
    tools = [{"type": "function", "function": {"name": "f"}}]
    status, answer = call(server, "POST", "/v1/prefixes", {"id": "agents", "text": "Be brief.", "tools": tools})
    assert server.stop() == 0, server.log.read_text()
    assert status == 400
    assert answer["error"]["param"] == "tools"
