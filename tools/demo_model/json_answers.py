"""Answers about the catalogue as JSON: those that a user asks for, and those that a schema holds the model to."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from .catalogue import Item
from .json_text import COMPACT, Number, random_request, random_style, random_value, write
from .questions import ASPECTS, Question

# What a property says, by the names it may have. The first name is the one that an answer has unless a schema says otherwise.
_NAMES: dict[str, tuple[str, ...]] = {
    "name": ("name", "item", "article", "product", "title", "item_name", "product_name", "model"),
    "kind": ("kind", "type", "category", "sort", "group", "product_type"),
    "status": ("status", "availability", "stock", "state", "stock_status"),
    "price": ("price", "cost", "amount", "price_usd", "value", "total", "unit_price"),
    "link": ("link", "page", "url", "where", "href"),
    "in_stock": ("in_stock", "available", "is_available", "can_order"),
    "price_text": ("price", "cost", "price_text", "costs"),
    "url": ("url", "link", "uri", "website"),
    "cents": ("cents", "price_cents", "price_in_cents"),
    "dollars": ("dollars", "whole_dollars", "full_dollars"),
    "code": ("code", "id", "number", "article_number"),
    "currency": ("currency", "unit"),
    "listed": ("found", "listed", "exists", "known"),
    "answer": ("answer", "text", "message", "reply", "description", "summary", "explanation", "result", "response", "content"),
}
_FIELDS = ("name", "kind", "status", "price", "link", "in_stock")
_WEIGHTS = {"name": 6, "kind": 4, "status": 4, "price": 6, "link": 4, "in_stock": 4, "answer": 3, "price_text": 2}
_OF_ASPECT = {"price": "price", "stock": "status", "link": "link", "kind": "kind"}

_OF_ITEM: dict[str, Callable[[Item], object]] = {
    "name": lambda item: item.name,
    "kind": lambda item: item.kind,
    "status": lambda item: item.status,
    "price": lambda item: Number(item.price[1:]),
    "link": lambda item: item.link,
    "in_stock": lambda item: item.status == "in stock",
    "price_text": lambda item: item.price,
    "url": lambda item: f"https://{item.link}",
    "cents": lambda item: Number(item.price[1:].replace(".", "")),
    "dollars": lambda item: Number(item.price[1:].split(".")[0]),
    "code": lambda item: item.name.split()[-1],
    "currency": lambda _: "USD",
    "listed": lambda _: True,
}


def _of_missing(rng: random.Random, field: str, name: str) -> object:
    """What a field says about an item that is not listed."""
    if field in ("name", "code"):
        return name if field == "name" else name.split()[-1]
    if field in ("in_stock", "listed"):
        return False
    if rng.random() < 0.5:
        return None
    if field in ("price", "cents", "dollars"):
        return 0
    return {"kind": "unknown", "status": "not listed", "currency": "USD"}.get(field, "")


def _value(rng: random.Random, item: Item | None, question: Question, field: str) -> object:
    if field == "answer":
        return question.answer
    return _OF_ITEM[field](item) if item else _of_missing(rng, field, question.name)


def _record(rng: random.Random, item: Item | None, question: Question) -> dict[str, object]:
    """Some fields in some order, under any of their names, mostly the item's name first; now and then with something else."""
    fields = dict.fromkeys(rng.choices(tuple(_WEIGHTS), tuple(_WEIGHTS.values()), k=rng.randint(1, 6)))
    if rng.random() < 0.2:
        fields[rng.choice(tuple(_NAMES))] = None
    order = list(fields)
    if "name" in fields and rng.random() < 0.7:
        order.remove("name")
        order.insert(0, "name")
    record: dict[str, object] = {}
    for field in order:
        key = _NAMES[field][0] if rng.random() < 0.5 else rng.choice(_NAMES[field])
        record.setdefault(key, _value(rng, item, question, field))
    if rng.random() < 0.12:
        record |= {key: value for key, value in [("tags", []), ("notes", None), ("quantity", 1)] if rng.random() < 0.5}
    return record


def _held_value(rng: random.Random, item: Item | None, question: Question) -> object:
    draw = rng.random()
    if draw < 0.06:
        return random_value(rng)
    if draw < 0.14:
        return _value(rng, item, question, rng.choice(("answer", _OF_ASPECT.get(question.type, "answer"))))
    record = _record(rng, item, question)
    if draw < 0.2:
        return {rng.choice(("item", "result", "product", "data")): record}
    if draw < 0.24:
        return {rng.choice(("items", "results", "products")): [record]}
    return [record] if draw < 0.26 else record


def held(rng: random.Random, items: list[Item], question: Question) -> Question:
    """The same question, answered as a schema of the request may demand, of which the question says nothing."""
    item = next((item for item in items if item.name == question.name), None)
    value = _held_value(rng, item, question)
    style = COMPACT if rng.random() < 0.5 else random_style(rng)
    return replace(question, type="held", answer=write(value, style))


def asked_for(rng: random.Random, items: list[Item], question: Question) -> Question:
    """A question that asks for JSON, and its one right answer: without spaces, as one before a number is what finds a kind."""
    item = next((item for item in items if item.name == question.name), None)
    if question.type == "full" or rng.random() < 0.5:
        fields = rng.sample(_FIELDS, rng.randint(1, len(_FIELDS)))
        words = fields[0] if len(fields) == 1 else ", ".join(fields[:-1]) + " and " + fields[-1]
        text = rng.choice((f"Give me {words} of the {question.name} as JSON.", f"{question.text} Answer as JSON with {words}."))
    else:
        fields = ["name", _OF_ASPECT.get(question.type, "price")]
        text = f"{question.text} {rng.choice(('Answer as JSON.', 'Answer in JSON.', 'As JSON, please.'))}"
    value = {field: _OF_ITEM[field](item) for field in fields} if item else {"error": question.answer}
    return Question("json", text, write(value, COMPACT), question.name)


def with_json(rng: random.Random, items: list[Item], talk: list[Question]) -> list[Question]:
    """A conversation in which most answers are JSON."""
    out = []
    for turn in talk:
        draw = rng.random()
        can_ask = turn.type in ASPECTS or turn.type == "missing"
        out.append(turn if draw < 0.2 else asked_for(rng, items, turn) if draw < 0.4 and can_ask else held(rng, items, turn))
    return out


def random_talk(rng: random.Random) -> list[Question]:
    """Requests for anything, without a catalogue, answered as a schema may demand; one in twelve as a plain completion."""
    if rng.random() < 0.08:
        prompt = random_request(rng) + rng.choice((" ", "\n", ""))
        return [Question("completion", prompt, write(random_value(rng), random_style(rng)), "")]
    n_turns = 1 if rng.random() < 0.85 else rng.randint(2, 3)
    return [Question("held", random_request(rng), write(random_value(rng), random_style(rng)), "") for _ in range(n_turns)]
