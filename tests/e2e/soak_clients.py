"""The random clients of soak.py: what they ask, and what they accept as an answer.

Every method that asks returns what came of it in a few words; one that begins with WRONG fails the soak.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import http.client
import json
import pathlib
import random
import socket
import struct
import threading
import time

from soak_dialects import Dialects
from soak_keys import ADMIN, MISER, USERS, VISITOR, Connection, key_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
N_TOKENS = 1000  # of the demo model's 1024, some of which end an answer
MAX_MODEL_LEN = 2200  # the server's --max-model-len: the catalogue, a question and its answer
ANSWER_SECONDS = 600
N_BURST = 16
SETTLE_SECONDS = 0.5  # what was sent this long before the server was told to end had arrived
QUESTIONS = [json.loads(line) for line in (ROOT / "models/demo/questions.jsonl").read_text().splitlines()]
WORDS = (ROOT / "models/demo/catalogue.txt").read_text().split()
TOO_LATE = "came too late"
JSON = {"Content-Type": "application/json"}
QUEUES = (b"sequences are waiting, and the queue holds", b"for this server to compile their grammars", b"templates and tokenizer")
# Refusals that only some keys may get.
BY_KEY = {"refused a key": {VISITOR}, "over its quota": {MISER}, "not an admin": {*USERS, VISITOR, MISER} - {ADMIN}}

# path, body, and the statuses that say what was wrong
BAD_REQUESTS: list[tuple[str, str, set[int]]] = [
    *(
        ("/v1/completions", body, {400})
        for body in (
            "",
            "{",
            "[]",
            "\x00\x01",
            "[" * 5000,
            '{"prompt": 5}',
            '{"prompt": [-1]}',
            '{"prompt": [99999]}',
            '{"prompt": "a", "deadline_ms": 0}',
            '{"prompt": "a", "n": 0}',
            '{"prompt": "a", "temperature": "hot"}',
            '{"prompt": "a", "best_of": 3}',
            '{"prompt": "a", "logit_bias": {"cat": 1}}',
            '{"prompt": "a", "stream": "yes"}',
            '{"prompt": "a", "speculative_config": {"method": "eagle"}}',
            json.dumps({"prompt": [300] * (MAX_MODEL_LEN + 1)}),
            json.dumps({"prompt": "word " * 5000}),
        )
    ),
    ("/v1/completions", '{"prompt": "a", "prefix": "nobody"}', {404}),
    ("/v1/completions", '{"prompt": "a", "model": "gpt-9"}', {404}),
    ("/v1/chat/completions", '{"messages": []}', {400}),
    ("/v1/chat/completions", '{"messages": [{"role": "user", "content": {"a": 1}}]}', {400}),
    ("/v1/prefixes", '{"id": "a b", "text": "x"}', {400}),
    ("/v1/prefixes", json.dumps({"id": "long", "text": "word " * 5000}), {400}),
    ("/v1/nothing", "{}", {404}),
    ("/metrics", "{}", {405}),
]
RAW_REQUESTS = [
    b"\r\n\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"POST /v1/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET /health HTTP/1.1\r\n" + b"X: " + b"y" * 70_000 + b"\r\n\r\n",
]


@dataclasses.dataclass
class Ending:
    """How and when the server was told to end: by "drain", "abort" or "kill"; nothing until then."""

    kind: str = ""
    time: float = 0

    def excuses(self, sent: float) -> str:
        """What may have happened to a request that got no answer; empty where it should have got one."""
        if self.kind and sent > self.time - SETTLE_SECONDS:
            return TOO_LATE
        return "cut off by SIGKILL" if self.kind == "kill" else ""


def explains(status: int, body: bytes) -> bool:
    """Whether a refusal says what was wrong."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return status >= 400 and len(json.loads(body)["error"]["message"]) > 10
    return False


def random_tokens(rng: random.Random, n: int) -> list[int]:
    """Return tokens that end no answer."""
    return [rng.randrange(300, N_TOKENS) for _ in range(n)]


def worst(ends: set[str]) -> str:
    """Return what was wrong, else what was out of the ordinary, else nothing."""
    return next((end for end in ends if end.startswith("WRONG")), max(ends))


