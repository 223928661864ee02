"""What the page about watching shows is what runs."""

from __future__ import annotations

import re
import tomllib

from plures import data, load_experiment, make_experiment, models, run, run_experiment
from plures.recipes.track_tables import Track
from tests.docs.test_pages import ROOT, blocks

PAGE = "docs/watching.md"


def test_the_tracker_of_the_page_is_told_every_round(capsys):
    (shown,) = blocks(PAGE, "python")

    exec(compile(shown, "watching.md", "exec"), {})

    first, *rounds, last = capsys.readouterr().out.splitlines()
    assert first == "fedavg seed 0"
    assert [line.split()[0] for line in rounds] == ["1", "2", "3", "4", "5"]
    assert last.startswith("finished {'selected/round'")


def test_the_file_of_the_page_runs_and_its_options_are_all_there_are(tmp_path):
    (shown,) = blocks(PAGE, "toml")

    run_experiment(make_experiment(tomllib.loads(shown) | {"rounds": 1}), out=tmp_path / "run")

    assert (tmp_path / "run/tensorboard").is_dir()
    track = make_experiment(tomllib.loads(re.sub(r"^# ", "", shown, flags=re.MULTILINE))).track
    assert track.asked().keys() == Track.model_fields.keys()
    for name in ("wandb", "mlflow"):
        assert getattr(track, name).model_fields_set == set(type(getattr(track, name)).model_fields)


def test_the_names_that_trackers_are_told_are_those_of_the_page(tmp_path):
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    heard: dict[str, float] = {}

    class Listener:
        name = "listener"

        def started(self, run): ...

        def round_done(self, round, numbers):
            heard.update(numbers)

        def ended(self, status, numbers):
            heard.update(numbers)

    run(
        "fedalt",
        data.digits_federation(num_clients=5, classes_per_client=2),
        models.mlp,
        rounds=1,
        trackers=[Listener()],
    )
    named = {name.split("/")[0] for name in heard if not name.startswith(("personal/", "finetuned/"))}
    assert all(re.search(rf"^\|.*`{name}[`/]", text, re.MULTILINE) for name in named), named


def test_the_commands_of_the_page_name_a_file_that_is_there():
    assert load_experiment(ROOT / "examples/experiment.toml").track.asked() == {}
