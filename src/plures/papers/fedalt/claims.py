"""The paper's headlines, and what decides them."""

from __future__ import annotations

import math
from dataclasses import replace

from plures.papers.blocks import Verdict
from plures.papers.cells import Cell
from plures.papers.fedalt.deltas import change
from plures.papers.fedalt.figures import device_task, dropout_runs, l2_runs
from plures.papers.fedalt.settings import FEDALT, FEDSIM, FEDSIM_2, FINETUNE, FT, cell_of, key
from plures.papers.fedalt.tasks import ADAPTER, OUTPUT, PARTS, TASKS, shown
from plures.papers.fedalt.theory import COUPLINGS, DRAWS, ETAS, grows, lead
from plures.papers.reading import all_of, because, better, paired
from plures.papers.recipe import Claim, Found
from plures.report.pairing import Pairing

MOST_OF_THE_GAIN = 0.7
"""Adapters had 72 % of it on StackOverflow, all or more of it elsewhere."""
SMALL_PART = 0.2
"""Of the parameters; the paper's largest part has 14 % (on StackOverflow)."""
EQUAL = 0.1
"""Points that are not worse: the paper's own deviations over seeds reach 0.08."""
SOME = 0.05
"""Of the clients; in the paper 26 % on StackOverflow, 19 % with dropout."""
LITTLE = 0.6
"""Points that stage (c) adds with state; 0.57 at the most in the paper's Table 10."""


def judge_1(found: Found) -> Verdict | None:
    """The best part may be behind full fine-tuning by three tenths of the gain of that."""
    return all_of({shown(task, found.scale): most_of_the_gain(found, task) for task in TASKS[found.scale]})


def most_of_the_gain(found: Found, task: str) -> Verdict | None:
    """None until all parts have run."""
    full = cell_of(found.scale, task, FINETUNE)
    whole = change(found, full)
    runs = {part: cell_of(found.scale, task, key(FEDALT, part)) for part in PARTS}
    cells = {part: cell for part, cell in runs.items() if cell is not None}
    gained = {part: change(found, cell) for part, cell in cells.items()}
    known = {part: pairing.difference() for part, pairing in gained.items() if pairing is not None}
    if full is None or whole is None or not known or len(known) < len(cells):
        return None
    best = max(known, key=lambda part: known[part])
    risen, interval = 100 * whole.difference(), whole.interval()
    told = f"FedAvg to {FINETUNE} {risen:+.2f}, to {best} {100 * known[best]:+.2f}"
    if interval is None or interval.low <= 0:
        return Verdict(verdict="undecided", figure=f"{told}, full personalisation gains nothing that is sure")
    verdict = better(
        paired(found, cells[best], full, model="finetuned"), best, FINETUNE, margin=(1 - MOST_OF_THE_GAIN) * risen
    )
    if verdict is None:
        return None
    share = personal_share(found, cells[best])
    small = "fails" if share > SMALL_PART else verdict.verdict
    return replace(
        verdict, verdict=small, figure=f"{told} with {100 * share:.0f} % of the parameters; {verdict.figure}"
    )


def personal_share(found: Found, cell: Cell) -> float:
    """Of a client's parameters, those that are its own."""
    counts = next(iter(found.outcomes(cell).values())).facts["parameters"]
    return float(counts["personal"] / sum(counts.values()))


def pairs(found: Found, own: str, reference: str) -> dict[str, Verdict | None]:
    """Task by task and part by part, those that a scale runs: at least as good."""
    verdicts: dict[str, Verdict | None] = {}
    for task in TASKS[found.scale]:
        for part in PARTS:
            first, second = (cell_of(found.scale, task, key(method, part)) for method in (own, reference))
            if first is not None and second is not None:
                pairing = paired(found, first, second, model="finetuned")
                verdicts[f"{shown(task, found.scale)}, {part}"] = better(pairing, own, reference, margin=EQUAL)
    return verdicts


