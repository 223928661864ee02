"""Several runs meant to be compared: one experiment under several seeds, other methods beside it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from plures.core.errors import ClientFailed, InvalidConfig, InvalidInput, RunFolderError
from plures.recipes.build import build, named_method
from plures.recipes.checks import check_run
from plures.recipes.experiment import Experiment, Model, make_experiment, plain_table
from plures.recipes.folder import as_json_text, make_empty_folder
from plures.recipes.folder_reading import read
from plures.recipes.results import RunResult
from plures.recipes.resuming import check_nobody_runs
from plures.recipes.running import make_program
from plures.recipes.several import several_runs
from plures.recipes.watching import Watcher
from plures.report import records
from plures.report.baselines import USUAL_BESIDE
from plures.report.conditions import LOCAL_WORK
from plures.report.writing import write_whole


class Member(NamedTuple):
    """One run of a study."""

    label: str
    seed: int
    folder: str
    """Below the study's own."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """Where the runs of a study are."""

    folder: Path
    members: tuple[Member, ...]
    usual: bool = False
    """Whether Local, FedAvg and FedAvg with fine-tuning were asked for."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Methods that are usual beside an experiment and cannot be beside this one, with the reason."""


def run_members(
    experiment: Experiment,
    run: Callable[..., RunResult],
    *,
    out: Path,
    seeds: Sequence[int],
    beside: Sequence[str] = (),
    usual: bool = False,
    watcher: Watcher | None = None,
    resume: bool = False,
) -> Study:
    """Run the experiment and the methods beside it under every seed; study.json tells what shall run and has finished.

    With `usual`, Local, FedAvg and FedAvg with fine-tuning are beside it too, but for those that cannot be. With
    `resume`, what has finished in the folder is kept, and what was cut goes on.
    """
    check_seeds(seeds)
    wanted = {experiment.method.rpartition(":")[2]: experiment}
    if set(beside) & set(wanted):
        raise InvalidConfig(f"{', '.join(wanted)} is the experiment's own method: name others beside it.")
    wanted |= {method: beside_of(experiment, method) for method in beside if method not in wanted}
    for label, one in wanted.items():
        check_ahead(label, one)
    more, left_out = usual_beside(experiment, wanted) if usual else ({}, {})
    wanted |= more
    asked = {"experiment": plain_table(experiment), "seeds": list(seeds), "beside": list(beside), "usual": usual}
    begin_study(out, asked, resume=resume)
    planned = [Member(label, seed, f"{label}/seed-{seed}") for seed, label in product(seeds, wanted)]
    members: list[Member] = []
    with several_runs(out, len(planned), watcher) as next_run:
        write_study(out, members, planned, left_out, asked)
        for member in tuple(planned):
            label, seed, folder = member
            title = label if len(seeds) == 1 else f"{label} {seed}"
            next_run()
            try:
                one = wanted[label].model_copy(update={"seed": seed})
                run(one, out=out / folder, title=title, watcher=watcher, resume=resume)
                members.append(member)
            except ClientFailed as error:  # who did not ask for it shall not lose the study by it
                if label not in more:
                    raise
                planned.remove(member)
                left_out.setdefault(label, f"seed {seed}: {error}")
            write_study(out, members, planned, left_out, asked)
    return Study(folder=out, members=tuple(members), usual=usual, left_out=left_out)


def begin_study(out: Path, asked: Mapping[str, Any], *, resume: bool) -> None:
    """A new folder, or that of the same study."""
    if not (resume and (out / records.STUDY).is_file()):
        make_empty_folder(out)
        return
    before = read_asked(out)
    differ = [key for key in asked if json.loads(as_json_text(asked[key])) != before.get(key)]
    if differ:
        raise InvalidConfig(f"The study in {out} is another: it differs in {', '.join(differ)}. Give another folder.")
    check_nobody_runs(out)


def read_asked(folder: Path) -> dict[str, Any]:
    """What a study was asked for."""
    found = read(folder / records.STUDY, lambda path: json.loads(path.read_text("utf-8")).get("asked"))
    if not is_asked(found):
        raise RunFolderError(f"{folder / records.STUDY} does not tell what the study was asked for: run it anew.")
    return found


