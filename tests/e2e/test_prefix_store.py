"""`--prefix-store`: prefixes that outlive the server, with equal answers, whatever happens to it and to the files."""

from __future__ import annotations

import http.client
import json
import pathlib
import random
import re
import shutil
import signal
import subprocess
import threading
import time

import pytest
from conftest import BINARY, ROOT, Server

N_PREFIXES = 50
#: Otherwise each server chooses its matmuls by their times at load, and two servers may round in different ways.
EXACT = "--batch-invariant"


def call(
    server: Server, method: str, path: str, body: dict | None = None
) -> tuple[int, dict]:
    """Return status and parsed body."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    connection.request(
        method,
        path,
        None if body is None else json.dumps(body),
        {"Content-Type": "application/json"},
    )
    reply = connection.getresponse()
    text = reply.read().decode()
    connection.close()
    return reply.status, json.loads(text)


def prefix_text(catalogue: str, number: int) -> str:
    """One of many texts that begin differently, so that no two share a block."""
    return f"Shop number {number}.\n{catalogue[: 600 + 40 * number]}"


def first_answer(server: Server, name: str) -> tuple[str, list[tuple[str, float]], int]:
    """The text, the log-probabilities of its tokens, and the cached tokens of a greedy answer."""
    status, answer = call(
        server,
        "POST",
        "/v1/chat/completions",
        {
            "model": "demo",
            "prefix": name,
            "messages": [{"role": "user", "content": "What is in stock?"}],
            "temperature": 0,
            "max_tokens": 6,
            "logprobs": True,
            "top_logprobs": 2,
        },
    )
    assert status == 200, answer
    choice = answer["choices"][0]
    scores = [
        (token["token"], token["logprob"]) for token in choice["logprobs"]["content"]
    ]
    return (
        choice["message"]["content"],
        scores,
        answer["usage"]["prompt_tokens_details"]["cached_tokens"],
    )


def listed(server: Server) -> dict[str, dict]:
    """All prefixes by name."""
    return {
        entry["id"]: entry for entry in call(server, "GET", "/v1/prefixes")[1]["data"]
    }


def metric(server: Server, name: str) -> float:
    """The value of one of the server's own metrics."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET", "/metrics")
    found = re.search(
        rf"^{re.escape(name)}\{{[^}}]*\}} (\S+)$",
        connection.getresponse().read().decode(),
        re.MULTILINE,
    )
    connection.close()
    assert found, name
    return float(found[1])


def test_fifty_prefixes_outlive_the_server_and_answer_the_same(tmp_path, catalogue):
    store = tmp_path / "store"
    first = Server(tmp_path / "first.log", "--prefix-store", str(store), EXACT)
    for number in range(N_PREFIXES):
        status, made = call(
            first,
            "POST",
            "/v1/prefixes",
            {"id": f"shop-{number}", "text": prefix_text(catalogue, number)},
        )
        assert status == 200, made
        assert made["stored"] and not made["loaded"], made
    answers = {name: first_answer(first, name) for name in listed(first)}
    assert first.stop() == 0
    assert len(list(store.glob("*.kvprefix"))) == N_PREFIXES

    second = Server(tmp_path / "second.log", "--prefix-store", str(store), EXACT)
    found = listed(second)
    assert len(found) == N_PREFIXES
    assert all(
        entry["loaded"] and entry["stored"] and entry["source"] == "api"
        for entry in found.values()
    )
    assert metric(second, "baton:prefix_store_loaded_total") == N_PREFIXES
    assert metric(second, "baton:prefix_store_refused_total") == 0
    assert {name: first_answer(second, name) for name in found} == answers
    assert call(second, "DELETE", "/v1/prefixes/shop-7")[0] == 200
    assert second.stop() == 0

    third = Server(tmp_path / "third.log", "--prefix-store", str(store), EXACT)
    assert sorted(listed(third)) == sorted(set(found) - {"shop-7"})
    assert third.stop() == 0


