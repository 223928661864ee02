"""The complexity table of the pFedGate paper (its Table 3), with the numbers of a network at hand in it.

Chen et al., "Efficient Personalized Federated Learning via Sparse Model-Adaptation", ICML 2023. d is the number of
parameters, n of clients, m of those in a round; k of FedEM's components; s the density of pFedGate's models, g the
size of a gate over d, q the share of d that a round changes; v and h the embedding and the hidden size of pFedHN.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

METHODS = ("fedavg", "pfedhn", "fedem", "pfedgate")


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What the table depends on; the defaults are the paper's."""

    parameters: int
    clients: int
    cohort: float
    components: int = 3
    density: float = 0.5
    gate_share: float = 0.05
    upload_share: float = 0.67
    hidden: int = 100
    embedding_size: float | None = None
    """None: a quarter of the clients."""

    @property
    def embedding(self) -> float:
        return 0.25 * self.clients if self.embedding_size is None else self.embedding_size


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One entry: as the paper writes it, and what that comes to."""

    formula: str
    value: float


@dataclass(frozen=True, kw_only=True)
class Line:
    """One row of the table, for the four methods in order."""

    kind: str
    where: str
    cells: tuple[Cell, Cell, Cell, Cell]

    def as_json(self) -> dict[str, Any]:
        cells = {method: asdict(cell) for method, cell in zip(METHODS, self.cells, strict=True)}
        return {"kind": self.kind, "where": self.where, **cells}


def complexity(sizes: Sizes) -> list[Line]:
    """The seven rows. The paper's FedAvg cell of "train, server" has a stray 6d, which is left out."""
    d, n, m, k = sizes.parameters, sizes.clients, sizes.cohort, sizes.components
    s, g, q, v, h = sizes.density, sizes.gate_share, sizes.upload_share, sizes.embedding, sizes.hidden
    one, whole, served = Cell(formula="1", value=1), Cell(formula="d", value=d), Cell(formula="d m", value=d * m)
    step, parts = Cell(formula="2 d", value=2 * d), Cell(formula="k d", value=k * d)
    gated = Cell(formula="2 d (s + g)", value=2 * d * (s + g))
    mixed = Cell(formula="2 k d", value=2 * k * d)
    inferred = Cell(formula="d (s + g)", value=d * (s + g))
    hyper = Cell(formula="(v + h) m", value=(v + h) * m)
    stored = Cell(formula="v h + v n", value=v * h + v * n)
    return [
        Line(kind="train a batch", where="client", cells=(step, step, mixed, gated)),
        Line(kind="infer a batch", where="client", cells=(whole, whole, whole, inferred)),
        Line(kind="train a round", where="server", cells=(one, hyper, one, one)),
        Line(kind="upload", where="client", cells=(whole, whole, parts, Cell(formula="q d", value=q * d))),
        Line(kind="send", where="server", cells=(served, served, Cell(formula="k d m", value=k * d * m), served)),
        Line(kind="store", where="client", cells=(whole, whole, parts, Cell(formula="(1 + g) d", value=(1 + g) * d))),
        Line(kind="store", where="server", cells=(whole, stored, parts, whole)),
    ]
