"""Made-up JSON: random values as somebody would write them, and their text in the usual styles."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass

from .catalogue import LINK_ROOT, random_code, random_word

_WORDS = (
    "a", "about", "after", "again", "all", "also", "and", "apple", "are", "ask", "at", "back", "bag", "before", "best", "big",
    "black", "blue", "book", "bottle", "bowl", "box", "bread", "broken", "brown", "but", "by", "call", "can", "car", "card",
    "chair", "check", "clean", "close", "coat", "coffee", "cold", "colour", "come", "cup", "dark", "day", "deep", "desk", "door",
    "dry", "each", "early", "easy", "empty", "end", "every", "fast", "few", "find", "first", "fits", "for", "free", "fresh",
    "from", "full", "garden", "gift", "glass", "good", "green", "grey", "group", "hand", "hard", "has", "have", "heavy", "here",
    "high", "home", "hot", "house", "in", "is", "it", "item", "just", "keep", "kitchen", "lamp", "large", "last", "late", "left",
    "less", "light", "like", "list", "long", "look", "low", "made", "make", "metal", "milk", "more", "most", "much", "name",
    "near", "need", "new", "next", "nice", "no", "not", "now", "of", "office", "old", "on", "one", "only", "open", "or",
    "orange", "order", "other", "our", "out", "over", "page", "paper", "parcel", "part", "pay", "pen", "pink", "place", "plain",
    "plate", "please", "price", "quick", "quiet", "ready", "red", "return", "right", "road", "room", "round", "safe", "sale",
    "same", "season", "see", "send", "set", "shelf", "ship", "shoe", "shop", "short", "silver", "size", "slow", "small", "soap",
    "soft", "sold", "some", "soon", "spoon", "spring", "stock", "stone", "store", "strong", "summer", "sun", "table", "take",
    "tall", "tea", "thank", "that", "the", "then", "these", "thick", "thin", "this", "tidy", "time", "to", "today", "top",
    "town", "two", "under", "until", "up", "use", "very", "wall", "warm", "was", "wash", "water", "we", "week", "well", "wet",
    "white", "wide", "will", "winter", "with", "wood", "wool", "work", "year", "yellow", "yes", "you", "young", "your",
)  # fmt: skip
_PEOPLE = (
    "Ada", "Ben", "Carla", "Dario", "Elif", "Finn", "Greta", "Hugo", "Ines", "Jonas", "Kira", "Lena", "Milo", "Nora", "Omar",
    "Paula", "Quinn", "Rosa", "Sami", "Tara", "Uma", "Victor", "Wanda", "Yara", "Zoe",
)  # fmt: skip
_PLACES = (
    "Oslo", "Lima", "Bern", "Graz", "Turin", "Porto", "Kyoto", "Quito", "Tunis", "Leeds", "Lyon", "Riga", "Malmo", "Bonn",
    "Austin", "Dakar", "Hanoi", "Pune", "Perth", "Sofia",
)  # fmt: skip
_STREETS = ("Mill Road", "Elm Street", "Harbour Lane", "Station Road", "Garden Way", "King Street", "Lake View", "Hill Street")
_RARE = ("é", "ü", "ö", "ß", "ñ", "€", "°", "“", "”", "…", "–", "中", "я", "λ")

# Names of properties whose values have one usual kind; see _KINDS.
_KEYS: dict[str, tuple[str, ...]] = {
    "integer": ("id", "count", "quantity", "number", "total", "age", "year", "rank", "level", "page", "size", "score", "days",
                "cents", "width", "height", "index", "stars", "points", "amount", "version", "length", "min", "max", "n"),
    "decimal": ("price", "cost", "weight", "rate", "ratio", "confidence", "sum", "tax", "discount", "value", "x", "y", "distance"),
    "boolean": ("active", "available", "in_stock", "found", "is_new", "paid", "open", "done", "enabled", "ok", "gift", "valid"),
    "word": ("category", "type", "kind", "color", "colour", "status", "state", "unit", "currency", "label", "tag", "role", "mode",
             "size_name", "priority", "key", "language", "group", "material"),
    "title": ("name", "title", "product", "item", "article", "model", "brand", "shop", "query", "subject"),
    "person": ("customer", "user", "owner", "author", "buyer", "sender", "contact", "first_name", "assignee"),
    "place": ("city", "country", "place", "location", "origin"),
    "street": ("street", "address", "address_line"),
    "sentence": ("description", "summary", "text", "message", "comment", "reason", "note", "answer", "question", "explanation",
                 "content", "result", "details", "body", "review"),
    "email": ("email", "mail", "reply_to"),
    "date": ("date", "created", "due", "birthday", "day", "shipped"),
    "date_time": ("timestamp", "created_at", "updated", "issued_at", "at"),
    "time": ("time", "start", "end", "opens", "closes"),
    "uri": ("url", "link", "href", "website", "image"),
    "uuid": ("uuid", "token", "session", "request_id"),
    "words": ("tags", "labels", "colors", "sizes", "keywords", "categories", "notes", "features"),
    "people": ("members", "users", "guests", "participants", "authors"),
    "records": ("items", "lines", "results", "orders", "products", "articles", "entries", "steps", "rows", "parts", "children"),
    "record": ("item_data", "meta", "options", "shipping", "billing", "data", "info", "settings", "limits", "arguments",
               "dimensions"),
    "numbers": ("values", "scores", "prices", "ratings", "position", "counts"),
}  # fmt: skip
_KIND_OF_KEY = {key: kind for kind, keys in _KEYS.items() for key in keys}
_USUAL_KEYS = tuple(_KIND_OF_KEY)
_SCALARS = (
    ("word", 14), ("title", 8), ("sentence", 9), ("integer", 16), ("decimal", 8), ("boolean", 8), ("null", 6), ("person", 3),
    ("place", 2), ("street", 1), ("email", 2), ("date", 2), ("date_time", 2), ("time", 1), ("uri", 2), ("uuid", 2),
    ("other_format", 5), ("odd_text", 5),
)  # fmt: skip
_SCALAR_NAMES = [name for name, _ in _SCALARS]
_SCALAR_WEIGHTS = [weight for _, weight in _SCALARS]


class Number(str):
    """A number with the digits that are to be written: 12.50."""

    __slots__ = ()


@dataclass(frozen=True)
class Style:
    """How a text is laid out; `indent` is what a level of an indented text adds, `pad` stands inside of braces."""

    colon: str = ": "
    comma: str = ", "
    indent: str = ""
    pad: str = ""
    is_ascii: bool = False


USUAL = Style()
COMPACT = Style(":", ",")
_STYLES = (USUAL, COMPACT, Style(indent="  "), Style(indent="    "), Style(pad=" "), Style(is_ascii=True))


def random_style(rng: random.Random) -> Style:
    """Mostly as Python writes it, often without spaces, now and then indented."""
    return rng.choices(_STYLES, (56, 26, 6, 2, 4, 6))[0]


def write(value: object, style: Style = USUAL, level: int = 0) -> str:
    """The text of a value: dict, list, str, Number, int, bool or None."""
    if isinstance(value, Number):
        return str(value)
    if not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=style.is_ascii)
    begin, end = "{}" if isinstance(value, dict) else "[]"
    if not value:
        return begin + end
    if isinstance(value, dict):
        parts = [f"{json.dumps(k, ensure_ascii=style.is_ascii)}{style.colon}{write(v, style, level + 1)}" for k, v in value.items()]
    else:
        parts = [write(v, style, level + 1) for v in value]
    if style.indent:
        line = "\n" + style.indent * level
        return begin + line + style.indent + f",{line}{style.indent}".join(parts) + line + end
    return begin + style.pad + style.comma.join(parts) + style.pad + end


def _digits(rng: random.Random, n: int) -> str:
    return "".join(rng.choices("0123456789", k=n))


def _hex(rng: random.Random, n: int) -> str:
    return "".join(rng.choices("0123456789abcdef", k=n))


def _word(rng: random.Random) -> str:
    draw = rng.random()
    return rng.choice(_WORDS) if draw < 0.7 else random_word(rng).lower() if draw < 0.85 else _letters(rng)


def _letters(rng: random.Random) -> str:
    """A few letters that make no word: what patterns and lengths of a schema leave to choose from."""
    letters = rng.choice(("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "ab", "xyz", "abcdefghij0123456789"))
    return "".join(rng.choices(letters, k=rng.choice((1, 1, 2, 2, 3, 3, 4, 5, 6, 8))))


def random_words(rng: random.Random, low: int, high: int) -> str:
    text = " ".join(rng.choices(_WORDS, k=rng.randint(low, high)))
    return text[0].upper() + text[1:] if rng.random() < 0.6 else text


def _sentence(rng: random.Random) -> str:
    n_sentences = rng.choices((1, 2, 3), (80, 17, 3))[0]
    return " ".join(random_words(rng, 2, 9) + rng.choice("...!?") for _ in range(n_sentences))


def _title(rng: random.Random) -> str:
    draw = rng.random()
    name = f"{random_word(rng)} {random_code(rng)}"
    return name if draw < 0.5 else random_words(rng, 1, 3) if draw < 0.8 else random_word(rng)


def _person(rng: random.Random) -> str:
    first = rng.choice(_PEOPLE)
    return first if rng.random() < 0.4 else f"{first} {random_word(rng)}"


def _email(rng: random.Random) -> str:
    return f"{rng.choice((rng.choice(_PEOPLE).lower(), _word(rng)))}@{rng.choice(('shop', 'mail', _word(rng)))}.{_top(rng)}"


def _top(rng: random.Random) -> str:
    return rng.choice(("example", "example", "com", "org", "net", "de", "io"))


def _date(rng: random.Random) -> str:
    return f"20{rng.randint(0, 39):02d}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"


def _clock(rng: random.Random) -> str:
    return f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}"


def _time(rng: random.Random) -> str:
    draw = rng.random()
    if draw < 0.3:
        return _clock(rng)
    fraction = f".{_digits(rng, rng.randint(1, 3))}" if rng.random() < 0.15 else ""
    zone = "Z" if rng.random() < 0.75 else f"{rng.choice('+-')}{rng.randint(0, 12):02d}:{rng.choice(('00', '30'))}"
    return f"{_clock(rng)}:{rng.randint(0, 59):02d}{fraction}{zone}"


def _date_time(rng: random.Random) -> str:
    zone = "Z" if rng.random() < 0.75 else f"{rng.choice('+-')}{rng.randint(0, 12):02d}:00"
    return f"{_date(rng)}T{_clock(rng)}:{rng.randint(0, 59):02d}{zone}"


def _uri(rng: random.Random) -> str:
    if rng.random() < 0.4:
        return f"https://{LINK_ROOT}{rng.randint(1000, 9999)}"
    path = "".join(f"/{_word(rng)}" for _ in range(rng.choice((0, 1, 1, 2))))
    query = f"?{_letters(rng)}={rng.randint(1, 99)}" if rng.random() < 0.1 else ""
    return f"{rng.choice(('https', 'https', 'http', 'ftp'))}://{_word(rng)}.{_top(rng)}{path}{query}"


def _uuid(rng: random.Random) -> str:
    return "-".join(_hex(rng, n) for n in (8, 4, 4, 4, 12))


def _duration(rng: random.Random) -> str:
    days, hours = rng.randint(1, 30), rng.randint(1, 23)
    return rng.choice((f"P{days}D", f"PT{hours}H", f"P{days}DT{hours}H", f"PT{days}M", f"P{hours}W", f"P{hours}Y{hours % 11 + 1}M"))


def _ipv6(rng: random.Random) -> str:
    if rng.random() < 0.4:
        return ":".join(_hex(rng, rng.choice((1, 2, 4))) for _ in range(8))
    return f"{_hex(rng, 4)}:{_hex(rng, rng.randint(1, 4))}::{_hex(rng, rng.randint(1, 4))}" if rng.random() < 0.9 else "::1"


def _other_format(rng: random.Random) -> str:
    draw = rng.randrange(9)
    if draw == 0:
        return ".".join(str(rng.randint(0, 255)) for _ in range(4))
    if draw == 1:
        return _ipv6(rng)
    if draw == 2:
        return _duration(rng)
    if draw == 3:
        return ".".join([*(_word(rng) for _ in range(rng.choice((1, 1, 2)))), _top(rng)])
    if draw == 4:
        return "".join(f"/{_word(rng)}" for _ in range(rng.randint(1, 3)))
    if draw == 5:
        return _digits(rng, rng.choice((2, 3, 4, 5, 5, 8, 12)))
    if draw == 6:
        return f"{random_code(rng)}-{_digits(rng, rng.randint(2, 5))}"
    if draw == 7:
        return f"${rng.randint(1, 499)}.{_digits(rng, 2)}"
    return rng.choice(("S", "M", "L", "XL", "USD", "EUR", "GBP", "US", "DE", "FR", "en", "de", "kg", "cm"))


def _odd_text(rng: random.Random) -> str:
    draw = rng.random()
    if draw < 0.3:
        return ""
    if draw < 0.65:
        return _letters(rng)
    if draw < 0.75:
        return rng.choice("abcdefgxyz") * rng.randint(1, 6)
    text = random_words(rng, 1, 4)
    at = rng.randint(0, len(text))
    return text[:at] + rng.choice(("\n", "\t", '"', "\\", *_RARE, *_RARE)) + text[at:]


def _integer(rng: random.Random) -> int:
    draw = rng.random()
    if draw < 0.5:
        return rng.randint(0, 9)
    if draw < 0.93:
        return rng.randint(10, rng.choice((99, 99, 999, 9999)))
    return -rng.randint(1, 99) if draw < 0.98 else rng.randint(10**4, 10 ** rng.randint(5, 9))


def _decimal(rng: random.Random) -> Number:
    whole = 0 if rng.random() < 0.3 else rng.randint(0, rng.choice((9, 99, 499)))
    sign = "-" if rng.random() < 0.05 else ""
    exponent = f"e{rng.choice(('', '-', '+'))}{rng.randint(1, 12)}" if rng.random() < 0.02 else ""
    return Number(f"{sign}{whole}.{_digits(rng, rng.choice((1, 1, 2, 2, 2, 3, 4)))}{exponent}")


_SCALAR_MAKERS: dict[str, Callable[[random.Random], object]] = {
    "word": _word,
    "title": _title,
    "sentence": _sentence,
    "integer": _integer,
    "decimal": _decimal,
    "boolean": lambda rng: rng.random() < 0.5,
    "null": lambda _: None,
    "person": _person,
    "place": lambda rng: rng.choice(_PLACES),
    "street": lambda rng: f"{rng.randint(1, 99)} {rng.choice(_STREETS)}",
    "email": _email,
    "date": _date,
    "date_time": _date_time,
    "time": _time,
    "uri": _uri,
    "uuid": _uuid,
    "other_format": _other_format,
    "odd_text": _odd_text,
}


def _key(rng: random.Random) -> str:
    draw = rng.random()
    if draw < 0.55:
        return rng.choice(_USUAL_KEYS)
    if draw < 0.7:
        return _word(rng)
    if draw < 0.8:
        return f"{_word(rng)}_{_word(rng)}"
    if draw < 0.86:
        return f"{rng.choice(_WORDS)}{rng.choice(_WORDS).capitalize()}"
    return _letters(rng) if draw < 0.97 else str(_odd_text(rng))


def _short_count(rng: random.Random) -> int:
    """How many members a list has: few."""
    return rng.choices((0, 1, 2, 3, 4, 5), (12, 30, 28, 18, 8, 4))[0]


def _list(rng: random.Random, depth: int) -> list[object]:
    n = _short_count(rng)
    if rng.random() < 0.2:
        return [random_value(rng, depth + 1) for _ in range(n)]
    if depth < 2 and rng.random() < 0.25:
        return _records(rng, depth)
    if rng.random() < 0.15 - 0.04 * depth:
        return [_list(rng, depth + 1) for _ in range(min(n, 3))]
    make = _SCALAR_MAKERS[rng.choices(_SCALAR_NAMES, _SCALAR_WEIGHTS)[0]]
    return [make(rng) for _ in range(n)]


def _records(rng: random.Random, depth: int) -> list[object]:
    """Like objects, as a list of the lines of an order."""
    keys = list(dict.fromkeys(_key(rng) for _ in range(rng.randint(1, 4))))
    kinds = [_kind_for(rng, key) for key in keys]
    return [
        {key: _of_kind(rng, kind, depth + 2) for key, kind in zip(keys, kinds, strict=True)}
        for _ in range(rng.choices((0, 1, 2, 3, 4), (8, 40, 30, 17, 5))[0])
    ]


def _object(rng: random.Random, depth: int) -> dict[str, object]:
    if rng.random() < 0.07:
        return {}
    n = rng.choices((1, 2, 3, 4, 5, 6, 8), (22, 26, 22, 14, 8, 5, 3) if depth == 0 else (36, 32, 18, 9, 5, 0, 0))[0]
    keys = dict.fromkeys(_key(rng) for _ in range(n))
    if rng.random() < 0.15:  # values of one kind
        kind = rng.choices(_SCALAR_NAMES, _SCALAR_WEIGHTS)[0]
        return {key: _of_kind(rng, kind, depth + 1) for key in keys}
    return {key: _of_kind(rng, _kind_for(rng, key), depth + 1) for key in keys}


def _kind_for(rng: random.Random, key: str) -> str:
    """The usual kind of a property's value; any other now and then, because a schema may ask for it."""
    usual = _KIND_OF_KEY.get(key)
    if usual and rng.random() < 0.7:
        return "null" if rng.random() < 0.04 else usual
    return rng.choices(("any", *_SCALAR_NAMES), (25, *_SCALAR_WEIGHTS))[0]


