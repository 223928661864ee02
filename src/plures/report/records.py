"""The files of a run folder, as plain data; nothing here needs torch.

RUN/
  experiment.toml          the resolved configuration; running it again gives the same result
  rounds.jsonl             one line per round: cohort, losses, costs of the round, seconds since the start, and
                           metrics where the round was evaluated
  federation.csv.gz        one row per client: examples, classes and labels; newcomers last
  clients.csv.gz           one row per client, evaluated round, model and split
  choices.csv.gz           with a guard: one row per client and evaluated round: which model it chose, and why
  visits.csv.gz            one row per client and round it took part in: what it sent, computed, held and took
  shared.safetensors       the shared part after the last whole round
  personal.safetensors     what each visited client keeps, named CLIENT/PARAMETER
                           (of more clients than fit into memory: in clients.sqlite alone;
                           of a deployment: what the server is told of it, the rest is on nodes)
  clients.sqlite           while the run goes on: what each visited client keeps
  checkpoints/             while the run goes on: what the server holds, and how far the records go
  tuned.safetensors        with a pipeline that ends in fine-tuning: what that moved, named CLIENT/PARAMETER
  running.json             while the run goes on: the process that runs it, and what it was asked for
  tensorboard/             events for TensorBoard, if that was asked for
  result.json              the end: metrics of the last and of the validation-selected round, costs, fingerprints
  report.html              where asked for: a page about the run, made from the files above
  doctor.json              after `plures doctor --repair`: what was repaired, when, and who had to begin anew
  NAME.damaged             what a repair has replaced
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EXPERIMENT = "experiment.toml"
ROUNDS = "rounds.jsonl"
FEDERATION = "federation.csv.gz"
CLIENTS = "clients.csv.gz"
CHOICES = "choices.csv.gz"
VISITS = "visits.csv.gz"
SHARED = "shared.safetensors"
PERSONAL = "personal.safetensors"
TUNED = "tuned.safetensors"
STATES = "clients.sqlite"
CHECKPOINTS = "checkpoints"
RUNNING = "running.json"
RESULT = "result.json"
TENSORBOARD = "tensorboard"
DOCTOR = "doctor.json"
DAMAGED = ".damaged"
"""At the end of a name; then, if need be, a number."""
TRIALS = "trials.csv"
"""In the folder of a search: one row per trial."""
STUDY = "study.json"
"""In a folder of several runs: the label, seed and folder of each."""

DEPLOYED = "deployed"
"""Among the facts of a result: clients were nodes, which keep their own part and tell no labels."""

GROWING = (ROUNDS, FEDERATION, CLIENTS, CHOICES, VISITS)
"""Files that rounds are appended to."""

FEDERATION_COLUMNS = (
    "client",
    "name",
    "role",
    "train",
    "validation",
    "test",
    "classes",
    "train_labels",
    "test_labels",
)
"""`role` is participant or newcomer, `classes` of the training data, and labels with their examples are JSON."""

CHOICE_COLUMNS = ("round", "client", "name", "chosen", "evidence")
"""`chosen` is the client's own kind of model or "shared"; `evidence` counts standard errors: of no data, nothing."""

CLIENT_COLUMNS = ("round", "client", "name", "model", "split", "examples")
"""Then the metrics of the run: accuracy and loss, or others."""

VISIT_COLUMNS = (
    "round",
    "client",
    "name",
    "examples",
    "capacity",
    "density",
    "bytes_down",
    "bytes_up",
    "values_down",
    "values_up",
    "upload_share",
    "flops",
    "dense_flops",
    "search_flops",
    "peak_bytes",
    "seconds",
    "refresh_seconds",
    "phase_seconds",
    "notes",
)
"""`upload_share` is what was uploaded of what could be; `phase_seconds` the time of each phase and of the refresh, and
`notes` what a method tells of the client's model, both as JSON."""


def read_result(folder: Path) -> dict[str, Any]:
    """The result of a finished run."""
    result: dict[str, Any] = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    return result


def read_rounds(folder: Path) -> list[dict[str, Any]]:
    """Every whole round; a last line cut off by a crash is left out."""
    rounds: list[dict[str, Any]] = []
    for line in (folder / ROUNDS).read_text(encoding="utf-8").splitlines():
        try:
            rounds.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rounds


def read_clients(folder: Path) -> Iterator[dict[str, str]]:
    """The rows of the per-client file, one at a time."""
    return read_rows(folder / CLIENTS)


def read_federation(folder: Path) -> Iterator[dict[str, str]]:
    """What each client has, one at a time."""
    return read_rows(folder / FEDERATION)


def read_choices(folder: Path) -> Iterator[dict[str, str]]:
    """What clients chose under a guard, one at a time."""
    return read_rows(folder / CHOICES)


def read_visits(folder: Path) -> Iterator[dict[str, str]]:
    """What each visit cost, one at a time."""
    return read_rows(folder / VISITS)


def read_rows(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)
