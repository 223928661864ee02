"""Follows a run by what it writes, from any process."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plures.report import records
from plures.report.run_states import Standing, ended, last_change, standing_of
from plures.report.running import Running, read_running
from plures.report.studies import reading

SPARKS = "▁▂▃▄▅▆▇█"


class Followed:
    """What is known of a run so far; each `poll` reads what was written since the last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: Running | None = None
        self.facts: Mapping[str, Any] = {}
        self.standing: Standing = "running"
        self.offset, self.clients, self.num_bytes = 0, 0, 0
        self.latest: Mapping[str, Any] = {}
        self.scores: list[tuple[int, float]] = []

    def poll(self) -> list[str]:
        """The new lines of rounds.jsonl; how the run stands is asked before, so that no line of its end is missed."""
        running = read_running(self.folder)
        self.standing = standing_of(self.folder, running)
        if running is not None:
            self.running, self.facts = running, running.facts
        if self.standing == "ended":
            self.facts = {**self.facts, **self._facts_of_result()}
        lines = self._new_lines()
        with reading(self.folder / records.ROUNDS):
            for line in lines:
                self._note(json.loads(line))
        return lines

    def _new_lines(self) -> list[str]:
        path = self.folder / records.ROUNDS
        with reading(path), path.open("rb") as file:
            file.seek(self.offset)
            whole, newline, _ = file.read().rpartition(b"\n")
            self.offset += len(whole) + len(newline)
            return whole.decode("utf-8").split("\n") if whole else []

    def _facts_of_result(self) -> dict[str, Any]:
        state = ended(self.folder, last_change(self.folder))
        facts = {"method": state.method, "seed": state.seed, "rounds": state.rounds, "status": state.state}
        return facts if state.metric is None else facts | {"shown": state.metric, "value": state.value}

    def _note(self, line: Mapping[str, Any]) -> None:
        self.latest = line
        self.clients += len(line["cohort"])
        self.num_bytes += line["bytes_down"] + line["bytes_up"]
        value = line.get("metrics", {}).get(self.shown, {}).get("weighted")
        if value is not None:
            self.scores.append((line["round"], value))

    @property
    def title(self) -> str:
        return str(self.facts.get("title") or self.facts.get("method") or self.folder.name)

    @property
    def shown(self) -> str | None:
        """The metric to look at."""
        return self.facts.get("shown")

    @property
    def value(self) -> float | None:
        """Its latest value; that of a pipeline's last stage is in the result alone."""
        latest = self.scores[-1][1] if self.scores else None
        found: float | None = self.facts.get("value", latest)
        return found

    @property
    def state(self) -> str:
        return str(self.facts["status"]) if self.standing == "ended" else self.standing

    @property
    def rounds_done(self) -> int:
        return int(self.latest.get("round", 0))

    @property
    def rounds(self) -> int | None:
        return self.facts.get("rounds")

    @property
    def rate(self) -> float:
        """Clients in a second of training."""
        return self.clients / max(float(self.latest.get("seconds", 0.0)), 1e-9)

    @property
    def spent(self) -> float | None:
        """Seconds since the start."""
        return None if self.running is None else max(0.0, time.time() - self.running.started.timestamp())

    @property
    def left(self) -> float | None:
        """Seconds to go, by the time that rounds took up to the last one."""
        if self.running is None or not self.rounds_done or self.rounds is None:
            return None
        last = last_change(self.folder)
        each = (last - self.running.started.timestamp()) / self.rounds_done
        return max(0.0, each * (self.rounds - self.rounds_done) - (time.time() - last))


def sparkline(values: list[float], width: int) -> str:
    """A curve of one line: the last values, from the lowest to the highest."""
    if not values:
        return ""
    values = thinned(values, width)
    low, high = min(values), max(values)
    steps = [0 if high == low else round((value - low) / (high - low) * (len(SPARKS) - 1)) for value in values]
    return "".join(SPARKS[step] for step in steps)


def thinned(values: list[float], most: int) -> list[float]:
    """At most so many of them, the first and the last among them."""
    if len(values) <= most:
        return values
    return [values[round(place * (len(values) - 1) / (most - 1))] for place in range(most)]
