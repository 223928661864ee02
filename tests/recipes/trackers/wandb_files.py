"""Reads what Weights & Biases wrote offline: records of protobuf in a log of blocks."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from wandb.proto import wandb_internal_pb2

BLOCK, FILE_HEADER, RECORD_HEADER = 32_768, 7, 7
FIRST_OR_WHOLE, LAST_OR_WHOLE = (1, 2), (1, 4)


def read_records(folder: Path) -> list[Any]:
    """Everything up to the end of the run, which its own process may still be writing."""
    until, found = time.monotonic() + 30, records_now(folder)
    while not any(is_a("exit", record) for record in found) and time.monotonic() < until:
        time.sleep(0.05)
        found = records_now(folder)
    return found


def is_a(kind: str, record: Any) -> bool:
    return bool(record.WhichOneof("record_type") == kind)


def records_now(folder: Path) -> list[Any]:
    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    content, at, found, open_record = path.read_bytes(), FILE_HEADER, [], b""
    while at + RECORD_HEADER <= len(content):
        if BLOCK - at % BLOCK < RECORD_HEADER:  # what is left of a block is padding
            at += BLOCK - at % BLOCK
            continue
        length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        piece = content[at + RECORD_HEADER : at + RECORD_HEADER + length]
        open_record = piece if kind in FIRST_OR_WHOLE else open_record + piece
        if kind in LAST_OR_WHOLE:
            found.append(wandb_internal_pb2.Record.FromString(open_record))
        at += RECORD_HEADER + length
    return found


def history(records: list[Any]) -> list[dict[str, Any]]:
    """What was logged, step by step."""
    lines = [record.history for record in records if is_a("history", record)]
    return [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in line.item} for line in lines
    ]


def config(records: list[Any]) -> dict[str, Any]:
    (run, *_) = [record.run for record in records if is_a("run", record)]
    return {item.key: json.loads(item.value_json) for item in run.config.update}


def summary(records: list[Any]) -> dict[str, Any]:
    changes = [record.summary for record in records if is_a("summary", record)]
    return {item.key or item.nested_key[0]: json.loads(item.value_json) for one in changes for item in one.update}


def exit_code(records: list[Any]) -> int:
    (code,) = [record.exit.exit_code for record in records if is_a("exit", record)]
    return int(code)
