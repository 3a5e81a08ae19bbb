"""Cases of keys: rights, quotas, the file's changes, and what one key sees and costs of another. Issue 13, fairness."""

from __future__ import annotations

import json
import pathlib
import signal
import threading
import time

from conftest import Server

from hostile import floods, wire
from hostile.arena import Arena, Case, Skip, has_flag
from hostile.floods import Attack
from hostile.program_cases import refused

RELOAD_SECONDS = 5.0
KEYS = [
    {"name": "one", "key": "key-of-one"},
    {"name": "two", "key": "key-of-two"},
    {"name": "limited", "key": "key-of-limited", "requests_per_minute": 5, "concurrent_requests": 2},
    {"name": "few", "key": "key-of-few", "tokens_per_minute": 100},
    {"name": "operator", "key": "key-of-operator", "role": "admin"},
]


def key_file(arena: Arena, text: str | None = None) -> pathlib.Path:
    """Write the keys, or some other text, where the server reads them."""
    arena.folder.mkdir(parents=True, exist_ok=True)
    file = arena.folder / "keys.json"
    file.write_text(json.dumps({"keys": KEYS}) if text is None else text)
    return file


def start(arena: Arena, *flags: str) -> Server:
    """A server with the keys; requests of the arena use those of `one`."""
    if not has_flag("--api-key-file"):
        raise Skip("this program has no --api-key-file")
    arena.key = "key-of-one"
    return arena.start("--api-key-file", str(key_file(arena)), *flags)


def status(arena: Arena, key: str, path: str = "/v1/completions", body: dict | None = None) -> wire.Reply:
    """One small request with a key."""
    arena.key = key
    return arena.ask("POST", path, body or {"prompt": "x", "max_tokens": 1})


def rights(arena: Arena) -> None:
    """Unknown keys are refused; prefixes are the operator's; quotas give 429 with Retry-After."""
    start(arena)
    for key, expected in (("key-of-one", 200), ("key-of-two", 200), ("key-of-nobody", 401), ("key-of-on", 401), ("", 401)):
        arena.expect((got := status(arena, key).status) == expected, f"the key {key!r} got {got}")
    prefix = {"id": "mine", "text": "a public text"}
    got = status(arena, "key-of-one", "/v1/prefixes", prefix).status
    arena.expect(got in (401, 403), f"a user's key registered a prefix: {got}")
    got = status(arena, "key-of-operator", "/v1/prefixes", prefix).status
    arena.expect(got == 200, f"an admin's key got {got} for a prefix")
    for key, name in (("key-of-limited", "requests_per_minute"), ("key-of-few", "tokens_per_minute")):
        body = {"prompt": "tea " * 30, "max_tokens": 10, "ignore_eos": True}
        replies = [status(arena, key, body=body) for _ in range(12)]
        statuses = [reply.status for reply in replies]
        arena.expect(200 in statuses and 429 in statuses, f"12 requests within a quota of {name} got {statuses}")
        for reply in replies:
            if reply.status == 429:
                arena.expect("retry-after" in reply.headers, f"a 429 by {name} has no Retry-After")
                arena.expect(bool(reply.error().get("message")), f"a 429 by {name} has no reason: {reply.body[:100]!r}")
    got = status(arena, "key-of-two").status
    arena.expect(got == 200, f"another key got {got} while one had no quota left")
    log = arena.server.log.read_text()
    for entry in KEYS:
        arena.expect(entry["key"] not in log, "a key is in the log")
    page = wire.ask(arena.server.port, "GET", "/metrics", timeout=arena.seconds(60)).body.decode()
    arena.expect("key-of-" not in page, "a key is in /metrics")


