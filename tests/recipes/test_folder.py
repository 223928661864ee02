"""The run folder: every file, line by line, and equal to what the run returned."""

from __future__ import annotations

import csv
import gzip
import json
import re

import pytest
from safetensors.torch import load_file

from plures import __version__, run
from plures.methods import fedavg
from plures.models import mlp
from plures.recipes.folder import state_fingerprint
from plures.report import records
from tests.recipes.helpers import built, ran, same_bits

SUMMARY = {"weighted", "mean", "std", "bottom_decile", "worst"}
METRIC = re.compile(
    r"((newcomers|sampled)/)?(global|personal|post_local|finetuned)/(train|validation|test)/(accuracy|loss)"
)


@pytest.fixture
def played(tmp_path):
    """A run of FedPer with a cohort of two, evaluated in each of its four rounds, in all ways there are."""
    result = ran(
        "fedper",
        tmp_path / "run",
        rounds=4,
        cohort=2,
        evaluation={"every": 1, "models": ["personal", "finetuned"], "post_local": True},
        method_options={"budget": {"steps": 2}, "adapt": {"steps": 1}},
    )
    return result, tmp_path / "run"


COSTS = {
    *("bytes_down", "bytes_up", "values_down", "values_up", "network_passes"),
    *("flops", "dense_flops", "search_flops", "peak_bytes"),
}


def rows_of(folder):
    with gzip.open(folder / "clients.csv.gz", "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_run_folder_holds_these_files_and_no_others(played):
    _, folder = played

    assert sorted(path.name for path in folder.iterdir()) == [
        "clients.csv.gz",
        "experiment.toml",
        "federation.csv.gz",
        "personal.safetensors",
        "result.json",
        "rounds.jsonl",
        "shared.safetensors",
        "visits.csv.gz",
    ]


def test_there_is_one_json_line_per_round(played):
    result, folder = played
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text(encoding="utf-8").splitlines()]

    assert [line["round"] for line in lines] == [1, 2, 3, 4]
    keys = {"round", "cohort", "losses", "phase_seconds", "used", "seconds", "metrics", *COSTS}
    assert all(line.keys() == keys for line in lines)
    assert all(len(line["cohort"]) == 2 for line in lines)
    assert all(line["losses"].keys() == {"shared+personal"} for line in lines)
    assert lines == json.loads(json.dumps(result.history))
    assert lines == records.read_rounds(folder)


def test_seconds_of_the_rounds_grow(played):
    _, folder = played
    seconds = [line["seconds"] for line in records.read_rounds(folder)]

    assert seconds == sorted(seconds)
    assert seconds[0] > 0


def test_only_lines_of_evaluated_rounds_have_metrics(tmp_path):
    ran(out=tmp_path / "run", rounds=5, evaluation={"every": 3})

    assert ["metrics" in line for line in records.read_rounds(tmp_path / "run")] == [False, False, True, False, True]


def test_metrics_of_the_last_line_are_those_of_the_result(played):
    _, folder = played

    assert records.read_rounds(folder)[-1]["metrics"] == records.read_result(folder)["metrics"]


def test_clients_are_readable_after_many_appends_with_one_header(played):
    _, folder = played
    text = gzip.decompress((folder / "clients.csv.gz").read_bytes()).decode()

    rows = rows_of(folder)
    assert text.count("round,client,name,model,split,examples,accuracy,loss") == 1
    # 4 rounds, each: 2 models of 4 clients and 1 model of the 2 in the cohort, on 2 splits
    assert len(rows) == 4 * (2 * 4 + 2) * 2
    assert rows == list(records.read_clients(folder))


def test_rows_of_the_last_round_are_the_scores_of_the_result(played):
    result, folder = played
    last = [row for row in rows_of(folder) if row["round"] == "4"]

    expected = []
    for evaluation in result.evaluations:
        model = f"sampled/{evaluation.model}" if evaluation.sampled else evaluation.model
        expected += [(model, evaluation.split, score) for score in evaluation.scores]
    assert len(last) == len(expected)
    for row, (model, split, score) in zip(last, expected, strict=True):
        assert (row["model"], row["split"]) == (model, split)
        assert (int(row["client"]), int(row["examples"])) == (score.client, score.examples)
        assert row["name"] == result.federation.name(score.client)
        assert float(row["accuracy"]) == pytest.approx(score.accuracy, rel=1e-5)
        assert float(row["loss"]) == pytest.approx(score.loss, rel=1e-5)


