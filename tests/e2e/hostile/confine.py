"""Limits of memory for a server: an address space, or a control group."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib

MB = 1 << 20
ADDRESS_SPACE = 2560 * MB
GROUP_BYTES = 3072 * MB
CGROUP = pathlib.Path("/sys/fs/cgroup")


@dataclasses.dataclass
class ControlGroup:
    """A control group with a limit of memory, made by writing to the file system of version 2, or of version 1."""

    folder: pathlib.Path
    peak_file: str

    def peak_bytes(self) -> int:
        """The most memory that the group has taken."""
        return int((self.folder / self.peak_file).read_text())

    def remove(self) -> None:
        """End it; its process must have ended."""
        with contextlib.suppress(OSError):
            self.folder.rmdir()


def make_control_group(limit_bytes: int) -> ControlGroup | str:
    """A new group, or the reason why this machine allows none."""
    name = f"baton-hostile-{os.getpid()}"
    if (CGROUP / "cgroup.controllers").exists():
        controllers = (CGROUP / "cgroup.subtree_control").read_text().split()
        if "memory" not in controllers:
            return "the memory controller is not enabled for groups below /sys/fs/cgroup"
        folder, limit, swap, peak = CGROUP / name, "memory.max", "memory.swap.max", "memory.peak"
    elif (CGROUP / "memory").is_dir():
        folder, limit, swap, peak = CGROUP / "memory" / name, "memory.limit_in_bytes", "", "memory.max_usage_in_bytes"
    else:
        return "no control groups are mounted at /sys/fs/cgroup"
    try:
        folder.mkdir()
        (folder / limit).write_text(str(limit_bytes))
        if swap:
            with contextlib.suppress(OSError):
                (folder / swap).write_text("0")
        if not (folder / peak).exists():
            peak = "memory.current"
        return ControlGroup(folder, peak)
    except OSError as error:
        with contextlib.suppress(OSError):
            folder.rmdir()
        return f"this user may not make a control group: {error}"
