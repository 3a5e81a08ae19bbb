"""The programs beside `baton serve` and `baton generate`: version, help, chat, demo, bench decode."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading
import urllib.request

import pytest
from conftest import BINARY, ROOT


def run(*arguments: str, text: str = "", seconds: int = 300) -> subprocess.CompletedProcess:
    """Run the program to its end with `text` on standard input."""
    return subprocess.run([BINARY, *arguments], input=text, capture_output=True, text=True, timeout=seconds, check=False)


def test_version_names_the_commit_and_the_backends():
    done = run("--version")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("baton ")
    assert "commit" in done.stdout
    assert "backend cpu" in done.stdout


PROGRAMS = [
    "",
    "serve",
    "generate",
    "chat",
    "demo",
    "tokenize",
    "render",
    "info",
    "quantize",
    "pull",
    "list",
    "simulate",
    "bench",
    "bench ablation",
    "bench attention",
    "bench decode",
    "bench grammar",
    "bench latency",
    "bench mmlu",
    "bench prefix-cache",
    "bench serve",
    "bench startup",
    "bench stream",
    "bench throughput",
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_explains_itself(program):
    done = run(*program.split(), "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage: baton " + program in done.stdout
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("arguments", [["fly"], ["serve", "--fly"], ["generate", "--attention", "half"], []])
def test_wrong_usage_ends_with_2(arguments):
    done = run(*arguments)
    assert done.returncode == 2, done.stdout + done.stderr


def test_nan_is_no_duration():
    done = run("bench", "serve", "--timeout-s", "nan")
    assert done.returncode == 2
    assert "--timeout-s: 'nan' is not a number" in done.stderr


@pytest.mark.parametrize(("arguments", "name"), [(["fly"], "fly"), (["bench", "fly"], "bench fly")])
def test_an_unknown_subcommand_is_named(arguments, name):
    for more in ([], ["--help"]):
        done = run(*arguments, *more)
        assert done.returncode == 2, done.stdout + done.stderr
        assert f"unknown subcommand '{name}'; there are: " in done.stderr
        assert not done.stdout


@pytest.mark.parametrize(("arguments", "near"), [(["serv"], "serve"), (["bench", "decod"], "decode")])
def test_a_mistyped_subcommand_is_answered_with_the_near_one(arguments, near):
    done = run(*arguments)
    assert done.returncode == 2
    assert f"did you mean '{near}'?" in done.stderr


def test_bench_is_a_program_beside_this_one(tmp_path: pathlib.Path):
    """Links to the program are followed; what has no baton-bench beside it says where it looked."""
    link = tmp_path / "linked"
    link.symlink_to(BINARY)
    for words in ([link, "bench", "--help"], [link, "--help", "bench"], [BINARY.with_name("baton-bench"), "--help"]):
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert "Usage: baton bench " in done.stdout
    asked = [BINARY.with_name("baton-bench"), "--version"]
    version = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True)
    assert version.stdout == run("--version").stdout

    (tmp_path / "bin").mkdir()
    (tmp_path / "lib").symlink_to(BINARY.parents[1] / "lib")
    alone = shutil.copy(BINARY, tmp_path / "bin/baton")
    for words in (["bench", "decode"], ["demo"]):
        done = subprocess.run([alone, *words], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1
        assert f"there is no {tmp_path / 'bin/baton-bench'}" in done.stderr


def test_bench_keeps_the_process():
    """The process that ran `baton` runs the benchmark; a signal to it ends the benchmark."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        words = [BINARY, "bench", "serve", "--base-url", url]
        started = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            server.settimeout(60)
            connection, _ = server.accept()
            with connection:
                assert pathlib.Path(f"/proc/{started.pid}/exe").resolve() == BINARY.with_name("baton-bench").resolve()
                started.terminate()
                assert started.wait(60) == -signal.SIGTERM
        finally:
            started.kill()
            started.wait()


TO_FULL_DISK = [["--version"], ["serve", "--help"], ["chat", "--temperature", "0"], ["generate", "--prompts", "-"]]


@pytest.mark.parametrize("arguments", TO_FULL_DISK)
def test_what_cannot_be_written_ends_with_1(arguments, questions):
    text = json.dumps({"prompt": "Galtan"}) + "\n" if arguments[0] == "generate" else questions[0]["messages"][-1]["content"]
    with pathlib.Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [BINARY, *arguments], input=text, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert done.returncode == 1, done.stderr
    assert "cannot write to standard output: No space left on device" in done.stderr


