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

# Functions stand in a system turn of their own, calls are in the format "hermes", results are turns of the user. Without
# functions and calls: <|bos|>, then <|role|>content<|end|> for each message. tool_talks.py writes the same texts.
CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% if tools %}"
    "{{ '<|system|>You may call these functions:\\n' }}"
    "{% for tool in tools %}{{ tool | tojson }}{{ '\\n' }}{% endfor %}"
    "{{ 'To call one, write <tool_call>\\n{\"name\": ..., \"arguments\": ...}\\n</tool_call>.<|end|>' }}"
    "{% endif %}"
    "{% for message in messages %}"
    "{% if message['role'] == 'tool' %}"
    "{{ '<|user|><tool_response>\\n' + message['content'] + '\\n</tool_response>' }}"
    "{% else %}"
    "{% if message['role'] == 'system' %}{{ '<|system|>' }}"
    "{% elif message['role'] == 'user' %}{{ '<|user|>' }}"
    "{% elif message['role'] == 'assistant' %}{{ '<|assistant|>' }}"
    "{% else %}{{ raise_exception('the roles are system, user, assistant and tool, not ' + message['role']) }}"
    "{% endif %}"
    "{{ (message['content'] or '') | trim }}"
    "{% for call in message['tool_calls'] or [] %}"
    "{{ '<tool_call>\\n{\"name\": \"' + call['function']['name'] + '\", \"arguments\": ' }}"
    "{{ call['function']['arguments'] | tojson }}{{ '}\\n</tool_call>' }}"
    "{% endfor %}"
    "{% endif %}"
    "{{ '<|end|>' }}"
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
    write_config(folder)


def write_config(folder: Path) -> None:
    """Writes tokenizer_config.json, which holds the chat template."""
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
