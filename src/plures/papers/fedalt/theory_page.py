"""The coupling of shared and personal parts as a recipe: computed in seconds, on problems that are drawn."""

from __future__ import annotations

from plures.papers.blocks import Block, Entry, Figure, Grid, Series
from plures.papers.fedalt.theory import (
    CLIENTS,
    COUPLINGS,
    DRAWS,
    ETAS,
    METHODS,
    ROUNDS,
    SIZE,
    STEPS,
    Lead,
    excesses,
    lead,
)
from plures.papers.recipe import Found, Recipe


def show(found: Found) -> list[Block]:
    rows: dict[str, list[Entry | None]] = {}
    panels: dict[str, dict[str, Series]] = {}
    for eta in ETAS:
        for method in METHODS:
            means = [float(excesses(chi, eta)[method].mean()) for chi in COUPLINGS]
            rows[f"{method}, eta {eta:g}"] = [Entry(measured=mean) for mean in means]
        ahead = [lead(chi, eta) for chi in COUPLINGS]
        rows[f"FedAlt ahead by, eta {eta:g}"] = [Entry(measured=told(one)) for one in ahead]
        rows[f"draws in which it is ahead, eta {eta:g}"] = [Entry(measured=f"{100 * one.share:.0f} %") for one in ahead]
        panels[f"eta {eta:g}"] = {
            "FedSim - FedAlt": Series(x=list(COUPLINGS), y=[round(one.mean, 6) + 0.0 for one in ahead])
        }
    return [
        Grid(
            title=f"Distance from the least loss, on average over rounds and {DRAWS} draws",
            corner="coupling chi",
            columns=[f"{chi:g}" for chi in COUPLINGS],
            rows=rows,
            digits=4,
            note="In shares of the distance at the start; ± is the standard error over draws. A draw is a problem of "
            f"{CLIENTS} clients with {SIZE} shared and {SIZE} personal numbers; {ROUNDS} rounds of {STEPS} full-batch "
            "steps, all clients in every round, double precision.",
        ),
        Figure(
            name="theory",
            title="How far FedAlt is ahead of FedSim",
            x="coupling chi",
            y="share of the distance at the start",
            panels=panels,
        ),
    ]


def told(one: Lead) -> str:
    return f"{round(one.mean, 4) + 0.0:.4f} ± {one.error:.4f}"


RECIPES = [
    Recipe(
        name="theory",
        title="FedAlt's lead over FedSim grows with the coupling of the parts (quadratic clients, no noise)",
        show=show,
        differs="The paper has bounds, not numbers: without noise in the gradients FedSim's has a factor 1 + "
        "chi^2 that FedAlt's lacks. Here both methods run on F_i(u, v) = |A_i u + B_i v - c_i|^2 / 2 with "
        "L_u = L_v = 1 and A_i' B_i of norm chi; the library's own runs agree with these formulas to "
        "1e-12 (tested). At chi = 0 the two do the same. Bounds are about the worst case: with little "
        "coupling FedSim is ahead in a third of the draws. On average FedAlt is, and with full coupling "
        "nearly always.",
    )
]
