"""Files of strangers: a model's folder with one damaged or hostile file ends a program with one error line, in seconds and in
little memory, whatever the file holds. Nothing crashes, nothing runs on."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
from conftest import BINARY, ROOT
from goldens.drawn import draw_into

SECONDS = 10
MEMORY_BYTES = 1 << 30
MESSAGE_BYTES = 2100  # of an error line, with the program's name
FIRST_SHARD = "model-00001-of-00002.safetensors"
SECOND_SHARD = "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"
DEEP = 100_000
N_SCHEMES = 100_000


def byte_level_tokenizer() -> dict:
    """A tokenizer.json whose 256 tokens are the bytes, spelled as GPT-2 does."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    spelling = {byte: chr(byte) for byte in plain} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    return {
        "model": {"type": "BPE", "vocab": {spelling[byte]: byte for byte in range(256)}, "merges": []},
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
    }


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """A whole model: two shards with their index, a tokenizer and a chat template."""
    draw_into(tmp_path, ROOT / "tests/goldens/llama_tiny_sharded")
    write_json(tmp_path / "tokenizer.json", byte_level_tokenizer())
    write_json(tmp_path / "tokenizer_config.json", {"chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}"})
    return tmp_path


def write_json(path: pathlib.Path, value: object) -> None:
    path.write_text(json.dumps(value))


def changed_json(path: pathlib.Path, change: Callable[[dict], object]) -> None:
    value = json.loads(path.read_text())
    change(value)
    write_json(path, value)


# Runs a program and writes its exit code and its peak memory in KiB to a descriptor. The kernel counts the peak of the
# process that starts a program as the program's own, so a small one must start it, not the one with all the tests.
LAUNCHER = """
import os, sys
_, status, usage = os.wait4(os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ), 0)
os.write(int(sys.argv[1]), b"%d %d" % (os.waitstatus_to_exitcode(status), usage.ru_maxrss))
"""


class End:
    """How a program ended."""

    def __init__(self, program: str, folder: pathlib.Path, *flags: str, text: str = "") -> None:
        """Run `baton PROGRAM FOLDER` with `text` on standard input, for at most SECONDS."""
        report, for_launcher = os.pipe()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        command = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(for_launcher), BINARY, program, str(folder), *flags]
        with subprocess.Popen(command, **pipes, pass_fds=[for_launcher], start_new_session=True) as process:
            os.close(for_launcher)
            outputs = {}

            def read(name: str) -> None:
                outputs[name] = getattr(process, name).read().decode()

            readers = [threading.Thread(target=read, args=[name]) for name in ("stdout", "stderr")]
            timer = threading.Timer(SECONDS, os.killpg, (process.pid, signal.SIGKILL))
            for thread in (*readers, timer):
                thread.start()
            try:
                process.stdin.write(text.encode())
                process.stdin.close()
            except BrokenPipeError:
                pass  # it ended before it read all
            process.wait()
            is_over_time = not timer.is_alive()
            timer.cancel()
            for thread in readers:
                thread.join()
        with os.fdopen(report) as written:
            numbers = written.read().split()
        assert not is_over_time, f"{program}: not ended after {SECONDS} s"
        self.out, self.error = outputs["stdout"], outputs["stderr"]
        self.code, self.peak_bytes = int(numbers[0]), int(numbers[1]) * 1024
        assert self.code in (0, 1), f"{program} ended with {self.code}: {self.error[-2000:]}"
        assert self.peak_bytes < MEMORY_BYTES, f"{program} took {self.peak_bytes} bytes"
        errors = [line for line in self.error.splitlines() if line.startswith("baton")]
        assert len(errors) == self.code, self.error[-2000:]
        self.message = errors[0] if errors else ""
        assert len(self.message.encode()) <= MESSAGE_BYTES, self.message
        assert self.message.isprintable(), self.message


