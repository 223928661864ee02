"""The table [deploy] of an experiment file: who takes part, and what every node's examples look like."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from plures.recipes.tables import Table

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class DeployTable(Table):
    """Server and nodes read the same table, each from a file of its own: the server's word is not enough."""

    clients: list[str] | Annotated[int, Field(ge=1)]
    """Names of the nodes, in the order of their numbers; or how many there are."""
    shape: list[Annotated[int, Field(ge=1)]]
    """Of one example as it is held."""
    dtype: Literal["uint8", "int64", "float32", "float64"] = "float32"
    classes: int = Field(default=0, ge=0)
    """Classes, or words of a vocabulary; none where numbers are predicted."""
    goal: Literal["classification", "regression", "next_token"] = "classification"
    target_shape: list[Annotated[int, Field(ge=1)]] = []
    """Of one target, where it is more than one number."""
    preparation: dict[str, Any] | None = None
    """How inputs are prepared on use, as exported models say it: {kind = "scaled", ...}."""
    class_names: list[str] = []
    own_classes: list[Annotated[int, Field(ge=1)]] | None = None
    """How many classes each client has, where label spaces are local."""
    wait: Positive = 600.0
    """Seconds that the server waits for nodes, at the start and whenever too few are there."""
    deadline: Positive = 3600.0
    """Seconds for an answer, where [tolerate] has no deadline."""
