"""`baton bench serve` against `baton serve` with the demo model."""

from __future__ import annotations

import json
import pathlib
import subprocess

from conftest import BINARY, Server


def bench(server: Server, result: pathlib.Path, *flags: str) -> dict:
    """Run a load on the server and return its JSON."""
    command = [
        BINARY,
        "bench",
        "serve",
        "--base-url",
        server.url,
        "--json",
        str(result),
        *flags,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(result.read_text())


def test_a_load_of_random_prompts_needs_no_flags_of_the_model(server, tmp_path):
    lengths = [
        "--num-prompts",
        "12",
        "--random-input-len",
        "40",
        "--random-output-len",
        "8",
    ]
    result = bench(
        server,
        tmp_path / "one.json",
        *lengths,
        "--request-rate",
        "40",
        "--goodput",
        "e2el:60000",
        "--seed",
        "7",
    )
    assert (result["completed"], result["failed"], result["not_sent"]) == (12, 0, 0)
    assert (result["total_input_tokens"], result["total_output_tokens"]) == (
        12 * 40,
        12 * 8,
    )
    assert result["request_goodput"] == result["request_throughput"]
    assert result["tokenizer_id"] == "demo"
    assert 0 < result["mean_ttft_ms"] <= result["mean_e2el_ms"]
    assert result["kv_bytes_per_token"] > 0
    assert result["sustained"] is True


def test_chats_are_text(server, tmp_path):
    lengths = [
        "--num-prompts",
        "4",
        "--random-input-len",
        "12",
        "--random-output-len",
        "6",
    ]
    result = bench(
        server,
        tmp_path / "chat.json",
        "--backend",
        "openai-chat",
        *lengths,
        "--save-detailed",
    )
    assert result["completed"] == 4
    assert result["output_lens"] == [6] * 4
    assert all(result["generated_texts"])


def test_later_turns_find_their_conversation_in_the_cache(server, tmp_path):
    turns = [
        "--num-users",
        "2",
        "--num-turns",
        "3",
        "--shared-system-prompt",
        "32",
        "--user-history-prompt",
        "32",
    ]
    more = [
        "--question-len",
        "16",
        "--answer-len",
        "8",
        "--save-detailed",
        "--seed",
        "11",
    ]
    result = bench(server, tmp_path / "turns.json", "--dataset-name", "multi-turn", *turns, *more)
    assert result["completed"] == 6
    assert sorted(result["input_lens"]) == [80, 80, 104, 104, 128, 128]
    assert result["prefix_hit_rate"] > 0.4
