"""The demo from end to end, in a process of its own."""

from __future__ import annotations

import json

import pytest
from safetensors.torch import load_file

from plures import load_experiment, run_experiment
from plures.methods import METHODS
from plures.recipes.demo import OTHER_OPTIONS, shown
from plures.report import records
from tests.cli.helpers import process, widest

TITLES = [METHODS[method].title for method in shown()]
FOLDERS = {METHODS[method].title: method for method in shown()}


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    return process("demo", "--rounds", "2", "--out", folder / "results", cwd=folder), folder / "results"


def rows_of(text: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split() for line in text.splitlines() if line.split() and line.split()[0] in TITLES}


def test_the_demo_ends_well_and_in_plain_text(demo):
    done, _ = demo

    assert done.returncode == 0
    assert "\x1b" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_the_demo_begins_with_the_usual_six_and_shows_every_method():
    assert TITLES[:6] == ["Local", "FedAvg", "FedAvg-FT", "FedPer", "FedAlt", "PFLEGO"]
    assert sorted(shown()) == list(METHODS)
    assert set(OTHER_OPTIONS) <= set(METHODS)


def test_the_demo_compares_all_methods_in_a_table_of_80_columns(demo):
    done, _ = demo
    lines = done.stdout.splitlines()

    (start,) = [number for number, line in enumerate(lines) if line.startswith("method ")]
    assert lines[start].split() == ["method", "personal", "global", "bottom", "10%", "helped", "hurt", "sent", "time"]
    assert [line.split()[0] for line in lines[start + 1 : start + 1 + len(TITLES)]] == TITLES
    assert widest("\n".join(lines[start : start + 1 + len(TITLES)])) <= 80


def test_everything_the_demo_says_fits_80_columns(demo):
    done, folder = demo

    text = done.stdout.replace(str(folder), "results")  # paths are as long as they are
    assert widest(text) <= 80
    assert widest(done.stderr) <= 80


def test_the_table_of_the_demo_agrees_with_its_records(demo):
    done, folder = demo
    rows = {row["title"]: row for row in json.loads((folder / "comparison.json").read_text(encoding="utf-8"))}

    for title, row in rows_of(done.stdout).items():
        result = records.read_result(folder / FOLDERS[title])
        accuracy = result["metrics"][f"{result['headline']}/test/accuracy"]
        assert row[1] == f"{100 * accuracy['weighted']:.1f}%"
        assert rows[title]["value"] == accuracy["weighted"]
        assert rows[title]["num_bytes"] == result["cost"]["bytes_down"] + result["cost"]["bytes_up"]
        assert (result["clients"], result["cohort"], result["rounds"]) == (20, 10, 2)


def test_the_legend_says_of_every_method_which_model_was_judged(demo):
    done, folder = demo
    said = " ".join(done.stdout.split())
    for before, headline in (("the one shared model (", "global"), ("after fine-tuning (", "finetuned")):
        named = said.partition(before)[2].partition(")")[0].split(", ")
        judged = [title for title in TITLES if records.read_result(folder / FOLDERS[title])["headline"] == headline]
        assert named == judged
        assert judged


def test_helped_and_hurt_are_counted_client_by_client_against_fedavg(demo):
    _, folder = demo
    rows = {row["title"]: row for row in json.loads((folder / "comparison.json").read_text(encoding="utf-8"))}

    def accuracies(title: str) -> dict[str, float]:
        headline = records.read_result(folder / FOLDERS[title])["headline"]
        found = records.read_clients(folder / FOLDERS[title])
        last = [row for row in found if (row["round"], row["model"], row["split"]) == ("2", headline, "test")]
        return {row["client"]: float(row["accuracy"]) for row in last}

    reference = accuracies("FedAvg")
    assert len(reference) == 20
    for title in TITLES:
        mine = accuracies(title)
        better = sum(mine[client] > reference[client] for client in reference)
        worse = sum(mine[client] < reference[client] for client in reference)
        expected = (None, None) if title == "FedAvg" else (better, worse)
        assert (rows[title]["helped"], rows[title]["hurt"]) == expected


