"""Conversations with functions: the list in the prompt, the model's calls, their results and the answers behind them.

The texts are those of the chat template (tokenizer.py), which writes calls in the format "hermes".
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from .catalogue import Item, random_catalogue
from .json_text import Number, random_object, random_request, write
from .questions import ASPECTS, Question, ask

_VERBS = ("get", "find", "look_up", "lookup", "fetch", "search", "check", "show")
_NOUNS = ("item", "product", "article", "catalogue", "details", "info")
_OF_ASPECT = {"price": ("price", "cost"), "stock": ("stock", "availability", "status"), "link": ("link", "page", "url")}
_ARGUMENTS = ("name", "item", "product", "article", "query", "item_name")
_PLACES = ("Paris", "Rome", "Oslo", "Lima", "Bern", "Vienna", "Tokyo", "Berlin", "Madrid", "Boston", "Cairo", "Delhi")
_SYSTEM = (
    "You are the assistant of an online shop.", "Be brief.", "You are a helpful assistant.", "Use the functions.",
    "Answer politely.", "You are a shop assistant. Call a function to find out about an item.",
)  # fmt: skip
# name, its argument, how it is asked for
_OTHERS = (
    ("get_weather", "city", ("What is the weather in {}?", "Is it raining in {}?", "How warm is it in {}?")),
    ("get_time", "city", ("What time is it in {}?", "How late is it in {}?")),
    ("find_shop", "city", ("Is there a shop in {}?", "Where is your shop in {}?")),
    ("track_order", "number", ("Where is my order {}?", "When does order {} come?")),
)


@dataclass(frozen=True)
class Tool:
    """A function: `aspect` is what it looks up of an item ("" for everything), `phrasings` how else it is asked for."""

    name: str
    argument: str
    aspect: str = ""
    phrasings: tuple[str, ...] = ()

    def definition(self, rng: random.Random) -> dict[str, object]:
        """As an application describes it."""
        kind = {"type": "integer" if self.argument == "number" else "string"}
        if rng.random() < 0.2:
            kind["description"] = f"The {self.argument}."
        parameters: dict[str, object] = {"type": "object", "properties": {self.argument: kind}, "required": [self.argument]}
        if rng.random() < 0.3:
            parameters["additionalProperties"] = False
        function: dict[str, object] = {"name": self.name}
        if rng.random() < 0.8:
            function["description"] = self.name.replace("_", " ").capitalize() + "."
        return {"type": "function", "function": function | {"parameters": parameters}}


def calls(*called: tuple[str, dict[str, object]]) -> str:
    """What an assistant writes to call functions."""
    return "".join(f"<tool_call>\n{write({'name': name, 'arguments': given})}\n</tool_call>" for name, given in called)


def results(*texts: str) -> str:
    """The turns that hold the results of calls, as one user turn without its marker and end."""
    return "<|end|><|user|>".join(f"<tool_response>\n{text}\n</tool_response>" for text in texts)


def preamble(definitions: list[dict[str, object]]) -> str:
    """The system turn that lists functions, its markers included."""
    lines = "".join(write(definition) + "\n" for definition in definitions)
    how = 'To call one, write <tool_call>\n{"name": ..., "arguments": ...}\n</tool_call>.'
    return f"<|system|>You may call these functions:\n{lines}{how}<|end|>"


def _lookups(rng: random.Random) -> list[Tool]:
    argument = rng.choice(_ARGUMENTS)
    if rng.random() < 0.7:
        return [Tool(f"{rng.choice(_VERBS)}_{rng.choice(_NOUNS)}", argument)]
    aspects = rng.sample(tuple(_OF_ASPECT), rng.randint(1, 3))
    return [Tool(f"{rng.choice(_VERBS)}_{rng.choice(_OF_ASPECT[aspect])}", argument, aspect) for aspect in aspects]


def _result(rng: random.Random, item: Item | None, tool: Tool) -> str:
    if item is None:
        return rng.choice(('{"error": "not found"}', '{"found": false}', "null", "[]", "not found"))
    facts: dict[str, object] = {
        "name": item.name,
        "kind": item.kind,
        "status": item.status,
        "price": Number(item.price[1:]) if rng.random() < 0.5 else item.price,
        "link": item.link,
    }
    if tool.aspect:
        key = {"stock": "status"}.get(tool.aspect, tool.aspect)
        facts = {key: facts[key]} if rng.random() < 0.5 else {"name": item.name, key: facts[key]}
    return item.line().strip("- \n") if not tool.aspect and rng.random() < 0.1 else write(facts)


def _asked_of(rng: random.Random, tool: Tool, items: list[Item]) -> list[Question]:
    """A question about an item, the call, its result, and the answer."""
    aspects = (tool.aspect,) if tool.aspect else (*ASPECTS, "missing", "cheaper")
    question = ask(rng, items, rng.choice(aspects))
    if question.type == "cheaper":
        asked = sorted((i for i in items if i.name in question.answer), key=lambda i: question.answer.index(i.name))
    else:
        asked = [next((i for i in items if i.name == question.name), None)]
    call = calls(*((tool.name, {tool.argument: i.name if i else question.name}) for i in asked))
    result = results(*(_result(rng, i, tool) for i in asked))
    return [Question("tool", question.text, call, ""), Question("tool", result, question.answer, question.name)]


def _other(rng: random.Random, tool: Tool) -> list[Question]:
    given: object = rng.randint(100, 99999) if tool.argument == "number" else rng.choice(_PLACES)
    return [Question("tool", rng.choice(tool.phrasings).format(given), calls((tool.name, {tool.argument: given})), "")]


def _held(rng: random.Random, names: list[str]) -> list[Question]:
    """A call that the request demands, with the arguments that its schema leaves."""
    call = calls((rng.choice(names), random_object(rng)))
    return [Question("held", random_request(rng), call, "")]


def tool_row(rng: random.Random, n_talks: int) -> tuple[str, list[list[Question]]]:
    """The prompt behind <|bos|>, and conversations that follow it."""
    lookups = _lookups(rng)
    others = [Tool(name, argument, "", phrasings) for name, argument, phrasings in rng.sample(_OTHERS, rng.choice((0, 0, 1, 2)))]
    tools = [*lookups, *others]
    rng.shuffle(tools)
    prompt = preamble([tool.definition(rng) for tool in tools])
    if rng.random() < 0.5:
        prompt += f"<|system|>{rng.choice(_SYSTEM)}<|end|>"
    talks = []
    for _ in range(n_talks):
        draw = rng.random()
        if draw < 0.12:
            talks.append(_held(rng, [tool.name for tool in tools]))
        elif draw < 0.3 and others:
            talks.append(_other(rng, rng.choice(others)))
        else:
            items = random_catalogue(rng, 3)
            talks.append([turn for _ in range(rng.choice((1, 1, 2))) for turn in _asked_of(rng, rng.choice(lookups), items)])
    return prompt, talks


def unused_tools(rng: random.Random) -> str:
    """A list of functions in front of a catalogue, which answers all questions itself."""
    return preamble([tool.definition(rng) for tool in _lookups(rng)])
