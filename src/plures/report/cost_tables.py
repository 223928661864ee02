"""Tables of costs for a terminal of 80 columns, from plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from plures.report.tables import readable_bytes

ROWS = (
    ("sent, as papers count it", "paper_bytes"),
    ("sent, as encoded", "encoded_bytes"),
    ("  down", "bytes_down"),
    ("  up", "bytes_up"),
    ("training FLOPs", "flops"),
    ("  in the search for masks", "search_flops"),
    ("  with a search for masks", "flops_with_search"),
    ("training FLOPs if dense", "dense_flops"),
)
MEANING = """
Papers count 4 bytes for each value; encoded messages also have names, shapes,
masks and indices. A training step costs three forward passes, each as sparse
as the model is. Peak: parameters, gradients, optimiser, activations.
"""


def cost_table(cost: Mapping[str, Any]) -> Table:
    """What a planned run costs: one visit of one client on average, and all visits."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("cost", no_wrap=True)
    table.add_column("one visit", justify="right", no_wrap=True)
    table.add_column("whole run", justify="right", no_wrap=True)
    total = cost["total"]
    left_out = {"search_flops"} if not total["search_flops"] else set()
    left_out |= {"flops_with_search"} if total["flops_with_search"] == total["flops"] else set()
    for name, key in ROWS:
        if key in left_out:
            continue
        show = readable_flops if "flops" in key else readable_bytes
        table.add_row(name, show(cost["visit"][key]), show(cost["total"][key]))
    table.add_row("peak memory of a client", readable_bytes(cost["peak_bytes"]), "")
    return table


def complexity_table(lines: Sequence[Mapping[str, Any]]) -> Table:
    """The pFedGate paper's Table 3: each entry with its formula below."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    titles = {"fedavg": "FedAvg", "pfedhn": "pFedHN", "fedem": "FedEM", "pfedgate": "pFedGate"}
    for title in titles.values():
        table.add_column(title, justify="right", no_wrap=True)
    for line in lines:
        cells = [line[method] for method in titles]
        table.add_row(f"{line['kind']}, {line['where']}", *(readable_count(cell["value"]) for cell in cells))
        table.add_row("", *(f"[dim]{cell['formula']}[/dim]" for cell in cells))
    return table


def readable_count(count: float) -> str:
    """In full as long as four columns of it fit the terminal."""
    return f"{count:,.0f}" if count < 1e9 else f"{count:.3e}"


def readable_flops(count: float) -> str:
    """Operations in scientific notation, as the papers print them."""
    return "0" if not count else f"{count:.4g}" if count < 1e5 else f"{count:.3e}"


def cost_line(cost: Mapping[str, Any]) -> str:
    """What a finished run cost, in one line."""
    sent = f"sent {readable_bytes(cost['bytes_down'] + cost['bytes_up'])}"
    if cost.get("flops") is None:
        return f"Costs: {sent}; operations were not counted ({cost.get('not_counted', '')})."
    sparse = cost["flops"] < cost["dense_flops"]
    dense = f" (dense {cost['dense_flops']:.2e})" if sparse else ""
    peak = readable_bytes(cost["peak_bytes"])
    return f"Costs: {sent}; {cost['flops']:.2e} FLOPs{dense}; peak memory {peak}."