def test_chat_answers_lines_of_standard_input(questions):
    question = questions[0]
    done = run("chat", "--temperature", "0", text=question["messages"][-1]["content"] + "\n/stats\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == question["answer"]
    assert "from the cache" in done.stderr


def test_chat_begins_with_the_prefix_that_is_given(questions):
    question = questions[0]
    catalogue = f"mine={ROOT / 'models/demo/catalogue.txt'}"
    text = question["messages"][-1]["content"]
    done = run("chat", "--temperature", "0", "--prefix", catalogue, text=text)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == question["answer"]
    two = run("chat", "--prefix", catalogue, "--prefix", catalogue.replace("mine", "other"), text=text)
    assert two.returncode == 2
    assert "--use-prefix" in two.stderr


def test_chat_has_commands(questions, tmp_path):
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("You are short.")
    tools = tmp_path / "tools.json"
    tools.write_text("{}")
    lines = ["/prefix", f"/prefix mine={prompt}", "/prefix", "/prefix shop", questions[0]["messages"][-1]["content"], "/exit", "x"]
    done = run("chat", "--temperature", "0", text="\n".join(lines))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == questions[0]["answer"]
    assert "* shop: " in done.stderr
    assert "* mine: " in done.stderr
    for command, error in [
        ("/syste x", "did you mean /system?"),
        ("/reset now", "/reset takes nothing"),
        ("/prefix nowhere", "nowhere"),
        (f"/tools {tools}", "not a list of tools"),
    ]:
        done = run("chat", text=command)
        assert done.returncode == 1
        assert error in done.stderr


def test_demo_writes_its_numbers(tmp_path: pathlib.Path):
    numbers = tmp_path / "demo.json"
    done = run("demo", "--questions", "16", "--skip-large", "--json", str(numbers))
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(numbers.read_text())
    assert report["differing_answers"] == 0
    for arm in ("relay", "paged"):
        assert report[arm]["questions"] == 16
        assert report[arm]["right"] >= 15
    assert report["relay"]["kv_bytes_requested"] < report["paged"]["kv_bytes_requested"]
    assert "curl" in done.stdout


def test_bench_decode_reads_less_with_relay(tmp_path: pathlib.Path):
    numbers = tmp_path / "decode.json"
    config = json.loads((ROOT / "tests/goldens/llama_tiny_gqa64/config.json").read_text()) | {"max_position_embeddings": 2048}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = ["--model", str(tmp_path), "--load-format", "dummy"]
    shape = ["--shared", "1024", "--own", "4", "--new", "4", "--requests", "8", "--runs", "1", "--arms", "relay,paged"]
    done = run("bench", "decode", *model, *shape, "--json", str(numbers))
    assert done.returncode == 0, done.stdout + done.stderr
    read = {one["arm"]: one["kv_bytes_requested"] for one in json.loads(numbers.read_text())["runs"]}
    assert read["relay"] < read["paged"]


def test_recurrent_models_say_what_their_prefix_cache_has_room_for(tmp_path: pathlib.Path):
    config = json.loads((ROOT / "tests/goldens/qwen3_5_tiny_chunks/config.json").read_text())
    config["vocab_size"] = json.loads((ROOT / "models/demo/config.json").read_text())["vocab_size"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(ROOT / "models/demo" / name, tmp_path)
    info = run("info", str(tmp_path), "--memory", "1G", "--json")
    assert info.returncode == 0, info.stderr
    facts = json.loads(info.stdout)
    assert facts["recurrent_layers"] == 3
    assert facts["state_bytes_per_sequence"] == 3 * 4 * (3 * (2 * 128 + 3 * 128) + 3 * 128 * 128)
    assert facts["state_bytes_per_draft"] == 3 * 4 * (2 * (2 * 128 + 3 * 128) + 16)
    assert facts["state_cache_dtype"] == "float32"
    rounded = json.loads(run("info", str(tmp_path), "--memory", "1G", "--json", "--state-cache-dtype", "bfloat16").stdout)
    assert rounded["state_bytes_per_sequence"] == 3 * (4 * 3 * (2 * 128 + 3 * 128) + 2 * 3 * 128 * 128)
    assert rounded["fits"]["snapshots"] >= facts["fits"]["snapshots"]
    assert facts["prefix_caching"] is True
    assert facts["fits"]["snapshots"] > 0
    assert facts["sharing"]["kv_bytes_shared"] < facts["sharing"]["kv_bytes_apart"]
    table = run("info", str(tmp_path), "--memory", "1G")
    assert f"room for {facts['fits']['snapshots']:,} snapshots of them" in table.stdout
    assert "relayed attention" in table.stdout


def test_tokenize_encodes_many_lines_and_decodes_them_again():
    texts = [f"What does item {i} cost? ü€" for i in range(20000)]
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    encoded = run("tokenize", "demo", text=lines)
    assert encoded.returncode == 0, encoded.stderr
    ids = [json.loads(line) for line in encoded.stdout.splitlines()]
    assert len(ids) == len(texts)
    assert all(isinstance(one, int) for line in ids for one in line)
    decoded = run("tokenize", "--tokenizer", str(ROOT / "models/demo"), "--decode", "--skip-special-tokens", text=encoded.stdout)
    assert decoded.returncode == 0, decoded.stderr
    assert [json.loads(line) for line in decoded.stdout.splitlines()] == texts


def test_tokenize_names_the_line_that_is_wrong():
    done = run("tokenize", "demo", text='"right"\n{"not": "a text"}\n')
    assert done.returncode == 1
    assert done.stderr == "baton tokenize: line 2: the text must be a string, not an object\n"
    assert len(done.stdout.splitlines()) == 1


def test_render_shows_what_the_server_computes(server, questions):
    messages = questions[0]["messages"]
    done = run("render", "demo", "--tokens", text=json.dumps({"messages": messages}) + "\n")
    assert done.returncode == 0, done.stderr
    body = json.dumps({"messages": messages}).encode()
    request = urllib.request.Request(f"{server.url}/tokenize", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        assert json.loads(done.stdout)["prompt_token_ids"] == json.load(answer)["tokens"]
    text = run("render", "demo", text=json.dumps({"messages": messages}) + "\n")
    assert messages[-1]["content"] in json.loads(text.stdout)["prompt"]


def test_info_knows_the_demo_model():
    done = run("info", "demo", "--memory", "1G", "--json")
    assert done.returncode == 0, done.stderr
    info = json.loads(done.stdout)
    assert info["architecture"] == "LlamaForCausalLM"
    assert info["chat_templates"] == ["default"]
    assert info["fits"]["tokens"] > 0
    assert info["sharing"]["kv_bytes_shared"] < info["sharing"]["kv_bytes_apart"]
    table = run("info", "demo")
    assert table.returncode == 0, table.stderr
    assert "times less with relayed attention" in table.stdout


class Hub(http.server.BaseHTTPRequestHandler):
    """A hub that has the demo model as org/demo."""

    commit = "0123456789abcdef0123456789abcdef01234567"
    folder = ROOT / "models/demo"

    def do_HEAD(self):
        """Answer without the body."""
        self.answer(with_body=False)

    def do_GET(self):
        """Answer with the body."""
        self.answer(with_body=True)

    def answer(self, *, with_body: bool):
        """Answer with the list of files, a file or 404."""
        names = [file.name for file in self.folder.iterdir() if file.is_file()]
        name = self.path.removeprefix(f"/org/demo/resolve/{self.commit}/")
        headers = {}
        if self.path == "/api/models/org/demo/revision/main":
            body = json.dumps({"sha": self.commit, "siblings": [{"rfilename": name} for name in names]}).encode()
        elif name in names:
            body = (self.folder / name).read_bytes()
            headers["ETag"] = f'"{hashlib.sha256(body).hexdigest()}"'
        else:
            return self.send_error(404)
        self.send_response(200)
        for key, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(key, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)
        return None

    def log_message(self, *_):
        """Say nothing."""


def test_pull_downloads_a_model_that_list_and_the_other_programs_find(tmp_path: pathlib.Path):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    plain = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    online = plain | {"HF_HUB_CACHE": str(tmp_path), "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}"}
    offline = online | {"HF_HUB_OFFLINE": "1"}

    def run_in(environment: dict, *arguments: str, text: str = "") -> subprocess.CompletedProcess:
        command = [BINARY, *arguments]
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=100, check=False, env=environment)

    missing = run_in(offline, "pull", "org/demo")
    assert missing.returncode == 1
    assert "HF_HUB_OFFLINE" in missing.stderr
    tokenized = run_in(online, "tokenize", "org/demo", text='"a mug"\n')
    assert tokenized.returncode == 0, tokenized.stderr
    (listed,) = json.loads(run_in(offline, "list", "--json").stdout)
    assert listed["missing"] == "weights"
    pulled = run_in(online, "pull", "org/demo")
    assert pulled.returncode == 0, pulled.stderr
    server.shutdown()
    folder = pathlib.Path(pulled.stdout.strip())
    assert (folder / "model.safetensors").read_bytes() == (ROOT / "models/demo/model.safetensors").read_bytes()
    (listed,) = json.loads(run_in(offline, "list", "--json").stdout)
    assert (listed["name"], listed["complete"], listed["revisions"]) == ("org/demo", True, ["main"])
    assert listed["architecture"] == "LlamaForCausalLM"
    assert "complete" in run_in(offline, "list").stdout
    again = run_in(offline, "pull", "org/demo")
    assert again.stdout == pulled.stdout
    assert run_in(offline, "info", "org/demo").returncode == 0
    assert run_in(online, "pull").returncode == 2
