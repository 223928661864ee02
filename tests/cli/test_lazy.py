"""Commands are imported when they are asked for; help, completion and lists of runs never import torch."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest
from typer.main import get_command

import plures as package
from plures.cli.app import Commands, app
from tests.cli.helpers import environment

WITHOUT_TORCH = """
import sys
sys.argv = ["plures", *{args!r}]
from plures.cli import main
try:
    main()
except SystemExit as end:
    assert end.code in (0, None), end.code
found = sorted(set({heavy!r}) & set(sys.modules))
assert not found, found
"""
HEAVY = ("torch", "numpy", "sklearn", "scipy", "pydantic", "plures.recipes", "tensorboard", "wandb", "mlflow")


def ends_well(code: str, cwd) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=environment(), capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["runs"], ["runs", "--help"]], ids=" ".join)
def test_help_and_lists_of_runs_import_nothing_heavy(tmp_path, args):
    (tmp_path / "runs").mkdir()

    ends_well(WITHOUT_TORCH.format(args=args, heavy=HEAVY), tmp_path)


def test_no_command_imports_torch_before_it_runs(tmp_path):
    ends_well(
        "import sys\nfrom typer.main import get_command\nfrom plures.cli.app import app\n"
        "group = get_command(app)\n"
        "assert all(command.params or command.commands for command in group.commands.values())\n"
        "assert 'torch' not in sys.modules\n",
        tmp_path,
    )


@pytest.mark.parametrize("name", Commands.table)
def test_the_summary_of_a_command_is_the_first_line_of_its_help(name):
    command = get_command(app).get_command(None, name)

    assert Commands.table[name].summary == inspect.cleandoc(command.help).splitlines()[0]
    assert command.name == name


def test_a_command_that_is_almost_right_is_suggested(plures):
    said = plures("watc")

    assert said.code == 2
    assert "Did you mean 'watch'?" in said.err.replace("\n", " ").replace("│", "").replace("  ", " ")


def test_the_package_has_its_names_and_no_others():
    for name in package.__all__:
        assert getattr(package, name) is not None
    assert set(package.__all__) <= set(dir(package))
    assert package.wire.Codec is not None
    with pytest.raises(AttributeError, match="'plures' has no attribute 'rnu'"):
        package.rnu  # noqa: B018


def test_importing_the_package_does_not_import_torch(tmp_path):
    ends_well("import sys, plures\nassert 'torch' not in sys.modules", tmp_path)
