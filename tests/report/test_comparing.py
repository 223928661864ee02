"""Numbers over seeds and against a reference, from folders written by hand."""

from __future__ import annotations

import json

import pytest

from plures.core.errors import InvalidConfig
from plures.report.compare_legend import legend, notes
from plures.report.comparing import Asked, compare_series
from plures.report.references import read_with_reference
from tests.report.run_folders import write_clients, write_run

INF = float("inf")


def comparison(*folders, against=None, **asked):
    return compare_series(*read_with_reference(folders, against), Asked(**asked))


@pytest.fixture
def runs(tmp_path):
    """Two methods, two seeds, three clients with 10, 20 and 10 examples."""
    found = []
    for seed, shift in ((0, 0.0), (1, 0.1)):
        mine = {"personal/test": [0.6 + shift, 0.5, 0.4], "personal/train": [0.9, 0.9, 0.9], "global/test": [0.0] * 3}
        theirs = {"global/test": [0.5, 0.5, 0.5], "personal/test": [0.5] * 3}
        sizes = [10, 20, 10]
        found.append(write_run(tmp_path / f"a{seed}", mine, method="fedalt", seed=seed, examples=sizes))
        reference = write_run(tmp_path / f"b{seed}", theirs, seed=seed, headline="global", examples=sizes)
        found.append(reference)
    return found


def test_mean_and_std_are_over_seeds_with_ddof_0(runs):
    """Pooled: (6 + 10 + 4) / 40 = 0.5 and (7 + 10 + 4) / 40 = 0.525; mean 0.5125, std 0.0125."""
    own, reference = comparison(*runs).rows

    assert (own.last.weighted.mean, own.last.weighted.std) == pytest.approx((0.5125, 0.0125))
    assert own.last.weighted.values == pytest.approx((0.5, 0.525))
    assert (own.last.bottom_decile.mean, own.last.worst.mean) == (0.4, 0.4)
    assert (own.model, reference.model) == ("personal", "global")
    assert (own.seeds, own.num_bytes, own.selected_rounds) == ((0, 1), 1500.0, (5, 5))


def test_differences_are_paired_by_seed(runs):
    found = comparison(*runs)
    own, reference = found.rows

    assert found.reference == "fedavg"
    assert own.difference.per_seed.values == pytest.approx((0.0, 0.025))
    assert own.difference.per_seed.std == pytest.approx(0.0125)
    assert own.difference.interval.low <= 0.0125 <= own.difference.interval.high
    assert (own.difference.seeds, own.difference.clients) == ((0, 1), 3)
    assert reference.difference is None
    assert own.relative_rounds == reference.relative_rounds == 1.0


def test_what_becomes_of_clients_is_told_of_splits_that_both_have(runs):
    deltas = comparison(*runs).rows[0].difference.deltas

    assert list(deltas) == ["test"]
    assert (deltas["test"].helped, deltas["test"].hurt, deltas["test"].same) == (1, 1, 1)


def test_another_model_may_be_compared(runs):
    own, _ = comparison(*runs, model="global").rows

    assert own.model == "global"
    assert own.difference.per_seed.mean == -0.5


def test_a_label_without_the_model_has_empty_places(runs, tmp_path):
    bare = write_run(tmp_path / "bare", {"personal/test": [0.1] * 3}, method="local")

    row = comparison(*runs, bare, model="global").rows[-1]

    assert (row.label, row.last.weighted, row.difference) == ("local", None, None)
    with pytest.raises(InvalidConfig, match=r"no scores finetuned/test/accuracy.*personal, global"):
        comparison(*runs, model="finetuned")
    with pytest.raises(InvalidConfig, match=r"fedalt: personal, global; fedavg: global, personal; local: personal\.$"):
        comparison(*runs, bare, model="finetuned")