def test_sampled_rows_are_of_the_cohort_alone(played):
    _, folder = played
    cohorts = {str(line["round"]): {str(client) for client in line["cohort"]} for line in records.read_rounds(folder)}

    for number, cohort in cohorts.items():
        sampled = {row["client"] for row in rows_of(folder) if row["round"] == number and "sampled/" in row["model"]}
        assert sampled == cohort


def test_saved_parameters_are_those_of_the_result(played):
    result, folder = played
    shared, personal = load_file(folder / "shared.safetensors"), load_file(folder / "personal.safetensors")

    assert same_bits(shared, result.server.shared)
    visited = sorted({client for line in result.history for client in line["cohort"]})
    expected = {f"{client}/{name}": value for client in visited for name, value in result.store.get(client).items()}
    assert same_bits(personal, expected)
    assert {name.split("/", 1)[1] for name in personal} == {"head.weight", "head.bias"}


def test_the_fingerprint_of_the_final_state_is_that_of_the_saved_parameters(played):
    result, folder = played
    shared, personal = load_file(folder / "shared.safetensors"), load_file(folder / "personal.safetensors")
    states: dict[int, dict] = {}
    for name, value in personal.items():
        client, _, parameter = name.partition("/")
        states.setdefault(int(client), {})[parameter] = value

    assert state_fingerprint(shared, sorted(states.items())) == result.fingerprint["final_state"]


def test_the_fingerprint_depends_on_every_bit_and_on_whose_it_is(played):
    result, _ = played
    shared, head = result.server.shared, result.store.get(result.history[0]["cohort"][0])
    moved = shared | {"body.1.bias": shared["body.1.bias"].clone()}
    moved["body.1.bias"][0] += 1e-7

    found = {
        state_fingerprint(shared, [(0, head)]),
        state_fingerprint(moved, [(0, head)]),
        state_fingerprint(shared, [(1, head)]),
        state_fingerprint(shared, []),
        state_fingerprint({}, [(0, head)]),
    }
    assert len(found) == 5
    assert all(re.fullmatch("[0-9a-f]{64}", text) for text in found)


def test_a_method_without_personal_part_saves_an_empty_one(tmp_path):
    ran("fedavg", tmp_path / "run")

    assert load_file(tmp_path / "run" / "personal.safetensors") == {}


def test_a_method_without_shared_part_saves_an_empty_one(tmp_path):
    ran("local", tmp_path / "run")

    assert load_file(tmp_path / "run" / "shared.safetensors") == {}
    assert len(load_file(tmp_path / "run" / "personal.safetensors")) == 4 * 4


def test_the_result_has_these_keys(played):
    result, folder = played
    found = json.loads((folder / "result.json").read_text(encoding="utf-8"))

    assert found.keys() == {
        *("version", "method", "seed", "rounds", "clients", "cohort", "rounds_to"),
        *("metrics", "selected", "cost", "fingerprint"),
        *("status", "engine", "engine_reason", "rounds_done", "headline", "metric", "metrics_round"),  # beyond the plan
        "parameters",
    }
    assert found["selected"].keys() == {"round", "by", "metrics"}
    assert found["cost"].keys() == {"seconds", "phase_seconds", *COSTS}
    assert found["fingerprint"].keys() == {"data", "split", "final_state"}
    assert found == json.loads(json.dumps(result.as_json())) == records.read_result(folder)


def test_the_result_says_what_was_run(played):
    _, folder = played
    found = records.read_result(folder)

    what = {key: found[key] for key in ("version", "status", "method", "seed", "rounds", "rounds_done", "clients")}
    assert what == {
        "version": __version__,
        "status": "finished",
        "method": "fedper",
        "seed": 0,
        "rounds": 4,
        "rounds_done": 4,
        "clients": 4,
    }
    # By the rule: a few clients of a few numbers are little work.
    assert (found["cohort"], found["engine"], found["headline"]) == (2, "cached", "personal")
    assert "little work" in found["engine_reason"]