def _of_kind(rng: random.Random, kind: str, depth: int) -> object:
    make = _SCALAR_MAKERS.get(kind)
    if make:
        return make(rng)
    if kind == "any":
        return random_value(rng, depth)
    if kind in ("records", "record") and depth > 2:
        return [] if kind == "records" else {}
    if kind == "records":
        return _records(rng, depth)
    if kind == "record":
        return _object(rng, depth)
    make = {"words": _word, "people": _person, "numbers": _integer}[kind]
    return [make(rng) for _ in range(_short_count(rng))]


def _tree(rng: random.Random, keys: tuple[str, str], depth: int) -> dict[str, object]:
    """A recursive value: each level has fewer parts."""
    n = rng.choices((0, 1, 2, 3), ((25, 35, 28, 12), (62, 22, 13, 3), (85, 12, 3, 0), (100, 0, 0, 0))[min(depth, 3)])[0]
    return {keys[0]: _title(rng) if rng.random() < 0.5 else _word(rng), keys[1]: [_tree(rng, keys, depth + 1) for _ in range(n)]}


def random_object(rng: random.Random) -> dict[str, object]:
    """Arguments of a call: a flat object."""
    return _object(rng, 1)


def random_value(rng: random.Random, depth: int = 0) -> object:
    """Any JSON value, short and flat: the deeper, the more likely a scalar."""
    draw = rng.random()
    scalar, in_list = ((0.22, 0.36), (0.72, 0.85), (0.85, 0.94), (0.96, 0.98))[min(depth, 3)]
    if draw < scalar:
        return _SCALAR_MAKERS[rng.choices(_SCALAR_NAMES, _SCALAR_WEIGHTS)[0]](rng)
    if draw < in_list:
        return _list(rng, depth)
    if depth == 0 and rng.random() < 0.12:
        name = rng.choice(("name", "title", "word", "topic", "text"))
        return _tree(rng, (name, rng.choice(("parts", "groups", "below", "nodes", "members"))), 0)
    return _object(rng, depth)


def random_request(rng: random.Random) -> str:
    """What a user may write whose answer a program reads: anything, mostly without a word about JSON."""
    draw = rng.random()
    if draw < 0.35:
        verb = rng.choice(("Write", "Show", "Give me", "Make", "List", "Note", "Describe", "Fill in", "Sort", "Name", "Send"))
        return f"{verb} the {random_words(rng, 1, 4).lower()}{rng.choice(('.', '.', ', please.', ''))}"
    if draw < 0.65:
        begin = rng.choice(("What is", "Who has", "Where is", "When is", "Which is", "How is", "Is", "Can I have", "Why is"))
        return f"{begin} the {random_words(rng, 1, 5).lower()}?"
    if draw < 0.75:
        return rng.choice(("Example:", "Such as:", "Data:", "Please answer.", "Hi!", "Hello.", "Go on.", "Answer:", "Yes?"))
    return _sentence(rng)
