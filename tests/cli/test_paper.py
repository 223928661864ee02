"""`plures paper`: what there is, what is missing, what runs."""

from __future__ import annotations

import json

import pytest

from plures.cli import completing
from plures.papers import PAPERS


def test_the_list_has_every_paper_and_fits_80_columns(plures):
    said = plures("paper", "list")

    assert said.code == 0
    assert all(f"{name}/table-1" in said.out for name in ("pflego", "pfedgate", "fedspa"))
    assert "fedalt/table-3" in said.out
    assert max(map(len, said.out.splitlines())) <= 80
    assert said.out.count("GLDv2 also needs") == 1  # each cause is told once, and items name its number
    assert "not run [1]" in said.out


def test_the_list_is_there_for_programs(plures):
    told = json.loads(plures("paper", "list", "--json").out)

    assert {line["item"].split("/")[0] for line in told} == set(PAPERS)
    assert {line["micro"] for line in told} <= {"not run", "closed form", "-"}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (["pflegos"], "no paper 'pflegos'"),
        (["pflego/table-9"], "no item 'table-9'"),
        ([""], "no paper ''"),
        (["pflego/table-1", "pflego/table-9"], "no item 'table-9'"),
        (["list", "pflego"], "'list' stands alone"),
        (["pflego", "check"], "'check' stands alone"),
    ],
)
def test_a_name_that_there_is_not_is_told(plures, name, words):
    said = plures("paper", *name)

    assert said.code == 2
    assert words in said.err


def test_a_text_that_no_cell_has_is_told_before_anything_is_written(plures, tmp_path):
    said = plures("paper", "pflego/figure-2", "--only", "FedPre", "--out", "out")

    assert said.code == 2
    assert "no row, column or data set has 'FedPre'" in said.err
    assert "FedPer" in said.err
    assert not (tmp_path / "here" / "out").exists()


def test_only_some_cells_are_counted(plures, monkeypatch, tmp_path):
    monkeypatch.setenv("PLURES_DATA", str(tmp_path / "nowhere"))

    told = json.loads(plures("paper", "pflego/figure-2", "--only", "fedper", "--dry", "--json").out)

    assert told["missing_data"] == {"mnist": 3}


def test_several_items_share_their_runs_and_a_data_set_chooses_among_them(plures, monkeypatch, tmp_path):
    monkeypatch.setenv("PLURES_DATA", str(tmp_path / "nowhere"))

    def missing(*names: str) -> dict[str, int]:
        return json.loads(plures("paper", *names, "--scale", "small", "--out", "out", "--dry", "--json").out)[
            "missing_data"
        ]

    # Seven methods on two tasks dealt in three ways; DST is in both tables, at three sparsities in the second.
    assert missing("fedspa/table-1") == {"fashion-mnist": 21, "cifar-10": 21}
    assert missing("fedspa/table-3") == {"fashion-mnist": 9}
    assert missing("fedspa/table-3", "fedspa/table-1") == {"fashion-mnist": 21 + 6, "cifar-10": 21}
    assert missing("fedspa/table-1", "--only", "cifar-10") == {"cifar-10": 21}


def test_without_its_data_nothing_runs_and_the_page_says_so(plures, monkeypatch, tmp_path):
    monkeypatch.setenv("PLURES_DATA", str(tmp_path / "nowhere"))

    said = plures("paper", "pflego/figure-2", "--out", "out")

    assert said.code == 0
    assert "9 runs are left out: 'mnist' is not at hand" in said.err
    assert "not run" in (tmp_path / "here" / "out" / "pflego" / "README.md").read_text("utf-8")


def test_a_dry_run_tells_what_lacks_its_data(plures, monkeypatch, tmp_path):
    monkeypatch.setenv("PLURES_DATA", str(tmp_path / "nowhere"))

    told = json.loads(plures("paper", "pflego/figure-2", "--dry", "--json").out)

    assert told == {"paper": "pflego", "there": 0, "missing_data": {"mnist": 9}, "runs": []}


def test_pages_are_written_without_running_anything(plures):
    said = plures("paper", "pflego", "--pages", "--out", "out", "--json")

    told = json.loads(said.out)
    assert {claim["claim"]: claim["verdict"] for claim in told["claims"]}["H3"] == "holds"


def test_a_shell_offers_every_paper():
    assert set(completing.paper_names()) == {"list", "check", "all", *PAPERS}
