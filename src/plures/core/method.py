"""What a method may say: phases on a client, an upload, a weight, a server step. Nothing here runs anything.

A method is data. Engines execute it; it never sees an engine, and an engine never looks inside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from plures.core.networks import Network, Wrap
from plures.core.rates import check_positive
from plures.core.types import Facts, Params, Part, Schedule
from plures.core.visit import Beginning, Trained, Upload, Visit
from plures.core.wire import Parcel

if TYPE_CHECKING:
    from plures.core.adapting import Newcomer
    from plures.core.context import RoundContext, RoundOutcome
    from plures.core.problem import Outcome, Problem
    from plures.core.program import Binding

OptimizerState = dict[str, Params]
"""Named groups of tensors ("momentum", "first", "second", ...), so that it can be saved as it is."""

View = Callable[[Params, Tensor], Params]
"""Parameters and inputs -> the parameters the network sees: masks, gates and twins are views."""

JudgedBy = Literal["global", "personal", "finetuned"]
CapacityUnit = Literal["density", "width"]

Scale = Callable[[Facts], float]
"""Multiplies the gradients of a phase."""


class Optimizer(Protocol):
    """A pair of pure functions with a rate, used alike on clients and on the server."""

    @property
    def lr(self) -> Schedule: ...

    def init(self, params: Params) -> OptimizerState: ...

    def update(
        self, grads: Params, state: OptimizerState, params: Params, lr: float
    ) -> tuple[Params, OptimizerState]: ...


@dataclass(frozen=True, kw_only=True)
class OfAllClients:
    """At the server, for what is a mean over all clients, not over the cohort: where some are lost, it moves less."""

    rule: Optimizer

    @property
    def lr(self) -> Schedule:
        return self.rule.lr

    def init(self, params: Params) -> OptimizerState:
        return self.rule.init(params)

    def update(self, grads: Params, state: OptimizerState, params: Params, lr: float) -> tuple[Params, OptimizerState]:
        return self.rule.update(grads, state, params, lr)


class Budget(Protocol):
    """How long a phase lasts, and on which examples of the client."""

    @property
    def stream(self) -> str:
        """Phases with the same stream see the same batches in the same order."""

    def batches(self, num_examples: int, generator: torch.Generator) -> Iterator[Tensor | None]:
        """Indices of each batch in turn; None stands for all examples, without a copy."""


class Split(Protocol):
    """Decides for each parameter and moving buffer of a model whose it is."""

    def resolve(self, model: nn.Module) -> dict[str, Part]: ...


Penalty = Callable[[Params, Visit], Tensor]
"""Added to the loss: proximal terms and regularisers."""


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """How a method makes a model small enough for a client."""

    unit: CapacityUnit
    usual: float
    """Of a client that is given none."""
    sizes: Callable[[Network, float], Mapping[str, int]]
    """How many coordinates of each parameter a client of that capacity may use; what is not named it uses whole."""
    limits_uploads: bool = True
    """Whether what a client uploads is no more than what it uses."""
    whole_at_first: bool = False
    """Whether a client's first visit trains the whole model, from which its own is then cut for good."""


MakeUpload = Callable[[Visit, Trained], Upload]
"""What a client sends after its work."""

Download = Callable[[Params, Params], Parcel]
"""(shared part, what the server knows of the client) -> what the client receives: all of it, masked, or sliced."""

Extend = Callable[[Network], Mapping[Part, Params]]
"""The network -> what the method adds or changes, by part: twins, gates, masks."""

Start = Callable[[Beginning], Params]
"""This client's state before its first visit."""

Refresh = Callable[["Problem", Params], Params]
"""After the phases: (what may be asked, parameters) -> parameters with new masks or other kept state."""

Solver = Callable[["Problem"], "Outcome"]
"""How a phase is carried out; the default takes one optimiser step per batch of the budget."""