def fails(program: str, folder: pathlib.Path, *words: str, text: str = "") -> None:
    """Run it and expect one error line that has all `words`."""
    end = End(program, folder, text=text)
    assert end.code == 1, end.out[:2000]
    for word in words:
        assert word in end.message, end.message


def generate_fails(folder: pathlib.Path, *words: str) -> None:
    """Expect that the model is not loaded, and that `baton info` names the same fault without an error."""
    fails("generate", folder, *words, text='{"prompt": "a", "max_tokens": 1}\n')
    info = End("info", folder, "--memory", "1G")
    assert info.code == 0, info.error
    for word in words:
        assert word in info.out, info.out


def test_the_folder_is_sound_before_it_is_damaged(folder):
    end = End("generate", folder, text='{"prompt": "a", "max_tokens": 3}\n')
    assert end.code == 0, end.error
    assert End("render", folder, text='{"messages": [{"content": "x"}]}\n').out == '{"prompt":"x"}\n'
    assert End("tokenize", folder, text='"ab"\n').out == "[97,98]\n"
    assert "cannot be loaded" not in End("info", folder).out


# --- weights


def header_of(path: pathlib.Path) -> tuple[dict, bytes]:
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def write_shard(path: pathlib.Path, header: dict | bytes, data: bytes) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def changed_header(path: pathlib.Path, change: Callable[[dict], object]) -> None:
    header, data = header_of(path)
    change(header)
    write_shard(path, header, data)


@pytest.mark.parametrize("kept", [0, 7, 8, 100, -1, -5000])
def test_a_truncated_shard(folder, kept):
    data = (folder / SECOND_SHARD).read_bytes()
    (folder / SECOND_SHARD).write_bytes(data[:kept])
    generate_fails(folder, SECOND_SHARD)


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 2**40])
def test_a_header_of_impossible_length(folder, length):
    (folder / FIRST_SHARD).write_bytes(struct.pack("<Q", length) + b"{}")
    generate_fails(folder, FIRST_SHARD)


@pytest.mark.parametrize("text", [b"[" * DEEP, b'{"a":' * DEEP, b"\xff" * 50, b"[]", b'{"a": {"dtype": "BF16"}}'])
def test_a_header_that_is_none(folder, text):
    write_shard(folder / FIRST_SHARD, text, b"")
    generate_fails(folder, FIRST_SHARD)


NAME = "model.layers.0.mlp.up_proj.weight"
ENTRIES = {
    "another dtype": {"dtype": "I64"},
    "a quantised dtype": {"dtype": "F8_E4M3"},
    "an unknown dtype": {"dtype": "Q4_0"},
    "a dtype that is no text": {"dtype": 7},
    "a negative size": {"shape": [-80, -48]},
    "sizes whose product overflows": {"shape": [2**32, 2**32]},
    "a size that is not an integer": {"shape": [80.5, 48]},
    "another shape": {"shape": [48, 80]},
    "a thousand dimensions": {"shape": [1] * 1000},
    "offsets after the end": {"data_offsets": [0, 2**62]},
    "offsets that run backwards": {"data_offsets": [100, 50]},
    "negative offsets": {"data_offsets": [-8, 8]},
}


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES.keys())
def test_a_tensor_with(folder, entry):
    for shard in (FIRST_SHARD, SECOND_SHARD):
        if NAME in header_of(folder / shard)[0]:
            changed_header(folder / shard, lambda header: header[NAME].update(entry))
    fails("generate", folder, NAME, text='{"prompt": "a"}\n')
    End("info", folder)


INDEX_CHANGES = {
    "a file that is not there": lambda index: index["weight_map"].update({NAME: "model-00003-of-00002.safetensors"}),
    "a file in another folder": lambda index: index["weight_map"].update({NAME: "../model.safetensors"}),
    "an absolute path": lambda index: index["weight_map"].update({NAME: "/etc/passwd"}),
    "a shard that does not hold the tensor": lambda index: index["weight_map"].update(
        dict.fromkeys(index["weight_map"], FIRST_SHARD)
    ),
    "a file that is no text": lambda index: index["weight_map"].update({NAME: 3}),
    "no weight map": lambda index: index.pop("weight_map"),
    "an empty weight map": lambda index: index.update({"weight_map": {}}),
    "a tensor too few": lambda index: index["weight_map"].pop(NAME),
}