def test_newcomers_are_compared_only_among_themselves(tmp_path):
    mine = {"personal/test": [0.9], "newcomers/finetuned/test": [0.6, 0.8]}
    theirs = {"global/test": [0.1], "newcomers/global/test": [0.5, 0.5], "newcomers/finetuned/test": [0.0, 0.0]}
    runs = [write_run(tmp_path / "a", mine, method="fedalt", examples=[10, 10])]
    runs.append(write_run(tmp_path / "b", theirs, headline="global", examples=[10, 10]))

    assert comparison(*runs).rows[0].difference.clients == 1
    own, reference = comparison(*runs, newcomers=True).rows
    assert (own.model, reference.model) == ("newcomers/finetuned", "newcomers/global")
    assert own.difference.per_seed.mean == pytest.approx(0.2)
    assert own.difference.clients == 2


def test_rounds_of_another_model_are_read_from_the_rounds(runs):
    """The share is had in round 2 of 5 by fedalt and in round 5 by fedavg."""
    lines = [
        {"round": round, "metrics": {"personal/test/accuracy": {"weighted": value}}}
        for round, value in ((1, 0.1), (2, 0.42), (5, 0.5))
    ]
    for folder in (runs[0], runs[2]):
        (folder / "rounds.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        result["rounds_to"]["metric"] = "global/test/accuracy"
        (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")

    assert comparison(*runs, model="personal").rows[0].relative_rounds == pytest.approx(0.4)


def test_without_a_common_seed_there_is_no_difference(runs):
    own, reference = comparison(runs[0], runs[3]).rows

    assert (own.difference, own.relative_rounds) == (None, None)
    assert reference.relative_rounds == 1.0


def test_a_smaller_error_is_the_best_and_pooled_as_squares(tmp_path):
    """RMSEs of 3 and 4 pool to sqrt(12.5), of 2 and 2 to 2."""
    one = write_run(tmp_path / "a", {"personal/test": [3.0, 4.0]}, metric="rmse")
    two = write_run(tmp_path / "b", {"personal/test": [2.0, 2.0]}, metric="rmse", method="local")

    found = comparison(one, two)

    assert found.best() == {"local"}
    assert found.rows[1].difference.per_seed.mean == pytest.approx(2 - 12.5**0.5)
    assert found.rows[1].difference.deltas["test"].helped == 2
    assert found.as_json()["smaller_is_better"] is True


def best_of(tmp_path, metric="accuracy", **by_method) -> set[str]:
    """The best of labels, each with one value per seed."""
    for method, values in by_method.items():
        for seed, value in enumerate(values):
            folder = tmp_path / f"{method}{seed}"
            write_run(folder, {"personal/test": [value]}, method=method, seed=seed, metric=metric)
    return comparison(*sorted(tmp_path.iterdir())).best()


def test_labels_within_one_std_of_the_best_are_as_good(tmp_path):
    """0.75 +- 0.125 reaches down to 0.625: 0.625 is a tie, 0.59375 is none, however large its own std is."""
    found = best_of(tmp_path, local=(0.625, 0.875), ditto=(0.625, 0.625), fedavg=(0.1875, 1.0), apfl=(0.5, 0.5))
    assert found == {"local", "ditto"}


def test_of_errors_the_std_of_the_best_reaches_up(tmp_path):
    """0.5 +- 0.25 reaches up to 0.75."""
    found = best_of(tmp_path, "mae", local=(0.25, 0.75), ditto=(0.75, 0.75), fedavg=(0.75, 0.875))
    assert found == {"local", "ditto"}


def test_with_one_seed_only_equal_values_are_as_good(tmp_path):
    assert best_of(tmp_path, local=(0.75,), ditto=(0.75,), fedavg=(0.7499,)) == {"local", "ditto"}


def test_a_best_label_of_one_seed_has_no_std_to_reach_down(tmp_path):
    """0.75 once; 0.74 +- 0.25 would reach up to it, but its own std does not count."""
    assert best_of(tmp_path, local=(0.75,), fedavg=(0.49, 0.99)) == {"local"}


def test_where_all_models_overflow_none_is_the_best(tmp_path):
    assert best_of(tmp_path, "rmse", local=(INF,), fedavg=(INF, 1.0)) == set()


def test_a_metric_that_no_client_has_leaves_its_place_empty(tmp_path):
    run = write_run(tmp_path / "a", {"personal/test": [0.5]})
    result = json.loads((run / "result.json").read_text(encoding="utf-8"))
    result["metrics"]["personal/test/accuracy"] = dict.fromkeys(("weighted", "bottom_decile", "worst"))
    (run / "result.json").write_text(json.dumps(result), encoding="utf-8")

    assert comparison(run).rows[0].last.weighted is None
    assert comparison(run).best() == set()


def test_the_json_has_every_number(runs):
    found = comparison(*runs).as_json()

    own = found["labels"][0]
    assert found["ddof"] == 0
    assert own["difference"]["pairs"] == 2
    assert set(own["difference"]["interval"]) == {"low", "high", "level", "resamples"}
    assert own["selected"]["rounds"] == [5, 5]
    json.dumps(found)


def overflowing(tmp_path):
    """Two seeds; under the second the model of one of two clients overflows. The reference has errors of 2."""
    for seed, error in ((0, 1.0), (1, INF)):
        write_run(tmp_path / f"a{seed}", {"personal/test": [1.0, error]}, metric="rmse", seed=seed, method="local")
        write_run(tmp_path / f"b{seed}", {"personal/test": [2.0, 2.0]}, metric="rmse", seed=seed)
    return sorted(tmp_path.iterdir())


def test_an_infinite_error_is_looked_up_where_json_could_not_hold_it(tmp_path):
    found = comparison(*overflowing(tmp_path))
    own = found.rows[0]

    assert own.last.weighted.values == (1.0, INF)
    assert (own.last.weighted.mean, own.last.bottom_decile.mean, own.last.worst.mean) == (INF, INF, INF)
    assert own.selected.weighted.mean == INF
    assert (own.difference.per_seed.values, own.difference.interval) == ((-1.0, INF), None)
    assert (own.difference.deltas["test"].helped, own.difference.deltas["test"].hurt) == (1, 1)
    assert found.best() == {"fedavg"}
    assert found.as_json()["labels"][0]["difference"]["interval"] is None


def test_numbers_of_the_chosen_round_are_looked_up_in_that_round(tmp_path):
    """Infinite for one of three clients in round 2, which was chosen, finite in the last round."""
    run = write_run(tmp_path / "a", {"personal/test": [1.0, 1.0, 1.0]}, metric="rmse")
    rows = [
        (round, client, f"c{client}", "personal", "test", 10, value)
        for round, values in ((1, [3.0, 3.0, 3.0]), (2, [1.0, INF, 2.0]), (5, [1.0, 1.0, 1.0]))
        for client, value in enumerate(values)
    ]
    write_clients(run, [("rmse",)], [rows])
    nothing = dict.fromkeys(("weighted", "bottom_decile", "worst"))
    change(run, selected={"round": 2, "metrics": {"personal/test/rmse": nothing}})

    row = comparison(run).rows[0]

    assert (row.selected.weighted.mean, row.selected.worst.mean, row.last.weighted.mean) == (INF, INF, 1.0)


def change(run, **facts):
    result = json.loads((run / "result.json").read_text(encoding="utf-8"))
    (run / "result.json").write_text(json.dumps(result | facts), encoding="utf-8")


def pipeline(tmp_path, *later, name="own", **more):
    """A run that had 0.8 of its final value in round 5, and 1,500 bytes; before it 10 rounds with 3,000 bytes."""
    kept = tmp_path / "kept"
    if not kept.exists():
        cost = {"cost": {"bytes_down": 2000, "bytes_up": 1000}}
        write_run(kept, {"global/test": [0.5, 0.5]}, headline="global", result=cost)
    stages = [{"stage": "pretrain", "rounds": 10, "folder": str(kept)}]
    stages += [{"stage": stage, "rounds": 5, "folder": str(tmp_path / name)} for stage in later]
    values = more.pop("values", {"personal/test": [0.6, 0.4]})
    return write_run(
        tmp_path / name, values, method="fedalt", result={"stages": stages} | more.pop("result", {}), **more
    )


def test_stage_a_counts_among_bytes_and_rounds(tmp_path):
    """1,500 + 3,000 bytes; 10 + 5 rounds over the reference's 5."""
    reference = write_run(tmp_path / "fedavg", {"global/test": [0.5, 0.5]}, headline="global")

    other, own = comparison(reference, pipeline(tmp_path, "personal")).rows

    assert (own.num_bytes, own.relative_rounds, own.not_counted) == (4500.0, 3.0, ())
    assert (other.num_bytes, other.relative_rounds) == (1500.0, 1.0)


def test_bytes_of_a_stage_a_that_is_gone_are_known_to_be_missing(tmp_path):
    own = pipeline(tmp_path, "personal")
    (tmp_path / "kept").rename(tmp_path / "lost")

    found = comparison(own)

    assert (found.rows[0].num_bytes, found.rows[0].not_counted) == (1500.0, (0,))
    assert found.as_json()["labels"][0]["seeds_without_bytes_of_stage_a"] == [0]
    assert notes(found) == ["sent leaves out stage (a), whose folder cannot be read: fedalt."]


def test_labels_without_stage_a_have_no_difference_to_it(tmp_path):
    plain = write_run(tmp_path / "fedavg", {"global/test": [0.5, 0.5]}, headline="global")

    found = comparison(plain, pipeline(tmp_path, "personal"), against="stage-a")

    assert [row.difference is None for row in found.rows] == [True, False]
    assert notes(found) == ["No stage (a), and so no difference: fedavg."]
    assert "1 pair of like seed" in legend(found)
    with pytest.raises(InvalidConfig, match=r"no stage \(a\)"):
        comparison(plain, against="stage-a")


def test_a_reference_without_the_model_stands_with_its_own(tmp_path):
    own = write_run(tmp_path / "a", {"personal/test": [0.1] * 2, "guarded/test": [0.75, 0.5]}, method="ditto")
    reference = write_run(tmp_path / "b", {"global/test": [0.5, 0.5]}, headline="global")

    found = comparison(own, reference, model="guarded")

    assert [row.model for row in found.rows] == ["guarded", "global"]
    assert found.rows[0].difference.per_seed.mean == pytest.approx(0.125)
    assert found.rows[1].last.weighted.mean == 0.5
    assert notes(found) == ["fedavg has no guarded model and stands with the one that it is judged by, global."]
    assert notes(comparison(own, reference)) == []


@pytest.mark.parametrize(("seed", "told"), [(1, "no label has a seed in common with fedavg"), (0, "no train scores")])
def test_why_there_are_no_differences_is_said(tmp_path, seed, told):
    own = write_run(tmp_path / "a", {"personal/test": [0.1], "personal/train": [0.2]}, method="ditto", seed=seed)
    reference = write_run(tmp_path / "b", {"global/test": [0.5]}, headline="global")

    found = comparison(own, reference, split="train")

    assert [told in note for note in notes(found)] == [True]
    assert "pair" not in legend(found)


def test_a_fine_tuned_model_is_scored_in_the_last_round_alone(tmp_path):
    chosen = {"selected": {"round": 3, "metrics": {"personal/test/accuracy": {"weighted": 0.5}}}}
    values = {"personal/test": [0.5, 0.5], "finetuned/test": [0.6, 0.8]}
    own = pipeline(tmp_path, "personal", "tune", values=values, headline="finetuned", result=chosen)
    change(own, rounds_to={"metric": "personal/test/accuracy", "share_of_final": 2})
    (own / "rounds.jsonl").write_text("", encoding="utf-8")

    found = comparison(own)

    assert (found.rows[0].selected.weighted, found.rows[0].relative_rounds) == (None, None)
    assert ["scored in the last round alone: fedalt" in note for note in notes(found)] == [True]
    assert notes(comparison(own, model="personal")) == []


def test_clients_that_lack_a_value_are_counted_below(tmp_path):
    own = write_run(tmp_path / "a", {"personal/test": [0.5, None, 0.5]}, method="ditto")
    reference = write_run(tmp_path / "b", {"personal/test": [0.5, 0.5, 0.5]})

    assert notes(comparison(own, reference)) == ["Clients left out of differences, as they lack a value: ditto 1."]
