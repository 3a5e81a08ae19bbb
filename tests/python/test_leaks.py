"""Models that are made and destroyed leave nothing: neither memory nor threads nor open files."""

from __future__ import annotations

import gc
import os
import pathlib
import threading

from baton import LLM, SamplingParams

ROUNDS = int(os.environ.get("BATON_LEAK_ROUNDS", "60"))
WARM = 20
MOST_GROWTH = 8 << 20


def resident_bytes() -> int:
    """What the process has in memory."""
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def n_files() -> int:
    """Open files."""
    return len(list(pathlib.Path("/proc/self/fd").iterdir()))


def n_threads() -> int:
    """Threads of the process, those of the engine included."""
    return len(list(pathlib.Path("/proc/self/task").iterdir()))


def test_models_leave_nothing_behind() -> None:
    """BATON_LEAK_ROUNDS=1000 makes a thousand."""
    begin = (0, 0, 0)
    for made in range(WARM + ROUNDS):
        if made == WARM:
            gc.collect()
            begin = (resident_bytes(), n_files(), n_threads())
        model = LLM("demo", kv_cache_memory_bytes=4 << 20, max_num_seqs=4, max_num_batched_tokens=64, max_model_len=128)
        if made % 4 == 0:
            assert model.generate("Hello", SamplingParams(max_tokens=2), use_tqdm=False)[0].finished
        del model
    gc.collect()
    grown = resident_bytes() - begin[0]
    print(f"{ROUNDS} models: {grown / 1e6:.1f} MB grown, {n_files()} files, {n_threads()} threads")
    assert grown < MOST_GROWTH
    assert n_files() == begin[1]
    assert n_threads() == begin[2]
    assert threading.active_count() == 1
