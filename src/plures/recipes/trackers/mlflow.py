"""MLflow: a run in an experiment of a tracking server or store."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient

from plures.recipes.results import Status
from plures.recipes.tracking import TrackedRun

STATUS = {
    "finished": "FINISHED",
    "interrupted": "KILLED",
    "stopped": "KILLED",
    "diverged": "FAILED",
    "failed": "FAILED",
}
FORBIDDEN = re.compile(r"[^\w\-./ ]")
"""What may not stand in the name of a metric."""
LONGEST = 500
"""Characters of a parameter's value."""


class Mlflow:
    """Logs to `uri`; by default where MLFLOW_TRACKING_URI says, or where MLflow keeps runs by itself."""

    name = "mlflow"

    def __init__(self, *, uri: str | None = None, experiment: str = "plures", name: str | None = None) -> None:
        self.uri, self.experiment, self.run_name = uri, experiment, name
        self.client: MlflowClient | None = None
        self.run_id = ""

    def started(self, run: TrackedRun) -> None:
        self.client = MlflowClient(tracking_uri=self.uri)
        if self.name in run.keys:
            self.run_id = run.keys[self.name]
            self.client.update_run(self.run_id, status="RUNNING")
            return
        found = self.client.get_experiment_by_name(self.experiment)
        number = self.client.create_experiment(self.experiment) if found is None else found.experiment_id
        self.run_id = self.client.create_run(number, run_name=self.run_name or run.name).info.run_id
        params = [Param(key, str(value)[:LONGEST]) for key, value in run.facts.items()]
        self.client.log_batch(self.run_id, params=params)

    @property
    def key(self) -> str:
        return self.run_id

    def round_done(self, round: int, numbers: Mapping[str, float]) -> None:
        assert self.client is not None
        now = int(time.time() * 1000)
        metrics = [Metric(FORBIDDEN.sub("_", name), value, now, round) for name, value in numbers.items()]
        self.client.log_batch(self.run_id, metrics=metrics)

    def ended(self, status: Status, numbers: Mapping[str, float]) -> None:
        if self.client is not None and self.run_id:
            for name, value in numbers.items():
                self.client.log_metric(self.run_id, FORBIDDEN.sub("_", name), value)
            self.client.set_terminated(self.run_id, STATUS[status])
