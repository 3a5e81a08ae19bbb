#!/usr/bin/env python3
"""Writes random and mutated answers in harmony, and what openai-harmony's parser makes of each of their beginnings.

    harmony_streams.py VOCABULARY FILE [--count N] [--seed N]

VOCABULARY is a folder with o200k_base.tiktoken. FILE becomes a list of
    {"text": the answer, "messages": [{"role", "channel", "recipient", "text"}, ...],
     "begins": [[n_bytes, n_messages, n_open], ...]}
where `begins` says, for each number of tokens whose bytes are whole characters, how many messages have ended, and how many
bytes of the next one's text there are: -1 in a header and between messages. It ends where the reference refuses the answer,
or drops a message without `<|message|>` that is not the first.

tests/goldens/harmony/streams.json is that of 50 answers; parsers_tests compares any other file that BATON_HARMONY_STREAMS names.
Needs openai-harmony 0.0.8.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from pathlib import Path

MARKERS = ["<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>"]
CHANNELS = ["analysis", "analysis", "commentary", "final", "final", "other"]
WORDS = [
    "The", "user", "asks", "for", "Paris", "1 < 2", "<", "<|", "<|end", "|>", "\n", "\n\n", " ", "é", "日本", "🙂", "json",
    "to=", "assistant",
]
NAMES = ["functions.add", "functions.get_weather", "functions.other", "add", "python", "browser.search", "functions.", "user"]
ARGUMENTS = [
    "{}", '{"a": 1}', ' {"city": "Paris", "days": [1, 2.5e3, null]}\n', '{"s": "<|x|> \\u00e9 \\"q\\""}', "",
    " ", "print(1)", '{"a": ', "[1]",
]
ROLES = ["assistant", "assistant", "assistant", "assistant", "user", "tool", "functions.add", "system"]


def text_of(draw: random.Random) -> str:
    """A content of a few words."""
    return "".join(draw.choice(WORDS) + draw.choice(["", " ", " "]) for _ in range(draw.randrange(0, 9)))


def message_of(draw: random.Random, is_first: bool) -> str:
    """A message as a model might write it."""
    role = "" if is_first else "<|start|>" + draw.choice(ROLES)
    channel = draw.choice(CHANNELS)
    kind = draw.randrange(10)
    end = draw.choice(["<|end|>", "<|end|>", "<|end|>", "<|return|>", "<|call|>"])
    if kind < 6:
        content_type = draw.choice(["", "", "", " json", " <|constrain|>json", "<|constrain|>json"])
        return f"{role}<|channel|>{channel}{content_type}<|message|>{text_of(draw)}{end}"
    name, arguments = draw.choice(NAMES), draw.choice(ARGUMENTS)
    content_type = draw.choice(["", " json", " <|constrain|>json", "<|constrain|>json", " code"])
    if kind < 8:
        return f"{role}<|channel|>commentary to={name}{content_type}<|message|>{arguments}{end}"
    if kind < 9:
        return f"{role} to={name}<|channel|>{channel}{content_type or ' json'}<|message|>{arguments}{end}"
    return f"{role}<|message|>{text_of(draw)}{end}"


def parts_of(text: str) -> list[str]:
    """Markers, and the words between them."""
    parts = [text]
    for marker in MARKERS:
        parts = [piece for part in parts for piece in (split(part, marker) if part not in MARKERS else [part])]
    return [part for part in parts if part]


def split(text: str, marker: str) -> list[str]:
    """The text with each marker as a part of its own."""
    pieces: list[str] = []
    for index, piece in enumerate(text.split(marker)):
        pieces += [marker, piece] if index else [piece]
    return pieces


def mutated(draw: random.Random, text: str) -> str:
    """The text with some of its parts lost, doubled, swapped, replaced, or cut."""
    parts = parts_of(text)
    for _ in range(draw.choice([0, 0, 1, 1, 2, 3])):
        if not parts:
            break
        at, how = draw.randrange(len(parts)), draw.randrange(6)
        if how == 0:
            del parts[at]
        elif how == 1:
            parts.insert(at, draw.choice([*MARKERS, *WORDS, *NAMES, *CHANNELS]))
        elif how == 2:
            other = draw.randrange(len(parts))
            parts[at], parts[other] = parts[other], parts[at]
        elif how == 3:
            parts[at] = draw.choice([*MARKERS, "analysis", "final", "assistant"])
        elif how == 4:
            parts.insert(at, parts[at])
        else:
            parts[at] = parts[at][: draw.randrange(len(parts[at]) + 1)] if parts[at] not in MARKERS else parts[at]
    return "".join(parts)


def message(role: str, channel: str | None, recipient: str | None, text: str) -> dict:
    """A message as the file has it."""
    return {"role": role, "channel": channel or "", "recipient": recipient or "", "text": text}


def read(harmony, encoding, text: str) -> dict:
    """What the reference makes of a text."""
    tokens = encoding.encode(text, allowed_special="all")
    parser = harmony.StreamableParser(encoding, harmony.Role.ASSISTANT, strict=False)
    begins: list = []
    opened = None
    header = 0
    for count, token in enumerate(tokens, 1):
        was_header = parser.state == harmony.StreamState.HEADER
        n_before = len(parser.messages)
        try:
            parser.process(token)
        except harmony.HarmonyError:
            opened = None
            break
        header = header + 1 if was_header else 0
        is_dropped = was_header and parser.state == harmony.StreamState.EXPECT_START and len(parser.messages) == n_before
        if is_dropped and header > 1:
            opened = None
            break
        opened = None
        if parser.state == harmony.StreamState.CONTENT:
            opened = message(parser.current_role.value, parser.current_channel, parser.current_recipient, parser.current_content)
        try:
            n_bytes = len(encoding.decode_utf8(tokens[:count]).encode())
        except harmony.HarmonyError:
            continue
        begins.append([n_bytes, len(parser.messages), len(opened["text"].encode()) if opened else -1])
    messages = [message(m.author.role.value, m.channel, m.recipient, m.content[0].text) for m in parser.messages]
    return {"text": text, "messages": messages + ([opened] if opened else []), "begins": begins}


def main() -> None:
    """Writes the file."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("vocabulary")
    arguments.add_argument("file", type=Path)
    arguments.add_argument("--count", type=int, default=1000)
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    os.environ["TIKTOKEN_ENCODINGS_BASE"] = options.vocabulary
    import openai_harmony as harmony

    encoding = harmony.load_harmony_encoding(harmony.HarmonyEncodingName.HARMONY_GPT_OSS)
    draw = random.Random(options.seed)
    streams: dict[str, dict] = {}
    while len(streams) < options.count:
        text = "".join(message_of(draw, index == 0) for index in range(draw.randrange(1, 5)))
        text = mutated(draw, text) if draw.random() < 0.6 else text
        streams.setdefault(text, read(harmony, encoding, text))
    lines = [json.dumps(stream, ensure_ascii=False, separators=(",", ":")) for stream in streams.values()]
    options.file.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    n_whole = sum(s["begins"][-1][0] == len(s["text"].encode()) for s in streams.values() if s["begins"])
    print(f"{len(streams)} answers, of which the reference reads {n_whole} to their end")


if __name__ == "__main__":
    main()