def test_states_of_recurrent_layers_outlive_the_server(tmp_path, catalogue):
    config = json.loads((ROOT / "tests/goldens/qwen3_5_tiny_chunks/config.json").read_text())
    config["vocab_size"] = json.loads((ROOT / "models/demo/config.json").read_text())["vocab_size"]
    model, store = tmp_path / "model", tmp_path / "store"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(ROOT / "models/demo" / name, model)
    events = json.dumps({"enable_kv_cache_events": True, "endpoint": f"ipc://{tmp_path}/live"})
    flags = [str(model), "--load-format", "dummy", "--served-model-name", "demo", "--prefix-store", str(store), EXACT]
    flags += ["--kv-offloading-size", "0.02", "--kv-events-config", events]
    first = Server(tmp_path / "first.log", *flags)
    text = catalogue[:400]
    status, made = call(first, "POST", "/v1/prefixes", {"id": "shop", "text": text})
    assert status == 200, made
    assert made["stored"] and not made["loaded"], made
    assert metric(first, "baton:host_tier_states_total") > 10
    answer = first_answer(first, "shop")
    assert answer[2] >= made["n_pinned_tokens"]
    assert first.stop() == 0

    second = Server(tmp_path / "second.log", *flags)
    assert listed(second)["shop"]["loaded"]
    assert metric(second, "baton:state_snapshots_pinned") == 1
    assert first_answer(second, "shop") == answer
    assert metric(second, "baton:prompt_tokens_replayed_total") == 0
    slot_bytes = metric(second, "baton:state_slot_bytes")
    assert second.stop() == 0

    third = Server(tmp_path / "third.log", *flags, "--state-cache-dtype", "bfloat16")
    assert "shop" not in listed(third)
    assert 0.5 * slot_bytes < metric(third, "baton:state_slot_bytes") < 0.6 * slot_bytes
    log = (tmp_path / "third.log").read_text()
    assert "event=prefix_store_refused" in log and "3 heads of 128 x 128, bfloat16" in log, log
    assert "state_dtype=bfloat16" in log
    assert third.stop() == 0


def test_files_that_do_not_fit_are_refused_by_name_and_the_server_serves(
    tmp_path, catalogue
):
    store = tmp_path / "store"
    first = Server(tmp_path / "first.log", "--prefix-store", str(store), EXACT)
    for name in ("cut", "flipped", "whole"):
        assert call(first, "POST", "/v1/prefixes", {"id": name, "text": catalogue})[1][
            "stored"
        ]
    whole = first_answer(first, "whole")
    assert first.stop() == 0
    cut = store / "cut.kvprefix"
    cut.write_bytes(cut.read_bytes()[:-1000])
    flipped = store / "flipped.kvprefix"
    flipped.write_bytes(
        bytes(
            byte ^ (0x40 if at == 200_000 else 0)
            for at, byte in enumerate(flipped.read_bytes())
        )
    )
    (store / "other.kvprefix").write_text("not a prefix")
    (store / "half.kvprefix.Ab3dEf").write_bytes(b"BATONPFX")
    log = tmp_path / "second.log"
    second = Server(log, "--prefix-store", str(store), EXACT)
    text = log.read_text()
    for sentence in (
        "cut.kvprefix is truncated",
        "flipped.kvprefix is damaged: the checksum of part",
        "other.kvprefix is not a stored prefix",
        "event=prefix_store_leftover_removed file=half.kvprefix.Ab3dEf",
    ):
        assert sentence in text
    found = listed(second)
    assert found["whole"]["loaded"]
    assert not found["flipped"][
        "loaded"
    ], "its definition is intact, so it was computed"
    assert found["flipped"]["stored"]
    assert "cut" not in found
    for name in ("whole", "flipped"):
        assert first_answer(second, name)[:2] == whole[:2]
    assert second.stop() == 0
    third = Server(
        tmp_path / "third.log",
        "--prefix-store",
        str(store),
        EXACT,
        "--block-size",
        "32",
    )
    assert listed(third) == {}
    assert (
        "its KV layout is blocks of 16 tokens" in (tmp_path / "third.log").read_text()
    )
    assert third.stop() == 0


def test_prefixes_of_other_weights_are_refused_and_stay(tmp_path, catalogue):
    """Of other bits, of an output layer in other bits, and of activations in another dtype."""
    store = tmp_path / "store"
    rounded = ("--quantization", "int8")
    first = Server(tmp_path / "first.log", "--prefix-store", str(store), EXACT, *rounded)
    assert call(first, "POST", "/v1/prefixes", {"id": "shop", "text": catalogue})[1]["stored"]
    assert first.stop() == 0
    for number, (flags, reason) in enumerate(
        (
            ((), "its model differs: --quantization is int8, and none is needed"),
            (("--quantization", "int4"), "--quantization is int8, and int4, groups of 128 is needed"),
            ((*rounded, "--quantize-lm-head"), "and int8, output layer too is needed"),
            ((*rounded, "--dtype", "float32"), "its arithmetic is int8 weights and "),
        )
    ):
        if "float32" in flags and "no bf16 matmuls" in (tmp_path / "first.log").read_text():
            continue  # the dtype of all of them
        other = Server(tmp_path / f"other-{number}.log", "--prefix-store", str(store), EXACT, *flags)
        assert listed(other) == {}, flags
        assert metric(other, "baton:prefix_store_refused_total") == 1, flags
        assert reason in (tmp_path / f"other-{number}.log").read_text()
        assert other.stop() == 0
    again = Server(tmp_path / "again.log", "--prefix-store", str(store), EXACT, *rounded)
    assert listed(again)["shop"]["loaded"]
    assert again.stop() == 0


