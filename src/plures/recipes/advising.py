"""Which part should be personal? Short runs from one shared model, one for each part, judged on validation data."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import tomli_w

from plures.core.errors import Diverged, InvalidInput
from plures.core.types import stays
from plures.evaluate import compare
from plures.methods import find_method
from plures.recipes.build import build, named_method
from plures.recipes.experiment import Experiment
from plures.recipes.folder import as_json_text, make_empty_folder
from plures.recipes.results import RunResult
from plures.recipes.running import make_program
from plures.recipes.several import several_runs
from plures.recipes.stage_tables import Pipeline, PretrainTable
from plures.recipes.study import needs_a_part
from plures.recipes.watching import Watcher
from plures.report.conditions import LOCAL_WORK

ADVICE = "advice.json"
REFERENCE = "nothing"
"""The shared model, trained on for as long as the others."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A part that could be personal."""

    part: str
    method: str | None = None
    """None: that of the file, or fedalt where it has no personal part to choose."""
    personal: str | None = None
    adapters: str | dict[str, Any] | None = None


CANDIDATES = (
    Candidate(part="input layer", personal="input_layer"),
    Candidate(part="output layer", personal="output_layer"),
    Candidate(part="norms", personal="norms"),
    Candidate(part="conv adapters", personal="adapters_and_norms", adapters="conv"),
    Candidate(part="bottleneck adapters", personal="adapters_and_norms", adapters="bottleneck"),
    Candidate(part="LoRA adapters", personal="adapters", adapters={"kind": "lora", "on": "*"}),
    Candidate(part="full model", method="local"),
)


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What making one part personal came to."""

    part: str
    skipped: str | None = None
    """Why it was not tried."""
    personal_parameters: int = 0
    share: float = 0.0
    """Of all parameters of a client's network."""
    value: float | None = None
    """The metric on validation data, by examples, a mean over seeds."""
    gain: float | None = None
    """Over the shared model after as many rounds; above 0 is better, whatever the metric."""
    per_thousand_parameters: float | None = None
    megabytes: float = 0.0
    """Sent in all rounds in which the part was personal."""
    per_megabyte: float | None = None
    """None where nothing is sent."""
    helped: float = 0.0
    hurt: float = 0.0
    """Clients better and worse off than with the shared model, a mean over seeds."""
    lines: str = ""
    """What to write into the file."""

    def as_json(self) -> dict[str, Any]:
        return vars(self)


def advise(
    experiment: Experiment,
    run: Callable[..., RunResult],
    *,
    out: Path,
    rounds: int,
    pretrain: int,
    seeds: int = 1,
    watcher: Watcher | None = None,
) -> list[Advice]:
    """The shared model first, then every part, those that gain most for a parameter first, then what was skipped."""
    base = with_stages(experiment, out, rounds, pretrain)
    wanted = list(tried(base))
    make_empty_folder(out)
    numbers = range(experiment.seed, experiment.seed + seeds)

    total = seeds * (1 + sum(isinstance(one, Experiment) for _, one in wanted))
    with several_runs(out, total, watcher) as next_run:

        def runs_of(part: str, one: Experiment) -> list[RunResult]:
            results = []
            for seed in numbers:
                next_run()
                place = out / part.replace(" ", "-") / f"seed-{seed}"
                results.append(run(one.model_copy(update={"seed": seed}), out=place, title=part, watcher=watcher))
            return results

        reference = runs_of(REFERENCE, candidate_of(base, Candidate(part=REFERENCE, method="fedavg")))
        found = [told(REFERENCE, reference, reference, "")]
        for part, one in wanted:
            found.append(tried_part(part, one, reference, runs_of))
            found = [found[0], *ranked(found[1:])]
            rows = [advice.as_json() for advice in found]
            (out / ADVICE).write_text(as_json_text(rows, indent=2) + "\n", encoding="utf-8")
    return found


def tried_part(
    part: Candidate,
    one: Experiment | str,
    reference: Sequence[RunResult],
    runs_of: Callable[[str, Experiment], list[RunResult]],
) -> Advice:
    """One part; a run that diverges tells against the part, not against the others."""
    if isinstance(one, str):
        return Advice(part=part.part, skipped=one)
    try:
        return told(part.part, runs_of(part.part, one), reference, lines_of(part, one))
    except Diverged as error:
        return Advice(part=part.part, skipped=f"It diverged: {error}")


