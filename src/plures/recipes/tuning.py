"""Stage (c) of a pipeline: how a method's clients fine-tune, if a file says so."""

from __future__ import annotations

from dataclasses import replace

from plures.core.errors import InvalidConfig
from plures.core.method import Method, Penalty, Phase
from plures.core.program import Binding
from plures.core.types import PERSONAL, Part, is_constant, stays
from plures.local import add, as_optimizer, proximal, pull_to_initial, twin_of
from plures.recipes.build import Built
from plures.recipes.options import make_budget, make_rule
from plures.recipes.running import make_program
from plures.recipes.stage_tables import TuneTable


def with_tuning(built: Built, tune: TuneTable | str | None, rounds: int) -> Method:
    """The method with stage (c) as its `adapt` phases; "method" keeps the method's own."""
    if tune is None or isinstance(tune, str):
        return built.method
    binding = make_program(built.method, built.networks, built.federation, seed=0).binding(0)
    own, moved = computed_apart(built.method), parts_to_tune(built.method, tune.part)
    if not binding.names(*moved):
        raise InvalidConfig(f'{built.info.name} has no personal part to tune: give [pipeline] tune part = "all".')
    phase = Phase(
        train=moved,
        budget=make_budget("tune", tune.budget),
        optimizer=as_optimizer(make_rule("lr", tune.lr, max(rounds, 1))),
        view=next((p.view for p in built.method.adapt if set(p.moves) & set(moved)), built.method.predict),
        penalty=pull_of(tune, binding) if tune.pull else None,
        clip_norm=tune.clip_norm,
        solver=next((p.solver for p in built.method.adapt if getattr(p.solver, "for_any_phase", False)), None),
    )
    return replace(built.method, adapt=(phase, *own))


def parts_to_tune(method: Method, which: str) -> tuple[Part, ...]:
    """What the method trains by steps: all of it, or the personal part."""
    apart = {part for phase in computed_apart(method) for part in phase.moves}
    phases = (*method.local, *method.adapt)
    parts = dict.fromkeys(part for phase in phases for part in (*phase.moves, phase.observe) if part is not None)
    stepped = [part for part in parts if not is_constant(part) and part not in apart]
    if which == "all":
        return tuple(stepped)
    adapted = {part for phase in method.adapt for part in phase.moves if stays(part)}
    return (PERSONAL,) if PERSONAL in stepped else tuple(part for part in stepped if part in adapted)


def computed_apart(method: Method) -> tuple[Phase, ...]:
    """Phases of `adapt` that compute what no training moves, such as the shares of a mixture; they come last."""
    trained = {part for phase in method.local for part in phase.moves}
    return tuple(phase for phase in method.adapt if phase.solver is not None and not trained & set(phase.moves))


def pull_of(tune: TuneTable, binding: Binding) -> Penalty:
    """Shared parameters, or twins, are pulled to the shared model; personal layers to where they started."""
    if any(twin_of(name) in binding.parts for name in binding.parts):
        return proximal(tune.pull, half=tune.half, of=twin_of)
    return add(proximal(tune.pull, half=tune.half), pull_to_initial(tune.pull / 2 if tune.half else tune.pull))
