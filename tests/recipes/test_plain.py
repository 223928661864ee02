"""A default of a method, written into a file and read back, is the same value."""

from __future__ import annotations

import pytest

from plures.local import adam, constant, cosine, epochs, exponential, linear, power, sgd, steps
from plures.methods.options import Duration, Rule, Selection, WeightOption
from plures.models import mlp
from plures.parts import as_selector, first_layer, head, norms, patterns
from plures.recipes.options import convert
from plures.recipes.plain import to_plain
from plures.server import batches, fedadagrad, fedadam, fedyogi, samples

RULES = [
    sgd(1.0, momentum=0.9),
    sgd(cosine(0.1, 20, end=0.01), nesterov=True, momentum=0.5, weight_decay=0.01),
    adam(0.01, betas=(0.8, 0.99)),
    fedadam(0.1),
    fedyogi(exponential(0.1, 0.5, every=3)),
    fedadagrad(0.1, tau=0.01),
    linear(0.3, 40, warmup=0.2),
    power(0.1, 1.0, 0.5),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_optimisers_and_schedules_come_back_as_they_were(rule):
    assert convert("lr", to_plain(rule), Rule, rounds=99) == rule


@pytest.mark.parametrize("value", [constant(0.3), 0.3])
def test_a_constant_rate_is_a_number(value):
    assert to_plain(value) == 0.3


@pytest.mark.parametrize("budget", [epochs(2, batch=8), epochs(3, cap=5), steps(7), steps(4, batch=3)])
def test_budgets_come_back_as_they_were(budget):
    assert convert("budget", to_plain(budget), Duration, rounds=1) == budget


def test_weights_come_back_as_they_were():
    assert convert("weight", to_plain(samples), WeightOption, rounds=1) == samples
    assert convert("weight", to_plain(batches(32)), WeightOption, rounds=1) == batches(32)


@pytest.mark.parametrize(
    ("selector", "words"),
    [
        (head(), "head"),
        (patterns("body.*"), "body.*"),
        (patterns("body.1.weight", "head.bias"), ["body.1.weight", "head.bias"]),
        (first_layer() | head(), ["first_layer", "head"]),
        (norms() | patterns("head.*"), ["norms", "head.*"]),
    ],
    ids=str,
)
def test_selections_come_back_as_they_were(selector, words):
    plain = to_plain(selector)
    assert plain == words
    model = mlp(batch_norm=True)
    assert as_selector(convert("personal", plain, Selection, rounds=1))(model) == selector(model)


@pytest.mark.parametrize("selector", [head() & norms(), head() - patterns("*.bias"), (head() - norms()) | head()])
def test_what_no_file_can_say_is_left_out(selector):
    assert to_plain(selector) is None