RunRound = Callable[["RoundContext"], "RoundOutcome"]
"""The second door: a round of its own, on the same engines, stores and evaluation (see `core/round.py`)."""

Welcome = Callable[["Newcomer"], Params]
"""From a client that was never trained on to all parameters of its model (see `core/adapting.py`)."""

Notes = Callable[["Binding", "Params", Visit], Mapping[str, list[float]]]
"""(binding, trained parameters, visit) -> numbers to record of a client's model, such as a histogram of its gates."""


class Weight(NamedTuple):
    """How uploads are summed: (sum of `share` * upload) / (sum of `per`); `per` None: not divided."""

    name: str
    share: Callable[[Facts], float]
    per: Callable[[Facts], float] | None


def own_parameters(params: Params, inputs: Tensor) -> Params:
    """The view that changes nothing: the network sees its own parameters."""
    return params


def one(facts: Facts) -> float:
    """The scale that changes nothing."""
    return 1.0


def whole_shared_part(shared: Params, known: Params) -> Parcel:
    """The download of most methods."""
    return Parcel(shared)


def nothing_added(network: Network) -> Mapping[Part, Params]:
    """The extension of most methods."""
    return {}


def common_start(beginning: Beginning) -> Params:
    """Every client starts from the model's own initial values."""
    return beginning.state


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Train some parts on one client; the other parts hold still."""

    train: Part | tuple[Part, ...]
    budget: Budget
    optimizer: Optimizer | Mapping[Part, Optimizer]
    observe: Part | None = None
    """Part whose gradient is kept for the upload, not applied."""
    scale: Scale = one
    view: View = own_parameters
    penalty: Penalty | None = None
    clip_norm: float | Mapping[Part, float] | None = None
    """Largest norm of the gradients: jointly over all that moves, or of each part."""
    solver: Solver | None = None
    """None: one optimiser step per batch."""

    def __post_init__(self) -> None:
        limits = self.clip_norm.values() if isinstance(self.clip_norm, Mapping) else [self.clip_norm]
        for limit in limits:
            if limit is not None:
                check_positive("clip_norm", limit)

    @property
    def moves(self) -> tuple[Part, ...]:
        return (self.train,) if isinstance(self.train, str) else self.train

    @property
    def name(self) -> str:
        moved = "+".join(self.moves)
        return moved if self.observe is None else f"{moved} observing {self.observe}".lstrip()


@dataclass(frozen=True, kw_only=True)
class Method:
    """All that distinguishes one method from another."""

    split: Split
    local: tuple[Phase, ...]
    """In this order, on each client of the cohort."""
    upload: MakeUpload
    weight: Weight
    server: Optimizer | Mapping[Part, Optimizer]
    """Moves what is shared against the weighted sum of the uploads: one for all of it, or one per part."""
    download: Download = whole_shared_part
    per_coordinate: bool = False
    """Divide by what the cohort held of each coordinate; what nobody held stays as it was."""
    wrap: Wrap | None = None
    """Builds the network to train around the one that was given; None: that one itself."""
    extend: Extend = nothing_added
    start: Start = common_start
    refresh: Refresh | None = None
    predict: View = own_parameters
    """The personal model, for evaluation."""
    adapt: tuple[Phase, ...] = ()
    """How a client gets its own model from the shared one without federated rounds: fine-tuning, newcomers."""
    welcome: Welcome | None = None
    """How a newcomer gets its own model, where that takes more than `adapt`: masks to be found, an embedding."""
    stateful: bool = True
    """False: a client forgets its own part after each visit."""
    capacity: Capacity | None = None
    """How clients of different capacities get models they can afford; None: everybody has the whole model."""
    notes: Notes | None = None
    """What to record of clients' models beside the usual."""
    run_round: RunRound | None = None
    """For methods that do not fit one upload, one weighted sum and one server step."""
    judged_by: JudgedBy = "personal"
    """The model its paper judges it by: the shared one, the client's own, or the client's after `adapt`."""
    name: str = "custom"
