"""A tiny SentencePiece model, and what Transformers' LlamaTokenizer makes of hard texts with each of its `legacy` behaviours.

Needs Transformers 4: in 5 no tokenizer runs SentencePiece itself.
"""

from __future__ import annotations

import io
import json
from pathlib import Path

import sentencepiece
from transformers import AddedToken, LlamaTokenizer

from goldens.tokenizer_cases import CORPUS, TEXTS

N_PIECES = 560

# Text at the beginning, behind special tokens, and behind an added token that is none.
_SEAMS = (
    "Hello <s>.",
    "<s>the batch",
    "<s> the batch",
    "<s>  the batch</s>the prompt",
    "the<|end|>the<|end|> the",
    "<|end|>▁the",
    "<tool>the <tool> the<tool>",
    "</s><tool>the",
    " <s>",
    "▁<s>▁▁the",
)

_OPTIONS = {
    "legacy": {"legacy": True},
    "not_legacy": {"legacy": False},
    "no_prefix_space": {"legacy": False, "add_prefix_space": False},
}


def _model() -> bytes:
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS * 3),
        model_writer=written,
        vocab_size=N_PIECES,
        model_type="bpe",
        byte_fallback=True,
        character_coverage=0.98,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    return written.getvalue()


def write_sentencepiece(goldens: Path) -> None:
    """Writes tests/goldens/sentencepiece: a folder for each behaviour."""
    model = _model()
    for name, options in _OPTIONS.items():
        folder = goldens / "sentencepiece" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer.model").write_bytes(model)
        tokenizer = LlamaTokenizer(str(folder / "tokenizer.model"), **options)
        tokenizer.add_special_tokens({"additional_special_tokens": ["<|end|>"]})
        tokenizer.add_tokens([AddedToken("<tool>", normalized=False, special=False)])
        tokenizer.save_pretrained(folder)
        cases = [
            {"text": text, "add_special_tokens": special, "ids": tokenizer.encode(text, add_special_tokens=special)}
            for text in (*TEXTS, *_SEAMS)
            for special in (False, True)
        ]
        lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
        (folder / "cases.json").write_text(f"[\n{lines}\n]\n")
        for extra in ("special_tokens_map.json", "added_tokens.json"):
            (folder / extra).unlink(missing_ok=True)
