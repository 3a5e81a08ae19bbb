"""A tiny checkpoint that says any given text, so that parsers, stops and dialects are tested through the whole server.

Attention and feed-forward add nothing, so a token alone decides the next one. Each text is cut into tokens at random, also inside
of characters, and each piece is a token of its own that leads to the next piece, the last one to the end of the answer. The names
of the pieces are numbered, because equal pieces are different tokens, and the decoder drops the numbers.

The prompt ends with a token that leads to a text: the last message that is "say NAME" names it, or else the first text is said.
After `/v1/completions` the token is written as `<|say NAME|>`. A model that says one text says it behind any prompt.
"""

from __future__ import annotations

import array
import json
import pathlib
import random

WIDTH = 64
END = "<|end|>"
MOST_BYTES = 7  # of a piece

CHAT = """\
{%- if tools %}<|system|>{{ tools | tojson }}{% endif -%}
{%- for message in messages -%}
<|{{ message.role }}|>{{ message.content or '' }}
{%- if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif -%}
{%- for call in message.tool_calls or [] -%}
<tool_call>{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}</tool_call>
{%- endfor -%}
<|end|>
{%- endfor -%}"""

# After each template: which text is asked for, and the token that leads to it.
SAY = """\
{%- if add_generation_prompt -%}
{%- set said = namespace(name='') -%}
{%- for message in messages -%}
{%- set text = message.content if message.content is string else (message.content or []) | map(attribute='text') | join('') -%}
{%- if text.startswith('say ') %}{% set said.name = text[3:] %}{% endif -%}
{%- endfor -%}
{{- '<|say' + said.name + '|>' + PROMPT_END -}}
{%- endif -%}"""