@pytest.mark.parametrize("change", INDEX_CHANGES.values(), ids=INDEX_CHANGES.keys())
def test_an_index_with(folder, change):
    changed_json(folder / INDEX, change)
    fails("generate", folder, text='{"prompt": "a"}\n')
    End("info", folder)


@pytest.mark.parametrize("text", ["[" * DEEP, '{"weight_map":' * DEEP, "", "\0", "null"])
def test_an_index_that_is_none(folder, text):
    (folder / INDEX).write_text(text)
    generate_fails(folder, INDEX)


# --- quantised weights

O_PROJ = "model.layers.0.self_attn.o_proj."


@pytest.fixture
def quantised(tmp_path: pathlib.Path) -> Callable[[str], pathlib.Path]:
    """Copy one of tests/goldens/quantised, and give it a tokenizer."""

    def copy(name: str) -> pathlib.Path:
        shutil.copytree(ROOT / "tests/goldens/quantised" / name, tmp_path, dirs_exist_ok=True)
        (tmp_path / "golden.safetensors").unlink()
        write_json(tmp_path / "tokenizer.json", byte_level_tokenizer())
        return tmp_path

    return copy


def changed_tensor(folder: pathlib.Path, name: str, last: bytes = b"", **entry: object) -> None:
    """Give a tensor another end, or change what the header says of it."""
    path = folder / "model.safetensors"
    header, data = header_of(path)
    header[name].update(entry)
    begin, end = header[name]["data_offsets"]
    write_shard(path, header, data[: end - len(last)] + last + data[end:])
    assert begin <= end - len(last)


DAMAGED_MATRICES = {
    "a group out of range": ("gptq_desc_act", "g_idx", {"last": b"\xff" * 4}, "has the group -1 of 2"),
    "a size of 2^62": ("ct_int4", "weight_shape", {"last": struct.pack("<q", 2**62)}, "says 64 x 4611686018427387904 weights"),
    "a negative size": ("ct_int4", "weight_shape", {"last": struct.pack("<q", -1)}, "says 64 x -1 weights"),
    "zeros of another size": ("gptq", "qzeros", {"shape": [4, 4]}, "has the shape [4, 4], not [2, 8]"),
    "scales for nothing": ("awq", "scales", {"shape": [64, 2]}, "has the shape [64, 2]; it must have 64 columns"),
    "scales of another type": ("ct_fp8_channel", "weight_scale", {"dtype": "I16"}, "has the element type I16"),
    "overlapping offsets": ("gptq", "qzeros", {"data_offsets": [0, 64]}, "is damaged: tensor"),
}


@pytest.mark.parametrize("case", DAMAGED_MATRICES.values(), ids=DAMAGED_MATRICES.keys())
def test_a_quantised_matrix_with(quantised, case):
    golden, part, change, words = case
    folder = quantised(golden)
    changed_tensor(folder, O_PROJ + part, **change)
    generate_fails(folder, words)


# Only loading reads values.
@pytest.mark.parametrize(("golden", "part", "last"), [("fp8_tensor", "weight", b"\x7f"), ("ct_int4", "weight_scale", b"\x80\x7f")])
def test_a_quantised_matrix_with_values_that_are_no_numbers(quantised, golden, part, last):
    folder = quantised(golden)
    changed_tensor(folder, O_PROJ + part, last=last)
    fails("generate", folder, O_PROJ + part, "holds", text='{"prompt": "a"}\n')
    End("info", folder)


