"""Runs a program that must not outlive whoever started it: `python guard.py COMMAND...`, with a pipe as input.

The pipe closes when its other end dies, by SIGKILL too; then the program ends. A file of its own, without imports of
ours: it starts at once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

STOP_SECONDS = 3.0
"""A SuperLink waits much longer for connections that are idle; with its database it may be killed."""


def main() -> int:
    process = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    signal.signal(signal.SIGTERM, lambda number, frame: process.terminate())
    threading.Thread(target=watch, args=(process,), daemon=True).start()
    return process.wait()


def watch(process: subprocess.Popen[bytes]) -> None:
    while os.read(0, 1024):
        pass
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


if __name__ == "__main__":
    sys.exit(main())
