"""KV events over ZeroMQ, as a router reads them: live, replayed, and as a snapshot after a gap."""

from __future__ import annotations

import pathlib
import struct
import time
from collections.abc import Iterator

import msgpack
import pytest
import zmq
from conftest import Server

BLOCK = 16
WAIT_MS = 20_000


class Listener:
    """What a router knows of one server: the cached blocks by name, each with the name before it and its tokens."""

    def __init__(self) -> None:
        """Know nothing."""
        self.blocks: dict[int | bytes, tuple[int | bytes | None, tuple[int, ...]]] = {}
        self.kinds: list[str] = []

    def apply(self, payload: bytes) -> None:
        """Take in the events of a message."""
        _, events, rank = msgpack.unpackb(payload)
        assert rank == 0
        for event in events:
            # The older encoding is a list of the type and the fields.
            names = ("type", "block_hashes", "parent_block_hash", "token_ids", "block_size")
            fields = event if isinstance(event, dict) else dict(zip(names, event, strict=False))
            self.kinds.append(fields["type"])
            if fields["type"] == "AllBlocksCleared":
                self.blocks.clear()
            elif fields["type"] == "BlockRemoved":
                for name in fields["block_hashes"]:
                    del self.blocks[name]
            else:
                assert fields["block_size"] == BLOCK
                before = fields["parent_block_hash"]
                for i, name in enumerate(fields["block_hashes"]):
                    self.blocks[name] = (before, tuple(fields["token_ids"][i * BLOCK : (i + 1) * BLOCK]))
                    before = name

    def holds(self, tokens: list[int]) -> int:
        """Return how many full blocks of the prompt are cached."""
        by_place = {place: name for name, place in self.blocks.items()}
        name, n = None, 0
        while (place := (name, tuple(tokens[n * BLOCK : (n + 1) * BLOCK]))) in by_place:
            name, n = by_place[place], n + 1
        return n


def number_of(message: bytes) -> int:
    """Return the number of a message."""
    return struct.unpack(">q", message)[0]


def replay(endpoint: str, first: int) -> list[tuple[int, bytes]]:
    """Ask for all messages from a number on."""
    socket = zmq.Context.instance().socket(zmq.DEALER)
    socket.setsockopt(zmq.RCVTIMEO, WAIT_MS)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(endpoint)
    socket.send_multipart([b"", struct.pack(">q", first)])
    messages = []
    while True:
        empty, number, payload = socket.recv_multipart()
        assert empty == b""
        if number_of(number) == -1:
            assert payload == b""
            socket.close()
            return messages
        messages.append((number_of(number), payload))


@pytest.fixture
def published(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[tuple[Server, zmq.Socket, str]]:
    """A server with a cache of 40 blocks, a subscriber of its events and its endpoint for replay."""
    live, past = f"ipc://{tmp_path}/live", f"ipc://{tmp_path}/past"
    config = f'{{"enable_kv_cache_events": true, "endpoint": "{live}", "replay_endpoint": "{past}", "topic": "kv@a@demo"'
    subscriber = zmq.Context.instance().socket(zmq.SUB)
    subscriber.setsockopt(zmq.RCVTIMEO, WAIT_MS)
    subscriber.setsockopt(zmq.LINGER, 0)
    subscriber.setsockopt(zmq.SUBSCRIBE, b"kv@")
    more = getattr(request, "param", "")
    server = Server(
        tmp_path / "log",
        *("--max-model-len", "512", "--kv-cache-memory-bytes", str(40 * BLOCK * 2 * 6 * 2 * 64 * 2), "--max-num-seqs", "2"),
        *("--kv-cache-dtype", "bfloat16"),
        *("--kv-events-config", config + more + "}"),
    )
    subscriber.connect(live)
    time.sleep(0.5)  # a subscriber that has just connected is not yet known to the publisher
    yield server, subscriber, past
    subscriber.close()
    assert server.stop() == 0, server.log.read_text()


def ask(server: Server, tokens: list[int]) -> None:
    """Let the server compute a prompt."""
    server.client().completions.create(model="demo", prompt=tokens, max_tokens=1)


def listen(subscriber: zmq.Socket, listener: Listener) -> list[int]:
    """Apply what comes until nothing comes for half a second."""
    numbers = []
    while subscriber.poll(500):
        topic, number, payload = subscriber.recv_multipart()
        assert topic == b"kv@a@demo"
        numbers.append(number_of(number))
        listener.apply(payload)
    return numbers


@pytest.mark.parametrize("published", ["", ', "encoding": "array"', ', "block_hashes": "bytes"'], indirect=True)
def test_a_router_knows_what_is_cached(published: tuple[Server, zmq.Socket, str]) -> None:
    """Live events, and all events from the first on, say the same."""
    server, subscriber, past = published
    listener = Listener()
    shared = [7 + i % 90 for i in range(100)]
    ask(server, shared + [200] * 20)
    numbers = listen(subscriber, listener)
    assert listener.holds(shared + [200] * 20) == 7
    ask(server, shared + [201] * 20)
    numbers += listen(subscriber, listener)
    assert listener.holds(shared + [201] * 20) == 7
    assert listener.holds(shared) == 6
    assert len(listener.blocks) == 8, "the first six blocks are shared"
    # 30 blocks more than the cache has: the oldest go.
    for other in range(10):
        ask(server, [300 + other] * 80)
    numbers += listen(subscriber, listener)
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "no message was missed"
    assert "BlockRemoved" in listener.kinds
    assert len(listener.blocks) <= 40

    again = Listener()
    messages = replay(past, 0)
    assert [number for number, _ in messages] == list(range(numbers[-1] + 1))
    for _, payload in messages:
        again.apply(payload)
    assert again.kinds[0] == "AllBlocksCleared", "a server begins without blocks"
    assert again.blocks == listener.blocks
    assert replay(past, numbers[-1] + 1) == []


@pytest.mark.parametrize("published", [', "buffer_steps": 2'], indirect=True)
def test_behind_a_gap_a_router_gets_everything(published: tuple[Server, zmq.Socket, str]) -> None:
    """Messages that are no longer kept are answered by a snapshot."""
    server, subscriber, past = published
    listener = Listener()
    for other in range(12):
        ask(server, [30 + other] * 80)
    last = listen(subscriber, listener)[-1]
    for first in (0, last + 5):  # too old, and of a server that was there before
        ((number, payload),) = replay(past, first)
        assert number == last
        fresh = Listener()
        fresh.apply(payload)
        assert fresh.blocks == listener.blocks
    assert [number for number, _ in replay(past, last)] == [last]


def test_an_endpoint_that_cannot_be_opened_is_named(tmp_path: pathlib.Path) -> None:
    """The server does not start."""
    with pytest.raises(RuntimeError, match=r"the endpoint ipc:///no/such/folder/socket cannot be opened: No such file"):
        Server(tmp_path / "log", "--kv-events-config", '{"enable_kv_cache_events": true, "endpoint": "ipc:///no/such/folder/socket"}')
    with pytest.raises(RuntimeError, match="there are no events with --no-enable-prefix-caching"):
        Server(tmp_path / "log", "--kv-events-config", '{"enable_kv_cache_events": true}', "--no-enable-prefix-caching")
