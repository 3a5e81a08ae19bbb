"""The arguments of LLM and AsyncLLM as those of the engine: the command line's own table reads them."""

from __future__ import annotations

import json
import os
from typing import Any

from baton import _engine
from baton._command import PROGRAM
from baton.errors import InvalidRequestError


def load(model: str | os.PathLike[str], arguments: dict[str, Any]) -> _engine.LocalModel:
    """Load a model; an argument that is not known, or has a value that is not supported, is refused by name."""
    given = [(name, _text(name, value)) for name, value in arguments.items() if value is not None]
    return _engine.LocalModel(_engine.parse_arguments(os.fspath(model), given), str(PROGRAM))


def _text(name: str, value: Any) -> str:  # noqa: ANN401
    """Return a value as the table reads it."""
    if isinstance(value, str | os.PathLike):
        return os.fspath(value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, bool | int | float | dict | list | tuple):
        try:
            return json.dumps(value)
        except (TypeError, ValueError) as error:
            raise InvalidRequestError(f"{name}: {error}", name) from None
    text = str(value)
    if text.startswith("torch."):  # a data type
        return text.removeprefix("torch.")
    raise InvalidRequestError(f"{name} must be a word, a number, a boolean or a dict, not {type(value).__name__}", name)
