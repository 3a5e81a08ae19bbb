"""The key file of two tenants with equal weights."""

from __future__ import annotations

import contextlib
import json
import pathlib
import tempfile
from collections.abc import Iterator

KEY_OF = {"a": "key-of-tenant-a", "b": "key-of-tenant-b"}


@contextlib.contextmanager
def write_key_file() -> Iterator[str]:
    """A file for --api-key-file, as long as it is needed."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "keys.json"
        file.write_text(json.dumps({"keys": [{"name": name, "key": key, "weight": 1} for name, key in KEY_OF.items()]}))
        file.chmod(0o600)
        yield str(file)
