"""Trackers: what they are told, and that none of them can end a run."""

from __future__ import annotations

import sys
import warnings

import pytest

import plures
from plures import load_experiment, make_experiment, run_experiment, run_study
from plures.core.errors import Diverged, InvalidConfig
from plures.data import digits_federation
from plures.recipes.track_tables import Track, make_trackers
from plures.recipes.tracking import TRACKERS, Tracking, make_tracker, numbers_of
from tests.recipes.helpers import problem_of, ran, table

FEDERATION = digits_federation(num_clients=5, classes_per_client=2)
BAD_RATE = {"lr": 1e38, "budget": {"steps": 2}}


class Listener:
    """Notes what it is told; fails where it is asked to."""

    name = "listener"

    def __init__(self, fails: str = "") -> None:
        self.fails, self.heard, self.rounds, self.status, self.last = fails, None, {}, None, {}

    def started(self, run):
        self.heard = run
        self.fail("started")

    def round_done(self, round, numbers):
        self.fail(f"round {round}")
        self.rounds[round] = dict(numbers)

    def ended(self, status, numbers):
        self.status, self.last = status, dict(numbers)
        self.fail("ended")

    def fail(self, where):
        if where == self.fails:
            raise OSError("the network is gone\nand more")


def run_with(*trackers, **changes):
    settings = {"rounds": 3, "evaluation": plures.EvaluationPlan(every=2)} | changes
    return plures.run("fedalt", FEDERATION, plures.models.mlp, trackers=trackers, **settings)


def test_a_tracker_is_told_every_round_with_the_numbers_of_the_record(tmp_path):
    listener = Listener()

    result = run_with(listener, out=tmp_path / "run", title="mine")

    assert list(listener.rounds) == [1, 2, 3]
    line = result.history[1]
    sent = sum(one["bytes_down"] + one["bytes_up"] for one in result.history[:2])
    accuracy = line["metrics"]["personal/test/accuracy"]
    told = listener.rounds[2]
    assert told["personal/test/accuracy"] == accuracy["weighted"]
    assert told["personal/test/accuracy_bottom_decile"] == accuracy["bottom_decile"]
    assert told["loss/shared"] == line["losses"]["shared"]
    assert (told["bytes"], told["bytes_up"], told["clients"]) == (sent, line["bytes_up"], 5)
    assert told["seconds"] == line["seconds"]
    assert "personal/test/accuracy" not in listener.rounds[1]
    assert (listener.heard.title, listener.heard.folder) == ("mine", tmp_path / "run")
    assert listener.heard.facts["method"] == "fedalt"
    assert listener.status == "finished"
    assert listener.last["selected/round"] == result.selected_round


def test_a_tracker_is_told_numbers_alone():
    listener = Listener()

    run_with(listener)

    assert all(type(value) is float for numbers in listener.rounds.values() for value in numbers.values())


def test_numbers_that_are_none_are_left_out():
    line = {"seconds": 1.0, "cohort": [1], "bytes_up": 0, "bytes_down": 0, "losses": {"a": float("nan"), "b": None}}

    assert numbers_of(line).keys() == {"seconds", "clients", "bytes_up", "bytes_down"}


def test_a_tracker_that_fails_on_the_way_is_warned_about_once_and_the_run_goes_on():
    failing, other = Listener("round 2"), Listener()

    with pytest.warns(
        UserWarning, match="listener failed in round 2 .* left out .* OSError: the network is gone$"
    ) as seen:
        result = run_with(failing, other)

    assert len(seen) == 1
    assert result.status == "finished"
    assert list(failing.rounds) == [1]
    assert failing.status is None
    assert list(other.rounds) == [1, 2, 3]


def test_a_tracker_that_fails_at_the_end_does_not_take_the_result_away(tmp_path):
    with pytest.warns(UserWarning, match="listener failed at the end"):
        result = run_with(Listener("ended"), out=tmp_path / "run")

    assert (result.status, (tmp_path / "run/result.json").is_file()) == ("finished", True)