def wrong_files(arena: Arena) -> None:
    """Key files that are wrong are refused at start by a sentence without a key."""
    if not has_flag("--api-key-file"):
        raise Skip("this program has no --api-key-file")
    one = KEYS[0]
    for what, text in {
        "empty": "",
        "no JSON": '{"keys": [{"name": "one", "key": "key-of-one"',
        "no keys": '{"keys": []}',
        "an empty key": json.dumps({"keys": [one | {"key": ""}]}),
        "a name twice": json.dumps({"keys": [one, one | {"key": "other"}]}),
        "a key twice": json.dumps({"keys": [one, one | {"name": "other"}]}),
        "an unknown field": json.dumps({"keys": [one | {"requests_per_minit": 1}]}),
        "a negative weight": json.dumps({"keys": [one | {"weight": -1}]}),
        "a quota as text": json.dumps({"keys": [one | {"requests_per_minute": "5"}]}),
        "an unknown role": json.dumps({"keys": [one | {"role": "root"}]}),
        "nested": "[" * 100_000,
    }.items():
        refused(arena, f"a key file: {what}", "--api-key-file", str(key_file(arena, text)), words=("keys.json",))
    refused(arena, "a key file that is not there", "--api-key-file", str(arena.folder / "nowhere"), words=("nowhere",))


def reload(arena: Arena) -> None:
    """SIGHUP reads the file again; a broken one changes nothing; many signals do no harm."""
    server = start(arena)

    def after(text: str | None, key: str, expected: int, what: str) -> None:
        key_file(arena, text)
        server.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + arena.seconds(RELOAD_SECONDS)
        while (got := status(arena, key).status) != expected and time.monotonic() < deadline:
            time.sleep(0.1)
        arena.expect(got == expected, f"{what}: the key {key} got {got}")

    after(json.dumps({"keys": [*KEYS, {"name": "new", "key": "key-of-new"}]}), "key-of-new", 200, "a key was added")
    after(json.dumps({"keys": KEYS}), "key-of-new", 401, "a key was taken away")
    key_file(arena, "{")
    server.process.send_signal(signal.SIGHUP)
    time.sleep(arena.seconds(0.5))
    arena.expect(status(arena, "key-of-one").status == 200, "a broken file took the keys away")
    arena.expect(status(arena, "").status == 401, "a broken file let everybody in")
    key_file(arena)
    threads = [threading.Thread(target=lambda: server.process.send_signal(signal.SIGHUP)) for _ in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    arena.expect(status(arena, "key-of-two").status == 200, "after 200 signals a key does not work")


def salts_of_keys(arena: Arena) -> None:
    """One key's prompt is not found in the cache by another, also not with the first one's name as its salt."""
    start(arena)
    prompt = [300 + i % 700 for i in range(1000)]

    def cached(key: str, **fields: object) -> int:
        reply = status(arena, key, body={"prompt": prompt, "max_tokens": 1} | fields)
        return json.loads(reply.body)["usage"]["prompt_tokens_details"]["cached_tokens"] if reply.status == 200 else -1

    arena.expect(cached("key-of-one") == 0, "the first request found something")
    arena.expect(cached("key-of-one") > 900, "a key does not share with itself: the case shows nothing")
    for fields in ({}, {"cache_salt": "one"}, {"cache_salt": "name:one"}, {"cache_salt": "key-of-one"}):
        foreign = cached("key-of-two", **fields)
        arena.expect(foreign == 0, f"another key found {foreign} tokens with {fields}")


def floods_of_a_key(arena: Arena) -> None:
    """One key floods the queue; small requests of another are answered soon."""
    start(arena)
    data = floods.queued("key-of-two")
    attack = Attack("2000 requests of another key", 2000, script=lambda _: floods.Visit(data))
    arena.flood([attack], 40)


def stored_conversations_of_a_key(arena: Arena) -> None:
    """One key sends short requests that bring in a stored conversation of 2 MB, and asks to see it; another key's small requests
    are answered soon meanwhile, and so is /metrics."""
    server = start(arena)
    # Reasoning takes no room in the prompt.
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "a thought, " * 100}] * 2000}
    asked = {"model": "demo", "max_output_tokens": 1, "input": [thought, {"role": "user", "content": "hello"}]}
    reply = status(arena, "key-of-two", "/v1/responses", asked)
    if not arena.expect(reply.status == 200, f"a response with 2 MB of reasoning got {reply.status}: {reply.body[:200]!r}"):
        return
    stored = json.loads(reply.body)["id"]
    arena.key = "key-of-one"
    more = json.dumps({"model": "demo", "max_output_tokens": 1, "previous_response_id": stored, "input": "go on"}).encode()
    continued = wire.request_bytes("POST", "/v1/responses", more, key="key-of-two")
    shown = wire.request_bytes("GET", f"/v1/responses/{stored}/input_items", key="key-of-two")
    pages: list[float] = []
    ended = threading.Event()

    def scrape() -> None:
        while not ended.wait(0.5):
            begin = time.monotonic()
            wire.ask(server.port, "GET", "/metrics", timeout=arena.seconds(60))
            pages.append(time.monotonic() - begin)

    scraper = threading.Thread(target=scrape)
    scraper.start()
    try:
        arena.flood(
            [
                Attack("300 that continue a stored conversation", 300, script=lambda _: floods.Visit(continued)),
                Attack("300 that show it", 300, script=lambda _: floods.Visit(shown)),
            ],
            40,
        )
    finally:
        ended.set()
        scraper.join()
    slowest = max(pages, default=0.0)
    arena.row.notes.append(f"/metrics took at most {slowest:.2f} s")
    arena.expect(slowest < arena.seconds(2), f"/metrics took {slowest:.1f} s")


