"""Speculation by prompt lookup: on by request or by flag, with the same answers, and refused by name where it is not done."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
from conftest import BINARY, ROOT, Server
from test_openai_client import SHOP, ask

NGRAM = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 1}
CATALOGUE = ROOT / "models/demo/catalogue.txt"


def counted(server: Server) -> dict[str, int]:
    """The counters of speculation on /metrics, without prefix."""
    with urllib.request.urlopen(f"{server.url}/metrics") as page:
        text = page.read().decode()
    return {name: int(float(value)) for name, value in re.findall(r"vllm:spec_decode_(num_\w+?)_total\{[^}]*\} (\S+)", text)}


def tokenize(server: Server, text: str) -> list[int]:
    """The ids of a text."""
    body = json.dumps({"prompt": text, "add_special_tokens": False}).encode()
    with urllib.request.urlopen(
        urllib.request.Request(f"{server.url}/tokenize", body, {"Content-Type": "application/json"})
    ) as answer:
        return json.load(answer)["tokens"]


def test_a_request_that_asks_for_it_gets_the_same_answers(server, client, questions):
    before = counted(server)
    plain = [ask(client, question, logprobs=True) for question in questions[:8]]
    assert counted(server) == before, "no request has asked for drafts"
    body = SHOP | {"speculative_config": NGRAM, "baton_stats": True}
    n_drafts = 0
    for question, expected in zip(questions, plain, strict=False):
        answer = ask(client, question, logprobs=True, extra_body=body)
        assert answer.choices[0].message.content == expected.choices[0].message.content
        assert answer.usage.completion_tokens == expected.usage.completion_tokens
        assert len(answer.choices[0].logprobs.content) == len(expected.choices[0].logprobs.content)
        n_drafts += answer.model_extra["baton"]["draft_tokens"]
    after = counted(server)
    assert n_drafts > 0
    assert after["num_draft_tokens"] - before["num_draft_tokens"] == n_drafts
    assert after["num_accepted_tokens"] > before["num_accepted_tokens"], "names of the catalogue stand in the prompt"


def test_stops_and_lengths_hold_inside_a_run_of_drafts(server, client):
    """One token again and again: all drafts come true, wherever the end falls."""
    token = tokenize(server, "7")[-1]
    settings = {"model": "demo", "prompt": "7777777", "temperature": 0, "logit_bias": {str(token): 100}}
    for options in (
        {"max_tokens": 1},
        {"max_tokens": 23},
        {"max_tokens": 40, "stop": "7777"},
        {"max_tokens": 40, "n": 2, "stop": "77"},
    ):
        plain = client.completions.create(**settings, **options, extra_body={"ignore_eos": True})
        eager = client.completions.create(**settings, **options, extra_body={"ignore_eos": True, "speculative_config": NGRAM})
        assert [(c.text, c.finish_reason) for c in eager.choices] == [(c.text, c.finish_reason) for c in plain.choices]
        assert eager.usage.completion_tokens == plain.usage.completion_tokens
        chunks = list(
            client.completions.create(
                **settings, **options, stream=True, extra_body={"ignore_eos": True, "speculative_config": NGRAM}
            )
        )
        text = "".join(chunk.choices[0].text for chunk in chunks if chunk.choices and chunk.choices[0].index == 0)
        assert text == plain.choices[0].text


@pytest.mark.parametrize(
    ("config", "part"),
    [
        ({"method": "eagle"}, "eagle"),
        ({"draft_model": "a/b"}, "draft_model"),
        ({"num_speculative_tokens": 99}, "num_speculative_tokens"),
        ({"prompt_lookup_max": 1, "prompt_lookup_min": 2}, "prompt_lookup_min"),
        (True, "object"),
    ],
)
def test_a_request_with_a_config_that_is_not_done_is_refused_by_name(client, questions, config, part):
    with pytest.raises(openai.BadRequestError, match=part) as refused:
        ask(client, questions[0], extra_body=SHOP | {"speculative_config": config})
    assert refused.value.param == "speculative_config"


def test_the_flag_turns_it_on_for_all_and_a_request_off(tmp_path: pathlib.Path, questions):
    flags = ["--prefix", f"shop={CATALOGUE}", "--speculative-config", json.dumps(NGRAM), "--batch-invariant"]
    server = Server(tmp_path / "log", *flags)
    try:
        with server.client() as client:
            off = ask(client, questions[0], extra_body=SHOP | {"speculative_config": {"num_speculative_tokens": 0}})
            assert off.choices[0].message.content == questions[0]["answer"]
            assert counted(server)["num_drafts"] == 0
            with ThreadPoolExecutor(8) as pool:
                answers = list(pool.map(lambda question: ask(client, question).choices[0].message.content, questions[:32]))
        assert sum(answer == question["answer"] for answer, question in zip(answers, questions, strict=False)) >= 31
        counts = counted(server)
        assert 0 < counts["num_accepted_tokens"] <= counts["num_draft_tokens"]
        assert counts["num_drafts"] <= counts["num_draft_tokens"]
    finally:
        assert server.stop() == 0


@pytest.mark.parametrize(
    ("config", "part"),
    [('{"method": "eagle"}', "eagle"), ('{"tokens": 4}', "'tokens'"), ("ngram", "--speculative-config"), ("4", "object")],
)
def test_a_flag_that_is_not_done_is_refused_by_name(config, part):
    done = subprocess.run(
        [BINARY, "serve", "--port", "0", "--speculative-config", config], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode in (1, 2)
    assert part in done.stderr
    assert "--speculative-config" in done.stderr
