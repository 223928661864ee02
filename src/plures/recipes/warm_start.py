"""Weights to start from: read from a file, matched with a network by name or by order, with a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from plures.core.errors import InvalidConfig, InvalidModel
from plures.core.types import Params

MatchRule = Literal["exact", "loose"]
"""exact: every tensor of the file has its name and shape in the network; loose: what fits is taken, in order."""
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


@dataclass(frozen=True, kw_only=True)
class Matching:
    """What of a file went where."""

    taken: dict[str, str]
    """The network's name of each tensor that was set, and the file's."""
    fresh: list[str]
    """Tensors of the network that keep their own first values."""
    unused: list[str]
    """Tensors of the file that fit nowhere."""

    def __str__(self) -> str:
        renamed = sum(name != source for name, source in self.taken.items())
        lines = [f"{len(self.taken)} tensors taken ({renamed} under another name)"]
        for what, names in (("keep their own first values", self.fresh), ("are not used", self.unused)):
            if names:
                shown = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
                lines.append(f"{len(names)} {what}: {shown}")
        return "\n".join(lines)


def load_weights(path: str | Path) -> Params:
    """The tensors of a safetensors file, or of a torch state dict (read without running any code of it)."""
    try:
        if Path(path).suffix in (".pt", ".pth", ".bin"):
            return state_dict_of(torch.load(path, map_location="cpu", weights_only=True), path)
        return load_file(Path(path))
    except (OSError, SafetensorError, RuntimeError, EOFError, UnpicklingError) as error:
        raise InvalidConfig(
            f"Cannot read the weights in {path}: {error}. Give a safetensors file or a torch state dict."
        ) from error


def state_dict_of(content: Any, path: str | Path) -> Params:
    """A state dict, bare or under "state_dict" or "model", as checkpoints have it."""
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise InvalidConfig(f"{path} holds no state dict: a mapping from names to tensors.")
    return {str(name): value.detach() for name, value in content.items()}


def start_from(module: nn.Module, weights: Params, path: str, match: MatchRule = "exact") -> tuple[nn.Module, Matching]:
    """Put weights into a network; what they lack keeps its own first values."""
    matching = matched(module, weights, path, match)
    known = module.state_dict()
    with torch.no_grad():
        for name, source in matching.taken.items():
            known[name].copy_(weights[source])
    return module, matching


def matched(module: nn.Module, weights: Params, path: str, match: MatchRule) -> Matching:
    known = module.state_dict()
    taken = {name: name for name, value in weights.items() if name in known and known[name].shape == value.shape}
    if match == "exact":
        refuse_misfits(known, weights, path)
    else:
        taken |= in_order(known, weights, taken)
    if weights and not taken:
        raise InvalidModel(f"No tensor of {path} fits the network: '{next(iter(weights))}' is not in it.")
    used = set(taken.values())
    return Matching(
        taken=taken,
        fresh=[name for name in known if name not in taken],
        unused=[name for name in weights if name not in used],
    )


def refuse_misfits(known: Mapping[str, Tensor], weights: Params, path: str) -> None:
    problems = [
        f"{path} has '{name}' of shape {tuple(value.shape)}, "
        + (f"the network one of {tuple(known[name].shape)}." if name in known else "which the network has not.")
        for name, value in weights.items()
        if name not in known or known[name].shape != value.shape
    ]
    if problems:
        raise InvalidModel([*problems, 'To take only what fits: [model] match = "loose".'])


def in_order(known: Mapping[str, Tensor], weights: Params, taken: Mapping[str, str]) -> dict[str, str]:
    """Tensors left over, paired in their order where shapes agree: a batch-norm network into a group-norm one."""
    used = set(taken.values())
    targets = [name for name in known if name not in taken and not name.endswith(STATISTICS)]
    sources = [name for name in weights if name not in used and not name.endswith(STATISTICS)]
    shapes = [tuple(known[name].shape) for name in targets], [tuple(weights[name].shape) for name in sources]
    blocks = SequenceMatcher(None, *shapes, autojunk=False).get_matching_blocks()
    return {targets[a + step]: sources[b + step] for a, b, size in blocks for step in range(size)}
