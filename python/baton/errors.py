"""What Baton's functions raise: one class for each kind of failure, all of them a BatonError."""

from __future__ import annotations


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
    """The queue is full, memory is short, or the engine is shutting down."""


class UnsupportedError(BatonError, NotImplementedError):
    """The model or the argument is known and not supported."""


class InvalidDataError(BatonError, ValueError):
    """A file of the model is damaged or does not match."""


class OutOfMemoryError(BatonError, MemoryError):
    """The model or its cache do not fit into memory."""


class IoError(BatonError, OSError):
    """The operating system refused."""
