"""Three stages as one run: a model for all, personal training from it, local fine-tuning at the end.

(a) `pretrain` trains one shared model; (b) the experiment itself starts from it; (c) `tune` fine-tunes every client's
model. Any stage may be absent. (a) is kept under its configuration, so that many (b) find it ready.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from plures.core.errors import InvalidConfig
from plures.core.types import Params
from plures.evaluate.guard import Fallback
from plures.recipes.build import Built, build
from plures.recipes.checkpoints import checkpoints_in, forget_checkpoints
from plures.recipes.checks import check_run, check_weights_matter
from plures.recipes.experiment import Experiment
from plures.recipes.folder import RunFolder
from plures.recipes.guarding import guarding_of
from plures.recipes.looking import Looker, all_summaries, headline_of
from plures.recipes.pretraining import STAGE_A, kept_under, key_of, of_network, pretraining
from plures.recipes.reloading import load_program, load_shared
from plures.recipes.results import RunResult, Stage
from plures.recipes.running import make_program
from plures.recipes.several import under_way
from plures.recipes.stage_tables import PretrainTable
from plures.recipes.tuning import with_tuning
from plures.recipes.watching import Watcher
from plures.report import records
from plures.report.running import read_running

Run = Callable[..., RunResult]


def run_pipeline(
    experiment: Experiment,
    run: Run,
    *,
    out: Path | None,
    title: str | None,
    watcher: Watcher | None,
    resume: bool = False,
) -> RunResult:
    """All stages of an experiment with a [pipeline]; the result is that of the last.

    Stage (b) keeps a checkpoint until (c) has ended: from there a run goes on that was cut in between.
    """
    pipeline, stages, weights, first = experiment.pipeline, list[Stage](), None, None
    assert pipeline is not None
    if pipeline.pretrain is not None:
        rehearse(experiment, pipeline.pretrain)
        first, stage = pretrained(experiment, pipeline.pretrain, run, out=out, watcher=watcher)
        weights = of_network(first.program, first.shared)
        stages.append(stage)
    elif experiment.rounds == 0:
        raise InvalidConfig(
            "rounds = 0 leaves nothing to train: give [pipeline] a pretrain stage, or rounds of 1 or more."
        )
    built = build(experiment, weights)
    built = replace(built, method=with_tuning(built, pipeline.tune, experiment.rounds))
    # What is guarded is the model that clients end with.
    before = built if pipeline.tune is None else replace(built, plan=replace(built.plan, guard=None))
    result = run(
        before,
        experiment,
        out=out,
        title=title,
        watcher=watcher,
        pretrained=first,
        resume=resume,
        keep_checkpoint=True,
    )
    if experiment.rounds:
        model = result.headline if pipeline.tune is None or result.headline == "global" else "personal"
        stages.append(stage_of("personal", result, model, stages))
    if pipeline.tune is not None:
        with nullcontext() if result.folder is None else under_way(result.folder, **told_of(result)):
            result = tuned(result, built, first)
        stages.append(stage_of("tune", result, "finetuned", stages))
    result = replace(result, stages=tuple(stages))
    if result.folder is not None:
        RunFolder.reopened(result.folder).write_json(records.RESULT, result.as_json())
        forget_checkpoints(result.folder)
    return result


def rehearse(experiment: Experiment, table: PretrainTable) -> None:
    """Find what is wrong with stages (b) and (c) before (a) is trained, on the model that (a) starts from."""
    first = pretraining(experiment, table)
    start = build(first)
    program = make_program(start.method, start.networks, start.federation, seed=first.seed)
    if not program.has_global_model():
        personal = " with buffers = 'personal'" if experiment.split.buffers == "personal" else ""
        raise InvalidConfig(
            f"[pipeline] pretrain needs a method that shares its whole model, not {table.method}{personal}."
        )
    built = build(experiment, of_network(program, program.initial_shared()))
    assert experiment.pipeline is not None
    method = with_tuning(built, experiment.pipeline.tune, experiment.rounds)
    later = make_program(method, built.networks, built.federation, seed=experiment.seed)
    check_run(
        later,
        built.federation,
        built.sampler,
        experiment.rounds,
        built.plan,
        least_rounds=0,
        capacity=experiment.capacity,
        newcomers=built.newcomers,
    )
    check_weights_matter(later, "[pipeline] pretrain")
    first_model = Fallback(program=program, shared=program.initial_shared(), name=STAGE_A)
    kind = headline_of(later) if experiment.pipeline.tune is None else "finetuned"
    guarding_of(built.plan, later, built.federation, kind, pretrained=first_model, load=load_program)


def pretrained(
    experiment: Experiment, table: PretrainTable, run: Run, *, out: Path | None, watcher: Watcher | None
) -> tuple[Fallback, Stage]:
    """Stage (a): trained now, or taken from an earlier run of the same configuration."""
    first = pretraining(experiment, table)
    built = build(first)
    program = make_program(built.method, built.networks, built.federation, seed=first.seed, device=experiment.device)
    folder = None if out is None else Path(kept_under(experiment)) / key_of(built)
    if folder is not None and is_finished(folder):
        return Fallback(program=program, shared=load_shared(folder, program), name=STAGE_A), kept_stage(folder)
    under_way = None if folder is None else cut_off(folder) or folder.with_name(f"{folder.name}.{os.getpid()}")
    result = run(built, first, out=under_way, title=f"{table.method} (a)", watcher=watcher, resume=folder is not None)
    if under_way is not None and folder is not None:
        shutil.rmtree(folder, ignore_errors=True)  # one that did not finish
        under_way.replace(folder)
        result = replace(result, folder=folder)
    model = Fallback(program=program, shared=result.server.shared, name=STAGE_A)
    return model, stage_of("pretrain", result, "global", [])


def cut_off(folder: Path) -> Path | None:
    """What a process that is gone had come to when it trained the same stage (a)."""
    left = [path for path in folder.parent.glob(f"{folder.name}.*") if checkpoints_in(path) and is_left(path)]
    return max(left, key=lambda path: checkpoints_in(path)[0].name, default=None)


def is_left(folder: Path) -> bool:
    running = read_running(folder)
    return running is None or running.is_dead()


def is_finished(folder: Path) -> bool:
    try:
        return bool(records.read_result(folder)["status"] == "finished") and (folder / records.SHARED).is_file()
    except (OSError, ValueError, KeyError):
        return False


def kept_stage(folder: Path) -> Stage:
    result = records.read_result(folder)
    metric = f"global/test/{result['metric']}"
    value = result["metrics"].get(metric, {}).get("weighted")
    return Stage(
        stage="pretrain",
        rounds=result["rounds"],
        metric=metric,
        value=value,
        gain=None,
        folder=str(folder),
        reused=True,
    )


def stage_of(name: str, result: RunResult, model: str, before: list[Stage]) -> Stage:
    metric = f"{model}/test/{result.metric}"
    value = result.metrics[metric].weighted if metric in result.metrics else None
    last = before[-1].value if before else None
    larger = result.federation.goal.larger_is_better
    return Stage(
        stage=name,
        rounds=0 if name == "tune" else result.server.round,
        metric=metric,
        value=value,
        gain=None if value is None or last is None else (value - last) * (1 if larger else -1),
        folder=None if result.folder is None else str(result.folder),
    )


def told_of(result: RunResult) -> dict[str, Any]:
    """For those who watch: the run is being fine-tuned."""
    told = {key: result.facts[key] for key in ("method", "seed", "rounds", "clients")}
    return {"title": result.title, **told, "shown": f"{result.headline}/test/{result.metric}"}


def tuned(result: RunResult, built: Built, first: Fallback | None) -> RunResult:
    """Stage (c): every client's model fine-tuned and scored; what moved is kept in tuned.safetensors."""
    kept: dict[int, Params] = {}
    moved = {part for phase in built.method.adapt for part in phase.moves}
    plan = replace(built.plan, models=("finetuned",), diagnostics=False)
    guarding = guarding_of(plan, result.program, result.federation, "finetuned", pretrained=first, load=load_program)
    looker = Looker(result.program, result.federation, result.store, plan, guarding=guarding)

    def keep(client: int, params: Params) -> None:
        names = result.program.binding(client).names(*moved)
        kept[client] = {name: params[name] for name in names}

    found = looker.look(result.server, last=False, on_model=keep)
    if result.folder is not None:
        folder = RunFolder.reopened(result.folder)
        scored = {evaluation.name for evaluation in result.evaluations}
        new = replace(found, evaluations=[e for e in found.evaluations if e.name not in scored])
        new.write(folder, result.server.round, result.federation)
        folder.save_states(records.TUNED, kept.items())
    others = [e for e in result.evaluations if e.model != "finetuned" or e.newcomers]
    return replace(
        result,
        headline="finetuned",
        evaluations=[*others, *found.evaluations],
        metrics=result.metrics | all_summaries(found.evaluations),
        guard=found.guard,
        choices=found.chosen,
        fallback=None if guarding is None else guarding.fallback,
        tuned=kept,
    )
