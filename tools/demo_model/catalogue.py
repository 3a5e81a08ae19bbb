"""Made-up shops: items with syllable names, and the system prompt that lists them."""

from __future__ import annotations

import random
from dataclasses import dataclass

_FIRST = (
    "Bel", "Bran", "Cal", "Cor", "Dal", "Dra", "Dor", "Fal", "Fen", "Fir", "Gal", "Gor", "Gri", "Hal", "Hes", "Hol",
    "Jan", "Jor", "Kal", "Kes", "Kor", "Lan", "Lor", "Lum", "Mar", "Mel", "Mor", "Nal", "Nim", "Nor", "Pal", "Pel",
    "Pra", "Quil", "Ral", "Ril", "Ros", "Sal", "Sel", "Sor", "Tal", "Tel", "Tor", "Val", "Vel", "Vor", "Wil", "Wes",
    "Yar", "Zan", "Zel", "Zor",
)  # fmt: skip
_MIDDLE = (
    "a", "e", "i", "o", "u", "ba", "de", "di", "fa", "ga", "ka", "la", "le", "li", "lo", "ma", "me", "mi", "na",
    "ne", "no", "ra", "re", "ri", "sa", "so", "ta", "te", "va", "vi", "za",
)  # fmt: skip
_LAST = (
    "bar", "ben", "bis", "dan", "del", "dor", "fin", "gan", "gel", "kan", "ken", "kos", "lan", "len", "lin", "lis",
    "mar", "mel", "mir", "mon", "nar", "nel", "nis", "nor", "par", "phe", "ran", "ren", "rin", "ros", "san", "sen",
    "sil", "tan", "ten", "tis", "tor", "van", "ven", "vis", "xar", "xis", "zan", "zen",
)  # fmt: skip
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"

# Words that the committed tokenizer spells in pieces behind a space of its own ("hook" is " " "ho" "o" "k"), for a reason: a
# token that only ever stands for a kind is never told apart by anything the model predicts, so all such tokens become one
# vector of the tied embedding and nothing can be copied. And the lone space stands once in a line, right before the kind, as
# " $" does before the price: what finds a price finds a kind.
_THINGS = (
    "hat", "hinge", "hook", "horn", "harp", "hose", "jar", "jug", "lens", "nail", "needle", "net", "rack", "reel", "ribbon",
    "ring", "robot", "rocket", "rod", "rope", "valve", "vent", "vest", "vial", "handle", "violin", "visor", "yarn",
)  # fmt: skip
STATUSES = ("in stock", "sold out", "on order")
LINK_ROOT = "shop.example/"


@dataclass(frozen=True)
class Item:
    """One line of a catalogue.

    `name` is a word and a code: "Velora K7".
    """

    name: str
    kind: str
    status: str
    price: str
    link: str

    def line(self) -> str:
        """The item as the system prompt lists it."""
        return f"- {self.name}: {self.kind}, {self.status}, {self.price}, {self.link}\n"


def random_word(rng: random.Random) -> str:
    """A made-up word of two or three syllables."""
    middle = rng.choice(_MIDDLE) if rng.random() < 0.6 else ""
    return rng.choice(_FIRST) + middle + rng.choice(_LAST)


def random_code(rng: random.Random) -> str:
    """A letter and a number from 1 to 99."""
    return rng.choice(_LETTERS) + str(rng.randint(1, 9) if rng.random() < 0.5 else rng.randint(10, 99))


def _random_price(rng: random.Random) -> str:
    euros = rng.randint(2, 9) if rng.random() < 0.2 else rng.randint(10, 99) if rng.random() < 0.6 else rng.randint(100, 499)
    return f"${euros}.{rng.randint(0, 99):02d}"


def random_catalogue(rng: random.Random, n_items: int) -> list[Item]:
    """`n_items` items with distinct names, prices and links, in random order.

    About one name in twelve repeats the word of another item, so that the code matters.
    """
    names: dict[str, None] = {}
    while len(names) < n_items:
        repeat = names and rng.random() < 0.08
        word = rng.choice(list(names)).split()[0] if repeat else random_word(rng)
        names[f"{word} {random_code(rng)}"] = None
    prices: dict[str, None] = {}
    while len(prices) < n_items:
        prices[_random_price(rng)] = None
    links = rng.sample(range(1000, 10000), n_items)
    items = [
        Item(name, rng.choice(_THINGS), rng.choice(STATUSES), price, f"{LINK_ROOT}{link}")
        for name, price, link in zip(names, prices, links, strict=True)
    ]
    rng.shuffle(items)
    return items


def missing_name(rng: random.Random, items: list[Item]) -> str:
    """A name that is not in the catalogue; one in six differs from a listed one only in word or in code."""
    listed = {item.name for item in items}
    while True:
        word, code = random_word(rng), random_code(rng)
        if rng.random() < 1 / 6:
            near_word, near_code = rng.choice(items).name.split()
            word, code = (near_word, code) if rng.random() < 0.5 else (word, near_code)
        name = f"{word} {code}"
        if name not in listed:
            return name


def system_prompt(items: list[Item]) -> str:
    """The text that every request of the shop shares."""
    return (
        "You are the assistant of an online shop. Answer from the catalogue below. "
        "Each line gives name, kind, status, price and link. If an item is not listed, say so politely.\n\n"
        "Catalogue:\n" + "".join(item.line() for item in items)
    ).rstrip("\n")