def test_what_is_sent_is_as_the_methods_say(demo):
    _, folder = demo
    costs = {title: records.read_result(folder / FOLDERS[title])["cost"] for title in TITLES}
    sent = {title: cost["values_down"] + cost["values_up"] for title, cost in costs.items()}

    # 2 rounds, 10 clients, both ways: all 4,810 values, or the 4,160 of the body, or the 650 of the head
    everything, body, head = (2 * 10 * 2 * size for size in (4810, 4160, 650))
    assert {title: sent[title] for title in ("Local", "LG-FedAvg", "SCAFFOLD", "FedEM")} == {
        "Local": 0,
        "LG-FedAvg": head,
        "SCAFFOLD": 2 * everything,
        "FedEM": 3 * everything,
    }
    assert {sent[title] for title in ("FedAvg", "FedAvg-FT", "FedProx", "Ditto", "APFL", "pFedMe")} == {everything}
    assert {sent[title] for title in ("FedPer", "FedAlt", "PFLEGO", "FedSim", "FedRep", "FedRecon", "FedBABU")} == {
        body
    }


def test_bytes_are_those_of_the_encoding_which_leaves_out_zeros_and_adds_little(demo):
    _, folder = demo
    for row in json.loads((folder / "comparison.json").read_text(encoding="utf-8")):
        cost = records.read_result(folder / FOLDERS[row["title"]])["cost"]
        values = 4 * (cost["values_down"] + cost["values_up"])
        assert row["num_bytes"] <= 1.06 * values + 2 * 20 * 500  # names, shapes, a bit for each value at most
        assert row["num_bytes"] >= 0.5 * values  # of 64 pixels, some are always 0, and so are changes of their weights


def test_all_methods_of_the_demo_see_the_same_data_and_the_same_cohorts(demo):
    _, folder = demo
    prints = [records.read_result(folder / FOLDERS[title])["fingerprint"] for title in TITLES]
    cohorts = [[line["cohort"] for line in records.read_rounds(folder / FOLDERS[title])] for title in TITLES]

    assert len({(found["data"], found["split"]) for found in prints}) == 1
    assert all(found == cohorts[0] for found in cohorts)
    state = {title: found["final_state"] for title, found in zip(TITLES, prints, strict=True)}
    assert state["FedAvg"] == state["FedAvg-FT"]
    assert state["FedPer"] == state["FedSim"]  # with these options
    assert len({state[title] for title in TITLES[:6]}) == 5


def test_fine_tuning_starts_from_the_model_of_fedavg(demo):
    _, folder = demo
    plain, tuned = (load_file(folder / name / records.SHARED) for name in ("fedavg", "finetune"))

    assert plain.keys() == tuned.keys()
    assert all(plain[name].equal(tuned[name]) for name in plain)


def test_the_demo_ends_by_saying_where_the_results_are_and_what_to_try_next(demo):
    done, folder = demo
    tail = done.stdout.splitlines()[-4:]

    assert tail[0] == f"Results: {folder}"
    assert tail[1] == "Try next: plures methods"
    assert tail[2].split() == ["plures", "run", f"{folder}/pflego/experiment.toml", "\\"]
    assert tail[3].split() == ["--set", "method_options.tau=10"]


def test_what_the_demo_says_to_try_next_can_be_run(demo):
    _, folder = demo

    experiment = load_experiment(folder / "pflego" / "experiment.toml", ["method_options.tau=10"])
    result = run_experiment(experiment)

    assert result.status == "finished"
    assert result.federation.fingerprint()["split"] == records.read_result(folder / "pflego")["fingerprint"]["split"]


def test_progress_of_the_demo_is_plain_lines_on_stderr(demo):
    done, _ = demo
    lines = done.stderr.splitlines()

    assert [line for line in lines if line.endswith(" 2 rounds, 20 clients")] == [
        f"{title}: run {number} of {len(TITLES)}, 2 rounds, 20 clients" for number, title in enumerate(TITLES, 1)
    ]
    assert [line.split()[:2] for line in lines if "2/2" in line] == [[title, "2/2"] for title in TITLES]