def test_a_tracker_that_cannot_start_is_an_error_before_the_first_round_and_leaves_nothing(tmp_path):
    first = Listener()

    with pytest.raises(InvalidConfig, match="The tracker listener cannot start: the network is gone"):
        run_with(first, Listener("started"), out=tmp_path / "run")

    assert not (tmp_path / "run").exists()
    assert first.status == "failed"
    assert first.rounds == {}


def test_a_run_that_is_interrupted_closes_its_trackers_with_that_status():
    class Stops(Listener):
        def round_done(self, round, numbers):
            super().round_done(round, numbers)
            raise KeyboardInterrupt

    stops, other = Stops(), Listener()

    with pytest.raises(KeyboardInterrupt):
        run_with(other, stops)

    assert (other.status, stops.status) == ("interrupted", "interrupted")


def test_a_run_that_diverges_closes_its_trackers_with_that_status(monkeypatch):
    listener = Listener()
    monkeypatch.setattr("plures.recipes.make_trackers", lambda track: [listener])

    with pytest.raises(Diverged):
        ran(method_options=BAD_RATE)

    assert listener.status == "diverged"


@pytest.mark.parametrize(
    ("name", "package"), [("tensorboard", "tensorboard"), ("wandb", "wandb"), ("mlflow", "mlflow")]
)
def test_a_missing_package_is_told_before_the_first_round_with_its_extra(tmp_path, monkeypatch, name, package):
    for module in [module for module in sys.modules if module.split(".")[0] == package or name in module]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)

    problem = problem_of(out=tmp_path / "run", track={name: True})

    assert f"The tracker {name} needs a package that is not installed" in str(problem)
    assert "pip install 'plures[track]'" in str(problem)
    assert not (tmp_path / "run").exists()


def test_a_missing_package_is_told_before_a_study_begins(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "plures.recipes.trackers.wandb", None)

    with pytest.raises(InvalidConfig, match="wandb needs a package"):
        run_study(make_experiment(table(track={"wandb": True})), out=tmp_path / "study", seeds=2)

    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize(
    ("track", "says"),
    [
        ({"tensorbord": True}, "Unknown key 'track.tensorbord'"),
        ({"wandb": {"projekt": "x"}}, "projekt"),
        ({"wandb": {"mode": "of"}}, "mode"),
        ({"mlflow": 3}, "mlflow"),
    ],
)
def test_a_wrong_table_is_told(track, says):
    assert says in str(problem_of(track=track))


def test_names_of_the_command_line_join_the_file_and_keep_its_options():
    given = make_experiment(table(track={"wandb": {"project": "mine"}})).track

    assert given.also(["wandb", "mlflow"]).asked() == {"wandb": {"project": "mine"}, "mlflow": {}}
    with pytest.raises(InvalidConfig, match=r"There is no tracker 'wand'\. Did you mean 'wandb'"):
        given.also(["wand"])


def test_what_is_no_tracker_is_refused():
    for wrong in (["tensorbord"], "wandb", [Listener], [3]):
        with pytest.raises(InvalidConfig, match="tracker"):
            plures.run("fedavg", FEDERATION, plures.models.mlp, rounds=1, trackers=wrong)


def test_every_tracker_of_the_table_can_be_made_and_stands_in_the_schema():
    assert [make_tracker(name).name for name in TRACKERS] == list(Track.model_fields)
    assert make_trackers(Track()) == []


def test_the_resolved_configuration_does_not_name_trackers(tmp_path, monkeypatch):
    monkeypatch.setattr("plures.recipes.make_trackers", lambda track: [Listener()])

    ran(out=tmp_path / "run", track={"tensorboard": True})

    assert load_experiment(tmp_path / "run/experiment.toml").track.asked() == {}


def test_without_trackers_nothing_is_told():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Tracking(trackers=[]).ended("finished", None)


def test_runs_with_and_without_trackers_are_the_same_to_the_bit(tmp_path, monkeypatch):
    plain = run_experiment(make_experiment(table("fedalt")))
    monkeypatch.setattr("plures.recipes.make_trackers", lambda track: [Listener()])

    assert run_experiment(make_experiment(table("fedalt"))).fingerprint == plain.fingerprint