def is_asked(found: Any) -> TypeGuard[dict[str, Any]]:
    """Folders are named by labels and seeds: a seed that is no number could lead out of the study's."""
    if not isinstance(found, dict) or not {"experiment", "seeds", "beside", "usual"} <= set(found):
        return False
    seeds, beside = found["seeds"], found["beside"]
    return (
        isinstance(found["experiment"], dict)
        and isinstance(seeds, list)
        and all(type(seed) is int for seed in seeds)
        and isinstance(beside, list)
        and all(isinstance(method, str) for method in beside)
    )


def resumed_study(folder: Path, run: Callable[..., RunResult], *, watcher: Watcher | None) -> Study:
    """A study that goes on as it was begun."""
    asked = read_asked(folder)
    return run_members(
        make_experiment(asked["experiment"]),
        run,
        out=folder,
        seeds=asked["seeds"],
        beside=asked["beside"],
        usual=bool(asked["usual"]),
        watcher=watcher,
        resume=True,
    )


def write_study(
    out: Path,
    members: Sequence[Member],
    planned: Sequence[Member],
    left_out: Mapping[str, str],
    asked: Mapping[str, Any],
) -> None:
    """What has finished, and what shall run in all: a study that was cut has less of the former."""
    told: dict[str, Any] = {
        "runs": [member._asdict() for member in members],
        "planned": [member._asdict() for member in planned],
        "asked": asked,
    }
    write_whole(out / records.STUDY, as_json_text(told | ({"left_out": left_out} if left_out else {}), indent=2) + "\n")


def usual_beside(
    experiment: Experiment, known: Mapping[str, Experiment]
) -> tuple[dict[str, Experiment], dict[str, str]]:
    """What runs beside every study, and why some of it cannot run beside this one."""
    found: dict[str, Experiment] = {}
    left_out: dict[str, str] = {}
    for method in USUAL_BESIDE:
        if method in known:
            continue
        try:
            one = beside_of(experiment, method)
            check_ahead(method, one)
            found[method] = one
        except InvalidInput as error:
            left_out[method] = error.problems[0].removeprefix(f"{method}: ")
    return found, left_out


def check_seeds(seeds: Sequence[int]) -> None:
    if not seeds or len(set(seeds)) < len(seeds):
        raise InvalidConfig(f"seeds = {list(seeds)}: give one or more, each once.")


def beside_of(experiment: Experiment, method: str) -> Experiment:
    """The same data, network, cohorts and number of rounds for another method.

    It takes over what local work is like, and the personal part with its adapters if it has one to choose; all else is
    its own default. Where the experiment has a stage before its rounds, those count too.
    """
    known = inspect.signature(named_method(method).make).parameters
    given = {name: value for name, value in experiment.method_options.items() if name in LOCAL_WORK}
    pretrain = None if experiment.pipeline is None else experiment.pipeline.pretrain
    changes: dict[str, Any] = {
        "method": method,
        "rounds": experiment.rounds + (0 if pretrain is None else pretrain.rounds),
        "method_options": {name: value for name, value in given.items() if name in known},
        "model": experiment.model if needs_a_part(known) else without_adapters(experiment.model),
        "split": type(experiment.split)(
            personal=experiment.split.personal if needs_a_part(known) else None,
            buffers=experiment.split.buffers if "buffers" in known else None,
        ),
        "server": type(experiment.server)(),
        "evaluation": experiment.evaluation.model_copy(
            update={"guard": False, "models": "all" if experiment.evaluation.models == "all" else None}
        ),
        "capacity": None,
        "pipeline": None,
        "out": None,
    }
    return experiment.model_copy(update=changes)


def without_adapters(model: Model) -> Model:
    return model.model_copy(update={"adapters": None, "input_dropout": None})


def needs_a_part(options: Any) -> bool:
    """Whether a method is about some part of the network, and not about all of it unless told so."""
    return "personal" in options and options["personal"].default is not None


def check_ahead(label: str, experiment: Experiment) -> None:
    """Find what is wrong with a run before any other has begun; a pipeline looks ahead by itself."""
    try:
        built = build(experiment)
        if experiment.pipeline is None:
            check_run(
                make_program(built.method, built.networks, built.federation, seed=experiment.seed),
                built.federation,
                built.sampler,
                experiment.rounds,
                built.plan,
                capacity=experiment.capacity,
                newcomers=built.newcomers,
            )
    except InvalidInput as error:
        raise type(error)([f"{label}: {problem}" for problem in error.problems]) from error
