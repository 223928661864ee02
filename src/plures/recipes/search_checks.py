"""What can be wrong with a search, found before its first trial: experiments are built at the corners of the space."""

from __future__ import annotations

import json
from collections.abc import Sequence

from plures.core.errors import InvalidConfig, InvalidInput, first_of
from plures.data import Federation
from plures.recipes.build import Built, build
from plures.recipes.checks import check_run
from plures.recipes.engines import check_engine
from plures.recipes.experiment import Data, Experiment
from plures.recipes.federations import build_federation
from plures.recipes.pipeline import rehearse
from plures.recipes.running import make_program
from plures.recipes.search_space import Point, Space, corners
from plures.recipes.targets import Target, read_target
from plures.recipes.trials import as_trial, at_point


class Rehearsal:
    """Builds experiments; each table [data] is read once."""

    def __init__(self) -> None:
        self.federations: dict[str, Federation] = {}

    def federation(self, experiment: Experiment) -> Federation:
        key = json.dumps(experiment.data.model_dump(), sort_keys=True, default=str)
        if key not in self.federations:
            self.federations[key] = build_federation(experiment)
        return self.federations[key]

    def check(self, experiment: Experiment, target: Target | None) -> Built:
        """Everything that a run would find before its first round."""
        check_engine(experiment.engine)
        if experiment.data.sizes is not None:
            raise InvalidConfig("[data] sizes stands in for data that are not at hand: there is nothing to train on.")
        one = experiment if target is None else as_trial(experiment, target)
        pipeline = one.pipeline
        built = build(one, whole=self.federation(one))
        if pipeline is not None and pipeline.pretrain is not None:
            rehearse(one, pipeline.pretrain)
            return built
        check_run(
            make_program(built.method, built.networks, built.federation, seed=one.seed),
            built.federation,
            built.sampler,
            one.rounds,
            built.plan,
            capacity=one.capacity,
            newcomers=built.newcomers,
        )
        return built


def check_search(experiment: Experiment, space: Space, metric: str | None) -> tuple[Target, dict[str, str]]:
    """The target of a search and the fingerprint of its data; or one error with every problem of every corner."""
    rehearsal, target = Rehearsal(), None
    told: dict[str, list[Point]] = {}
    tried = corners(space)
    for point in tried:
        try:
            one = at_point(experiment, point)
            whole = rehearsal.federation(one)
            target = read_target(metric, whole.goal)
            check_validation(whole, one.data)
            rehearsal.check(one, target)
        except InvalidInput as error:
            for problem in error.problems:
                told.setdefault(problem, []).append(point)
    prints = [federation.fingerprint() for federation in rehearsal.federations.values()] if not told else []
    if any(one != prints[0] for one in prints[1:]):
        searched = ", ".join(key for key in space if key.startswith("data."))
        told[f"{searched} changes who has which examples, so that trials cannot be compared. Remove it."] = tried
    if told or target is None:
        raise InvalidConfig(first_of([where(points, tried) + problem for problem, points in told.items()]))
    return target, prints[0]


def where(points: Sequence[Point], tried: Sequence[Point]) -> str:
    """What the points with a problem have in common and others have not."""
    common = [
        f"{key} = {json.dumps(value, default=str)}"
        for key, value in points[0].items()
        if all(point[key] == value for point in points) and any(point[key] != value for point in tried)
    ]
    return f"With {', '.join(common)}: " if common and len(points) < len(tried) else ""


def check_validation(federation: Federation, data: Data) -> None:
    """A search chooses on validation examples, so there have to be some."""
    if any(len(federation.client(client).targets["validation"]) for client in range(federation.num_clients)):
        return
    remedy = "give validation a share in [data] split, such as [0.6, 0.2, 0.2]"
    if data.merge_validation:
        remedy = "remove merge_validation from [data]"
    raise InvalidConfig(f"There are no validation examples to choose by: {remedy}.")
