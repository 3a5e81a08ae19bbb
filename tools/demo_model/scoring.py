"""Greedy answers of Hugging Face Transformers to fresh questions, compared with the right ones letter by letter."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from .catalogue import random_catalogue, system_prompt
from .questions import ASPECTS, FIRST_TYPES, ask, follow_up

MAX_NEW_TOKENS = 96


@dataclass(frozen=True)
class Case:
    """A chat, the right reply, the type of its last question and the size of its catalogue."""

    messages: list[dict[str, str]]
    answer: str
    type: str
    n_items: int


def fresh_cases(seed: int, n_catalogues: int) -> list[Case]:
    """Per catalogue of 8 to 80 items: two first questions of each type and two follow-ups."""
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
    return cases


@torch.no_grad()
def greedy_replies(folder: Path, chats: list[list[dict[str, str]]], dtype: torch.dtype, device: str) -> list[str]:
    """The model's greedy reply to each chat, in batches of similar length."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.padding_side = "left"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(device).eval()
    texts = [tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) for chat in chats]
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    replies = [""] * len(texts)
    for start in range(0, len(order), 256):
        chosen = order[start : start + 256]
        inputs = tokenizer([texts[i] for i in chosen], return_tensors="pt", padding=True, add_special_tokens=False)
        inputs = {k: inputs[k].to(device) for k in ("input_ids", "attention_mask")}
        ids = model.generate(**inputs, max_new_tokens=MAX_NEW_TOKENS, do_sample=False)
        new = ids[:, inputs["input_ids"].shape[1] :]
        for i, reply in zip(chosen, tokenizer.batch_decode(new, skip_special_tokens=True), strict=True):
            replies[i] = reply
    return replies


def score(folder: Path, cases: list[Case], dtype: torch.dtype, device: str = "cuda") -> str:
    """A Markdown table of exact answers by type and by size of the catalogue."""
    replies = greedy_replies(folder, [case.messages for case in cases], dtype, device)
    right, seen = defaultdict(int), defaultdict(int)
    wrong = []
    for case, reply in zip(cases, replies, strict=True):
        low = case.n_items // 16 * 16
        for key in (case.type, f"{max(low, 8)} to {min(low + 15, 80)} items", "all"):
            seen[key] += 1
            right[key] += reply == case.answer
        if reply != case.answer:
            wrong.append(f"{case.type}, {case.n_items} items: {case.messages[-1]['content']}\n    {reply}\n    {case.answer}")
    print("\n".join(wrong[:20]), flush=True)
    lines = ["| questions | asked | exact | share |", "|---|---|---|---|"]
    lines += [f"| {key} | {seen[key]} | {right[key]} | {100 * right[key] / seen[key]:.2f}% |" for key in seen]
    return "\n".join(lines)