def judge_2(found: Found) -> Verdict | None:
    """One comparison in nine may fail, as in the paper."""
    over_sim, over_tuning = pairs(found, FEDALT, FEDSIM), pairs(found, FEDSIM, FT)
    verdicts = over_sim | {f"{name}, over {FT}": verdict for name, verdict in over_tuning.items()}
    return all_of(verdicts, enough=len(verdicts) - max(1, len(verdicts) // 9))


def judge_passes(found: Found) -> Verdict | None:
    why = (
        "FedAlt makes two passes over the data in a round and FedSim one; at as many passes nothing is left of "
        "its lead."
    )
    return because(all_of(pairs(found, FEDALT, FEDSIM_2)), why)


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
    """Whether more than a few clients are hurt, by the interval of their share."""
    if pairing is None:
        return None
    moved = pairing.deltas()
    low, high = share_interval(moved.hurt, moved.clients)
    figure = (
        f"{moved.hurt} of {moved.clients} hurt [{100 * low:.0f}, {100 * high:.0f}] %, {moved.helped} helped, "
        f"{100 * pairing.difference():+.2f} points"
    )
    return Verdict(verdict="holds" if low > SOME else "fails" if high < SOME else "undecided", figure=figure)


def share_interval(count: int, total: int) -> tuple[float, float]:
    """Of 95 %, by Wilson's score."""
    z = 1.96
    centre, scale = (count + z * z / 2) / (total + z * z), z / (total + z * z)
    off = scale * math.sqrt(count * (total - count) / total + z * z / 4)
    return centre - off, centre + off


def judge_4(found: Found) -> Verdict | None:
    """Stage (c) adds little with state, and more without; in two cases of three, as on the paper's EMNIST."""
    more: dict[str, Verdict | None] = {}
    little: dict[str, Verdict | None] = {}
    for task in TASKS[found.scale]:
        for part in PARTS:
            for method in (FEDALT, FEDSIM):
                without, having = (
                    cell_of(found.scale, task, key(method, part, stateless=one)) for one in (True, False)
                )
                if without is not None and having is not None:
                    name = f"{shown(task, found.scale)}, {method}, {part}"
                    more[name] = better(gains(found, without, having), "gain of (c) without state", "with state")
                    added = paired(found, having, having, against="finetuned")
                    little[name] = better(added, "before (c)", "after it", margin=LITTLE)
    sides = {"more without": more, "little with": little}
    return all_of({name: all_of(cases, enough=2 * len(cases) // 3) for name, cases in sides.items()})


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
    ahead = {chi: lead(chi, ETAS[0]) for chi in COUPLINGS}
    words = ", ".join(f"{round(one.mean, 4) + 0.0:.4f} at chi {chi:g}" for chi, one in ahead.items())
    share = 100 * ahead[COUPLINGS[-1]].share
    figure = f"mean over {DRAWS} draws: FedAlt ahead by {words}; ahead in {share:.0f} % of the draws at chi 1"
    return Verdict(verdict="holds" if grows(ETAS[0]) else "fails", figure=figure)


CLAIMS = [
    Claim(
        name="H1",
        item="table-3",
        text="Partial personalisation has most of the gain of full personalisation, with a small part of the "
        "parameters.",
        judge=judge_1,
    ),
    Claim(
        name="H2",
        item="table-4",
        text="FedAlt is at least as good as FedSim, and FedSim as partial fine-tuning, in all cases but one.",
        judge=judge_2,
    ),
    Claim(
        name="H2, equal passes",
        item="table-4",
        text="FedAlt is at least as good as FedSim with as many passes over the data (a control; the paper does not "
        "claim it).",
        judge=judge_passes,
    ),
    Claim(
        name="H3",
        item="figure-9",
        text=f"Personalisation hurts some clients (here: {100 * SOME:g} %); neither L2 nor dropout cures it.",
        judge=judge_3,
    ),
    Claim(
        name="H4",
        item="table-12",
        text="Fine-tuning at the end matters little for clients with state, and much for clients without.",
        judge=judge_4,
    ),
    Claim(
        name="H5",
        item="theory",
        text="Without noise, FedAlt suffers less than FedSim from the coupling of shared and personal parts.",
        judge=judge_5,
    ),
]