def byte_characters() -> list[str]:
    """Return the characters that byte-level tokenizers write for bytes, as GPT-2 does."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return [chr(byte) if byte in shown else chr(0x100 + hidden.index(byte)) for byte in range(256)]


def cut(text: bytes, chance: random.Random, special: tuple[str, ...]) -> list[bytes | str]:
    """Return the text in pieces of one to seven bytes; a special token is a piece."""
    for token in special:
        front, found, back = text.partition(token.encode())
        if found:
            return [*cut(front, chance, special), token, *cut(back, chance, special)]
    pieces = []
    while text:
        length = chance.randint(1, MOST_BYTES)
        pieces.append(text[:length])
        text = text[length:]
    return pieces


def codes(count: int) -> tuple[list[bytes], list[bytes]]:
    """Return a vector of 64 signs for each token, and the same four times as long: a product with another one is far smaller."""
    chance = random.Random(count)
    drawn: set[int] = set()
    while len(drawn) < count:
        drawn.add(chance.getrandbits(WIDTH))

    def vector(code: int, length: float) -> bytes:
        signs = array.array("f", (length if code >> bit & 1 else -length for bit in range(WIDTH)))
        return signs.tobytes()

    ordered = sorted(drawn)
    return [vector(code, 1.0) for code in ordered], [vector(code, 4.0) for code in ordered]


class Vocabulary:
    """Tokens with the token that each leads to. The others lead to the first text."""

    def __init__(self) -> None:
        self.names = byte_characters()
        self.added: list[int] = []
        self.next: dict[int, int] = {}

    def add(self, content: bytes | str) -> int:
        """Return a new token: a piece of text, or a special token."""
        number = len(self.names)
        if isinstance(content, str):
            if content in self.names:
                raise ValueError(f"the special token {content} can be said once only")
            self.added.append(number)
            self.names.append(content)
        else:
            self.names.append("".join(self.names[byte] for byte in content) + f"\ue000{number}\ue001")
        return number

    def chain(self, contents: list[bytes | str], end: int) -> int:
        """Return the first of new tokens that lead from one to the next, and at last to `end`."""
        tokens = [self.add(content) for content in contents]
        self.next |= dict(zip(tokens, [*tokens[1:], end], strict=False))
        return tokens[0] if tokens else end

    def json(self) -> dict:
        """Return the content of tokenizer.json."""
        added = [
            {"id": number, "content": self.names[number], "special": True, "normalized": False}
            | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
            for number in self.added
        ]
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        drop_numbers = {"type": "Replace", "pattern": {"Regex": "\ue000[0-9]+\ue001"}, "content": ""}
        tokens = {name: number for number, name in enumerate(self.names) if number not in self.added}
        return {
            "version": "1.0",
            "added_tokens": added,
            "normalizer": None,
            "pre_tokenizer": byte_level,
            "post_processor": None,
            "decoder": {"type": "Sequence", "decoders": [drop_numbers, byte_level]},
            "model": {"type": "BPE", "vocab": tokens, "merges": []},
        }


def safetensors(tensors: dict[str, tuple[list[int], bytes]]) -> bytes:
    """Return a file of tensors in float32."""
    header, begin = {}, 0
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, begin + len(data)]}
        begin += len(data)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(data for _, data in tensors.values())


def weights(following: list[int]) -> bytes:
    """Return model.safetensors of a model in which token i leads to following[i]."""
    count = len(following)
    own, head = codes(count)
    layer = "model.layers.0"
    square = ([WIDTH, WIDTH], bytes(4 * WIDTH * WIDTH))
    ones = ([WIDTH], array.array("f", [1.0] * WIDTH).tobytes())
    tensors = {
        "model.embed_tokens.weight": ([count, WIDTH], b"".join(own[token] for token in following)),
        "lm_head.weight": ([count, WIDTH], b"".join(head)),
        "model.norm.weight": ones,
        f"{layer}.input_layernorm.weight": ones,
        f"{layer}.post_attention_layernorm.weight": ones,
    }
    parts = [f"self_attn.{name}_proj" for name in "qkvo"] + [f"mlp.{name}_proj" for name in ("gate", "up", "down")]
    return safetensors(tensors | {f"{layer}.{part}.weight": square for part in parts})


def write_saying_model(
    folder: pathlib.Path,
    texts: str | bytes | dict[str, str | bytes],
    *,
    template: str = CHAT,
    prompt_end: str = "",
    special: tuple[str, ...] = (),
    is_endless: bool = False,
    seed: int = 0,
    context: int = 16384,
) -> pathlib.Path:
    """Write a model that says one of `texts`, by name, and return its folder.

    `template` writes the messages, and `prompt_end` is the end of the prompt ("<think>\\n"). Each of `special` is one special token
    and may occur once in all texts. `is_endless`: a text is followed by dots until the answer is cut. Another `seed` cuts the texts
    otherwise.
    """
    if not isinstance(texts, dict):
        texts = {"it": texts}
    chance = random.Random(seed)
    vocabulary = Vocabulary()
    end = vocabulary.add(END)
    if is_endless:
        dot = vocabulary.add(b".")
        vocabulary.next[dot] = dot
    starts = {}
    for name, text in texts.items():
        content = text.encode() if isinstance(text, str) else text
        starts[name] = vocabulary.chain(cut(content, chance, special), dot if is_endless else end)
    for name, start in starts.items():
        vocabulary.next[vocabulary.add(f"<|say {name}|>{prompt_end}")] = start
    first = next(iter(starts.values()))
    following = [vocabulary.next.get(token, first) for token in range(len(vocabulary.names))]

    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(following),
        "hidden_size": WIDTH,
        "intermediate_size": WIDTH,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "head_dim": WIDTH,
        "hidden_act": "silu",
        "max_position_embeddings": context,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "eos_token_id": end,
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(vocabulary.json()))
    chat_template = template + SAY.replace("PROMPT_END", json.dumps(prompt_end))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "chat_template": chat_template})
    )
    (folder / "model.safetensors").write_bytes(weights(following))
    return folder
