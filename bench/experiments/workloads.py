"""The data that the experiments read, and the requests that they make up themselves.

The data is not in the repository. `--data` or BATON_TEST_DATA names its folder; a file is taken as it is or, if only
FILE.zst is there, unpacked by the program zstd into build/bench-data. Where to get each file: docs/benchmarks.md.

    bench/experiments/workloads.py FOLDER      copies all of it to FOLDER, unpacked, to be carried to another machine
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from result_rows import REPOSITORY, locked

UNPACKED = REPOSITORY / "build" / "bench-data"
SHAREGPT = "sharegpt/ShareGPT_stat.csv"
MMLU = "mmlu/mmlu"
MOONCAKE = "traces-mooncake/conversation_trace.jsonl"
AZURE_CONVERSATION = "traces-azure-llm-2023/AzureLLMInferenceTrace_conv.csv"
AZURE_CODE = "traces-azure-llm-2023/AzureLLMInferenceTrace_code.csv"
LLAMA2_TOKENIZER = "tokenizers/llama2/tokenizer.model"
ALL = [SHAREGPT, MMLU, MOONCAKE, AZURE_CONVERSATION, AZURE_CODE, LLAMA2_TOKENIZER]
PACKED = {MMLU: "mmlu/mmlu_hendrycks_format.tar.zst"}  # a folder in an archive


class MissingData(Exception):
    """A file that an experiment needs is not there."""


def data_folder(given=None):
    for folder in (given, os.environ.get("BATON_TEST_DATA"), UNPACKED, REPOSITORY.parent / "shared" / "data"):
        if folder and Path(folder).is_dir():
            return Path(folder)
    raise MissingData("no folder with data: name it by --data or BATON_TEST_DATA (docs/benchmarks.md says where to get it)")


def unpack(packed, target):
    """Unpacks a .zst file, or a .tar.zst into the folder that `target` is in. The caller holds the lock."""
    if not shutil.which("zstd"):
        raise MissingData(f"{packed}: the program zstd is needed to unpack it")
    target.parent.mkdir(parents=True, exist_ok=True)
    if packed.name.endswith(".tar.zst"):
        subprocess.run(["tar", "-I", "zstd", "-xf", packed, "-C", target.parent], check=True)
    else:
        part = target.with_name(target.name + ".part")
        subprocess.run(["zstd", "-q", "-d", "-f", packed, "-o", part], check=True)
        part.replace(target)


def data_file(name, folder=None):
    """The path of an unpacked file or folder of the data. Errors: MissingData."""
    source = data_folder(folder)
    if (source / name).exists():
        return source / name
    target = UNPACKED / name
    packed = source / PACKED.get(name, name + ".zst")
    with locked(UNPACKED):  # several workers may want it at once
        if not target.exists():
            if not packed.exists():
                raise MissingData(f"{source} has neither {name} nor {packed.relative_to(source)} (docs/benchmarks.md)")
            unpack(packed, target)
    return target


def model_folder(shape, folder=None):
    """A folder that `baton serve` accepts: the shape's config.json with Llama-2's tokenizer beside it. Prompts are
    token ids, so the tokenizer only turns answers into text."""
    target = REPOSITORY / "build" / "bench-models" / shape
    target.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(REPOSITORY / "bench" / "shapes" / shape / "config.json", target / "config.json")
    shutil.copyfile(data_file(LLAMA2_TOKENIZER, folder), target / "tokenizer.model")
    return target


def configured_shape(shape, name, **values):
    """A folder, called after the shape and `name`, with the shape's config.json and these values in it."""
    target = REPOSITORY / "build" / "bench-models" / f"{shape}-{name}"
    target.mkdir(parents=True, exist_ok=True)
    config = json.loads((REPOSITORY / "bench" / "shapes" / shape / "config.json").read_text(encoding="utf-8")) | values
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=target, delete=False) as part:  # another worker may read it
        part.write(json.dumps(config, indent=2) + "\n")
    Path(part.name).replace(target / "config.json")
    return target


def longer_shape(shape, positions):
    """A folder with the shape's config.json that allows so many positions; nothing else depends on their number."""
    return configured_shape(shape, str(positions), max_position_embeddings=positions)


def made_up_tokens(rng, length, n_vocab):
    """Ids that every tokenizer has as ordinary tokens."""
    return [rng.randrange(300, n_vocab) for _ in range(length)]


def write_requests(path, requests):
    """JSON lines {prompt_token_ids, output_len} for --dataset-name custom."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"prompt_token_ids": prompt, "output_len": output_len}) for prompt, output_len in requests]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def nested_requests(n_requests, levels, own, output_len, n_vocab, seed=0):
    """Requests behind nested prefixes: levels [(number of prefixes, tokens)], each prefix of a level after one of
    the level above it."""
    rng = random.Random(seed)
    prefixes = [[]]
    for count, length in levels:
        prefixes = [prefixes[i * len(prefixes) // count] + made_up_tokens(rng, length, n_vocab) for i in range(count)]
    return [(prefixes[i % len(prefixes)] + made_up_tokens(rng, own, n_vocab), output_len) for i in range(n_requests)]


def mixed_requests(n_requests, stranger_share, shared, own, output_len, n_vocab, seed=0):
    """Requests of which a share has a prompt of its own, as long as the others', in random order."""
    rng = random.Random(seed)
    prefix = made_up_tokens(rng, shared, n_vocab)
    n_strangers = round(stranger_share * n_requests)
    prompts = [made_up_tokens(rng, shared + own, n_vocab) for _ in range(n_strangers)]
    prompts += [prefix + made_up_tokens(rng, own, n_vocab) for _ in range(n_requests - n_strangers)]
    rng.shuffle(prompts)
    return [(prompt, output_len) for prompt in prompts]


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("workloads.py FOLDER")
    target = Path(sys.argv[1])
    try:
        sources = {name: data_file(name) for name in ALL}
    except MissingData as error:
        sys.exit(f"workloads.py: {error}")
    for name, source in sources.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target / name, dirs_exist_ok=True, copy_function=shutil.copyfile)
        else:
            shutil.copyfile(source, target / name)
    print(f"{target}: {len(ALL)} files and folders, {sum(path.stat().st_size for path in target.rglob('*')) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
