"""The complexity table of the pFedGate paper: each cell, and each underlined example of its Table 3."""

from __future__ import annotations

import pytest

from plures.evaluate.complexity import METHODS, Sizes, complexity

D, N, M = 1000, 80, 8
FEDAVG, PFEDHN, FEDEM, PFEDGATE = range(4)


def cell(kind: str, where: str, method: int, **changes: float) -> float:
    (line,) = [
        line
        for line in complexity(Sizes(parameters=D, clients=N, cohort=M, **changes))
        if (line.kind, line.where) == (kind, where)
    ]
    return line.cells[method].value


@pytest.mark.parametrize(
    ("kind", "where", "method", "underlined"),
    [
        ("train a batch", "client", FEDEM, 6 * D),
        ("train a batch", "client", PFEDGATE, 1.1 * D),
        ("infer a batch", "client", PFEDGATE, 0.55 * D),
        ("train a round", "server", PFEDHN, (0.25 * N + 100) * M),
        ("upload", "client", FEDEM, 3 * D),
        ("upload", "client", PFEDGATE, 0.67 * D),
        ("send", "server", FEDEM, 3 * D * M),
        ("store", "client", FEDEM, 3 * D),
        ("store", "client", PFEDGATE, 1.05 * D),
        ("store", "server", PFEDHN, 25 * N + 0.25 * N**2),
        ("store", "server", FEDEM, 3 * D),
    ],
)
def test_the_underlined_examples_of_the_paper(kind, where, method, underlined):
    assert cell(kind, where, method) == pytest.approx(underlined, rel=1e-12)


@pytest.mark.parametrize(
    ("kind", "where", "values"),
    [
        ("train a batch", "client", (2 * D, 2 * D)),
        ("infer a batch", "client", (D, D, D)),
        ("upload", "client", (D, D)),
        ("send", "server", (D * M, D * M)),
        ("store", "client", (D, D)),
        ("store", "server", (D,)),
    ],
)
def test_the_cells_without_an_example_are_multiples_of_the_parameters(kind, where, values):
    for method, value in enumerate(values):
        assert cell(kind, where, method) == value


def test_servers_that_only_average_are_of_order_one_and_send_to_the_cohort():
    for method in (FEDAVG, FEDEM, PFEDGATE):  # the paper's cell of FedAvg also has a stray 6d
        assert cell("train a round", "server", method) == 1
    assert cell("send", "server", PFEDGATE) == D * M
    assert cell("store", "server", PFEDGATE) == D


def test_other_sizes_than_the_papers_change_what_depends_on_them():
    assert cell("train a batch", "client", FEDEM, components=5) == 10 * D
    assert cell("train a batch", "client", PFEDGATE, density=0.3, gate_share=0.1) == pytest.approx(0.8 * D)
    assert cell("upload", "client", PFEDGATE, upload_share=0.5) == 0.5 * D
    assert cell("train a round", "server", PFEDHN, hidden=50) == (20 + 50) * M


def test_the_table_has_seven_rows_with_a_formula_and_a_number_for_each_method():
    lines = complexity(Sizes(parameters=D, clients=N, cohort=M))

    assert [(line.kind, line.where) for line in lines] == [
        ("train a batch", "client"),
        ("infer a batch", "client"),
        ("train a round", "server"),
        ("upload", "client"),
        ("send", "server"),
        ("store", "client"),
        ("store", "server"),
    ]
    letters = {"d": D, "n": N, "m": M, "k": 3, "s": 0.5, "g": 0.05, "q": 0.67, "v": N / 4, "h": 100}
    for line in lines:
        row = line.as_json()
        assert list(row) == ["kind", "where", *METHODS]
        for method in METHODS:
            wanted = value_of(row[method]["formula"], letters)
            assert row[method]["value"] == pytest.approx(wanted, rel=1e-12)


def value_of(formula: str, letters: dict[str, float]) -> float:
    """A formula such as "2 d (s + g)" with numbers for its letters; what stands side by side is multiplied."""
    words = formula.replace("(", " ( ").replace(")", " ) ").split()
    out = []
    for before, word in zip(["(", *words], words, strict=False):
        if before not in ("(", "+") and word not in (")", "+"):
            out.append("*")
        out.append(word)
    return float(eval(" ".join(out), {"__builtins__": {}}, letters))
