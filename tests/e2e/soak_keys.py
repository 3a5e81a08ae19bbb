"""The keys of soak.py's server: their names, a connection that sends one, and a key file that changes."""

from __future__ import annotations

import http.client
import json
import pathlib
import random
import time

ADMIN = "key-of-operator"
VISITOR = "key-of-visitor"  # which comes and goes
MISER = "key-of-miser"  # whose quotas are small
USERS = ("key-of-anna", "key-of-bert", ADMIN)
SHARES = ((0.32, "key-of-anna"), (0.28, "key-of-bert"), (0.3, ADMIN), (0.06, VISITOR), (0.04, MISER))
KEYS = [
    {"name": "anna", "key": "key-of-anna", "weight": 2},
    {"name": "bert", "key": "key-of-bert"},
    {"name": "operator", "key": ADMIN, "role": "admin"},
    {"name": "miser", "key": MISER, "requests_per_minute": 60, "concurrent_requests": 1},
]


class Connection(http.client.HTTPConnection):
    """A connection whose requests have a key."""

    def __init__(self, port: int, key: str, timeout: float) -> None:
        """It connects with the first request."""
        super().__init__("127.0.0.1", port, timeout=timeout)
        self.key = key

    def request(self, method: str, url: str, body: object = None, headers: dict | None = None, **options: object) -> None:
        """Send a request with the key."""
        super().request(method, url, body, {"Authorization": f"Bearer {self.key}"} | (headers or {}), **options)


def key_of(rng: random.Random) -> str:
    """Whose requests come next on a connection."""
    shares, keys = zip(*SHARES, strict=True)
    return rng.choices(keys, shares)[0]


def write_keys(file: pathlib.Path, rng: random.Random | None = None) -> None:
    """Write the key file: with the visitor or without, and now and then with a mistake, which changes nothing."""
    keys = list(KEYS)
    if rng is None or rng.random() < 0.5:
        keys.append({"name": "visitor", "key": VISITOR, "weight": 1 + int(time.time()) % 5})
    text = json.dumps({"keys": keys})
    if rng is not None and rng.random() < 0.2:
        text = text[: len(text) // 2]
    file.write_text(text)
