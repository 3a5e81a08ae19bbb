"""The cases of `baton bench prefix-cache` for other engines: the same prompts in the same order (src/bench/prefix_cache).

shared      4 requests after one prompt that was not announced, one after another
sent-first  the same after the shared prompt alone was sent: what stands in for Baton's registered prompts
identical   one prompt twice
turns       a conversation: each prompt is the prompt before, its answer of 32 tokens, and a question
reasoning   the same, but answers come back without their first half, and prompts end in 4 tokens that the next one lacks
forks       16 requests after one document, all at once
"""

import dataclasses

from drawn_requests import REQUEST, SHARED_PROMPT, DrawnTokens

SHARED, OWN = (480, 2000, 6476), (40, 376, 1296)
N_TURNS, N_FORKS, N_BEHIND_ONE, ANSWER, HEADER = 8, 16, 4, 32, 4
MAX_REQUESTS = 1 << 20  # parts of a case have numbers of their own


@dataclasses.dataclass(frozen=True)
class Case:
    kind: str
    shared: int
    own: int


CASES = [
    *(Case(kind, shared, own) for kind in ("shared", "sent-first") for shared in SHARED for own in OWN),
    *(Case(kind, shared, OWN[0]) for kind in ("identical", "turns", "reasoning", "forks") for shared in SHARED),
]


class Computed:
    """The sequences that an engine has computed."""

    def __init__(self):
        self.sequences = []

    def known(self, prompt):
        """How many of the prompt's first tokens were computed before."""
        longest = 0
        for sequence in self.sequences:
            n = min(len(sequence), len(prompt))
            same = next((i for i in range(n) if sequence[i] != prompt[i]), n)
            longest = max(longest, same)
        return longest

    def add(self, prompt, answer):
        self.sequences.append(prompt + answer[:-1])  # the last token of an answer is never an input


def run(first_tokens, case, vocabulary, number):
    """Runs a case by first_tokens(prompts, answer length). Returns what identifies it, and of each request the tokens of its
    prompt, those known and found, and its time to the first token."""
    tokens, computed, found = DrawnTokens(vocabulary), Computed(), []
    shared = tokens.run(SHARED_PROMPT, number, case.shared)

    def own(part, count):
        return tokens.run(REQUEST, number * MAX_REQUESTS + part, count)

    def answers_of(prompts, answer_len=1):
        known = []
        for prompt in prompts:
            known.append(computed.known(prompt))
            computed.add(prompt, [])
        answers = first_tokens(prompts, answer_len)
        for prompt, before, (ms, cached, answer) in zip(prompts, known, answers, strict=True):
            found.append({"prompt": len(prompt), "known": before, "cached": cached, "ms": round(ms, 2)})
            computed.add(prompt, answer)
        return [answer for _, _, answer in answers]

    if case.kind == "forks":
        answers_of([shared + own(i, case.own) for i in range(N_FORKS)])
    elif case.kind in ("turns", "reasoning"):
        history, drops = shared, case.kind == "reasoning"
        for turn in range(N_TURNS):
            history = history + own(turn, case.own)
            answer = answers_of([history + (own(MAX_REQUESTS - 1, HEADER) if drops else [])], ANSWER)[0]
            history = history + answer[len(answer) // 2 if drops else 0 :]
    else:
        if case.kind == "sent-first":
            answers_of([shared])
            found.clear()
        n_requests = 2 if case.kind == "identical" else N_BEHIND_ONE
        for i in range(n_requests):
            answers_of([shared + own(0 if case.kind == "identical" else i, case.own)])
    return dataclasses.asdict(case) | {"requests": found}


def line(row):
    """A case in one line: of all requests the tokens found, and of the last one what was computed again."""
    requests = row["requests"]
    last, cached = requests[-1], [request["cached"] for request in requests]
    shown = " ".join(map(str, cached if len(cached) <= 8 else [*cached[:3], "...", cached[-1]]))
    again = "?" if last["cached"] is None else last["known"] - last["cached"]
    return (f"{row['kind']} {row['shared']}+{row['own']}: found {shown} of {last['known']} known, again {again}, "
            f"first {requests[0]['ms']} ms, last {last['ms']} ms")  # fmt: skip