GROUP = {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}}
BOMB = "re:(a+)+$"
QUANTIZATIONS = {
    "no group size": ({"config_groups": {"g": {"weights": {"num_bits": 4, "strategy": "group"}}}}, "'group_size' is missing"),
    "a group size of 0": ({"config_groups": {"g": {"weights": {"num_bits": 4, "group_size": 0}}}}, "not 0"),
    "a group size of -7": ({"config_groups": {"g": {"weights": {"num_bits": 4, "group_size": -7}}}}, "not -7"),
    "a group size of 2^62": (
        {"config_groups": {"g": {"weights": {"num_bits": 4, "group_size": 2**62}}}},
        "not 4611686018427387904",
    ),
    "many schemes": (
        {"config_groups": {str(i): {"weights": {"num_bits": 4, "group_size": i}} for i in range(1, N_SCHEMES)}},
        "states more than 64 schemes",
    ),
}


@pytest.mark.parametrize(("fields", "words"), QUANTIZATIONS.values(), ids=QUANTIZATIONS.keys())
def test_a_statement_of_quantisation_with(quantised, fields, words):
    folder = quantised("ct_int4")
    changed_json(folder / "config.json", lambda config: config["quantization_config"].update(fields))
    fails("generate", folder, words, text='{"prompt": "a"}\n')
    fails("info", folder, words)


def test_a_statement_with_many_groups_and_patterns_that_take_exponential_time_is_no_hostile_one(quantised):
    folder = quantised("ct_int4")
    groups = {str(i): {**GROUP, "targets": [BOMB]} for i in range(N_SCHEMES)}
    changed_json(
        folder / "config.json",
        lambda config: config["quantization_config"].update({"config_groups": groups, "ignore": [BOMB] * N_SCHEMES}),
    )
    info = End("info", folder, "--memory", "1G")
    assert info.code == 0, info.error
    assert "cannot be loaded" not in info.out, info.out


def test_info_says_what_loading_says(quantised):
    folder = quantised("ct_int4")
    changed_json(
        folder / "config.json",
        lambda config: config["quantization_config"]["config_groups"]["group_0"]["weights"].update(group_size=64),
    )
    for flags in ((), ("-q", "int8"), ("-q", "awq")):
        loading = End("generate", folder, *flags, text='{"prompt": "a"}\n')
        assert loading.code == 1
        sentence = loading.error.splitlines()[-1].removeprefix("baton generate: ")
        info = End("info", folder, *flags)
        assert sentence in info.out + info.error, (sentence, info.out, info.error)
        assert "tokens in contexts of" not in info.out, info.out
        changed_json(folder / "config.json", lambda config: config.pop("quantization_config", None))


@pytest.mark.parametrize("file", ["hf_quant_config.json", "quantize_config.json", "quant_config.json"])
@pytest.mark.parametrize("text", ["[" * DEEP, '{"quantization":' * DEEP, "", "7", '{"quantization": {"quant_algo": "NVFP4_AWQ"}}'])
def test_a_file_of_quantisation_that_is_none(quantised, file, text):
    folder = quantised("gptq")
    changed_json(folder / "config.json", lambda config: config.pop("quantization_config"))
    (folder / file).write_text(text)
    for program in ("generate", "info"):
        fails(program, folder, file, text='{"prompt": "a"}\n')


# --- configurations


@pytest.mark.parametrize(
    "text",
    ["[" * DEEP, '{"architectures":' * DEEP, "", "{", "7", "\0\0", "\ud800".encode("utf-16", "surrogatepass").decode("latin-1")],
)
@pytest.mark.parametrize("file", ["config.json", "generation_config.json", "tokenizer_config.json"])
def test_a_configuration_that_is_none(folder, file, text):
    (folder / file).write_text(text)
    if file == "tokenizer_config.json" and text == "":
        return
    fails("generate", folder, file, text='{"prompt": "a"}\n')
    End("info", folder)


