"""Bad input gets an error that names the thing and the limit, and nothing is lost."""

from __future__ import annotations

import http.client
import json
import os
import pathlib
import shutil
import signal
import subprocess
import threading
import time

import openai
import pytest
from conftest import BINARY, ROOT, Server
from goldens.drawn import draw_into


def post(server: Server, path: str, body: bytes, headers: dict[str, str] | None = None) -> tuple[int, dict | str]:
    """Send raw bytes; return status and parsed body."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("POST", path, body, {"Content-Type": "application/json"} | (headers or {}))
    reply = connection.getresponse()
    text = reply.read().decode()
    connection.close()
    return reply.status, json.loads(text) if text else ""


def metric(server: Server, name: str) -> float:
    """Return the value of a metric without labels other than model and engine."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("GET", "/metrics")
    for line in connection.getresponse().read().decode().splitlines():
        if line.split("{")[0] == name:
            return float(line.rsplit(" ", 1)[1])
    raise AssertionError(f"no metric {name}")


def test_prompt_over_the_limit_names_both_numbers(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="demo", prompt=[100] * 5000, max_tokens=1)
    assert caught.value.status_code == 400
    assert "4096" in caught.value.message
    assert "5000" in caught.value.message or "5001" in caught.value.message


def test_unknown_model_and_prefix_name_what_exists(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.completions.create(model="gpt-9", prompt="x")
    assert "gpt-9" in caught.value.message
    assert "demo" in caught.value.message
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="demo", messages=[{"role": "user", "content": "x"}], extra_body={"prefix": "nope"})
    assert "nope" in caught.value.message
    assert "shop" in caught.value.message


def test_malformed_json(server):
    status, body = post(server, "/v1/completions", b'{"model": "demo", ')
    assert status == 400
    assert body["error"]["code"] == 400
    assert body["error"]["type"] == "BadRequestError"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", "hot"),
        ("temperature", -1),
        ("top_p", 0),
        ("top_p", 1.5),
        ("top_k", -5),
        ("n", 0),
        ("n", 10**9),
        ("max_tokens", 0),
        ("max_tokens", -3),
        ("max_tokens", 1.5),
        ("stop", [1]),
        ("seed", "one"),
        ("min_p", 1.5),
        ("presence_penalty", 3),
        ("frequency_penalty", -2.5),
        ("repetition_penalty", 0),
        ("logit_bias", {"cat": 1}),
        ("logit_bias", {"5": 1000}),
        ("logit_bias", {str(10**6): 1}),
        ("bad_words", ["ok", " "]),
        ("allowed_token_ids", []),
        ("allowed_token_ids", [10**6]),
        ("stream", "yes"),
        ("logprobs", 99),
        ("prompt", {"a": 1}),
        ("prompt", []),
        ("prompt", [-1]),
        ("prompt", [10**6]),
    ],
)
def test_wrong_values_name_the_field(server, field, value):
    body = {"model": "demo", "prompt": "x", "max_tokens": 1} | {field: value}
    status, answer = post(server, "/v1/completions", json.dumps(body).encode())
    assert status == 400, answer
    assert field in answer["error"]["message"] or answer["error"]["param"] == field


@pytest.mark.parametrize(
    ("field", "value"),
    [("suffix", "x"), ("best_of", 3), ("use_beam_search", True), ("tools", [{}]), ("response_format", {"type": "xml"})],
)
def test_what_is_not_done_is_refused_by_name(server, field, value):
    body = {"model": "demo", "prompt": "x", "max_tokens": 1} | {field: value}
    status, answer = post(server, "/v1/completions", json.dumps(body).encode())
    assert status == 400, answer
    assert field in answer["error"]["message"]


def test_unknown_fields_are_ignored(server):
    status, _ = post(
        server, "/v1/completions", json.dumps({"model": "demo", "prompt": "x", "max_tokens": 1, "frobnicate": 1}).encode()
    )
    assert status == 200


def test_too_large_a_body(server):
    status, body = post(server, "/v1/completions", b'{"prompt": "' + b"x" * (80 << 20))
    assert status == 413, body


def test_unknown_path_and_method(server):
    assert post(server, "/v1/nothing", b"{}")[0] == 404
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("GET", "/v1/completions")
    assert connection.getresponse().status == 405


