"""A tiny Unigram model of SentencePiece with byte fallback, and the ids and texts that its own library makes."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path

import sentencepiece

from goldens.tokenizer_cases import CORPUS, TEXTS

N_PIECES = 480


def write_sentencepiece_unigram(goldens: Path) -> None:
    """Writes tests/goldens/sentencepiece/unigram: the model and cases.json {encode: [{text, ids}], decode: [{ids, text}]}."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS * 3),
        model_writer=written,
        vocab_size=N_PIECES,
        model_type="unigram",
        byte_fallback=True,
        character_coverage=0.98,
        user_defined_symbols=["<tool>"],
        hard_vocab_limit=False,
        minloglevel=2,
    )
    folder = goldens / "sentencepiece/unigram"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.model").write_bytes(written.getvalue())
    model = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
    # In tokenizers the control pieces are found in a text, in SentencePiece they are not. Two ways to cut ___ score the same.
    left_out = ("<s>", "</s>", "<unk>", "___")
    texts = [text for text in (*TEXTS, "a<tool>b <tool> c") if not any(part in text for part in left_out)]
    encode = [{"text": text, "ids": model.encode(text)} for text in texts]
    rng = random.Random(7)
    lists = [case["ids"] for case in encode]
    # Bytes that are no character are Transformers' matter: it replaces the whole run, SentencePiece what is wrong in it.
    pieces = [id for id in range(3, model.get_piece_size()) if not model.is_byte(id)]
    lists += [rng.choices(pieces, k=rng.randrange(1, 9)) for _ in range(60)]
    decode = [{"ids": ids, "text": model.decode(ids)} for ids in lists]
    lines = ",\n".join(
        f'"{key}": [\n' + ",\n".join(map(json.dumps, cases)) + "\n]" for key, cases in (("encode", encode), ("decode", decode))
    )
    (folder / "cases.json").write_text("{\n" + lines + "\n}\n")
    print(f"sentencepiece/unigram: {model.get_piece_size()} pieces, {len(encode)} texts, {len(decode)} id lists")
