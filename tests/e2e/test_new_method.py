"""`plures new-method`: what it writes passes as it is, in a checkout and in a folder of one's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from plures.core.errors import InvalidConfig, RunFolderError
from plures.methods import METHODS
from plures.recipes.new_method import methods_table, write_method, write_tables
from tests.cli.helpers import PLURES, environment, process

ROOT = Path(__file__).parents[2]
COPIED = ("src", "tests", "docs", "examples", "tools", "mkdocs.yml", "pyproject.toml", "CITATION.cff")
COPIED += ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
PART = "tests/conformance tests/golden tests/methods/test_my_method.py tests/docs tests/e2e/test_new_method.py"
PART += " tests/methods/test_newcomers.py tests/oracles/test_oracles.py tests/recipes/test_resolved.py"


@pytest.fixture
def checkout(tmp_path):
    ignored = shutil.ignore_patterns("__pycache__")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def run_in(folder: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """With the folder's own Plures in the place of the installed one."""
    settings = environment(PYTHONPATH=os.pathsep.join([str(folder / "src"), str(folder)]))
    return subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env=settings,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )


def test_in_a_checkout_all_that_is_written_passes_the_tests_and_the_checks(checkout):
    said = run_in(checkout, PLURES, "new-method", "my_method", "--title", "MyMethod")
    assert said.returncode == 0, said.stderr
    written = [line.split(" ", 1)[1] for line in said.stdout.splitlines() if line.startswith(("wrote ", "changed "))]
    assert "src/plures/methods/my_method.py" in written
    assert all((checkout / path).is_file() for path in written)

    names = "my_method or registered or every_method_has or registry or every_page or table_of"
    tests = run_in(checkout, sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-k", names, *PART.split())
    assert tests.returncode == 0, tests.stdout[-3000:]
    passed = int(tests.stdout.split(" passed")[0].split()[-1])
    assert passed > 50  # each of its rows goes through every conformance test

    bin_folder = Path(sys.executable).parent
    style = run_in(checkout, bin_folder / "ruff", "check", "src", "tests")
    assert style.returncode == 0, style.stdout
    shape = run_in(checkout, bin_folder / "ruff", "format", "--check", "src", "tests")
    assert shape.returncode == 0, shape.stdout


def test_in_ones_own_folder_the_method_is_tested_and_run_by_a_file(tmp_path):
    assert process("new-method", "mine", cwd=tmp_path).returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.py", "test_mine.py"]
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "test_mine.py"],
        cwd=tmp_path,
        env=environment(PYTHONPATH=str(tmp_path)),
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert tests.returncode == 0, tests.stdout
    (tmp_path / "mine.toml").write_text('method = "mine:mine"\nrounds = 1\n', encoding="utf-8")
    said = process("run", "mine.toml", "--out", "results", cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    assert "personal/test/accuracy" in said.stdout


@pytest.mark.parametrize("name", ["My", "1st", "my-method", "class", "", "../up"])
def test_a_name_that_python_cannot_import_is_refused_and_nothing_written(name, tmp_path):
    with pytest.raises(InvalidConfig, match="cannot be a method's name"):
        write_method(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("title", ['Foo "Bar"', "a|b", "two\nlines", "back\\slash", ""])
def test_a_title_that_would_break_code_or_tables_is_refused(title, tmp_path):
    if title:
        with pytest.raises(InvalidConfig, match="cannot be used"):
            write_method("mine", tmp_path, title=title)
        assert list(tmp_path.iterdir()) == []
    else:  # none: the name is the title
        write_method("mine", tmp_path, title=title)


def test_a_name_that_would_hide_another_module_is_refused(tmp_path):
    with pytest.raises(InvalidConfig, match="'torch' is a module of Python's already"):
        write_method("torch", tmp_path)


def test_a_name_that_is_taken_is_refused(tmp_path):
    with pytest.raises(InvalidConfig, match=r"already, in src/plures/methods/fedavg\.py"):
        write_method("fedavg", tmp_path)


def test_a_file_that_is_there_is_never_overwritten(tmp_path):
    (tmp_path / "test_mine.py").write_text("precious", encoding="utf-8")
    with pytest.raises(RunFolderError, match=r"test_mine\.py: there already"):
        write_method("mine", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["test_mine.py"]
    assert (tmp_path / "test_mine.py").read_text(encoding="utf-8") == "precious"


def test_the_readmes_table_of_methods_is_that_of_the_registry():
    """If this fails: `plures methods --write`."""
    assert methods_table() in (ROOT / "README.md").read_text(encoding="utf-8")
    assert METHODS


def test_stale_tables_are_written_anew_and_right_ones_left_alone(checkout):
    for path in ("README.md", "docs/methods/README.md"):
        text = (checkout / path).read_text(encoding="utf-8")
        (checkout / path).write_text(text.replace("Li et al. 2020", "Authors year"), encoding="utf-8")
    assert write_tables(checkout) == [Path("README.md"), Path("docs/methods/README.md")]
    for path in ("README.md", "docs/methods/README.md"):
        assert (checkout / path).read_text(encoding="utf-8") == (ROOT / path).read_text(encoding="utf-8")
    assert write_tables(checkout) == []
