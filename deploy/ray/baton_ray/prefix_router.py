"""Sends requests to the replica whose KV cache most likely holds the beginning of their prompt: a router for Ray Serve.

A prompt's text is cut into blocks, and each block's hash covers all text before it, as the hashes of Baton's own KV blocks
do. The router remembers which hashes it sent where. A request goes to the replica that knows most of its chain; a new prompt
goes to the replica that holds the fewest blocks among those with about the least load, so that prompts spread evenly; and a
replica with far more unfinished requests than another gets neither.

Ray has such a policy of its own, `PrefixCacheAffinityRouter` of `ray.serve.llm`. The application can use it (see README.md),
but it is not the default: the module is importable only beside vLLM or SGLang, and each decision waits, in the event loop, for
another actor.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable

from ray.serve.request_router import PendingRequest, ReplicaID, ReplicaResult, RequestRouter, RunningReplica

HASH_BYTES = 8


def block_hashes(text: str, block_chars: int, max_blocks: int) -> list[bytes]:
    """The chained hashes of the full blocks of a text, `max_blocks` at most; a text shorter than a block is one block."""
    n_blocks = min(max(len(text) // block_chars, 1), max_blocks)
    hashes, parent = [], b""
    for first in range(0, n_blocks * block_chars, block_chars):
        block = text[first : first + block_chars].encode("utf-8", "surrogatepass")
        parent = hashlib.blake2b(parent + block, digest_size=HASH_BYTES).digest()
        hashes.append(parent)
    return hashes


class HeldBlocks:
    """The hashes that one replica was sent, the least recently used forgotten beyond `capacity`."""

    def __init__(self, capacity: int) -> None:
        """Start with none."""
        self._capacity = capacity
        self._blocks: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        """How many are held."""
        return len(self._blocks)

    def depth(self, chain: list[bytes]) -> int:
        """How many hashes at the beginning of a chain are held."""
        for count, block in enumerate(chain):
            if block not in self._blocks:
                return count
        return len(chain)

    def add(self, chain: list[bytes]) -> None:
        """Hold a chain. Its end counts as older than its beginning, since a block is useless without those before it."""
        for block in reversed(chain):
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)


class ReplicaChoice:
    """The policy, apart from Ray: which of some replicas gets a prompt."""

    def __init__(self, block_chars: int, max_blocks: int, capacity: int, min_match: float, max_imbalance: int) -> None:
        """The parameters of PrefixAffinityRouter.initialize_state."""
        self._block_chars = block_chars
        self._max_blocks = max_blocks
        self._capacity = capacity
        self._min_match = min_match
        self._max_imbalance = max_imbalance
        self._held: dict[str, HeldBlocks] = {}

    def rank(self, prompt: str, loads: dict[str, int]) -> list[str]:
        """The replicas of `loads` (id: unfinished requests), best first."""
        chain = block_hashes(prompt, self._block_chars, self._max_blocks) if prompt else []
        least = min(loads.values(), default=0)

        def order(replica: str) -> tuple:
            held = self._held.get(replica)
            depth = held.depth(chain) if held else 0
            if loads[replica] > least + self._max_imbalance:
                return True, 0, False, 0, loads[replica]
            if chain and depth >= self._min_match * len(chain):
                return False, -depth, False, 0, loads[replica]
            is_busier = loads[replica] > least + self._max_imbalance // 8
            return False, 0, is_busier, len(held) if held and chain else 0, loads[replica]

        return sorted(loads, key=order)

    def sent(self, prompt: str, replica: str) -> None:
        """A request went to a replica: its cache will hold the prompt."""
        if prompt:
            held = self._held.setdefault(replica, HeldBlocks(self._capacity))
            held.add(block_hashes(prompt, self._block_chars, self._max_blocks))

    def keep_only(self, replicas: Iterable[str]) -> None:
        """Forget the replicas that are gone."""
        alive = set(replicas)
        self._held = {replica: held for replica, held in self._held.items() if replica in alive}


class PrefixAffinityRouter(RequestRouter):
    """ReplicaChoice as Ray Serve's request router. Each handle has its own, so each ingress replica learns for itself."""

    def initialize_state(
        self,
        block_chars: int = 256,
        max_blocks: int = 512,
        blocks_per_replica: int = 65536,
        min_match: float = 0.2,
        max_imbalance: int = 32,
    ) -> None:
        """Called by Ray with `request_router_kwargs`.

        block_chars: characters of a block. max_blocks: blocks of a prompt that are looked at. blocks_per_replica: blocks
        remembered for each replica. min_match: part of a prompt that a replica must know to be preferred for it.
        max_imbalance: how many more unfinished requests than the least loaded replica one may have and still get the prompts
        that it knows; an eighth of it for new prompts.
        """
        self._choice = ReplicaChoice(block_chars, max_blocks, blocks_per_replica, min_match, max_imbalance)

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """The candidates, best first, one in each rank: Ray takes the first that has a free slot."""
        if pending_request is None:
            return [candidate_replicas]
        pending_request.routing_context.should_backoff = True
        request = pending_request.args[0] if pending_request.args else None
        only = getattr(request, "replica", None)
        if only is not None:
            named = [replica for replica in candidate_replicas if replica.replica_id.unique_id == only]
            return [named or candidate_replicas]
        by_id = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        loads = {name: self.replica_queue_len_cache.get(replica.replica_id) or 0 for name, replica in by_id.items()}
        ranked = self._choice.rank(getattr(request, "prompt", ""), loads)
        # Recorded now, not when the request is sent: requests that arrive together must already know of each other.
        if ranked:
            self._choice.sent(getattr(request, "prompt", ""), ranked[0])
        return [[by_id[name]] for name in ranked]

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: ReplicaResult) -> None:
        """A request went to a replica, which is not the first choice when that one had no free slot."""
        if pending_request.args:
            self._choice.sent(getattr(pending_request.args[0], "prompt", ""), replica_id.unique_id)

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Ray's list of replicas has changed."""
        super().update_replicas(replicas)
        self._choice.keep_only(replica.replica_id.unique_id for replica in replicas)

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        """A replica died: nothing of its cache is left."""
        super().on_replica_actor_died(replica_id)
        self._choice.keep_only(replica.unique_id for replica in self._replica_id_set)