def test_a_client_that_leaves_frees_its_blocks(server):
    before = metric(server, "vllm:num_requests_running")
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    body = {"model": "demo", "prompt": "x", "max_tokens": 4000, "stream": True, "ignore_eos": True, "temperature": 0}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    assert connection.getresponse().read(200)
    assert metric(server, "vllm:num_requests_running") == before + 1
    connection.close()
    deadline = time.monotonic() + 20
    while metric(server, "vllm:num_requests_running") > before:
        assert time.monotonic() < deadline, "the sequence still runs"
        time.sleep(0.05)


def test_api_key(tmp_path):
    server = Server(tmp_path / "log", "--api-key", "secret", "--api-key", "with,comma")
    try:
        status, body = post(server, "/v1/completions", b'{"model": "demo", "prompt": "x", "max_tokens": 1}')
        assert (status, body) == (401, {"error": "Unauthorized"})
        assert post(server, "/tokenize", b'{"prompt": "x"}', {"Authorization": "Bearer with"})[0] == 401
        assert post(server, "/tokenize", b'{"prompt": "x"}', {"Authorization": "Bearer with,comma"})[0] == 200
        assert (
            server.client(api_key="secret").completions.create(model="demo", prompt="x", max_tokens=1).usage.completion_tokens == 1
        )
    finally:
        server.stop()


def test_an_empty_key_is_not_no_key():
    for flags, environment in (["--api-key", ""], {}), ([], {"BATON_API_KEY": ""}):
        refused = subprocess.run(
            [BINARY, "serve", "--host", "127.0.0.1", "--port", "0", *flags],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=os.environ | environment,
        )
        assert refused.returncode == 2, refused.stderr
        assert "--api-key" in refused.stderr


def test_a_full_queue_is_503(tmp_path):
    server = Server(tmp_path / "log", "--max-num-seqs", "1", "--max-num-queued-reqs", "1")
    body = json.dumps({"model": "demo", "prompt": "x", "max_tokens": 1500, "ignore_eos": True, "temperature": 0}).encode()
    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.append(post(server, "/v1/completions", body)[0])) for _ in range(6)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        server.stop()
    assert results.count(503) >= 1
    assert results.count(200) >= 1
    assert len(results) == 6


def test_sigterm_lets_streams_finish(tmp_path):
    # Eight choices of thousands of tokens: they run for seconds after the signal, also on a fast machine.
    server = Server(tmp_path / "log", "--shutdown-timeout", "300")  # on a slow machine they take over 30 s
    client = server.client()
    stream = client.completions.create(
        model="demo", prompt="x", n=8, max_tokens=2000, temperature=1, stream=True, extra_body={"ignore_eos": True}
    )
    chunks = iter(stream)
    next(chunks)
    server.process.send_signal(signal.SIGTERM)
    status = 200
    while status == 200:  # until the signal has arrived
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.request("GET", "/health")
        status = connection.getresponse().status
    assert status == 503
    reasons = [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason]
    assert reasons == ["length"] * 8
    assert server.process.wait(timeout=60) == 0


def test_a_port_in_use_is_one_sentence(server):
    second = subprocess.run(
        [BINARY, "serve", "--host", "127.0.0.1", "--port", str(server.port)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert second.returncode == 1
    assert str(server.port) in second.stderr
    assert "in use" in second.stderr


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("truncated", ["model.safetensors"]),
        ("missing", ["model.safetensors"]),
        ("architecture", ["FooForCausalLM", "LlamaForCausalLM"]),
        ("shape", ["lm_head.weight", "[320, 48]"]),
    ],
)
def test_damaged_models_are_refused_in_a_sentence(tmp_path, damage, words):
    folder = pathlib.Path(tmp_path) / "model"
    folder.mkdir()
    draw_into(folder, ROOT / "tests/goldens/llama_tiny_gqa64")
    shutil.copy(ROOT / "models/demo/tokenizer.json", folder)
    config = json.loads((folder / "config.json").read_text())
    if damage == "truncated":
        os.truncate(folder / "model.safetensors", (folder / "model.safetensors").stat().st_size // 2)
    if damage == "missing":
        (folder / "model.safetensors").unlink()
    if damage == "architecture":
        config["architectures"] = ["FooForCausalLM"]
    if damage == "shape":
        config["vocab_size"] = 321
        words = ["[321, 48]", "[320, 48]"]
    (folder / "config.json").write_text(json.dumps(config))
    failed = subprocess.run(
        [BINARY, "generate", str(folder), "--prompts", "-"], input="", capture_output=True, text=True, timeout=60, check=False
    )
    assert failed.returncode == 1
    for word in words:
        assert word in failed.stderr, failed.stderr
