"""What the server refuses before anything is summed: uploads that do not fit, and uploads that are too large."""

from __future__ import annotations

import torch
from torch import Tensor

from plures.core.client import Result
from plures.core.errors import Refused
from plures.core.types import SHARED_BUFFERS, Params, Parts, is_known
from plures.core.visit import Upload, Visit

REMEDIES = {
    "too_large": "Raise largest_norm, lower the learning rate, or look at this client's data.",
    "misfit": "Correct the method's upload: it has the shared names, each in the shape of the shared part.",
}


def check_upload(result: Result, visit: Visit, shared: Params, parts: Parts) -> None:
    """Refuse what does not fit: sums would broadcast it, and statistics are averaged without a weight or a bound."""
    statistics = {name: value for name, value in shared.items() if parts.get(name) == SHARED_BUFFERS}
    summed = {name: value for name, value in shared.items() if name not in statistics}
    known = {name: value for name, value in visit.state.items() if is_known(parts.get(name, ""))}
    if summed and not result.upload.values:
        raise refused("The upload is empty", visit, kind="nothing")
    check_all("The upload", result.upload.values, summed, "shared", visit)
    check_held(result.upload, visit)
    check_all("What it says of running statistics", result.buffers, statistics, "shared", visit)
    check_all("What it tells of its state", result.known, known, "known to the server", visit)
    kept = {name: value for name, value in result.state.items() if name in known}
    check_all("What it keeps", kept, known, "known to the server", visit)


def check_all(what: str, values: Params, wanted: Params, wanted_as: str, visit: Visit) -> None:
    for name, value in values.items():
        if name not in wanted:
            raise refused(f"{what} has '{name}', which is not {wanted_as}", visit)
        check_like(f"{what} has '{name}'", value, wanted[name], visit)


def check_like(what: str, value: Tensor, like: Tensor, visit: Visit) -> None:
    """The same shape, dtype, layout and place, and numbers alone: no graph that they came from."""
    if not isinstance(value, Tensor) or value.is_nested or value.layout != like.layout:
        raise refused(f"{what} as something else than a dense tensor", visit)
    if value.shape != like.shape:
        raise refused(f"{what} of shape {tuple(value.shape)}, but the shared part has {tuple(like.shape)}", visit)
    if value.dtype != like.dtype:
        raise refused(f"{what} as {value.dtype}, but the shared part as {like.dtype}", visit)
    if value.device.type != like.device.type:
        raise refused(f"{what} on {value.device.type}, but the shared part is on {like.device.type}", visit)
    if value.requires_grad:
        raise refused(f"{what} with the graph of its gradient; send it detached", visit)


def check_held(upload: Upload, visit: Visit) -> None:
    """Of every coordinate between nothing and all; what nothing was held of is 0, and the rest stays finite if divided.

    Where sums are divided by what was held, little of it makes much of a value.
    """
    if upload.held is None:
        return
    for name in upload.held.keys() - upload.values.keys():
        raise refused(f"The upload says how much of '{name}' it held, but has no such values", visit)
    for name, value in upload.values.items():
        if name not in upload.held:
            raise refused(f"The upload says not how much of '{name}' it held", visit)
        check_share(name, value, upload.held[name], visit)


def check_share(name: str, value: Tensor, held: Tensor, visit: Visit) -> None:
    if not isinstance(held, Tensor) or held.is_nested or held.layout != value.layout:
        raise refused(f"The upload says what it held of '{name}' as something else than a dense tensor", visit)
    if held.shape != value.shape:
        raise refused(f"The upload says what it held of '{name}' in shape {tuple(held.shape)}", visit)
    if held.is_complex():
        raise refused(f"The upload says what it held of '{name}' as {held.dtype}: give truth values or shares", visit)
    if held.requires_grad or held.device.type != value.device.type:
        raise refused(f"The upload says what it held of '{name}' with a graph, or elsewhere than its values", visit)
    if held.dtype != torch.bool and not bool(((held >= 0) & (held <= 1)).all()):
        raise refused(f"The upload says that of '{name}' it held less than nothing, or more than all", visit)
    if bool((value.ne(0) & held.eq(0)).any()):
        raise refused(f"The upload has values of '{name}' other than 0 where it held nothing", visit)
    if held.is_floating_point() and bool((value.isfinite() & ~whole(value, held).isfinite()).any()):
        raise refused(f"The upload has values of '{name}' that are infinite next to what it held", visit)


def check_norm(result: Result, visit: Visit, largest: float | None) -> None:
    """Refuse what is larger than a round bears: the upload, or the change of running statistics."""
    if largest is None:
        return
    held = result.upload.held or {}
    values = {name: whole(value, held.get(name)) for name, value in result.upload.values.items()}
    for what, params in (("The upload", values), ("What it says of running statistics", result.buffers)):
        norm = float(norm_of(params))
        if not norm <= largest:
            raise refused(f"{what} has a norm of {norm:.4g}, more than {largest:g}", visit, kind="too_large")


def whole(value: Tensor, held: Tensor | None) -> Tensor:
    """A value as it counts where sums are divided by what was held."""
    if held is None or not held.is_floating_point():
        return value
    return torch.where(held > 0, value.double() / held.double(), 0.0)


def norm_of(values: Params) -> Tensor:
    """Of all values together, in double precision: squares of large numbers are larger than single precision holds."""
    squares = [value.double().square().sum() for value in values.values() if value.is_floating_point()]
    return torch.stack(squares).sum().sqrt() if squares else torch.zeros(())


def refused(what: str, visit: Visit, kind: str = "misfit", remedy: str | None = None) -> Refused:
    name = visit.name or str(visit.client)
    told = remedy or REMEDIES.get(kind, REMEDIES["misfit"])
    return Refused(what, client=name, round=visit.round, phase="upload", remedy=told, kind=kind)
