"""One family of errors, whose messages say what, where, and what to do."""

import pytest

from plures.core import errors
from plures.core.errors import ClientFailed, Diverged, InvalidConfig, InvalidInput, PluresError, did_you_mean

FAMILY = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]


def test_every_error_belongs_to_the_family_and_to_the_tree_in_the_file():
    assert len(FAMILY) >= 9
    for error in FAMILY:
        assert issubclass(error, PluresError)
        assert error.__name__ in errors.__doc__


def test_one_problem_is_its_own_message():
    error = InvalidConfig("rounds must be 1 or more.")
    assert (str(error), error.problems) == ("rounds must be 1 or more.", ["rounds must be 1 or more."])
    assert isinstance(error, InvalidInput)


def test_several_problems_are_listed_all_at_once():
    assert str(InvalidInput(["no data.", "no model."])) == "2 problems:\n  1. no data.\n  2. no model."


def test_a_failed_client_is_named_with_round_phase_and_remedy():
    error = Diverged("It broke", client="writer-7", round=3, phase="shared", remedy="Mend it.")
    assert str(error) == "It broke (client writer-7, round 3, phase shared). Mend it."
    assert isinstance(error, ClientFailed)


@pytest.mark.parametrize(
    ("word", "answer"),
    [("fedavgg", "Did you mean 'fedavg'?"), ("zzz", "Known: fedavg, local, pflego.")],
)
def test_a_wrong_word_is_answered_with_the_nearest_or_with_all(word, answer):
    assert did_you_mean(word, ["pflego", "local", "fedavg"]) == answer
