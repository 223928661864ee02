"""Which process runs a run, and whether it still lives."""

from __future__ import annotations

import os
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process by its number, its machine and when it began, for numbers are used again."""

    pid: int
    host: str
    process_started: str | None
    """In words of the system; None where it does not tell."""

    def is_gone(self) -> bool:
        """Whether it has surely ended; of other machines nothing is known."""
        if self.host != socket.gethostname() or os.name != "posix":
            return False
        now = started_at(self.pid)
        return not exists(self.pid) or (None not in (now, self.process_started) and now != self.process_started)


def this_process() -> Process:
    pid = os.getpid()
    return Process(pid=pid, host=socket.gethostname(), process_started=started_at(pid))


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # somebody else's; a number that none has
        return pid < 2**31
    return not is_zombie(pid)


def is_zombie(pid: int) -> bool:
    """Whether it has ended and only its parent has not taken note yet."""
    fields = stat_fields(pid)
    return fields is not None and fields[0] == "Z"


def started_at(pid: int) -> str | None:
    """When a process began: ticks since the boot on Linux, the time of day by ps elsewhere."""
    if Path("/proc/self/stat").exists():
        fields = stat_fields(pid)
        return None if fields is None else f"{boot()}:{fields[19]}"
    try:
        told = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return told.stdout.strip() or None


def stat_fields(pid: int) -> list[str] | None:
    """What Linux says of a process, from its state on; its name before that may have blanks and brackets."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