CONFIG_VALUES = {
    "num_hidden_layers": [10**9, -1, 0, 2**63, 1e300, "2", None, [2]],
    "vocab_size": [2**31, 2**62, 0, "x"],
    "hidden_size": [2**31, 2**62, 0, -48, 1.5],
    "intermediate_size": [2**40, 0],
    "num_attention_heads": [10**9, 0, 7],
    "num_key_value_heads": [0, 3, 10**9],
    "head_dim": [2**31, 0, 63],
    "max_position_embeddings": [2**40, 0, -1],
    "rms_norm_eps": [1e300, -1, "small"],
    "rope_theta": [1e300, 0, -1],
    "architectures": [["Strange" * 1000], [[["x"]]], {"a": 1}],
    "rope_scaling": [{"type": "yarn", "factor": 1e300}, {"rope_type": ["x"]}, {"type": "strange"}, 7],
    "quantization_config": [{"quant_method": "gptq"}, 7],
    "eos_token_id": [-2, 2**40, ["x"], {"a": 1}],
    "dtype": [7, "float8"],
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in CONFIG_VALUES.items() for value in values])
def test_a_configuration_with_a_value_out_of_range(folder, key, value):
    changed_json(folder / "config.json", lambda config: config.update({key: value}))
    fails("generate", folder, text='{"prompt": "a"}\n')
    End("info", folder)


# --- tokenizers


def test_a_missing_tokenizer_is_known_before_weights_are_read(folder):
    (folder / "tokenizer.json").unlink()
    (folder / FIRST_SHARD).write_bytes(b"not read")
    fails("generate", folder, "tokenizer.json", text='{"prompt": "a"}\n')


CATASTROPHIC = ["(a+)+$", "(a|a)*b", "(?:(?:a|aa)+)+$", "(x+x+)+y|(a*)*c", r"(.*a){30}b", r"(?=(a+))\1*b"]


@pytest.mark.parametrize("pattern", CATASTROPHIC)
@pytest.mark.parametrize("place", ["pre_tokenizer", "normalizer", "decoder"])
def test_a_pattern_that_takes_exponential_time(folder, pattern, place):
    regex = {"Regex": pattern}
    component = {"type": "Replace", "pattern": regex, "content": "z"}
    if place == "pre_tokenizer":
        component = {"type": "Split", "pattern": regex, "behavior": "Isolated", "invert": False}
    changed_json(folder / "tokenizer.json", lambda root: root.update({place: component}))
    text = "a" * 100_000 + "!"
    if place == "decoder":
        End("tokenize", folder, "--decode", text=json.dumps([97] * 100_000 + [33]) + "\n")
    else:
        End("tokenize", folder, text=json.dumps(text) + "\n")


BAD_PATTERNS = [
    "(",
    "((((a{1,9999}){1,9999}){1,9999}){1,9999})",
    "(" * DEEP + ")" * DEEP,
    "(?<=a*)b",
    r"\p{Strange}",
    "[z-a]",
    "a" * 10**6,
]


@pytest.mark.parametrize("pattern", BAD_PATTERNS, ids=range(len(BAD_PATTERNS)))
def test_a_pattern_that_is_none_or_too_large(folder, pattern):
    component = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    changed_json(folder / "tokenizer.json", lambda root: root.update({"pre_tokenizer": component}))
    End("tokenize", folder, text='"a"\n')


N_MANY = 100_000


def many_special(root: dict) -> None:
    root["added_tokens"] = [{"id": 256 + i, "content": f"<|{i}|>", "special": True} for i in range(N_MANY)]


def control_characters(root: dict) -> None:
    root["model"]["type"] = "\x1b[2J\nbaton tokenize: no error\x9b1m"


def repetitive_merges(root: dict) -> None:
    vocab, merges, piece = root["model"]["vocab"], root["model"]["merges"], "a"
    for _ in range(16):
        merges.append(f"{piece} {piece}")
        piece += piece
        vocab[piece] = len(vocab)


