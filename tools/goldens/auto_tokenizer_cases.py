"""Folders whose tokenizer Transformers builds by a class: what AutoTokenizer makes of hard texts.

Of LlamaTokenizer and CodeLlamaTokenizer with a tokenizer.json, and of vocab.json and merges.txt. The vocabularies are those of
goldens/tokenizers.
"""

from __future__ import annotations

import json
from pathlib import Path

from transformers import AutoTokenizer

from goldens.tokenizer_cases import TEXTS

_SEAMS = (
    "Hello <s>.",
    "<s>the batch",
    "<s> the batch",
    "<s>  the batch</s>the prompt",
    "the<|end|>the<|end|> the",
    "  <|end|>  the",
    " <s>",
    "▁<s>▁▁the",
    "a<|endoftext|> b <|im_end|> c<|im_end|>",
)


def _token(text: str, **flags: bool) -> dict:
    return {"content": text, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True} | flags


def _llama(tokenizer_json: str, model_type: str = "llama", **config: object) -> dict[str, object]:
    named = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"} | config
    return {"config.json": {"model_type": model_type}, "tokenizer_config.json": named, "tokenizer.json": tokenizer_json}


def _vocabulary(tokenizer_json: str, model_type: str, **config: object) -> dict[str, object]:
    model = json.loads(tokenizer_json)["model"]
    vocab = {token: id for token, id in model["vocab"].items() if token != "<|endoftext|>"}
    vocab = {token: place for place, token in enumerate(sorted(vocab, key=vocab.get))}
    merges = "#version: 0.2\n" + "".join(" ".join(pair) + "\n" for pair in model["merges"])
    files = {"config.json": {"model_type": model_type}, "vocab.json": vocab, "merges.txt": merges}
    return files | ({"tokenizer_config.json": config} if config else {})


def _folders(goldens: Path) -> dict[str, dict[str, object]]:
    llama = (goldens / "tokenizers/llama2/tokenizer.json").read_text()
    gpt2 = (goldens / "tokenizers/gpt2/tokenizer.json").read_text()
    added = {str(id): _token(text) for id, text in enumerate(("<unk>", "<s>", "</s>"))}
    more = {"600": _token("<|end|>", rstrip=True), "601": _token("<tool>", special=False)}
    chat = {"599": _token("<|endoftext|>"), "600": _token("<|im_end|>")}
    return {
        "llama_not_legacy": _llama(llama, legacy=False, add_bos_token=True, add_eos_token=True),
        "llama_legacy": _llama(llama, legacy=True, added_tokens_decoder=added | more),
        "llama_no_space": _llama(llama, legacy=None, add_prefix_space=False, tokenizer_class="LlamaTokenizerFast"),
        "llama_of_mistral": _llama(llama, "mistral", legacy=False),
        "code_llama": _llama(llama, tokenizer_class="CodeLlamaTokenizer"),
        "gpt2_vocabulary": _vocabulary(gpt2, "gpt2"),
        "codegen_vocabulary": _vocabulary(
            gpt2, "phi", tokenizer_class="CodeGenTokenizer", add_prefix_space=True, add_bos_token=True, add_eos_token=True
        ),
        "qwen2_vocabulary": _vocabulary(
            gpt2, "qwen2", tokenizer_class="GPT2Tokenizer", bos_token=None, eos_token="<|im_end|>", added_tokens_decoder=chat
        ),
        "qwen3_added_tokens": _vocabulary(gpt2, "qwen3") | {"added_tokens.json": {"<|endoftext|>": 599, "<|im_end|>": 600}},
    }


def write_auto_tokenizers(goldens: Path) -> None:
    """Writes tests/goldens/auto_tokenizers: the files of each folder, and cases.json."""
    for name, files in _folders(goldens).items():
        folder = goldens / "auto_tokenizers" / name
        folder.mkdir(parents=True, exist_ok=True)
        for file, content in files.items():
            (folder / file).write_text(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False) + "\n")
        tokenizer = AutoTokenizer.from_pretrained(folder)
        cases = []
        for text in (*TEXTS, *_SEAMS):
            ids = tokenizer.encode(text, add_special_tokens=False)
            with_ends = tokenizer.encode(text)
            cases.append({"text": text, "ids": ids, "ids_with_ends": with_ends, "decoded": tokenizer.decode(with_ends)})
        (folder / "cases.json").write_text("[\n" + ",\n".join(map(json.dumps, cases)) + "\n]\n")
        print(f"auto_tokenizers/{name}: {type(tokenizer).__name__}, {len(cases)} texts")
