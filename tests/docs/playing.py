"""Plays the code of a page, block by block, as a reader would: writes its files, runs its code and its commands."""

from __future__ import annotations

import glob
import os
import re
import runpy
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from plures import make_experiment, run_experiment
from plures.cli import main
from plures.methods import METHODS

ROOT = Path(__file__).parents[2]
RUN = ("python", "py", "toml", "sh", "bash", "console")
"""Languages of blocks that must run."""
FILE_NAME = re.compile(r"# (\w[\w-]*\.(?:toml|py))\n")
"""A first line that says where a reader should save a block."""
EXPERIMENT = 'method = "fedalt"\nrounds = 1\n[data]\nclients = 6\n'
"""What stands for EXPERIMENT.toml."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str
    follows: bool
    """Nothing but blank lines stand between it and the block before."""


def blocks_of(text: str) -> list[Block]:
    found, end = [], -1
    for match in re.finditer(r"^```(\w*)[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        follows = end >= 0 and not text[end : match.start()].strip()
        found.append(Block(language=match[1], text=match[2], follows=follows))
        end = match.end()
    return found


def commands_of(block: str) -> list[str]:
    """The lines of a shell block; one that ends in a backslash goes on in the next."""
    return [line for line in block.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#")]


@dataclass(kw_only=True)
class Player:
    """A folder in which a page is followed, and what was printed last."""

    capsys: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch
    shorter: Mapping[str, str] = field(default_factory=dict)
    """Options that are added to commands that begin so, where a page would train for long."""
    skipped: Callable[[str], bool] = lambda line: False
    names: dict[str, Any] = field(default_factory=dict)
    said: str = ""

    def play(self, block: Block) -> None:
        if block.language in ("python", "py"):
            self.run_python(block.text)
        elif block.language == "toml":
            self.take_table(block.text)
        elif block.language in ("sh", "bash", "console"):
            for line in commands_of(block.text):
                if not self.skipped(line):
                    self.run_command(line)

    def save(self, text: str) -> bool:
        """Whether the block says where it goes; then it is there."""
        named = FILE_NAME.match(text)
        if named is not None:
            Path(named[1]).write_text(text, encoding="utf-8")
        return named is not None

    def run_python(self, text: str) -> None:
        self.capsys.readouterr()
        if not self.save(text):
            exec(compile(text, "page", "exec"), self.names)
        self.said = self.capsys.readouterr().out

    def take_table(self, text: str) -> None:
        """A file is for the commands that follow; what is none runs for a round."""
        if self.save(text):
            return
        table = {"method": "fedavg"} | tomllib.loads(text) | {"rounds": 1}
        for stage in table.get("pipeline", {}).values():
            if "rounds" in stage:
                stage["rounds"] = 1
        assert run_experiment(make_experiment(table)).status == "finished"

    def run_command(self, line: str) -> None:
        more = next((options for start, options in self.shorter.items() if line.startswith(start)), "")
        given = [*shlex.split(line, comments=True), *shlex.split(more)]
        words = [found for word in given for found in spread(word)]
        self.capsys.readouterr()
        if words[0] == "python":
            self.monkeypatch.setattr(sys, "argv", words[1:])
            runpy.run_path(words[1], run_name="__main__")
        else:
            assert words[0] == "plures", f"{line}: neither plures nor python. Say in NOT_RUN why it does not run."
            self.call(words)
        self.said = self.capsys.readouterr().out

    def call(self, words: list[str]) -> None:
        self.monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code in (0, None), f"{shlex.join(words)}\n{self.capsys.readouterr().err}"


def spread(word: str) -> list[str]:
    """As a shell does: the paths that a pattern matches, if there are some."""
    return sorted(glob.glob(word)) or [word] if "*" in word else [word]


@pytest.fixture
def followed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Iterator[Callable[..., Player]]:
    """A player in a new folder, which has the examples and an EXPERIMENT.toml; modules made there are forgotten."""
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "EXPERIMENT.toml").write_text(EXPERIMENT, encoding="utf-8")
    before, methods = set(sys.modules), dict(METHODS)
    yield lambda **options: Player(capsys=capsys, monkeypatch=monkeypatch, **options)
    METHODS.clear()
    METHODS.update(methods)
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path) + os.sep):
            del sys.modules[name]


# What a page shows of the output


NUMBER = re.compile(r"(\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)")


def alike(shown: str, said: str) -> bool:
    """The same words, and numbers that are near: other processors round otherwise."""
    ours, theirs = NUMBER.split(shown), NUMBER.split(said)
    if len(ours) != len(theirs) or any(map(differ, ours[::2], theirs[::2])):
        return False
    first = 1 if ours[0].strip() else 3  # a line that begins with a number begins with a name
    return all(map(near, ours[first::2], theirs[first::2]))


def differ(one: str, other: str) -> bool:
    """Spaces depend on the widths of numbers, and a sign on its side of zero."""
    return re.sub(r"[\s+-]", "", one) != re.sub(r"[\s+-]", "", other)


def near(one: str, other: str) -> bool:
    first, second = (float(number.replace(",", "")) for number in (one, other))
    return abs(first - second) <= max(8.0, 0.25 * max(first, second))


def unlike(shown: str, said: str) -> list[str]:
    """Lines of a page that the output lacks; `...` stands for any lines, and order counts."""
    left, missing, free = said.splitlines(), [], True
    for line in shown.splitlines():
        if line.strip() in ("...", ""):
            free = free or line.strip() == "..."
            continue
        left = [other for other in left if other.strip()] if not free else left
        places = [number for number, other in enumerate(left) if alike(line, other)]
        if not places or (not free and places[0] > 0):
            missing.append(line)
            continue
        left, free = left[places[0] + 1 :], False
    return missing