TOKENIZERS = {
    "100,000 special tokens": (many_special, 0),
    "repetitive merges": (repetitive_merges, 0),
    "a merge of unknown tokens": (lambda root: root["model"]["merges"].append("x yy"), 1),
    "a negative id": (lambda root: root["model"]["vocab"].update({"a": -1}), 1),
    "an id of 2^31": (lambda root: root["model"]["vocab"].update({"a": 2**31}), 1),
    "an id that is not a number": (lambda root: root["model"]["vocab"].update({"a": [1]}), 1),
    "two tokens of one id": (lambda root: root["model"]["vocab"].update({"a": 98}), None),
    "an added token without a text": (lambda root: root.update({"added_tokens": [{"id": 300, "content": ""}]}), None),
    "an added token that is not an object": (lambda root: root.update({"added_tokens": [7]}), 1),
    "10,000 nested normalizers": (
        lambda root: root.update({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 10_000}}),
        None,
    ),
    "an unknown component": (lambda root: root.update({"decoder": {"type": "Strange" * 10_000}}), 1),
    "a padding of 2^40": (lambda root: root.update({"padding": {"strategy": {"Fixed": 2**40}}}), None),
    "a post-processor of unknown ids": (
        lambda root: root.update({"post_processor": {"type": "BertProcessing", "sep": ["x", 2**40], "cls": ["y", -1]}}),
        1,
    ),
    "control characters in a name": (control_characters, 1),
    "no model": (lambda root: root.pop("model"), 1),
}


@pytest.mark.parametrize(("change", "code"), TOKENIZERS.values(), ids=TOKENIZERS.keys())
def test_a_tokenizer_with(folder, change, code):
    changed_json(folder / "tokenizer.json", change)
    end = End("tokenize", folder, text=json.dumps("a" * 200_000 + "<|5|>") + "\n")
    assert code is None or end.code == code, end.error


DOUBLE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
LONG = {"type": "Replace", "pattern": {"String": "a"}, "content": "b" * 10**6}
GROWING = {
    "normalizers that double": {"normalizer": {"type": "Sequence", "normalizers": [DOUBLE] * 60}},
    "a normalizer with a long text": {"normalizer": LONG},
    "a long text in front": {"normalizer": {"type": "Prepend", "prepend": "b" * 10**6}},
    "decoders that double": {"decoder": {"type": "Sequence", "decoders": [DOUBLE] * 60}},
    "a decoder with a long text": {"decoder": LONG},
}


@pytest.mark.parametrize("fields", GROWING.values(), ids=GROWING.keys())
def test_a_text_that_grows(folder, fields):
    separator = {"id": 300, "content": "x"}  # each part between two of them is a text of its own
    changed_json(folder / "tokenizer.json", lambda root: root.update({**fields, "added_tokens": [separator]}))
    if "normalizer" in fields:
        assert End("tokenize", folder, text=json.dumps("ax" * 5_000) + "\n").code == 0
    else:
        fails("tokenize", folder, "4096 times")


def test_many_tokens_with_roles(folder):
    tokens = [f"<|{i}|>" for i in range(N_MANY)]
    write_json(folder / "vocab.json", byte_level_tokenizer()["model"]["vocab"])
    (folder / "tokenizer.json").unlink()
    (folder / "merges.txt").write_text("#version: 0.2\n")
    write_json(folder / "added_tokens.json", {token: 256 + i for i, token in enumerate(tokens)})
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "Qwen2Tokenizer", "additional_special_tokens": tokens})
    assert End("tokenize", folder, text='"a<|7|>"\n').out == "[97,263]\n"


@pytest.mark.parametrize("file", ["tokenizer.json", "tekken.json", "tokenizer.model", "tiktoken.model"])
@pytest.mark.parametrize(
    "data", [b"[" * DEEP, b'{"model":' * DEEP, b"", b"\x0a\xff\xff\xff\xff\x0f", b"\xff" * 1000, b'{"config":{}}']
)
def test_a_tokenizer_file_that_is_none(folder, file, data):
    (folder / "tokenizer.json").unlink()
    (folder / file).write_bytes(data)
    for program, text in (("tokenize", '"a"\n'), ("render", '{"messages": []}\n')):
        fails(program, folder, text=text)
    End("info", folder)


