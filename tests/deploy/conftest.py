"""Where the tests of deploy/ find the program and the Ray application."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
BINARY = Path(os.environ.get("BATON_BINARY", ROOT / "build/cpu-release/bin/baton"))

sys.path.insert(0, str(DEPLOY / "ray"))
# For the workers of Ray, and for tests of Baton's own client that starts servers.
os.environ["PYTHONPATH"] = f"{DEPLOY / 'ray'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
