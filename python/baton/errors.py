"""What Baton's functions raise: one class for each kind of failure, all of them a BatonError."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from baton import _engine


class BatonError(RuntimeError):
    """A failure of Baton; `param` names the argument at fault, or is empty."""

    def __init__(self, message: str, param: str = "") -> None:
        """Keep the sentence and the argument's name."""
        super().__init__(message)
        self.param = param


class InvalidRequestError(BatonError, ValueError):
    """An argument is wrong, or over a limit that the sentence names."""


class NotFoundError(BatonError, LookupError):
    """A model, file or prefix does not exist."""


class UnavailableError(BatonError):
    """The queue is full, memory is short, the engine is shutting down, or a process of tensor parallelism is lost."""


class UnsupportedError(BatonError, NotImplementedError, ValueError):
    """The model or the argument is known and not supported."""


class InvalidDataError(BatonError, ValueError):
    """A file of the model is damaged or does not match."""


class OutOfMemoryError(BatonError, MemoryError):
    """The model or its cache do not fit into memory."""


class IoError(BatonError, OSError):
    """The operating system refused."""


def failure(news: _engine.News) -> BatonError:
    """Return why an answer ended with an error, as an exception."""
    return globals()[news.error_type](news.error)
