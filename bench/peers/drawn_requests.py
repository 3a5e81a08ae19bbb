"""The requests of `baton bench throughput` as token ids, for other engines: the same tokens in the same order.

src/bench/dataset/dataset_tokens.cpp and dataset_drawn.cpp make them there. All numbers are drawn by SplitMix64 (Steele,
Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014); the key of a run of tokens depends on the
seed, what is drawn, and a number.
"""

from pathlib import Path

MASK = (1 << 64) - 1
FIRST_DRAWN_ID = 10  # ids below are often special tokens
SYSTEM_PROMPT, SHARED_PROMPT, REQUEST, ORDER = 1, 2, 3, 7  # DatasetStream


def split_mix(key, index):
    """Output `index` of the generator whose seed is `key`."""
    x = (key + (index + 1) * 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


class DrawnTokens:
    """Draws token ids below n_vocab, special ones left out, from one seed."""

    def __init__(self, n_vocab, seed=0):
        self.first = 0 if n_vocab < 2 * FIRST_DRAWN_ID else FIRST_DRAWN_ID
        self.n_ids = n_vocab - self.first
        self.seed = seed

    def key(self, stream, number):
        return split_mix(split_mix(self.seed, stream), number)

    def run(self, stream, number, count):
        """The first `count` tokens of run `number` of a stream."""
        key = self.key(stream, number)
        return [self.first + split_mix(key, i) % self.n_ids for i in range(count)]

    def order(self, n):
        """0 to n - 1 in random order, by Fisher and Yates."""
        order = list(range(n))
        for i in range(n, 1, -1):
            j = self.key(ORDER, i) % i
            order[i - 1], order[j] = order[j], order[i - 1]
        return order


def random_requests(n_vocab, n_requests, input_len, output_len, seed=0, prefix_len=0):
    """--dataset-name random with --random-range-ratio 0 and --prefix-len: [(prompt, output_len)]."""
    tokens = DrawnTokens(n_vocab, seed)
    prefix = tokens.run(SYSTEM_PROMPT, 0, prefix_len)
    return [(prefix + tokens.run(REQUEST, i, input_len), output_len) for i in range(n_requests)]


def shared_prefix_requests(n_vocab, groups, per_group, system_len, question_len, output_len, seed=0):
    """--dataset-name generated-shared-prefix: [(prompt, output_len)] in random order; request i belongs to group i % groups."""
    tokens = DrawnTokens(n_vocab, seed)
    systems = [tokens.run(SHARED_PROMPT, group, system_len) for group in range(groups)]
    n_requests = groups * per_group
    prompts = [systems[i % groups] + tokens.run(REQUEST, i, question_len) for i in range(n_requests)]
    return [(prompts[i], output_len) for i in tokens.order(n_requests)]


def sharegpt_requests(n_vocab, table, n_requests, prefix_len, seed=0):
    """--dataset-name sharegpt with --prefix-len: lengths of the file `table` (lines "prompt,response"), filtered as vLLM does."""
    tokens = DrawnTokens(n_vocab, seed)
    lines = Path(table).read_text(encoding="utf-8").split()
    pairs = [tuple(map(int, line.split(","))) for line in lines]
    usable = [(p, r) for p, r in pairs if 4 <= p <= 1024 and r >= 4 and p + r <= 2048]
    prefix = tokens.run(SYSTEM_PROMPT, 0, prefix_len)
    chosen = [usable[i] for i in tokens.order(len(usable))[:n_requests]]
    return [(prefix + tokens.run(REQUEST, i, prompt_len), output_len) for i, (prompt_len, output_len) in enumerate(chosen)]
