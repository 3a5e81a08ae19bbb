"""LLM over several processes: the same answers, an exception when one is lost, and none that stays."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import threading
import time

import pytest
from baton import LLM, BatonError, InvalidRequestError, SamplingParams, UnavailableError, UnsupportedError

PROMPTS = [f"Item number {i} costs" for i in range(4)]
GREEDY = SamplingParams(temperature=0, max_tokens=12)


def ranks_of_this_process() -> list[int]:
    """The processes `baton rank` that this one has started."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            fields = stat.read_text().rsplit(")", 1)[1].split()
            if int(fields[1]) == os.getpid() and fields[0] != "Z" and b"rank" in (stat.parent / "cmdline").read_bytes():
                found.append(int(stat.parent.name))
    return found


def ids(llm: LLM) -> list[list[int]]:
    """The answers' tokens."""
    return [output.outputs[0].token_ids for output in llm.generate(PROMPTS, GREEDY)]


@pytest.mark.parametrize("n_ranks", [2, 4])
def test_answers_are_those_of_one_process(n_ranks: int) -> None:
    """Also of a model that was made on a thread which has ended."""
    with LLM("demo", dtype="float32") as alone:
        expected = ids(alone)
    made: list[LLM] = []
    maker = threading.Thread(target=lambda: made.append(LLM("demo", dtype="float32", tensor_parallel_size=n_ranks)))
    maker.start()
    maker.join()
    with made.pop() as llm:
        assert len(ranks_of_this_process()) == n_ranks - 1
        assert ids(llm) == expected
    assert ranks_of_this_process() == []


def test_a_lost_process_is_an_exception() -> None:
    """For answers under way and for later ones; the interpreter continues."""
    llm = LLM("demo", tensor_parallel_size=2)
    (rank,) = ranks_of_this_process()
    threading.Timer(0.3, os.kill, (rank, signal.SIGKILL)).start()
    with pytest.raises(UnavailableError, match=rf"rank 1 \(process {rank}\) was killed by signal 9"):
        llm.generate(PROMPTS, SamplingParams(temperature=0, max_tokens=4000, ignore_eos=True))
    with pytest.raises(UnavailableError, match="rank 1"):
        llm.generate("Hello", GREEDY)
    begin = time.monotonic()
    llm.close()
    assert time.monotonic() - begin < 10
    assert ranks_of_this_process() == []


def test_sizes_that_cannot_be_are_refused() -> None:
    """By name; a model that cannot be split leaves no process."""
    for size in (0, 65):
        with pytest.raises(InvalidRequestError, match="tensor_parallel_size: .* not in range"):
            LLM("demo", tensor_parallel_size=size)
    with pytest.raises(InvalidRequestError, match="tensor_parallel_size: .*two"):
        LLM("demo", tensor_parallel_size="two")
    with pytest.raises(UnsupportedError, match="tensor_parallel_size starts the other ranks"):
        LLM("demo", tensor_parallel_size=2, rank=1)
    with pytest.raises(BatonError, match="cannot be split over 3 ranks"):
        LLM("demo", tensor_parallel_size=3)
    assert ranks_of_this_process() == []