def test_a_server_killed_while_it_stores_leaves_no_file_that_loads_wrongly(
    tmp_path, catalogue
):
    store = tmp_path / "store"
    chance = random.Random(1)
    known: dict[str, tuple] = {}
    for round_number in range(6):
        server = Server(tmp_path / f"log-{round_number}", "--prefix-store", str(store))
        found = listed(server)
        assert set(known) <= set(found), "what was answered as stored comes back"
        for name in found:
            text, scores, _ = first_answer(server, name)
            known_text, known_scores = known.setdefault(name, (text, scores))
            # Another process may multiply by another GEMM, the fastest at its load, and round differently.
            assert text == known_text
            assert dict(scores) == pytest.approx(dict(known_scores), abs=0.02)
        acknowledged: list[str] = []

        def register(
            server: Server = server,
            first: int = 100 * round_number,
            acknowledged: list[str] = acknowledged,
        ) -> None:
            for number in range(first, first + 40):
                name = f"shop-{number}"
                try:
                    status, made = call(
                        server,
                        "POST",
                        "/v1/prefixes",
                        {"id": name, "text": prefix_text(catalogue, number % 60)},
                    )
                except (OSError, http.client.HTTPException):
                    return
                if status == 200 and made["stored"]:
                    acknowledged.append(name)

        thread = threading.Thread(target=register)
        thread.start()
        time.sleep(chance.uniform(0.05, 0.8))
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        thread.join()
        # Answers that no server has given yet come from a server without a store.
        for name in acknowledged:
            known.setdefault(name, ())
        if acknowledged:
            plain = Server(tmp_path / f"plain-{round_number}")
            for name in acknowledged:
                number = int(name.split("-")[1]) % 60
                assert (
                    call(
                        plain,
                        "POST",
                        "/v1/prefixes",
                        {"id": name, "text": prefix_text(catalogue, number)},
                    )[0]
                    == 200
                )
                known[name] = first_answer(plain, name)[:2]
            assert plain.stop() == 0
    assert known
    last = Server(tmp_path / "last", "--prefix-store", str(store))
    assert set(known) <= set(listed(last))
    assert metric(last, "baton:prefix_store_refused_total") == 0
    assert last.stop() == 0
    assert not [
        path
        for path in store.iterdir()
        if not path.name.endswith((".kvprefix", ".lock"))
    ]


def test_a_second_server_reads_and_does_not_write(tmp_path, catalogue):
    store = tmp_path / "store"
    first = Server(tmp_path / "first.log", "--prefix-store", str(store))
    assert call(first, "POST", "/v1/prefixes", {"id": "shop", "text": catalogue})[1][
        "stored"
    ]
    second = Server(tmp_path / "second.log", "--prefix-store", str(store))
    assert listed(second)["shop"]["loaded"]
    made = call(
        second, "POST", "/v1/prefixes", {"id": "bank", "text": catalogue[:900]}
    )[1]
    assert made["stored"] is False
    assert made["store_error"] == f"another server writes to the prefix store {store}"
    assert first.stop() == 0
    assert call(
        second, "POST", "/v1/prefixes", {"id": "mill", "text": catalogue[:900]}
    )[1]["stored"]
    assert second.stop() == 0


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            ["--prefix-store-bytes", "1G"],
            "--prefix-store-bytes bounds nothing without --prefix-store",
        ),
        (
            ["--prefix-store", "DIR", "--no-enable-prefix-caching"],
            "no prefix is kept with --no-enable-prefix-caching",
        ),
        (
            ["--prefix-store", "DIR", "-tp", "2"],
            "--prefix-store cannot be used with --tensor-parallel-size over 1",
        ),
        (
            ["--prefix-store", "/dev/null/store"],
            "--prefix-store: cannot use the folder /dev/null/store",
        ),
    ],
)
def test_what_cannot_be_stored_is_refused_at_the_start(
    tmp_path: pathlib.Path, flags: list[str], sentence: str
):
    given = [str(tmp_path) if flag == "DIR" else flag for flag in flags]
    done = subprocess.run(
        [BINARY, "serve", "--port", "0", *given],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in (1, 2)
    assert sentence in done.stderr
