"""The command `plures cost`: what it prints, how wide, as JSON, and what it refuses; and the cost line of a run."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from plures.evaluate.complexity import Sizes, complexity
from plures.recipes import costing
from plures.report.cost_tables import complexity_table, cost_line
from tests.cli.helpers import process, widest

ROOT = Path(__file__).parents[2]
STANDS_IN = """
method = "{method}"
rounds = 3
cohort = 2
[data]
clients = 4
sizes = 20
shape = [1, 28, 28]
classes = 10
[model]
name = "{model}"
"""


@pytest.fixture
def write(tmp_path):
    """Writes an experiment without data."""

    def written(method: str = "fedspa", model: str = "lenet5", more: str = "") -> Path:
        path = tmp_path / "cost.toml"
        path.write_text(STANDS_IN.format(method=method, model=model) + more, encoding="utf-8")
        return path

    return written


def rows(out: str) -> dict[str, list[str]]:
    """The lines of the table by name, each with one visit and the whole run; two spaces part columns."""
    found = [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()]
    return {cells[0]: cells[1:] for cells in found if len(cells) > 1}


def test_help_says_what_it_tells_and_what_stands_in_for_data(plures):
    said = plures("cost", "--help")

    assert (said.code, said.err) == (0, "")
    for words in ("--set", "--complexity", "--json", "sizes = 500, shape = [3, 32, 32]", "without training"):
        assert words in said.out
    assert widest(said.out) <= 80


def test_costs_are_a_table_of_80_columns_with_one_visit_and_the_whole_run(plures, write):
    said = plures("cost", write())

    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("fedspa: 3 rounds of 2 of 4 clients, 431,080 parameters\n")
    assert widest(said.out) <= 80
    table = rows(said.out)
    assert list(table) == [
        "cost",
        "sent, as papers count it",
        "sent, as encoded",
        "down",
        "up",
        "training FLOPs",
        "in the search for masks",
        "training FLOPs if dense",
        "peak memory of a client",
    ]
    assert table["cost"] == ["one visit", "whole run"]
    assert len(table["peak memory of a client"]) == 1
    assert list(Path.cwd().iterdir()) == []


def test_a_dense_method_has_no_line_for_a_search(plures, write):
    table = rows(plures("cost", write("fedavg")).out)

    assert "in the search for masks" not in table
    assert "with a search for masks" not in table
    assert table["training FLOPs"] == table["training FLOPs if dense"]


def test_rsm_is_shown_with_the_search_it_does_not_need(plures, write):
    rsm = rows(plures("cost", write(), "--set", "method_options.search=rsm").out)
    dst = rows(plures("cost", write()).out)

    assert "in the search for masks" not in rsm
    assert rsm["with a search for masks"] == dst["training FLOPs"]


def test_json_has_the_same_numbers_in_full(plures, write):
    said = plures("cost", write(), "--json")

    found = json.loads(said.out)
    assert (found["method"], found["rounds"], found["clients"], found["cohort"]) == ("fedspa", 3, 4, 2)
    assert found["total"]["values_up"] == 6 * found["visit"]["values_up"]
    assert found["total"]["paper_bytes"] == 4 * (found["total"]["values_up"] + found["total"]["values_down"])
    assert found["total"]["encoded_bytes"] == found["total"]["bytes_up"] + found["total"]["bytes_down"]
    assert found["total"]["flops"] < found["total"]["dense_flops"] + found["total"]["search_flops"]
    assert found["peak_bytes"] > 4 * found["parameters"] / 2
    assert found["notes"] == []


def test_a_change_from_the_command_line_counts(plures, write):
    path = write()
    once, twice = (json.loads(plures("cost", path, "--json", "--set", f"rounds={rounds}").out) for rounds in ("3", "6"))

    assert twice["total"]["flops"] == 2 * once["total"]["flops"]
    assert twice["visit"] == once["visit"]


def test_capacities_and_codes_of_the_file_count(plures, write):
    small = json.loads(plures("cost", write(more="[capacity]\nflops = 0.25\n"), "--json").out)
    coded = json.loads(plures("cost", write(more='[wire]\nupload = "int8"\n'), "--json").out)
    usual = json.loads(plures("cost", write(), "--json").out)

    training = [found["visit"]["flops"] - found["visit"]["search_flops"] for found in (small, usual)]
    dense = usual["visit"]["dense_flops"]
    assert 0.24 * dense < training[0] <= 0.25 * dense < training[1]
    assert coded["visit"]["bytes_up"] < 0.4 * usual["visit"]["bytes_up"]


def test_complexity_is_the_table_of_the_paper_for_this_network(plures, write):
    said = plures("cost", write(), "--complexity")

    assert (said.code, said.err) == (0, "")
    assert widest(said.out) <= 80
    assert re.match(r"d = 431,080, n = 4, m = 2\nk = 3, s = 0.5, g = 0.05, q = 0.67, v = 1, h = 100\n", said.out)
    assert rows(said.out)["train a round, server"] == ["1", "202", "1", "1"]  # (4 / 4 + 100) * 2
    for formula in ("2 d (s + g)", "(v + h) m", "v h + v n", "q d", "k d m"):
        assert formula in said.out


def test_complexity_as_json_has_formula_and_value_of_every_cell(plures, write):
    lines = json.loads(plures("cost", write(), "--complexity", "--json").out)

    assert len(lines) == 7
    sizes = {line["fedavg"]["value"] for line in lines if line["fedavg"]["formula"] == "d"}
    (parameters,) = sizes
    assert lines[0]["pfedgate"] == {"formula": "2 d (s + g)", "value": pytest.approx(1.1 * parameters)}


def test_the_complexity_of_a_huge_network_fits_80_columns_too():
    sizes = Sizes(parameters=70_000_000_000, clients=10**7, cohort=10**4)
    console = Console(width=80, file=StringIO())

    console.print(complexity_table([line.as_json() for line in complexity(sizes)]))

    assert widest(console.file.getvalue()) <= 80
    assert rows(console.file.getvalue())["send, server"] == ["7.000e+14", "7.000e+14", "2.100e+15", "7.000e+14"]


def test_a_note_says_where_numbers_are_estimates(plures, write, monkeypatch):
    monkeypatch.setattr(costing, "KINDS", 2)

    said = plures("cost", write(model="mlp"), "--set", "data.sizes=[5, 6, 7, 8]")

    assert said.out.endswith("Estimated from 2 of 4 clients, for they all differ.\n")
    assert widest(said.out) <= 80


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (["method=fedspb"], "There is no method 'fedspb'. Did you mean 'fedspa'"),
        (["cohort=9"], "a cohort of 9 clients cannot be drawn from 4"),
        (["data.sizes=0"], "give whole numbers above 0"),
        (["capacity.densty=0.5"], "[capacity] has no key 'densty'. Did you mean 'density'"),
        (["capacity.density=2"], "a density is above 0 and at most 1"),
        (["method=fedavg", "capacity.density=0.5"], "fedavg gives every client the whole model"),
        (["wire.upload=int4"], "wire.upload is 'int4'"),
        (["model.name=lenet6"], "There is no model 'lenet6'"),
    ],
)
def test_what_cannot_be_planned_is_one_message_on_stderr(plures, write, changes, says):
    settings = [word for change in changes for word in ("--set", change)]

    said = plures("cost", write(), *settings)

    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: ")
    assert says in said.err
    assert "Traceback" not in said.err


def test_sizes_alone_are_told_what_they_need(plures, tmp_path):
    path = tmp_path / "cost.toml"
    path.write_text('method = "fedavg"\n[data]\nsizes = 500\n', encoding="utf-8")

    said = plures("cost", path)

    assert said.code == 2
    assert "sizes = 500, shape = [3, 32, 32], classes = 10" in said.err


def test_a_run_without_data_is_refused_and_leaves_no_folder(plures, write):
    said = plures("run", write(), "--out", "results")

    assert (said.code, said.out) == (2, "")
    assert "enough for `plures cost`" in said.err
    assert list(Path.cwd().iterdir()) == []


def test_a_run_says_what_it_cost_in_one_line(plures, experiment):
    dense = plures("run", experiment, "--set", "rounds=1", "--out", "dense").out
    sparse = plures("run", experiment, "--set", "rounds=1", "--set", "method=fedspa", "--out", "sparse").out

    (line,) = [line for line in dense.splitlines() if line.startswith("Costs: ")]
    assert re.fullmatch(r"Costs: sent [\d.]+ kB; \d\.\d\de\+\d\d FLOPs; peak memory [\d.]+ kB\.", line)
    (line,) = [line for line in sparse.splitlines() if line.startswith("Costs: ")]
    assert re.search(r" FLOPs \(dense \d\.\d\de\+\d\d\); ", line)
    assert len(line) <= 80


def test_operations_that_could_not_be_counted_are_said_to_be_unknown():
    line = cost_line({"bytes_down": 1000, "bytes_up": 500, "flops": None, "not_counted": "ValueError: too few"})

    assert line == "Costs: sent 1.5 kB; operations were not counted (ValueError: too few)."


def test_the_example_without_data_is_the_papers_experiment_and_is_shown_in_the_docs(tmp_path):
    """In a process of its own: FedSpa's row of VGG11 in Table 1, 369.2 GB and 172.9e14 operations."""
    done = process("cost", ROOT / "examples/cost-fedspa.toml", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert rows(done.stdout)["sent, as papers count it"][1] == "369.2 GB"
    assert rows(done.stdout)["training FLOPs"][1] == "1.729e+16"
    shown = "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())
    assert f"```text\n{shown}```" in (ROOT / "docs/costs.md").read_text(encoding="utf-8")