def change_files(folder: pathlib.Path, rng: random.Random) -> None:
    """Write, replace, break or delete a file of --prefix-folder."""
    file = folder / f"file-{rng.randrange(3)}{rng.choice(('.txt', '.txt', '.json'))}"
    text = " ".join(rng.choices(WORDS, k=rng.choice((5, 30, 100))))
    if file.suffix == ".json":
        text = json.dumps({"messages": [{"role": "system", "content": text}]})[: rng.choice((None, None, 40))]
    what = rng.choice(("write", "rename", "slowly", "delete"))
    if what == "write":
        file.write_text(text)
    elif what == "rename":
        (folder / ".new").write_text(text)
        (folder / ".new").rename(file)
    elif what == "slowly":
        with file.open("w") as output:
            for part in (text[:20], text[20:]):
                output.write(part)
                output.flush()
                time.sleep(0.3)
    else:
        file.unlink(missing_ok=True)


def speculation(rng: random.Random) -> dict:
    """Return a speculative_config of a request."""
    return {"method": "ngram", "num_speculative_tokens": rng.randrange(1, 9), "prompt_lookup_min": 1, "prompt_lookup_max": 3}


class Clients(Dialects):
    """Threads that ask for random things until they are told to stop, and what came of it."""

    def __init__(self, port: int, n_clients: int, seed: str, has_priorities: bool) -> None:
        """Start them."""
        self.port = port
        self.has_priorities = has_priorities
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.n_tokens = 0
        self.lock = threading.Lock()
        self.is_over = False  # no new requests
        self.ending = Ending()
        shared = random.Random(seed)
        self.beginnings = [random_tokens(shared, n) for n in (16, 100, 500, 900)]
        self.threads = [threading.Thread(target=self.run, args=(random.Random(f"{seed} {i}"),)) for i in range(n_clients)]
        for thread in self.threads:
            thread.start()

    def join(self) -> None:
        """Wait until each has got its last answer."""
        for thread in self.threads:
            thread.join()

    def run(self, rng: random.Random) -> None:
        """One client: mostly one request after another, some of them on one connection, now and then a pause."""
        kinds, weights = zip(*self.kinds(), strict=True)
        while not self.is_over:
            if rng.random() < 0.02:
                time.sleep(rng.random() * 0.5)
            connection = Connection(self.port, key_of(rng), ANSWER_SECONDS)
            for _ in range(rng.choice((1, 1, 1, 2, 5))):
                sent = time.monotonic()
                try:
                    outcome = rng.choices(kinds, weights)[0](connection, rng)
                    if connection.key not in BY_KEY.get(outcome, {connection.key}):
                        outcome = f"WRONG: {outcome} ({connection.key})"
                except (OSError, http.client.HTTPException, ValueError) as error:
                    outcome = self.ending.excuses(sent) or f"WRONG: {type(error).__name__} {error}"
                self.count(outcome)
                if self.is_over or outcome == TOO_LATE:
                    break
            connection.close()
            if outcome == TOO_LATE:
                return

    def kinds(self) -> list[tuple]:
        """What a client may do next, and how often."""
        return [
            (self.whole, 25),
            (self.stream, 25),
            (self.question, 12),
            (self.leave, 20),
            (self.nonsense, 5),
            (self.raw_nonsense, 2),
            (self.change_prefix, 6),
            (self.use_prefix, 6),
            (self.burst, 1),
            (self.read_slowly, 1),
            (self.look, 3),
            *self.dialect_kinds(),
        ]

    def count(self, outcome: str, n_tokens: int = 0) -> None:
        """One more of these."""
        with self.lock:
            self.outcomes[outcome] += 1 if outcome else 0
            self.n_tokens += n_tokens

    def post(self, connection: http.client.HTTPConnection, path: str, body: dict | str) -> http.client.HTTPResponse:
        """Send a request and wait for the head of its answer."""
        connection.request("POST", path, body if isinstance(body, str) else json.dumps(body), JSON)
        return connection.getresponse()

    def body(self, rng: random.Random) -> dict:
        """A completion that is to be accepted."""
        prompt = rng.choice(self.beginnings)[: rng.randrange(0, 900)] + random_tokens(rng, rng.choice((1, 7, 60, 200)))
        body: dict = {"prompt": prompt, "max_tokens": rng.choice((1, 4, 30, 120)), "ignore_eos": True}
        body["temperature"] = rng.choice((0, 1))
        options = {
            "priority": (0.2 * self.has_priorities, lambda: rng.randrange(-2, 3)),
            "deadline_ms": (0.1, lambda: rng.randrange(1, 2000)),
            "n": (0.15, lambda: rng.randrange(2, 5)),
            "cache_salt": (0.1, lambda: f"tenant {rng.randrange(3)}"),
            "seed": (0.2, lambda: rng.randrange(10)),
            "top_p": (0.2, lambda: 0.9),
            "min_p": (0.05, lambda: 0.1),
            "top_k": (0.1, lambda: 20),
            "repetition_penalty": (0.1, lambda: 1.2),
            "presence_penalty": (0.05, lambda: 0.5),
            "logit_bias": (0.05, lambda: {"301": 5, "302": -100}),
            "min_tokens": (0.05, lambda: 1),
            "logprobs": (0.05, lambda: 3),
            "prompt_logprobs": (0.03, lambda: 1),
            "stop": (0.05, lambda: ["the", "zz"]),
            "speculative_config": (0.25, lambda: speculation(rng)),
        }
        for name, (share, value) in options.items():
            if rng.random() < share:
                body[name] = value()
        if rng.random() < 0.1:  # what it says again and again can be guessed
            body["prompt"] = (random_tokens(rng, rng.randrange(1, 20)) * 100)[: rng.randrange(1, 300)]
        if rng.random() < 0.03:
            body["prompt"] = [prompt, random_tokens(rng, 5)]
        if rng.random() < 0.02:  # as long as may be
            body["prompt"] = (prompt + random_tokens(rng, MAX_MODEL_LEN))[: MAX_MODEL_LEN - body["max_tokens"]]
        return body

    def refusal(self, status: int, body: bytes, sent: float) -> str:
        """What an answer other than 200 to a good request comes to."""
        if status in (401, 403, 429):
            return {401: "refused a key", 403: "not an admin", 429: "over its quota"}[status]
        if status != 503 or not explains(status, body):
            return f"WRONG: {status} {body[:200]!r}"
        if any(words in body for words in QUEUES):
            return "turned away: the queue is full"
        if b"shutting down" in body and self.ending.kind:
            return "told that the server ends" if self.ending.kind == "abort" else self.ending.excuses(sent) or "WRONG: drain cut"
        return f"WRONG: {status} {body[:200]!r}"

    def end_of(self, asked: dict, choice: dict, n_tokens: int) -> str:
        """What one choice came to: as many tokens as asked for, or a reason why not."""
        reason = choice["finish_reason"]
        if reason == "length" and n_tokens == asked["max_tokens"]:
            return ""
        if reason == "stop" and "stop" in asked and choice["stop_reason"] in asked["stop"]:
            return ""
        if reason == "abort" and choice["stop_reason"] == "deadline" and "deadline_ms" in asked:
            return "cut by its deadline"
        if reason == "abort" and choice["stop_reason"] == "shutdown" and self.ending.kind == "abort":
            return "told that the server ends"
        return f"WRONG: {n_tokens} of {asked['max_tokens']} tokens, ended by {reason} ({choice['stop_reason']})"

    def whole(self, connection: http.client.HTTPConnection, rng: random.Random) -> str:
        """An answer in one piece, whose tokens are counted."""
        body = self.body(rng)
        sent = time.monotonic()
        return self.check_whole(body, self.post(connection, "/v1/completions", body), sent)

    def check_whole(self, asked: dict, response: http.client.HTTPResponse, sent: float) -> str:
        """What came of a completion in one piece."""
        text = response.read()
        if response.status != 200:
            return self.refusal(response.status, text, sent)
        answer = json.loads(text)
        n_prompts = len(asked["prompt"]) if isinstance(asked["prompt"][0], list) else 1
        n_choices = asked.get("n", 1) * n_prompts
        if len(answer["choices"]) != n_choices:
            return f"WRONG: {len(answer['choices'])} choices of {n_choices}"
        n_tokens = answer["usage"]["completion_tokens"]
        self.count("", n_tokens)
        ends = {self.end_of(asked, choice, asked["max_tokens"]) for choice in answer["choices"]}
        if ends == {""} and "stop" not in asked and n_tokens != n_choices * asked["max_tokens"]:
            return f"WRONG: {n_tokens} tokens of {n_choices} x {asked['max_tokens']}"
        return worst(ends) or "answered"

    def stream(self, connection: http.client.HTTPConnection, rng: random.Random) -> str:
        """A stream whose tokens are counted."""
        body = self.body(rng) | {"stream": True, "return_token_ids": True, "stream_options": {"include_usage": True}}
        body.pop("prompt_logprobs", None)  # which streams do not have
        sent = time.monotonic()
        response = self.post(connection, "/v1/completions", body)
        text = response.read()
        return self.refusal(response.status, text, sent) if response.status != 200 else self.check_stream(body, text)

    def check_stream(self, asked: dict, text: bytes) -> str:
        """Each choice has its tokens and one end, the last frame but [DONE] the usage."""
        frames = text.removesuffix(b"\n\n").split(b"\n\n")
        frames = [frame for frame in frames if not frame.startswith(b":")]  # comments, while a stream waits
        if frames[-1] != b"data: [DONE]":
            return f"WRONG: a stream ended with {text[-80:]!r}"
        n_tokens: collections.Counter[int] = collections.Counter()
        ends: dict[int, str] = {}
        usage = None
        for frame in frames[:-1]:
            event = json.loads(frame.removeprefix(b"data: "))
            if "error" in event:
                return f"WRONG: {event}"
            usage = event["usage"]
            for choice in event["choices"]:
                index = choice["index"]
                if index in ends:
                    return f"WRONG: a choice continued after its end: {choice}"
                n_tokens[index] += len(choice.get("token_ids") or [])
                if choice["finish_reason"]:
                    ends[index] = self.end_of(asked, choice, n_tokens[index])
        n_prompts = len(asked["prompt"]) if isinstance(asked["prompt"][0], list) else 1
        if len(ends) != asked.get("n", 1) * n_prompts:
            return f"WRONG: {len(ends)} choices ended"
        if not usage or usage["completion_tokens"] != n_tokens.total():
            return f"WRONG: the stream had {n_tokens.total()} tokens and the usage says {usage}"
        self.count("", n_tokens.total())
        return worst(set(ends.values())) or "streamed"

    def question(self, connection: http.client.HTTPConnection, rng: random.Random) -> str:
        """A question about the catalogue, whose answer is known."""
        asked = rng.choice(QUESTIONS)
        body = {name: asked[name] for name in ("messages", "prefix", "max_tokens", "temperature")}
        if rng.random() < 0.4:
            body["speculative_config"] = speculation(rng)
        sent = time.monotonic()
        response = self.post(connection, "/v1/chat/completions", body)
        text = response.read()
        if response.status != 200:
            return self.refusal(response.status, text, sent)
        answer = json.loads(text)
        choice = answer["choices"][0]
        self.count("", answer["usage"]["completion_tokens"])
        if choice["finish_reason"] == "stop" and choice["message"]["content"] == asked["answer"]:
            return "answered right"
        return f"WRONG: {asked['id']} got {choice} for {asked['answer']!r}"

    def leave(self, connection: http.client.HTTPConnection, rng: random.Random) -> str:
        """Close the connection before or in the middle of the answer, in order or by a reset."""
        text = json.dumps(self.body(rng) | {"stream": rng.random() < 0.8, "max_tokens": 400, "prompt_logprobs": None})
        connection.request("POST", "/v1/completions", text, JSON)
        if rng.random() < 0.5:
            connection.sock.settimeout(rng.random())
            with contextlib.suppress(TimeoutError):
                connection.getresponse().read(rng.randrange(1, 3000))
        if connection.sock is not None and rng.random() < 0.3:  # a reset
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        return "left"

    def nonsense(self, connection: http.client.HTTPConnection, rng: random.Random) -> str:
        """A request that is to be refused, in words."""
        path, body, statuses = rng.choice(BAD_REQUESTS)
        response = self.post(connection, path, body)
        text = response.read()
        if response.status == 503 and self.ending.kind:
            return "told that the server ends"
        if response.status in (401, 403, 429):
            return self.refusal(response.status, text, 0)
        is_right = response.status in statuses and explains(response.status, text)
        return "refused" if is_right else f"WRONG: {path} {body[:60]} got {response.status} {text[:200]!r}"

    def raw_nonsense(self, _: http.client.HTTPConnection, rng: random.Random) -> str:
        """Bytes that are no request, or half of one: refused or left."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            if rng.random() < 0.5:
                connection.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 500\r\n\r\n{"[: rng.randrange(1, 60)])
                time.sleep(rng.random() * 0.2)
                return "left a half request"
            connection.sendall(rng.choice(RAW_REQUESTS))
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(100)
        is_refusal = answer == b"" or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5"))
        return "refused" if is_refusal else f"WRONG: nonsense got {answer!r}"

    def change_prefix(self, connection: http.client.HTTPConnection, rng: random.Random) -> str:
        """Register, replace, delete or show a prefix, while others use it."""
        name = f"soak-{rng.randrange(4)}"
        if rng.random() < 0.3:
            connection.request("DELETE", f"/v1/prefixes/{name}")
            known = {200: "deleted a prefix", 404: "missed a prefix"}
        elif rng.random() < 0.2:
            connection.request("GET", "/v1/prefixes" + rng.choice(("", f"/{name}")))
            known = {200: "looked", 404: "missed a prefix"}
        else:
            body: dict = {"id": name, "text": " ".join(rng.choices(WORDS, k=rng.choice((5, 30, 100, 300)))), "version": "v"}
            body["version"] += str(rng.randrange(3))
            if rng.random() < 0.3:
                body["ttl_seconds"] = rng.randrange(1, 3)
            connection.request("POST", "/v1/prefixes", json.dumps(body), JSON)
            known = {200: "registered a prefix", 400: "was refused a prefix"}
        response = connection.getresponse()
        text = response.read()
        if response.status in (401, 403, 429):
            return self.refusal(response.status, text, 0)
        if response.status == 503 and self.ending.kind and explains(503, text):
            return "told that the server ends"
        is_right = response.status == 200 or (response.status in known and explains(response.status, text))
        return known[response.status] if is_right else f"WRONG: a prefix got {response.status} {text[:200]!r}"

    def use_prefix(self, connection: http.client.HTTPConnection, rng: random.Random) -> str:
        """A chat behind a prefix that may be gone by now."""
        body = {"messages": [{"role": "user", "content": " ".join(rng.choices(WORDS, k=20))}], "max_tokens": 40, "ignore_eos": True}
        body["prefix"] = rng.choice((f"soak-{rng.randrange(4)}", f"file-{rng.randrange(3)}"))
        sent = time.monotonic()
        response = self.post(connection, "/v1/chat/completions", body)
        text = response.read()
        if response.status == 404 and explains(404, text):
            return "missed a prefix"
        if response.status != 200:
            return self.refusal(response.status, text, sent)
        answer = json.loads(text)
        self.count("", answer["usage"]["completion_tokens"])
        return self.end_of(body, answer["choices"][0], answer["usage"]["completion_tokens"]) or "answered behind a prefix"

    def burst(self, _: http.client.HTTPConnection, rng: random.Random) -> str:
        """Many requests at once that begin with a new text."""
        prompt = random_tokens(rng, rng.choice((40, 300, 800)))
        open_ones = []
        for _i in range(N_BURST):
            body = {"prompt": prompt + random_tokens(rng, rng.randrange(1, 30)), "max_tokens": 20, "ignore_eos": True}
            connection = Connection(self.port, rng.choice(USERS), ANSWER_SECONDS)
            sent = time.monotonic()
            connection.request("POST", "/v1/completions", json.dumps(body), JSON)
            open_ones.append((connection, body, sent))
        outcomes = collections.Counter()
        for connection, body, sent in open_ones:
            try:
                outcomes[self.check_whole(body, connection.getresponse(), sent)] += 1
            except (OSError, http.client.HTTPException) as error:
                outcomes[self.ending.excuses(sent) or f"WRONG: {type(error).__name__} {error}"] += 1
            connection.close()
        for outcome, n in outcomes.items():
            with self.lock:
                self.outcomes[outcome] += n
        return "burst"

    def read_slowly(self, connection: http.client.HTTPConnection, rng: random.Random) -> str:
        """A stream that is read in small pieces, and must be whole all the same."""
        body = {"prompt": random_tokens(rng, 20), "max_tokens": 300, "ignore_eos": True, "stream": True, "return_token_ids": True}
        body["stream_options"] = {"include_usage": True}
        sent = time.monotonic()
        response = self.post(connection, "/v1/completions", body)
        text = b""
        while response.status == 200 and (piece := response.read1(2000)):
            text += piece
            time.sleep(0.01)
        return self.refusal(response.status, response.read(), sent) if response.status != 200 else self.check_stream(body, text)

    def look(self, connection: http.client.HTTPConnection, rng: random.Random) -> str:
        """The pages of the server."""
        if rng.random() < 0.3:
            text = " ".join(rng.choices(WORDS, k=50))
            refused, tokens = self.ask(connection, "/tokenize", {"prompt": text, "add_special_tokens": False})
            body = {} if refused else {"tokens": json.loads(tokens)["tokens"]}
            refused, answer = (refused, b"") if refused else self.ask(connection, "/detokenize", body)
            if refused:
                return refused
            again = json.loads(answer)["prompt"]
            return "looked" if again == text else f"WRONG: {text!r} became {again!r}"
        path = rng.choice(("/health", "/livez", "/metrics", "/v1/models", "/version", "/load"))
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        if response.status == 401:
            return "refused a key"
        is_right = response.status == 200 or (response.status == 503 and path == "/health" and self.ending.kind)
        return "looked" if is_right else f"WRONG: {path} got {response.status}"
