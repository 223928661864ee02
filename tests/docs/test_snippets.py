"""Every block of code on every page runs, and the output that a page shows is what is printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.playing import ROOT, RUN, Block, alike, blocks_of, commands_of, followed, unlike

__all__ = ["followed"]

PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in [
        *map(ROOT.joinpath, ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
        *sorted(ROOT.glob("docs/**/*.md")),
    ]
}

ELSEWHERE = {
    "docs/methods/": "tests/docs/test_method_pages.py",
    "docs/deployment.md": "tests/deploy/flower_proxy/test_page.py",
    "docs/exporting.md": "tests/docs/test_exporting_page.py",
    "docs/tuning.md": "tests/docs/test_pages.py",
    "docs/watching.md": "tests/docs/test_watching_page.py",
}
"""Pages whose blocks another test runs: that test names the page or its folder."""

NOT_RUN = {
    ("README.md", "make demo"): "installs; tests/e2e/test_demo.py runs the demo",
    ("README.md", "make test"): "this is it",
    ("README.md", "plures cost"): "docs/costs.md has the same line, and what it prints",
    ("README.md", "plures advise"): "a recipe, docs/recipes/which-layer-to-personalise.md, runs it in full",
    ("CONTRIBUTING.md", "make help"): "installs nothing and shows the Makefile",
    ("CONTRIBUTING.md", "make test"): "this is it",
    ("docs/index.md", "make demo"): "installs; tests/e2e/test_demo.py runs the demo",
    ("docs/index.md", "pip install"): "needs the network",
    ("docs/reproducing.md", "plures paper pflego"): "half an hour; tests/papers/test_running.py runs a small paper",
    ("docs/reproducing.md", "plures paper fedspa"): "an hour or two where the data are at hand",
    ("docs/reproducing.md", "plures paper check"): "a quarter of an hour: make reproduce-micro",
    ("docs/tour.md", "plures demo"): "a minute; tests/e2e/test_demo.py runs it",
    (
        "docs/recipes/add-a-method.md",
        ".venv/bin/plures",
    ): "tests/e2e/test_new_method.py runs these in a copy of the checkout",
    (
        "docs/recipes/add-a-method.md",
        "OMP_NUM_THREADS=1",
    ): "tests/e2e/test_new_method.py runs these in a copy of the checkout",
    ("docs/recipes/add-a-method.md", "make "): "tests/e2e/test_new_method.py runs these in a copy of the checkout",
    ("docs/recipes/add-a-method.md", "pytest "): "tests/e2e/test_new_method.py runs the test that is written",
}
"""Commands that cannot run here: the page, how the line begins, and why."""

NOT_COMPARED = {
    ("docs/tour.md", "method"): "a minute of training; tests/e2e/test_demo.py checks the demo's table",
}
"""Output that no test compares: the page, how it begins, and why."""

SHORTER = {
    "plures run ": "--set rounds=1 --set data.clients=6",
    "plures tune ": "--trials 2 --set rounds=1 --set data.clients=6",
    "plures advise": "--rounds 1 --pretrain 1 --seeds 1 --set data.clients=6",
}
"""On pages whose output is not shown, training is cut short."""

IN_FULL = ("docs/index.md", "docs/tour.md", "docs/recipes/")

WRITTEN = ("csv", "latex", "markdown")
"""Tables as commands write them; tests/cli/test_comparing_page.py compares those of docs/comparing.md."""

OF_OTHERS = ("nginx", "ini")
"""Files of other programs; tests/deploy/flower_proxy tries those of docs/deployment.md."""

BEFORE = {
    "docs/reports.md": [
        "plures run EXPERIMENT.toml --alone --beside local --beside fedavg --set data.newcomers=1 --out runs/study",
        "plures run EXPERIMENT.toml --out runs/first",
        *(f"plures run EXPERIMENT.toml --set method={name} --out runs/{name}-0" for name in ("fedavg", "ditto")),
    ],
    "docs/comparing.md": [
        "plures run EXPERIMENT.toml --seeds 2 --beside fedavg --beside fedper --out STUDY",
        *(
            f"plures run EXPERIMENT.toml --set method={name} --set seed={seed} --out runs/{name}-{seed}"
            for name in ("fedavg", "fedper")
            for seed in (0, 1)
        ),
    ],
}
"""What a reader of the page has run already."""


def run_elsewhere(page: str) -> bool:
    return any(page.startswith(known) for known in ELSEWHERE)


PLAYED = [
    page for page, text in PAGES.items() if not run_elsewhere(page) and any(b.language in RUN for b in blocks_of(text))
]


@pytest.mark.parametrize("page", PLAYED)
def test_every_block_of_a_page_runs_and_prints_what_is_shown(page, followed):
    player = followed(
        shorter={} if page.startswith(IN_FULL) else SHORTER,
        skipped=lambda line: any(page == known and line.startswith(start) for known, start in NOT_RUN),
    )
    for line in BEFORE.get(page, []):
        player.run_command(line)
    for block in blocks_of(PAGES[page]):
        if block.language == "text" and block.follows and is_compared(page, block):
            assert unlike(block.text, player.said) == [], player.said
        player.play(block)


def is_compared(page: str, block: Block) -> bool:
    return not any(page == known and block.text.startswith(start) for known, start in NOT_COMPARED)


# The guards


@pytest.mark.parametrize(("page", "test"), ELSEWHERE.items())
def test_a_page_that_is_run_elsewhere_is_named_there(page, test):
    folder_or_file = page.removesuffix("/")
    assert folder_or_file in (ROOT / test).read_text(encoding="utf-8")


@pytest.mark.parametrize(("page", "start"), NOT_RUN)
def test_what_is_not_run_stands_on_its_page(page, start):
    lines = [line for block in blocks_of(PAGES[page]) if block.language == "sh" for line in commands_of(block.text)]
    assert any(line.startswith(start) for line in lines)


@pytest.mark.parametrize(("page", "start"), NOT_COMPARED)
def test_what_is_not_compared_stands_on_its_page(page, start):
    assert any(block.follows and block.text.startswith(start) for block in blocks_of(PAGES[page]))


def test_blocks_have_a_language_that_is_known():
    """A block without one, or of another, would be run by nobody."""
    known = {*RUN, "text", *WRITTEN, *OF_OTHERS}
    assert {
        (page, b.language) for page, text in PAGES.items() for b in blocks_of(text) if b.language not in known
    } == set()


def test_the_picture_of_the_first_page_is_drawn_and_told_truly(followed):
    player = followed()
    player.run_command("python examples/one-and-many.py")

    assert Path("one-and-many.svg").stat().st_size > 10_000
    (shared,) = re.findall(r"^global/test/accuracy +([\d.]+)%", player.said, re.MULTILINE)
    (told,) = re.findall(r"right in (\d+) of 100 cases", PAGES["docs/index.md"])
    assert abs(float(shared) - float(told)) < 3


def test_every_example_is_run_by_a_test():
    """A file of examples/ stands in a block that runs, or a test or a page's command names it."""
    named = [text for path in ROOT.glob("tests/**/*.py") for text in [path.read_text(encoding="utf-8")]]
    for file in sorted((ROOT / "examples").iterdir()):
        shown = "" if file.is_dir() else file.read_text(encoding="utf-8").strip()
        blocks = [block.text.strip() for page in PLAYED for block in blocks_of(PAGES[page]) if block.language in RUN]
        assert any(shown == block or f"examples/{file.name}" in block for block in blocks) or any(
            f"examples/{file.name}" in text for text in named
        ), f"Nobody runs {file.name}"


