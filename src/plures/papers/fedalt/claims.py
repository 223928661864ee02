"""The paper's headlines, and what decides them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from plures.papers.blocks import Verdict
from plures.papers.cells import Cell
from plures.papers.fedalt.deltas import change
from plures.papers.fedalt.figures import device_task, dropout_runs, l2_runs
from plures.papers.fedalt.settings import FEDALT, FEDSIM, FEDSIM_2, FINETUNE, FT, cell_of, key
from plures.papers.fedalt.tasks import ADAPTER, OUTPUT, PARTS, TASKS, shown
from plures.papers.fedalt.theory import COUPLINGS, ETAS, advantages
from plures.papers.reading import all_of, better, paired
from plures.papers.recipe import Claim, Found
from plures.report.pairing import Pairing

MOST_OF_THE_GAIN = 0.7
"""Adapters had 72 % of it on StackOverflow, all or more of it elsewhere."""
ROUNDING = 1e-9


def judge_1(found: Found) -> Verdict | None:
    """The best part may be behind full fine-tuning by three tenths of the gain of that."""
    verdicts: dict[str, Verdict | None] = {}
    for task in TASKS[found.scale]:
        full = cell_of(found.scale, task, FINETUNE)
        whole = change(found, full)
        runs = {part: cell_of(found.scale, task, key(FEDALT, part)) for part in PARTS}
        scored = {part: change(found, cell) for part, cell in runs.items()}
        known = {part: pairing.difference() for part, pairing in scored.items() if pairing is not None}
        if full is None or whole is None or not known:
            continue
        best = max(known, key=lambda part: known[part])
        cell = runs[best]
        assert cell is not None
        risen = 100 * whole.difference()
        margin = max(0.0, (1 - MOST_OF_THE_GAIN) * risen)
        verdict = better(paired(found, cell, full, model="finetuned"), best, FINETUNE, margin=margin)
        if verdict is not None:
            told = f"FedAvg to {FINETUNE} {risen:+.2f}, to {best} {100 * known[best]:+.2f}; {verdict.figure}"
            verdicts[shown(task, found.scale)] = replace(verdict, figure=told)
    return all_of(verdicts)


def pairs(found: Found, own: str, reference: str) -> dict[str, Verdict | None]:
    """Task by task and part by part, those that a scale runs."""
    verdicts: dict[str, Verdict | None] = {}
    for task in TASKS[found.scale]:
        for part in PARTS:
            first, second = (cell_of(found.scale, task, key(method, part)) for method in (own, reference))
            if first is not None and second is not None:
                pairing = paired(found, first, second, model="finetuned")
                verdicts[f"{shown(task, found.scale)}, {part}"] = better(pairing, own, reference)
    return verdicts


def judge_2(found: Found) -> Verdict | None:
    """One comparison in nine may fail, as in the paper."""
    over_sim, over_tuning = pairs(found, FEDALT, FEDSIM), pairs(found, FEDSIM, FT)
    verdicts = over_sim | {f"{name}, over {FT}": verdict for name, verdict in over_tuning.items()}
    found_verdict = all_of(verdicts, enough=len(verdicts) - max(1, len(verdicts) // 9))
    return with_why(found_verdict, "Differences between FedAlt and FedSim are of the size of the noise over clients.")


def judge_passes(found: Found) -> Verdict | None:
    verdict = all_of(pairs(found, FEDALT, FEDSIM_2))
    why = (
        "FedAlt makes two passes over the data in a round and FedSim one; at as many passes nothing is left of "
        "its lead."
    )
    return with_why(verdict, why)


def with_why(verdict: Verdict | None, why: str) -> Verdict | None:
    return verdict if verdict is None or verdict.verdict == "holds" else replace(verdict, why=why)


def judge_3(found: Found) -> Verdict | None:
    """Some are hurt by full and partial personalisation, and under the best L2 and dropout as well."""
    task = device_task(found.scale)
    parts: dict[str, Verdict | None] = {}
    for name in (FINETUNE, key(FEDALT, OUTPUT), key(FEDALT, ADAPTER)):
        parts[name] = hurting(change(found, cell_of(found.scale, task, name)))
    for label, runs in (("the best L2", l2_runs(found.scale)), ("the best dropout", dropout_runs(found.scale))):
        changes = [change(found, cell) for name, cell in runs.items() if not name.startswith("no ")]
        known = [pairing for pairing in changes if pairing is not None]
        best = max(known, key=lambda pairing: pairing.difference(), default=None)
        parts[label] = hurting(best)
    verdict = all_of(parts)
    guarded = change(found, cell_of(found.scale, task, key(FEDALT, OUTPUT)), model="guarded")
    if verdict is None or guarded is None:
        return verdict
    told = (
        f"with a guard, {key(FEDALT, OUTPUT)} hurts {guarded.deltas().hurt} at {100 * guarded.difference():+.2f} points"
    )
    return replace(verdict, figure=f"{verdict.figure}; {told}")


def hurting(pairing: Pairing | None) -> Verdict | None:
    if pairing is None:
        return None
    moved = pairing.deltas()
    figure = f"{moved.hurt} of {moved.clients} hurt, {moved.helped} helped, {100 * pairing.difference():+.2f} points"
    return Verdict(verdict="holds" if moved.hurt else "fails", figure=figure)


def judge_4(found: Found) -> Verdict | None:
    """Stage (c) adds more for clients without state than for those with one."""
    verdicts: dict[str, Verdict | None] = {}
    for task in TASKS[found.scale]:
        for part in PARTS:
            for method in (FEDALT, FEDSIM):
                cells = [cell_of(found.scale, task, key(method, part, stateless=one)) for one in (True, False)]
                if all(cells):
                    verdicts[f"{shown(task, found.scale)}, {method}, {part}"] = better(
                        gains(found, *cells), "gain of (c) without state", "with state"
                    )
    return all_of(verdicts, enough=max(1, len(verdicts) - len(verdicts) // 6))


def gains(found: Found, stateless: Cell | None, stateful: Cell | None) -> Pairing | None:
    """What stage (c) adds without state against what it adds with state, client by client."""
    sides = []
    for cell in (stateless, stateful):
        pairing = None if cell is None else paired(found, cell, cell, model="finetuned", against="personal")
        if pairing is None:
            return None
        sides.append(pairing)
    without, having = sides
    seeds = [seed for seed in without.seeds if seed in having.seeds]
    if not seeds or len(without.clients) != len(having.clients):
        return None
    own = (without.own - without.reference)[[without.seeds.index(seed) for seed in seeds]]
    reference = (having.own - having.reference)[[having.seeds.index(seed) for seed in seeds]]
    return replace(without, seeds=tuple(seeds), own=own, reference=reference)


def judge_5(found: Found) -> Verdict:
    """At the smallest rate, where the theorems are; the same on every machine."""
    ahead = advantages(ETAS[0])
    values = [ahead[chi] for chi in COUPLINGS]
    growing = abs(values[0]) < ROUNDING and all(later > earlier for earlier, later in pairwise(values))
    figure = "FedAlt ahead by " + ", ".join(f"{round(ahead[chi], 4) + 0.0:.4f} at chi {chi:g}" for chi in COUPLINGS)
    return Verdict(verdict="holds" if growing else "fails", figure=figure)


CLAIMS = [
    Claim(
        name="H1",
        text="Partial personalisation has most of the gain of full personalisation, with a small part of the "
        "parameters.",
        judge=judge_1,
        recipes=["table-3", "figure-3", "table-5", "table-6", "table-7"],
    ),
    Claim(
        name="H2",
        text="FedAlt is at least as good as FedSim, and FedSim as partial fine-tuning, in all cases but one.",
        judge=judge_2,
        recipes=["table-4", "unipen"],
    ),
    Claim(
        name="H2, equal passes",
        text="FedAlt is at least as good as FedSim with as many passes over the data (a control; the paper does not "
        "claim it).",
        judge=judge_passes,
        recipes=["table-4", "unipen"],
    ),
    Claim(
        name="H3",
        text="Personalisation hurts some clients; neither L2 nor dropout cures it.",
        judge=judge_3,
        recipes=["figure-4", "figure-6", "figure-7", "figure-9", "figure-10"],
    ),
    Claim(
        name="H4",
        text="Fine-tuning at the end matters little for clients with state, and much for clients without.",
        judge=judge_4,
        recipes=["table-10", "table-11", "table-12"],
    ),
    Claim(
        name="H5",
        text="Without noise, FedAlt suffers less than FedSim from the coupling of shared and personal parts.",
        judge=judge_5,
        recipes=["theory"],
    ),
]