def test_metrics_have_the_names_of_the_design_and_five_numbers_each(played):
    _, folder = played
    found = records.read_result(folder)

    for metrics in (found["metrics"], found["selected"]["metrics"]):
        assert set(metrics) == {
            f"{model}/{split}/{metric}"
            for model in ("personal", "finetuned", "sampled/post_local")
            for split in ("validation", "test")
            for metric in ("accuracy", "loss")
        }
        assert all(METRIC.fullmatch(name) for name in metrics)
        assert all(numbers.keys() == SUMMARY for numbers in metrics.values())


def test_the_selected_metrics_are_those_of_the_selected_round(played):
    _, folder = played
    selected = records.read_result(folder)["selected"]
    lines = {line["round"]: line["metrics"] for line in records.read_rounds(folder)}

    assert selected["by"] == "personal/validation/accuracy, weighted"
    assert selected["metrics"] == lines[selected["round"]]


def test_costs_are_the_bytes_and_passes_of_all_rounds(tmp_path):
    ran("fedavg", tmp_path / "run", method_options={"budget": {"epochs": 3, "batch": 4}})

    # the body has 4 * 5 + 5 values, the head 5 * 4 + 4: 49 for 4 clients in 2 rounds, each way; every value has 4
    # bytes, and a message has less than 100 bytes of names and shapes
    cost = records.read_result(tmp_path / "run")["cost"]
    assert (cost["values_down"], cost["values_up"]) == (49 * 4 * 2, 49 * 4 * 2)
    assert 49 * 4 * 8 < cost["bytes_down"] < (49 * 4 + 100) * 8
    assert 0 < cost["bytes_up"] <= cost["bytes_down"]
    assert cost["network_passes"] == pytest.approx(3 * 4 * 2)
    assert cost["seconds"] > 0
    lines = records.read_rounds(tmp_path / "run")
    assert sum(line["bytes_up"] for line in lines) == cost["bytes_up"]


def test_only_the_shared_part_costs_bytes(tmp_path):
    ran("fedper", tmp_path / "run", rounds=1, cohort=3, method_options={"budget": {"steps": 1}})

    # the body alone, 25 values, for 3 clients
    cost = records.read_result(tmp_path / "run")["cost"]
    assert (cost["values_down"], cost["values_up"]) == (75, 75)
    assert 300 < cost["bytes_down"] < 600


def test_a_round_without_clients_is_a_line_like_the_others(tmp_path):
    # the seed is one whose first cohorts are: some, none, some
    result = ran("fedavg", tmp_path / "run", rounds=12, participation={"rule": "binomial", "rate": 0.2})

    lines = records.read_rounds(tmp_path / "run")
    empty = [line for line in lines if not line["cohort"]]
    assert len(lines) == 12
    assert empty
    assert all((line["bytes_up"], line["network_passes"], line["losses"]) == (0, 0.0, {}) for line in empty)
    assert result.status == "finished"


@pytest.mark.parametrize("name", ["result.json", "rounds.jsonl"])
def test_records_are_json_for_every_reader_even_if_a_loss_is_no_number(name, tmp_path):
    # a server step so large that the network's outputs are no numbers, while all parameters still are
    ran("fedavg", tmp_path / "run", rounds=1, server={"lr": 1e25})

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    json.loads((tmp_path / "run" / name).read_text(encoding="utf-8"), parse_constant=refuse)


def test_a_run_from_python_writes_the_same_files_but_no_experiment(tmp_path):
    run(fedavg(), built().federation, mlp(shape=(4,), classes=4), rounds=1, out=tmp_path / "run")

    names = {path.name for path in (tmp_path / "run").iterdir()}
    tables = {"clients.csv.gz", "federation.csv.gz"}
    files = {*tables, "personal.safetensors", "result.json", "rounds.jsonl", "shared.safetensors"}
    assert names == files | {"visits.csv.gz"}
