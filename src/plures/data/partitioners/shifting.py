"""A rule whose clients also differ in how their inputs look: a stand-in for handwriting, cameras and light."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from plures.core.errors import InvalidConfig
from plures.data.datasets import DataSet
from plures.data.dealing import Indices
from plures.data.partitioners.options import problems_of_counts, problems_of_ranges, refuse
from plures.data.partitioners.protocols import AnyPartitioner, ChangesInputs, ChoosesClients, NeedsDataSet, Partitioner
from plures.data.partitioners.styles import Styles, refuse_no_images, styled
from plures.data.splitting import ClientIndices


@dataclass(frozen=True, kw_only=True)
class Shifted:
    """Deals as another rule does; the examples of each client are in the client's style."""

    rule: Partitioner
    styles: Styles

    @property
    def num_clients(self) -> int:
        return self.rule.num_clients

    @property
    def names(self) -> Sequence[str] | None:
        return getattr(self.rule, "names", None)

    def assign(self, labels: Indices, seed: int) -> list[Indices]:
        return self.rule.assign(labels, seed)

    def assign_test(self, labels: Indices, test_labels: Indices, seed: int) -> list[Indices]:
        return self.rule.assign_test(labels, test_labels, seed)

    def choose(self, clients: Sequence[ClientIndices], seed: int) -> dict[int, ClientIndices]:
        if isinstance(self.rule, ChoosesClients):
            return self.rule.choose(clients, seed)
        return dict(enumerate(clients))

    def refuse_inputs(self, inputs: Tensor) -> None:
        refuse_no_images(inputs)

    def change(self, inputs: Tensor, *, client: int, split: str, seed: int) -> Tensor:
        if isinstance(self.rule, ChangesInputs):
            inputs = self.rule.change(inputs, client=client, split=split, seed=seed)
        return styled(inputs, self.styles.of(client, seed), client=client, split=split, seed=seed)


@dataclass(frozen=True, kw_only=True)
class ShiftedLater:
    """The same around a rule that must see the data set first."""

    rule: NeedsDataSet
    styles: Styles

    def bind(self, dataset: DataSet, seed: int) -> Shifted:
        return Shifted(rule=self.rule.bind(dataset, seed), styles=self.styles)


def feature_shift(
    partitioner: AnyPartitioner,
    rotation: float = 30.0,
    contrast: float = 0.5,
    noise: float = 0.0,
    dilation: int = 1,
) -> Shifted | ShiftedLater:
    """Clients of another rule, whose images each client sees in a style of its own.

    A client's rotation is drawn from +-`rotation` degrees, its contrast from 1 +- `contrast`, the standard deviation of
    its noise from 0 to `noise` (pixels go from 0 to 1), and its strokes grow by 0 to `dilation` pixels to each side.
    """
    ranges = problems_of_ranges(180, rotation=rotation) + problems_of_ranges(1, contrast=contrast, noise=noise)
    refuse(ranges + problems_of_counts(0, dilation=dilation))
    if isinstance(partitioner, Shifted | ShiftedLater):
        raise InvalidConfig("feature_shift cannot be put around itself: shift the inputs once.")
    styles = Styles(rotation=float(rotation), contrast=float(contrast), noise=float(noise), dilation=dilation)
    if isinstance(partitioner, NeedsDataSet):
        return ShiftedLater(rule=partitioner, styles=styles)
    return Shifted(rule=partitioner, styles=styles)
