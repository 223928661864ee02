"""plures cost of methods that build something around the network, and its notes."""

from __future__ import annotations

import pytest

FILE = """
method = "{method}"
rounds = 2
cohort = 2

[data]
clients = 4
sizes = 6
shape = [4]
classes = 3

[model]
hidden = [5]

[method_options]
{options}
"""
D = 4 * 5 + 5 + 5 * 3 + 3
"""Parameters of the network."""


@pytest.fixture
def said(plures, tmp_path):
    def of(method, *args, options="", more=""):
        path = tmp_path / "cost.toml"
        path.write_text(FILE.format(method=method, options=options) + more, encoding="utf-8")
        found = plures("cost", path, *args)
        assert (found.code, found.err) == (0, "")
        return found.out

    return of


@pytest.mark.parametrize(
    ("method", "options", "sizes"),
    [
        ("fedavg", "", "k = 3, s = 0.5, g = 0.05, q = 0.67, v = 1, h = 100"),
        ("fedem", "components = 5", "k = 5, s = 0.5, g = 0.05, q = 0.67, v = 1, h = 100"),
        ("pfedhn", "hidden = 10\nembedding = 7", "k = 3, s = 0.5, g = 0.05, q = 0.67, v = 7, h = 10"),
        ("pfedgate", "density = 0.3", "k = 3, s = 0.3, g = 0.05, q = 0.67, v = 1, h = 100"),
    ],
)
def test_d_is_the_network_that_was_given_and_options_of_the_file_count(said, method, options, sizes):
    out = said(method, "--complexity", options=options)
    assert out.startswith(f"d = {D}, n = 4, m = 2\n{sizes}\n")
    assert f"2 of 4 clients, {D} parameters" in said(method, options=options)


@pytest.mark.parametrize(
    ("method", "more", "note"),
    [
        ("fedavg", "[pipeline.pretrain]\nrounds = 3\n", "Other stages of the [pipeline] are not in it."),
        ("sub_fedavg", "", "Masks are planned as at the start: how they shrink depends on training."),
        ("pfedgate", "", "Uploads are planned whole: which blocks training touches depends on the data."),
    ],
)
def test_what_a_plan_leaves_out_is_said_as_it_is_written(said, method, more, note):
    assert note in said(method, more=more).replace("\n", " ")


def test_a_plan_that_leaves_nothing_out_has_no_note(said):
    assert "planned" not in said("fedspa", options="density = 0.5")
