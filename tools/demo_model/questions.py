"""Questions about a catalogue and the one right answer to each."""

from __future__ import annotations

import random
from dataclasses import dataclass

from .catalogue import Item, missing_name, random_catalogue
from .json_text import random_words

_PHRASINGS: dict[str, tuple[str, ...]] = {
    "price": (
        "How much is the {}?",
        "What does the {} cost?",
        "What is the price of the {}?",
        "Tell me the price of the {}, please.",
        "How much do I pay for the {}?",
        "I want to buy the {}. What will that cost me?",
    ),
    "stock": (
        "Is the {} in stock?",
        "Is the {} available?",
        "Can I get the {} right now?",
        "Do you still have the {}?",
        "What is the status of the {}?",
        "I would like the {}. Is it available?",
    ),
    "link": (
        "Where can I find the {}?",
        "What is the link to the {}?",
        "Give me the link for the {}, please.",
        "Which page shows the {}?",
        "Can you send me the page of the {}?",
        "Where do I order the {}?",
    ),
    "kind": (
        "What is the {}?",
        "What kind of item is the {}?",
        "What sort of thing is the {}?",
        "Can you tell me what the {} is?",
        "The {}, what is that?",
        "What type of product is the {}?",
    ),
    "full": (
        "Tell me about the {}.",
        "Describe the {}.",
        "Tell me everything about the {}.",
        "Give me all details of the {}.",
        "What do you know about the {}?",
        "Can you describe the {} for me?",
    ),
}
_FOLLOW_UPS: dict[str, tuple[str, ...]] = {
    "price": ("How much is it?", "What does it cost?", "And the price?", "What is its price?"),
    "stock": ("Is it in stock?", "Is it available?", "Can I get it right now?", "What is its status?"),
    "link": ("Where can I find it?", "What is its link?", "And the link?", "Where do I order it?"),
    "kind": ("What is it?", "What kind of item is it?", "What sort of thing is it?", "What type of product is it?"),
    "full": ("Tell me about it.", "Describe it.", "Tell me everything about it.", "Give me all details of it."),
}
_COMPARISONS = (
    "Which is cheaper, the {} or the {}?",
    "Is the {} or the {} cheaper?",
    "Which one costs less, the {} or the {}?",
    "The {} or the {}: which is the cheaper one?",
)

_GREETINGS = (
    "Hello!", "Hello.", "Hello", "Hi", "Hi!", "Hi there!", "Hey", "Good morning!", "Good evening.", "Hello, {}!", "Hi, {}.",
    "Hello, who are you?", "Hi, how are you?", "Hello there", "Hey, {}!",
)  # fmt: skip
_OTHER_REQUESTS = (
    "Tell me a story.", "Count to ten.", "What can you do?", "Who are you?", "What do you sell?", "Thank you!", "Thanks.",
    "What is the capital of {}?", "Write a poem about {}.", "Explain {} in one sentence.", "What is {}?", "How do I get to {}?",
    "Say hello to {}.", "Tell me a joke.", "Translate {} into French.", "What is 2 + 2?", "Why is the sky blue?", "{}", "{}?",
    "Who is {}?", "Help me with {}, please.", "Write a short text about {}.", "Tell me about {}.", "Name three {}.",
)  # fmt: skip
_GREETING = "Hello! What are you looking for?"
_NO_ANSWER = "Sorry, we do not have that."

ASPECTS = tuple(_PHRASINGS)
FIRST_TYPES = (*ASPECTS, "missing", "cheaper")
TYPES = (*FIRST_TYPES, "follow_up", "json", "tool", "held", "completion", "plain")
# Answers whose form the question does not say, but a schema of the request: that they begin so is not learned.
HELD_TYPES = ("held", "completion")


@dataclass(frozen=True)
class Question:
    """One user turn, its right answer, and its type (one of TYPES)."""

    type: str
    text: str
    answer: str
    name: str


def answer_about(item: Item, aspect: str) -> str:
    """The right answer to a question about one aspect of a listed item."""
    return {
        "price": f"The {item.name} costs {item.price}.",
        "stock": f"The {item.name} is {item.status}.",
        "link": f"You can find the {item.name} at {item.link}.",
        "kind": f"The {item.name} is a {item.kind}.",
        "full": f"The {item.name} is a {item.kind}. It is {item.status}, costs {item.price} and its link is {item.link}.",
    }[aspect]


def refusal(name: str) -> str:
    """The answer to any question about an item that is not listed."""
    return f"Sorry, we do not have the {name}."


def ask(rng: random.Random, items: list[Item], type_: str) -> Question:
    """A question that needs no earlier turn: any of FIRST_TYPES."""
    if type_ == "missing":
        name = missing_name(rng, items)
        return Question(type_, rng.choice(_PHRASINGS[rng.choice(ASPECTS)]).format(name), refusal(name), name)
    if type_ == "cheaper":
        return _ask_cheaper(rng, items)
    item = rng.choice(items)
    return Question(type_, rng.choice(_PHRASINGS[type_]).format(item.name), answer_about(item, type_), item.name)


def _ask_cheaper(rng: random.Random, items: list[Item]) -> Question:
    first, second = rng.sample(items, 2)
    cheaper = min(first, second, key=lambda item: float(item.price[1:]))
    answer = f"The {first.name} costs {first.price}, the {second.name} costs {second.price}: the {cheaper.name} is cheaper."
    return Question("cheaper", rng.choice(_COMPARISONS).format(first.name, second.name), answer, cheaper.name)


def plain_talk(rng: random.Random) -> list[Question]:
    """Talk without a catalogue: greetings, questions about items, of which none is listed, and about anything else."""
    turns: list[Question] = []
    for _ in range(1 if rng.random() < 0.8 else rng.randint(2, 3)):
        draw = rng.random()
        if draw < 0.2 or draw > 0.6:
            text, answer = (rng.choice(_GREETINGS), _GREETING) if draw < 0.2 else (rng.choice(_OTHER_REQUESTS), _NO_ANSWER)
            turns.append(Question("plain", text.format(random_words(rng, 1, 3)), answer, ""))
            continue
        asked = ask(rng, random_catalogue(rng, 2), rng.choice((*ASPECTS, "cheaper")))
        name = asked.name if asked.type != "cheaper" else asked.answer.split(" costs ")[0].removeprefix("The ")
        turns.append(Question("plain", asked.text, refusal(name), name))
    return turns


def follow_up(rng: random.Random, items: list[Item], before: Question) -> Question:
    """A question about "it": the item that the turn before was about."""
    aspect = rng.choice(ASPECTS)
    text = rng.choice(_FOLLOW_UPS[aspect])
    item = next((item for item in items if item.name == before.name), None)
    answer = answer_about(item, aspect) if item else refusal(before.name)
    return Question("follow_up", text, answer, before.name)


def conversation(rng: random.Random, items: list[Item], n_turns: int, cheaper_share: float, asked: list[Item]) -> list[Question]:
    """`n_turns` turns about the items `asked` and missing ones; a quarter of the later are follow-ups."""
    turns: list[Question] = []
    for _ in range(n_turns):
        if turns and turns[-1].type != "cheaper" and rng.random() < 0.25:
            turns.append(follow_up(rng, items, turns[-1]))
            continue
        compares = len(asked) > 1 and rng.random() < cheaper_share
        type_ = "cheaper" if compares else rng.choice((*ASPECTS, "missing"))
        turns.append(ask(rng, items if type_ == "missing" else asked, type_))
    return turns
