"""Clients in build/venv-clients, unmodified: litellm, the OpenAI Agents SDK, and lm-eval with tasks of our own.

`make e2e` makes that environment from tests/e2e/clients/requirements.txt. BATON_CLIENTS_PYTHON names another one's Python.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import urllib.request
from collections.abc import Iterator

import pytest
from conftest import ROOT, Server

CLIENTS = pathlib.Path(__file__).with_name("clients")
PYTHON = pathlib.Path(os.environ.get("BATON_CLIENTS_PYTHON", ROOT / "build/venv-clients/bin/python"))
# Nothing here may look for anything but the server.
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "OPENAI_API_KEY": "none",
}

pytestmark = pytest.mark.skipif(
    not PYTHON.exists(), reason=f"there is no {PYTHON}: `make e2e` makes it (tests/e2e/clients/requirements.txt)"
)


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose template shows tools."""
    log = tmp_path_factory.mktemp("agents") / "log"
    running = Server(log, "--enable-auto-tool-choice")
    yield running
    assert running.stop() == 0, log.read_text()


def run(folder: pathlib.Path, *arguments: object) -> str:
    """Run a program of the environment in `folder`; return what it printed."""
    environment = os.environ | OFFLINE | {"HOME": str(folder), "HF_HOME": str(folder / "hf")}
    done = subprocess.run(
        [PYTHON, *map(str, arguments)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_litellm(server: Server, agents: Server, questions: list[dict], tmp_path: pathlib.Path):
    question = questions[0]
    asked = question["messages"][-1]["content"]
    run(tmp_path, CLIENTS / "litellm_client.py", server.url, agents.url, asked, question["answer"])


def test_agents_sdk(agents: Server, tmp_path: pathlib.Path):
    run(tmp_path, CLIENTS / "agents_client.py", agents.url)


def post(server: Server, path: str, body: dict) -> dict:
    """Return the answer to a request."""
    request = urllib.request.Request(f"{server.url}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def evaluate(folder: pathlib.Path, kind: str, arguments: dict, task: dict, lines: list[dict], *flags: str) -> dict:
    """Let lm-eval run a task over `lines`; return the task's results."""
    (folder / "lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    of_lines = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(folder / "lines.jsonl")}}}
    # JSON is YAML too.
    (folder / "task.yaml").write_text(json.dumps(task | of_lines | {"test_split": "test"}))
    given = ",".join(f"{name}={value}" for name, value in arguments.items())
    run(
        folder,
        *("-m", "lm_eval", "run", "--model", kind, "--model_args", given, "--tasks", task["task"]),
        *("--include_path", folder, "--output_path", folder / "out", *flags),
    )
    (results,) = (folder / "out").rglob("results_*.json")
    return json.loads(results.read_text())["results"][task["task"]]


def test_lm_eval_chooses_the_likely_answer(server: Server, questions: list[dict], catalogue: str, tmp_path: pathlib.Path):
    """`local-completions`: log-likelihoods of choices, with the tokenizer of the server (/tokenizer_info)."""
    asked = [question for question in questions if question["type"] == "stock"][:4]
    answers = sorted({" ".join(question["answer"].split()[3:]) for question in asked})
    assert len(answers) > 1, "the questions have one answer"
    lines = []
    for question in asked:
        messages = [{"role": "system", "content": catalogue}, *question["messages"]]
        tokens = post(server, "/tokenize", {"messages": messages})["tokens"]
        known, rest = " ".join(question["answer"].split()[:3]), " ".join(question["answer"].split()[3:])
        text = post(server, "/detokenize", {"tokens": tokens})["prompt"] + known
        lines.append({"text": text, "choices": answers, "label": answers.index(rest)})
    task = {
        "task": "stock",
        "output_type": "multiple_choice",
        "doc_to_text": "{{text}}",
        "doc_to_choice": "choices",
        "doc_to_target": "label",
        "metric_list": [{"metric": "acc"}],
    }
    arguments = {"model": "demo", "base_url": f"{server.url}/v1/completions", "num_concurrent": 4, "max_length": 4096}
    results = evaluate(tmp_path, "local-completions", arguments, task, lines)
    assert results["acc,none"] == 1.0, results


def test_lm_eval_reads_generated_answers(server: Server, questions: list[dict], tmp_path: pathlib.Path):
    """`local-chat-completions`: answers to the questions about the registered catalogue."""
    lines = [{"text": question["messages"][-1]["content"], "answer": question["answer"]} for question in questions[:8]]
    task = {
        "task": "catalogue",
        "output_type": "generate_until",
        "doc_to_text": "{{text}}",
        "doc_to_target": "{{answer}}",
        "generation_kwargs": {"until": ["\n"], "max_gen_toks": 96, "do_sample": False},
        "metric_list": [{"metric": "exact_match"}],
    }
    arguments = {"model": "demo:shop", "base_url": f"{server.url}/v1/chat/completions", "num_concurrent": 8}
    results = evaluate(tmp_path, "local-chat-completions", arguments, task, lines, "--apply_chat_template")
    assert results["exact_match,none"] >= 0.75, results
