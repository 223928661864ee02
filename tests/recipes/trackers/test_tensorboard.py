"""TensorBoard: event files are read back by its own reader."""

from __future__ import annotations

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import plures
from plures.core.errors import InvalidConfig
from plures.data import digits_federation
from tests.recipes.helpers import ran


def events(folder):
    found = EventAccumulator(str(folder))
    found.Reload()
    return found


@pytest.fixture
def run(tmp_path):
    return ran("fedalt", tmp_path / "run", rounds=3, evaluation={"every": 2}, track={"tensorboard": True})


def test_scalars_are_the_numbers_of_the_records(run):
    found = events(run.folder / "tensorboard")

    accuracy = [(event.step, event.value) for event in found.Scalars("personal/test/accuracy")]
    recorded = [
        (line["round"], line["metrics"]["personal/test/accuracy"]["weighted"])
        for line in run.history
        if "metrics" in line
    ]
    assert [step for step, _ in accuracy] == [2, 3]
    assert [value for _, value in accuracy] == pytest.approx([value for _, value in recorded])
    assert len(found.Scalars("loss/personal")) == 3
    sent = sum(line["bytes_down"] + line["bytes_up"] for line in run.history)
    assert found.Scalars("bytes")[-1].value == pytest.approx(sent)


def test_the_configuration_and_the_status_are_texts(run):
    found = events(run.folder / "tensorboard")

    texts = {tag: found.Tensors(tag)[0].tensor_proto.string_val[0].decode() for tag in found.Tags()["tensors"]}
    assert 'method = "fedalt"' in texts["configuration/text_summary"]
    assert "status = finished" in texts["result/text_summary"]


def test_a_folder_of_ones_own_keeps_runs_apart(tmp_path):
    options = {"folder": str(tmp_path / "events")}
    for seed in (0, 1):
        ran("fedavg", tmp_path / f"seed-{seed}", rounds=1, seed=seed, track={"tensorboard": options})

    places = sorted(path.parent.name for path in (tmp_path / "events").rglob("events.out.*"))
    assert places == ["seed-0", "seed-1"]
    assert not (tmp_path / "seed-0" / "tensorboard").exists()


def test_a_run_without_a_folder_needs_one_for_the_events():
    federation = digits_federation(num_clients=5, classes_per_client=2)

    with pytest.raises(InvalidConfig, match="tensorboard needs a folder"):
        plures.run("fedavg", federation, plures.models.mlp, rounds=1, trackers=["tensorboard"])
