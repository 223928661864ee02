"""How a client of Sub-FedAvg prunes: which masks it might take after its first and last epoch, and whether it does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from plures.core.errors import InvalidConfig, InvalidModel
from plures.core.networks import Network
from plures.core.problem import Outcome, Problem, descend
from plures.core.types import FROZEN, Params, Part
from plures.local.channels import PRODUCTS, Channels, find_channels
from plures.local.masks import mask_of, masked, masks_in, with_masks

__all__ = ["Pruner", "PruningDescent", "PruningRefresh", "hamming", "weights_in", "with_candidates"]

CANDIDATE: Part = FROZEN + ".candidate"
"""Masks noted after the first epoch: as a constant between visits, they are kept by nobody."""
PREFIX = "candidate."
ROUND_OFF = 1e-12
"""Relative error that products of floating-point numbers may have: 0.07 * 100 is 7.000000000000001."""
AT_ONCE = 1024
"""Examples that go through the network together."""


def weights_in(network: Network, masks: Params) -> list[str]:
    """What may be pruned: weights of convolutions and linear layers that have masks; biases and norms never are."""
    paths = [path for path, layer in network.module.named_modules() if isinstance(layer, PRODUCTS)]
    return [name for path in paths if (name := f"{path}.weight".lstrip(".")) in masks]


def with_candidates(network: Network) -> Mapping[Part, Params]:
    """The extension: masks of all that is shared, and a place to note those that pruning would give the weights."""
    taken = [name for name in network.parts if name.startswith(PREFIX)]
    if taken:
        raise InvalidModel(f"the model has '{taken[0]}', but '{PREFIX}' names masks to be. Rename that module.")
    extension = with_masks(network)
    masks = {name: mask for added in extension.values() for name, mask in masks_in(added).items()}
    weights = weights_in(network, masks)
    if not weights:
        what = f"{type(network.module).__name__} has no convolution and no linear layer of its own to prune"
        raise InvalidModel(f"{what}. Use such layers, or another method.")
    return {**extension, CANDIDATE: {PREFIX + name: masks[name] for name in weights}}


@dataclass(frozen=True, kw_only=True)
class Pruner:
    """Finds the masks that a client would have if it pruned now."""

    share: float
    """Of each tensor's active weights, or of each convolution's active channels."""
    target: float
    """The share of all weights that is never pruned."""
    whole_channels: bool

    def masks(self, problem: Problem, params: Params) -> Params:
        """With fewer ones than those that there are; the same, once the target is reached."""
        masks, network = masks_in(params), problem.binding.network
        weights = weights_in(network, masks)
        room = self.room(masks, weights)
        if room and self.whole_channels:
            layers = maskable(find_channels(network.module, problem.visit.data.inputs), masks)
            masks = without_weak_channels(layers, params, masks, self.share, room)
            room = self.room(masks, weights)
            weights = [name for name in weights if name not in {layer.weight for layer in layers}]
        return masks | without_weak_weights(params, {name: masks[name] for name in weights}, self.share, room)

    def room(self, masks: Params, weights: Sequence[str]) -> int:
        """How many weights may still be pruned."""
        size = sum(masks[name].numel() for name in weights)
        left = sum(int(masks[name].sum()) for name in weights)
        return max(0, left - math.ceil(self.target * size * (1.0 - ROUND_OFF)))


def without_weak_weights(params: Params, masks: Params, share: float, room: int) -> Params:
    """Of each tensor, what is below that percentile of its active weights; all together no more than there is room."""
    counts = within([num_weak(mask, share) for mask in masks.values()], room)
    return {
        name: without_smallest(params[name].abs(), mask, count)
        for (name, mask), count in zip(masks.items(), counts, strict=True)
    }


def without_weak_channels(layers: Sequence[Channels], params: Params, masks: Params, share: float, room: int) -> Params:
    """Of each convolution, the channels below that percentile of importance, weakest first, while there is room."""
    masks = {name: mask.clone() for name, mask in masks.items()}
    for layer in layers:
        worth, active = layer.importance(params), masks[layer.weight].flatten(1).any(1)
        weak = active & ~without_smallest(worth, active, num_weak(active, share))
        for channel in sorted(weak.nonzero().flatten().tolist(), key=worth.tolist().__getitem__):
            pruned = {name: layer.places(name, channel, masks) for name in (*layer.own, *layer.takers)}
            room -= sum(int(masks[name][pruned[name]].sum()) for name in (layer.weight, *layer.takers))
            if room < 0:
                return masks
            for name, places in pruned.items():
                masks[name][places] = False
    return masks


def maskable(layers: Sequence[Channels], masks: Params) -> list[Channels]:
    """Without what is not shared, and so has no masks."""
    kept = [layer for layer in layers if masks.keys() >= set(layer.own)]
    return [layer._replace(takers=tuple(name for name in layer.takers if name in masks)) for layer in kept]


def num_weak(mask: Tensor, share: float) -> int:
    """How many of the active entries are below that percentile of them; never all."""
    return math.ceil(share * max(0, int(mask.sum()) - 1) * (1.0 - ROUND_OFF))


def without_smallest(sizes: Tensor, mask: Tensor, count: int) -> Tensor:
    """The mask without its `count` smallest entries; of equal ones at the bound, none is left out."""
    if count == 0:
        return mask
    bound = torch.where(mask, sizes, math.inf).flatten().kthvalue(count + 1).values
    return mask & (sizes >= bound)


def within(counts: Sequence[int], room: int) -> list[int]:
    """Counts scaled down to a sum that there is room for."""
    wanted = sum(counts)
    if wanted <= room:
        return list(counts)
    ends = [total * room // wanted for total in accumulate(counts)]
    return [end - start for start, end in pairwise([0, *ends])]


def hamming(left: Params, right: Params) -> float:
    """The mean over tensors of the share of entries in which two masks differ."""
    shares = [float((mask != right[name]).double().mean()) for name, mask in left.items()]
    return sum(shares) / len(shares)


@dataclass(frozen=True, kw_only=True)
class PruningDescent:
    """The usual steps; after the first epoch, a client notes the masks that it would have."""

    pruner: Pruner
    accuracy: float
    """That the refresh will ask for."""

    def __call__(self, problem: Problem) -> Outcome:
        self.check(problem)
        noted: Params = {}
        first = updates_of_an_epoch(problem)

        def watch(done: int, params: Params) -> None:
            if done == first:
                noted.update(self.pruner.masks(problem, params))

        outcome = descend(problem, watch=watch)
        masks = noted or self.pruner.masks(problem, outcome.params)
        names = problem.binding.names(CANDIDATE)
        return outcome._replace(params=outcome.params | {name: masks[name.removeprefix(PREFIX)] for name in names})

    def check(self, problem: Problem) -> None:
        """Only of classes there is an accuracy."""
        if self.accuracy > 0 and problem.visit.data.targets.is_floating_point():
            raise InvalidConfig(
                f"Clients prune where their accuracy is above {self.accuracy}, but the targets are real numbers, of "
                "which there is no accuracy. Give accuracy_threshold = 0, with which nobody asks for it."
            )


def updates_of_an_epoch(problem: Problem) -> int:
    """How many updates it takes until as many examples were drawn as the client has, if there are so many updates."""
    size = problem.visit.data.num_examples
    drawn = updates = 0
    for indices in problem.phase.budget.batches(size, torch.Generator()):
        some = size if indices is None else len(indices)
        drawn, updates = drawn + some, updates + int(some > 1 or not problem.binding.task.needs_pairs)
        if drawn >= size:
            break
    return updates


@dataclass(frozen=True, kw_only=True)
class PruningRefresh:
    """After the last epoch: prune if that still changes the masks and the network is good enough with the new ones."""

    pruner: Pruner
    distance: float
    accuracy: float

    def __call__(self, problem: Problem, params: Params) -> Params:
        masks = self.pruner.masks(problem, params)
        first = {name.removeprefix(PREFIX): params[name] for name in problem.binding.names(CANDIDATE)}
        if hamming(first, masks) <= self.distance:  # so it is at the target too, where both are the masks in force
            return params
        pruned = params | {mask_of(name): mask for name, mask in masks.items()}
        return pruned if self.accuracy == 0 or train_accuracy(problem, pruned) > self.accuracy else params


def train_accuracy(problem: Problem, params: Params) -> float:
    """Of the sparse network on the client's training examples; what the loss ignores has no say."""
    task, (inputs, targets) = problem.binding.task, problem.visit.data
    ignored = getattr(task.loss_function, "keywords", {}).get("ignore_index")
    counted = torch.ones_like(targets, dtype=torch.bool) if ignored is None else targets != ignored
    task.train(False)
    with torch.no_grad():
        seen = masked(params, inputs)
        guesses = torch.cat([task.output(seen, some).argmax(dim=1) for some in torch.split(inputs, AT_ONCE)])
    return int(((guesses == targets) & counted).sum()) / max(1, int(counted.sum()))