def masks_of_a_key(arena: Arena) -> None:
    """One key has 128 answers of one expensive expression; 24 tokens of another, with and without a grammar, come within 2 s."""
    start(arena)
    before = arena.warm_up()
    # Every second character leaves one more derivation open, and after every text others are.
    body = {"prompt": "x", "n": 128, "max_tokens": 900, "temperature": 1, "stream": True}
    body |= {"guided_regex": "[ -~]*[aeinorst ][ -~]{2000}|[ -~]{4000}"}
    data = wire.request_bytes("POST", "/v1/completions", json.dumps(body).encode(), key="key-of-two")
    connection = wire.connect(arena.server.port, arena.seconds(60))
    wire.send(connection, data)
    deadline = time.monotonic() + arena.seconds(30)
    while arena.metrics()["baton:mask_deferrals_total"] == 0 and time.monotonic() < deadline:
        time.sleep(0.1)
    arena.expect(arena.metrics()["baton:mask_deferrals_total"] > 0, "no mask was late: the case shows nothing")
    for fields in ({}, {"guided_regex": "[a-z ]{100}"}) * 3:
        begin = time.monotonic()
        reply = status(arena, "key-of-one", body={"prompt": "tea", "max_tokens": 24, "ignore_eos": True} | fields)
        took = time.monotonic() - begin
        arena.expect(reply.status == 200, f"another key got {reply.status} {reply.body[:100]!r} with {fields}")
        arena.expect(took < arena.seconds(2), f"24 tokens of another key took {took:.1f} s with {fields}")
    running = arena.metrics()["vllm:num_requests_running"]
    arena.expect(running > 0, "the expensive answers had ended before: the case shows less")
    connection.close()
    arena.settle(before)


CASES = [
    Case("keys: rights and quotas", rights, starts_itself=True),
    Case("keys: wrong files", wrong_files, starts_itself=True),
    Case("keys: SIGHUP", reload, starts_itself=True),
    Case("keys: nothing of another is found in the cache", salts_of_keys, starts_itself=True),
    Case("keys: 2,000 requests of another key", floods_of_a_key, starts_itself=True),
    Case("keys: stored conversations of another key", stored_conversations_of_a_key, starts_itself=True),
    Case("keys: 128 expensive grammars of another key", masks_of_a_key, starts_itself=True),
]