def with_stages(experiment: Experiment, out: Path, rounds: int, pretrain: int) -> Experiment:
    """The experiment from a shared model that is trained once; nothing but validation data is looked at."""
    stage = PretrainTable(method="fedavg", rounds=pretrain, **common_options(experiment, "fedavg"))
    given = None if experiment.pipeline is None else experiment.pipeline.pretrain
    evaluation = experiment.evaluation.model_copy(
        update={
            "every": max(rounds, 1),
            "splits": ["validation"],
            "models": None,
            "targets": [],
            "post_local": False,
            "guard": False,
            "diagnostics": False,
        }
    )
    changes = {
        "rounds": rounds,
        "pipeline": Pipeline(pretrain=given or stage, cache=str(out / "pretrained")),
        "evaluation": evaluation,
        "capacity": None,
        "out": None,
    }
    return experiment.model_copy(update=changes)


def common_options(experiment: Experiment, method: str) -> dict[str, Any]:
    known, given = inspect.signature(find_method(method).make).parameters, experiment.method_options
    return {name: value for name, value in given.items() if name in LOCAL_WORK and name in known}


def tried(base: Experiment) -> Iterator[tuple[Candidate, Experiment | str]]:
    """Every part with its experiment, or with the reason why this network has no such part."""
    for candidate in CANDIDATES:
        one = candidate_of(base, candidate)
        try:
            built = build(one)
            make_program(built.method, built.networks, built.federation, seed=one.seed).binding(0)
        except InvalidInput as error:
            yield candidate, error.problems[0]
        else:
            yield candidate, one


def candidate_of(base: Experiment, candidate: Candidate) -> Experiment:
    chosen = candidate.method or (base.method if takes_a_part(base) else "fedalt")
    own = chosen == base.method
    changes: dict[str, Any] = {
        "method": chosen,
        "method_options": without_part(base) if own else common_options(base, chosen),
        "model": base.model.model_copy(update={"adapters": candidate.adapters, "input_dropout": None}),
        "split": type(base.split)(personal=candidate.personal, buffers=base.split.buffers),
        "server": base.server if own else type(base.server)(),
    }
    return base.model_copy(update=changes)


def takes_a_part(experiment: Experiment) -> bool:
    return needs_a_part(inspect.signature(named_method(experiment.method).make).parameters)


def without_part(experiment: Experiment) -> dict[str, Any]:
    return {name: value for name, value in experiment.method_options.items() if name != "personal"}


def told(part: str, runs: Sequence[RunResult], reference: Sequence[RunResult], lines: str) -> Advice:
    """What a part gains over the shared model, seed by seed."""
    metric, sign = runs[0].metric, 1 if runs[0].federation.goal.larger_is_better else -1
    values, before = ([own_value(result) for result in results] for results in (runs, reference))
    gain = fmean(sign * (after - shared) for after, shared in zip(values, before, strict=True))
    versus = [
        compare(own.scores(split="validation"), shared.scores(split="validation"), metric=metric)
        for own, shared in zip(runs, reference, strict=True)
    ]
    own_size, whole = sizes_of(runs[0])
    megabytes = fmean(result.cost["bytes_down"] + result.cost["bytes_up"] for result in runs) / 1e6
    return Advice(
        part=part,
        personal_parameters=own_size,
        share=own_size / whole,
        value=fmean(values),
        gain=None if runs is reference else gain,
        per_thousand_parameters=1000 * gain / own_size if own_size else None,
        megabytes=megabytes,
        per_megabyte=gain / megabytes if megabytes and own_size else None,
        helped=fmean(found.helped for found in versus),
        hurt=fmean(found.hurt for found in versus),
        lines=lines,
    )


def own_value(result: RunResult) -> float:
    return result.metrics[f"{result.headline}/validation/{result.metric}"].weighted


def sizes_of(result: RunResult) -> tuple[int, int]:
    """Parameters of a client's network that are its own, and all of them."""
    binding = result.program.binding(0)
    sizes = {name: value.numel() for name, value in binding.task.parameters.items()}
    return sum(size for name, size in sizes.items() if stays(binding.parts[name])), sum(sizes.values())


def ranked(rows: Sequence[Advice]) -> list[Advice]:
    """By gain per parameter; what has none comes last."""
    done = [row for row in rows if row.per_thousand_parameters is not None]
    done.sort(key=lambda row: -(row.per_thousand_parameters or 0.0))
    return [*done, *(row for row in rows if row not in done)]


def lines_of(candidate: Candidate, one: Experiment) -> str:
    """Keys of a file that make this part personal, from a shared model as here; options of other methods go."""
    table: dict[str, Any] = {"method": one.method, "method_options": one.method_options}
    if candidate.personal is not None:
        table["split"] = {"personal": candidate.personal}
    if candidate.adapters is not None:
        table["model"] = {"adapters": candidate.adapters}
    assert one.pipeline is not None
    assert one.pipeline.pretrain is not None
    table["pipeline"] = {"pretrain": one.pipeline.pretrain.model_dump()}
    return tomli_w.dumps({key: value for key, value in table.items() if value}).strip()
