"""The demo model's tokenizer: byte-level BPE of 1024 tokens, every digit a token of its own."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from .catalogue import random_catalogue, system_prompt
from .questions import conversation
from .rows import SPECIAL_TOKENS

N_VOCAB = 1024

CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ '<|system|>' }}"
    "{% elif message['role'] == 'user' %}{{ '<|user|>' }}"
    "{% elif message['role'] == 'assistant' %}{{ '<|assistant|>' }}"
    "{% else %}{{ raise_exception('the roles are system, user and assistant, not ' + message['role']) }}"
    "{% endif %}"
    "{{ message['content'] | trim }}{{ '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def train_tokenizer(seed: int, n_catalogues: int = 600) -> Tokenizer:
    """Trains the merges on text of the same kind as the training rows."""
    rng = random.Random(f"tokenizer/{seed}")
    texts = []
    for _ in range(n_catalogues):
        # Without the words for kinds: they must be spelled in pieces that have other uses (see catalogue.py).
        items = [replace(item, kind="0") for item in random_catalogue(rng, 40)]
        texts.append(system_prompt(items))
        for turn in conversation(rng, items, 60, cheaper_share=0.1, asked=items):
            texts += (turn.text, turn.answer)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=N_VOCAB,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def write_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Writes tokenizer.json and tokenizer_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    pad, bos, _, _, _, end = SPECIAL_TOKENS
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 4096,
        "pad_token": pad,
        "bos_token": bos,
        "eos_token": end,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
