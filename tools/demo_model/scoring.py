"""Answers of Hugging Face Transformers to fresh questions: greedy ones compared with the right ones letter by letter, and
sampled JSON that must end and parse.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from .catalogue import random_catalogue, system_prompt
from .json_answers import asked_for
from .json_text import random_request
from .questions import ASPECTS, FIRST_TYPES, Question, ask, follow_up
from .tool_talks import tool_row

MAX_NEW_TOKENS = 160
MAX_JSON_TOKENS = 512
_JSON_BEGINS = ("{", "[", '"', '{"name": "', '{"items": [', '{"zq": ', "4")


@dataclass(frozen=True)
class Case:
    """A chat (or its rendered text), the right reply, the type of its last question and the size of its catalogue."""

    messages: list[dict[str, str]]
    answer: str
    type: str
    n_items: int
    text: str = ""


def _turn(asked: Question) -> str:
    return f"<|user|>{asked.text}<|end|><|assistant|>"


def _tool_cases(rng: random.Random) -> list[Case]:
    """The turns of two conversations with functions: calls, and answers behind their results."""
    prompt, talks = tool_row(rng, 4)
    cases = []
    for talk in [talk for talk in talks if talk[0].type == "tool"][:2]:
        text = f"<|bos|>{prompt}"
        for turn in talk:
            text += _turn(turn)
            cases.append(Case([], turn.answer, "call" if turn.answer.startswith("<tool_call>") else "result", 0, text))
            text += turn.answer + "<|end|>"
    return cases


def fresh_cases(seed: int, n_catalogues: int) -> list[Case]:
    """Per catalogue of 8 to 80 items: two first questions of each type, two follow-ups, two questions for JSON, and beside it two
    conversations with functions.
    """
    rng = random.Random(f"score/{seed}")
    cases = []
    for _ in range(n_catalogues):
        items = random_catalogue(rng, rng.randint(8, 80))
        system = {"role": "system", "content": system_prompt(items)}
        for type_ in FIRST_TYPES * 2:
            question = ask(rng, items, type_)
            chat = [system, {"role": "user", "content": question.text}]
            cases.append(Case(chat, question.answer, type_, len(items)))
        for type_ in rng.sample((*ASPECTS, "missing"), 2):
            first = ask(rng, items, type_)
            second = follow_up(rng, items, first)
            chat = [
                system,
                {"role": "user", "content": first.text},
                {"role": "assistant", "content": first.answer},
                {"role": "user", "content": second.text},
            ]
            cases.append(Case(chat, second.answer, "follow_up", len(items)))
        for type_ in rng.sample((*ASPECTS, "missing"), 2):
            question = asked_for(rng, items, ask(rng, items, type_))
            cases.append(Case([system, {"role": "user", "content": question.text}], question.answer, "json", len(items)))
        cases += _tool_cases(rng)
    return cases


class Sampler:
    """The model and its tokenizer in Transformers."""

    def __init__(self, folder: Path, dtype: torch.dtype, device: str) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.tokenizer.padding_side = "left"
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(device).eval()
        self._device = device

    def rendered(self, case: Case) -> str:
        """The text of a case."""
        return case.text or self.tokenizer.apply_chat_template(case.messages, tokenize=False, add_generation_prompt=True)

    @torch.no_grad()
    def replies(self, texts: list[str], **how: object) -> list[list[int]]:
        """The new tokens behind each text, without padding, in batches of similar length."""
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        replies: list[list[int]] = [[] for _ in texts]
        for start in range(0, len(order), 256):
            chosen = order[start : start + 256]
            inputs = self.tokenizer([texts[i] for i in chosen], return_tensors="pt", padding=True, add_special_tokens=False)
            inputs = {k: inputs[k].to(self._device) for k in ("input_ids", "attention_mask")}
            ids = self._model.generate(**inputs, **how)[:, inputs["input_ids"].shape[1] :]
            for i, new in zip(chosen, ids.tolist(), strict=True):
                replies[i] = [token for token in new if token != self.tokenizer.pad_token_id]
        return replies


def score(folder: Path, cases: list[Case], dtype: torch.dtype, device: str = "cuda") -> str:
    """A Markdown table of exact answers by type and by size of the catalogue."""
    sampler = Sampler(folder, dtype, device)
    ids = sampler.replies([sampler.rendered(case) for case in cases], max_new_tokens=MAX_NEW_TOKENS, do_sample=False)
    replies = sampler.tokenizer.batch_decode(ids, skip_special_tokens=True)
    right, seen = defaultdict(int), defaultdict(int)
    wrong = []
    for case, reply in zip(cases, replies, strict=True):
        low = case.n_items // 16 * 16
        size = f"{max(low, 8)} to {min(low + 15, 80)} items"
        for key in (case.type, size, "the seven", "all") if case.type in FIRST_TYPES else (case.type, "all"):
            seen[key] += 1
            right[key] += reply == case.answer
        if reply != case.answer:
            wrong.append(f"{case.type}, {case.n_items} items: {sampler.rendered(case)[-100:]!r}\n    {reply}\n    {case.answer}")
    print("\n".join(wrong[:20]), flush=True)
    lines = ["| questions | asked | exact | share |", "|---|---|---|---|"]
    lines += [f"| {key} | {seen[key]} | {right[key]} | {100 * right[key] / seen[key]:.2f}% |" for key in seen]
    return "\n".join(lines)


def sample_json(folder: Path, seed: int, n_samples: int, device: str = "cuda") -> str:
    """A line: how many answers that must begin as JSON end within MAX_JSON_TOKENS at temperature 1, and are JSON."""
    rng = random.Random(f"json/{seed}")
    sampler = Sampler(folder, torch.bfloat16, device)
    begins = [_JSON_BEGINS[i % len(_JSON_BEGINS)] for i in range(n_samples)]
    texts = [f"<|bos|><|user|>{random_request(rng)}<|end|><|assistant|>{begin}" for begin in begins]
    torch.manual_seed(seed)
    ids = sampler.replies(texts, max_new_tokens=MAX_JSON_TOKENS, do_sample=True, temperature=1.0, top_k=0, top_p=1.0)
    n_ended = n_valid = 0
    for i, (begin, new) in enumerate(zip(begins, ids, strict=True)):
        has_ended = new[-1] == sampler.tokenizer.eos_token_id
        text = begin + sampler.tokenizer.decode(new, skip_special_tokens=True)
        if i < 14:
            print(f"    {text[:300]}", flush=True)
        n_ended += has_ended
        try:
            json.loads(text, strict=False)
            n_valid += has_ended
        except ValueError:
            pass
    longest = max(len(new) for new in ids)
    return f"{n_samples} samples of JSON: {n_ended} ended within {MAX_JSON_TOKENS} tokens, {n_valid} are JSON; longest {longest}"
