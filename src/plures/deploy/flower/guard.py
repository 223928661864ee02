"""Runs a program that must not outlive whoever started it: `python guard.py COMMAND...`, with a pipe as input.

The pipe closes when its other end dies, by SIGKILL too; then the program ends. Once something was written into the pipe
the program is up: should it die by itself after that, it is started again. A file of its own, without imports of ours:
it starts at once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

STOP_SECONDS = 3.0
"""A SuperLink waits much longer for connections that are idle; with its database it may be killed."""
AGAIN_SECONDS = 0.5
UP = b"up\n"
"""To be written when the program answers."""


class Guard:
    """One program at a time, until it is to end."""

    def __init__(self, command: list[str]) -> None:
        self.command, self.is_up, self.is_ending = command, False, False
        self.process: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        while True:
            process = self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL)
            code = process.wait()
            if self.is_ending or not self.is_up:
                return code
            time.sleep(AGAIN_SECONDS)

    def end(self) -> None:
        self.is_ending = True
        if self.process is not None:
            self.process.terminate()

    def watch(self) -> None:
        """Until nobody holds the other end of the pipe."""
        while os.read(0, 1024):
            self.is_up = True
        self.end()
        process = self.process
        if process is not None:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def main() -> int:
    guard = Guard(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda number, frame: guard.end())
    threading.Thread(target=guard.watch, daemon=True).start()
    return guard.run()


if __name__ == "__main__":
    sys.exit(main())