# --- chat templates

ENDLESS = [
    "{% for i in range(1000000000) %}{{ i }}{% endfor %}",
    "{% for i in range(1000000000) %}{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{{ range(1000000000) | list | length }}",
    "{{ range(1000000000) | join }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% macro f(n) %}{{ f(n + 1) }}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "{% set ns = namespace(x='aa') %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
    "{{ 'a' * 1000000000000 }}",
    "{{ [1] * 1000000000000 }}",
    "{{ 'a'.center(1000000000000) }}",
    "{{ 'a' | center(1000000000000) }}",
    "{{ 'a\nb' | indent(1000000000000) }}",
    "{{ messages | tojson(indent=1000000000000) }}",
    "{{ '%999999999999d' % 1 }}",
    "{{ '{:>999999999999}'.format(1) }}",
    "{{ ('a' * 100000).replace('', 'b' * 100000) }}",
    "{{ ('a' * 1000000).split('') }}",
    "{{ strftime_now('%999999999Y') }}",
    "{{ strftime_now('%Y' * 10000000) }}",
    "{{ 9 ** 9 ** 9 ** 9 }}",
    "{{ 2 ** 100000 }}",
    "{{ " + "(" * DEEP + "1" + ")" * DEEP + " }}",
    "{{ " + "-" * DEEP + "1 }}",
    "{{ " + "not " * DEEP + "1 }}",
    "{{ " + "1 + " * DEEP + "1 }}",
    "{{ x" + ".a" * DEEP + " }}",
    "{{ x" + "|upper" * DEEP + " }}",
    "{% if 1 %}" * DEEP + "{% endif %}" * DEEP,
    "{% for i in [1, 2] %}" * 200 + "{% endfor %}" * 200,
    "{% set l = [] %}{% set _ = l.append(l) %}{{ l }}{{ l == l }}{{ l | tojson }}",
    "{% set d = {} %}{% set _ = d.update({'d': d}) %}{{ d }}{{ d | tojson }}",
    "{{ '[' * 100000 | from_json }}",
    "{{ ('[' * 100000) | from_json }}",
    "{% set l = [1] %}{% for i in range(100) %}{% set _ = l.extend(l) %}{% endfor %}{{ l | length }}",
    "{% set l = [1] %}{% for i in l %}{% set _ = l.append(1) %}{% endfor %}",
    "{% while true %}{% endwhile %}",
    "{%" * DEEP,
    "{#" * DEEP,
    "{{" * DEEP,
]


@pytest.mark.parametrize("template", ENDLESS, ids=range(len(ENDLESS)))
def test_a_template_without_an_end(folder, template):
    (folder / "chat_template.jinja").write_text(template)
    end = End("render", folder, text='{"messages": [{"role": "user", "content": "x"}]}\n')
    assert len(end.out) < 200_000_000


LINES = [
    '{"messages": ' + "[" * DEEP,
    '{"messages": ' + "[" * DEEP + "]" * DEEP + "}",
    '{"messages": [{"content": ' + '{"a":' * 300 + "1" + "}" * 300 + "}]}",
    '{"messages": [{"content": "\\ud800"}]}',
    "\ufeff{}",
    '{"messages": [], "chat_template": "' + "{{" * 1000 + '"}',
    '{"messages": 1e999}',
    "\0",
]


@pytest.mark.parametrize("line", LINES, ids=range(len(LINES)))
@pytest.mark.parametrize("program", ["render", "tokenize", "generate"])
def test_a_line_of_strangers(folder, program, line):
    fails(program, folder, text=line + "\n")


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", FIRST_SHARD, INDEX])
def test_what_is_no_file(folder, file):
    for make in (
        lambda path: path.mkdir(),
        os.mkfifo,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to(path),
    ):
        path = folder / file
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
        make(path)
        fails("generate", folder, file, text='{"prompt": "a"}\n')
        End("info", folder)
