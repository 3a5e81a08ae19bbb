"""The installed package `baton`, and one loaded demo model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from baton import LLM


@pytest.fixture(scope="session")
def llm() -> Iterator[LLM]:
    """The demo model with a small cache."""
    with LLM("demo", kv_cache_memory_bytes=64 << 20) as loaded:
        yield loaded
