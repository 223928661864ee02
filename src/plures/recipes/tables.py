"""What the tables of an experiment file have in common."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class FreeTable(BaseModel):
    """A table whose further keys are the options of what it names."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})