# The player itself


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("python", "raise ValueError('no')"),
        ("toml", 'method = "fedsvg"'),
        ("sh", "plures run no.toml"),
        ("sh", "curl example.org"),
        ("sh", "plures methods --no-such-option"),
    ],
)
def test_a_block_that_does_not_run_is_found_out(language, text, followed):
    with pytest.raises((Exception, pytest.fail.Exception)):
        followed().play(Block(language=language, text=text, follows=False))


def test_a_named_block_becomes_a_file_for_commands_that_follow(followed):
    player = followed()
    for language, text in (
        (
            "python",
            "# nets.py\nimport plures\n\n\ndef net(shape, classes):\n    return plures.models.mlp(shape=shape)\n",
        ),
        ("toml", '# small.toml\nmethod = "fedper"\nrounds = 1\n[data]\nclients = 5\n[model]\nname = "nets:net"\n'),
        ("sh", "plures run small.toml \\\n  --out here  # a comment\n"),
    ):
        player.play(Block(language=language, text=text, follows=False))
    assert "personal/test" in player.said
    assert Path("here/result.json").exists()


def test_output_may_differ_in_roundings_and_in_nothing_else():
    said = "label  n accuracy\nfedalt 3 94.0±1.6\nlocal  3 96.5±1.1\nend"
    assert unlike("label n accuracy\nfedalt 3 93.1±2.0\nlocal 3 96.6±1.1\n", said) == []
    assert unlike("label n accuracy\n...\nend\n", said) == []
    assert unlike("label n accuracy\nfedalt 3 44.0±1.6\n", said) == ["fedalt 3 44.0±1.6"]
    assert unlike("label n accuracy\nlocal 3 96.5±1.1\n", said) == ["local 3 96.5±1.1"]
    assert unlike("fedsim 3 94.0±1.6\n", said) == ["fedsim 3 94.0±1.6"]
    assert alike("12  53  4", "17 54 4")  # the first is a client's name
    assert not alike("12  53  4", "17 90 4")
