"""The guard: which model a client chooses on its validation data, and by how much it must be better."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from plures.core.goals import CLASSIFICATION, REGRESSION, next_token
from plures.core.networks import OneNetwork
from plures.core.program import Program
from plures.core.types import Batch
from plures.data import federate
from plures.evaluate import Evaluation, Evaluator
from plures.evaluate.guard import Fallback, Guard, standard_errors
from plures.methods import fedavg, local
from plures.stores.memory import MemoryStore
from tests.evaluate.helpers import Network, drawn, evaluator_of, federation, made


def gains(better: int, worse: int, same: int = 0) -> torch.Tensor:
    return torch.tensor([1.0] * better + [-1.0] * worse + [0.0] * same)


@pytest.mark.parametrize(
    ("better", "worse", "same", "expected"),
    [(0, 0, 5, 0.0), (1, 0, 9, 1.0), (0, 1, 0, -1.0), (4, 0, 0, 2.0), (9, 7, 4, 0.5), (3, 6, 0, -1.0)],
)
def test_evidence_of_right_and_wrong_answers_is_mcnemars(better, worse, same, expected):
    """(b - c) / sqrt(b + c): 4 / sqrt(4) = 2, (9 - 7) / 4 = 0.5, (3 - 6) / 3 = -1."""
    assert standard_errors(gains(better, worse, same)) == pytest.approx(expected)


def test_evidence_does_not_depend_on_the_scale_of_an_error():
    errors = torch.tensor([0.3, -0.1, 2.0, 0.7], dtype=torch.float64)
    expected = 2.9 / math.sqrt(0.09 + 0.01 + 4.0 + 0.49)
    assert standard_errors(errors) == pytest.approx(expected)
    assert standard_errors(1e6 * errors) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("gains", "own_is_better"), [((math.inf, 0.1), True), ((-math.inf, 0.1), False), ((math.nan,), False)]
)
def test_a_model_that_overflows_is_never_the_better_one(gains, own_is_better):
    """A squared error that is infinite: against it everything is a gain; where both overflow, the shared one stays."""
    assert (standard_errors(torch.tensor(gains)) > 1e9) == own_is_better


def test_chance_alone_passes_the_margin_as_rarely_as_is_claimed():
    """Of fair coin flips, a share of at most exp(-z^2 / 2) exceeds z: 0.61, 0.14 and 0.011 for 1, 2 and 3."""
    flips = 2.0 * torch.randint(2, (4000, 40), generator=torch.Generator().manual_seed(1)) - 1
    found = torch.tensor([standard_errors(row) for row in flips])
    for z in (1.0, 2.0, 3.0):
        assert float((found > z).double().mean()) <= math.exp(-(z**2) / 2)
    assert 0.1 < float((found > 1.0).double().mean()) < 0.2  # near the normal's 0.16, so the margin is no ban


def test_each_goal_says_how_good_each_item_is():
    right = CLASSIFICATION.each(torch.eye(3), torch.tensor([0, 1, 1]))
    assert right.tolist() == [1.0, 1.0, 0.0]
    errors = REGRESSION.each(torch.tensor([[1.0], [3.0]]), torch.tensor([0.0, 1.0]))
    assert errors.tolist() == [-1.0, -4.0]
    goal = next_token()
    output = torch.zeros(1, 6, 3)
    output[0, 5] = 1.0  # says 5 at every place
    assert goal.each(output, torch.tensor([[5, 4, 0]])).tolist() == [1.0, 0.0]  # 0 is padding


def guard_of(margin: float = 1.0) -> tuple[Guard, Evaluator]:
    """Clients of the tiny federation between a model that only says class 0 and the network's first values."""
    clients = federation()
    evaluator, _, _ = evaluator_of(local(), clients)
    program = Program(fedavg(), OneNetwork(module=made()), loss=F.cross_entropy, seed=1)
    shared = {name: torch.zeros_like(value) for name, value in program.initial_shared().items()}
    shared["head.bias"][0] = 1.0
    fallback = Fallback(program=program, shared=shared, name="zeros")
    guard = Guard(evaluator.scorer, fallback, clients, kind="personal", splits=("validation", "test"), margin=margin)
    return guard, evaluator


def says(label: int) -> dict[str, torch.Tensor]:
    params = {name: torch.zeros_like(value) for name, value in made(Network).state_dict().items()}
    params["head.bias"][label] = 1.0
    return params


@pytest.mark.parametrize("label", [0, 1, 2])
@pytest.mark.parametrize("margin", [0.0, 1.0, 5.0])
def test_a_client_takes_its_own_model_where_that_is_better_by_more_than_the_margin(label, margin):
    """Its own says `label`, the shared one 0: b and c are its validation examples of those classes."""
    guard, evaluator = guard_of(margin)
    for client in range(4):
        guard.see("personal", client, says(label))
        targets = evaluator.clients.client(client).splits["validation"].targets
        b, c = int((targets == label).sum()), int((targets == 0).sum())
        expected = math.nan if not len(targets) else (b - c) / math.sqrt(b + c) if label and b + c else 0.0
        found = guard.verdicts[client]
        assert found.evidence == pytest.approx(expected, nan_ok=True)
        assert found.own == (expected > margin)


def test_without_validation_data_a_client_keeps_to_the_shared_model():
    guard, _ = guard_of(margin=0.0)
    guard.see("personal", 1, says(2))
    assert math.isnan(guard.verdicts[1].evidence)
    assert not guard.verdicts[1].own


def test_models_of_another_kind_are_passed_by():
    guard, _ = guard_of()
    guard.see("finetuned", 0, says(1))
    assert guard.verdicts == {}


def test_what_comes_of_the_choice_is_the_chosen_models_score_and_never_looks_at_test_data():
    """Two clients whose validation data speak for one model each, and whose test data all speak against the choice."""
    ones, zeros = (torch.full((4,), label) for label in (1, 0))
    inputs = drawn(4, torch.Generator().manual_seed(0)).inputs
    batches = [(Batch(inputs, ones), Batch(inputs, ones), Batch(inputs, zeros))]
    batches += [(Batch(inputs, zeros), Batch(inputs, zeros), Batch(inputs, ones))]
    clients = federate(batches, num_classes=3)
    program = Program(fedavg(), OneNetwork(module=made()), loss=F.cross_entropy, seed=1)
    own = Evaluator(program, clients, MemoryStore())
    guard = Guard(
        own.scorer,
        Fallback(program=program, shared=says(0), name="zeros"),
        clients,
        kind="finetuned",
        splits=("test",),
    )
    models = {client: says(1) for client in (0, 1)}
    scores = []
    for client, params in models.items():
        guard.see("finetuned", client, params)
        scores.append(own.scorer.score(client, params, "test", program.method.predict))
    assert [guard.verdicts[client].own for client in (0, 1)] == [True, False]

    found = [Evaluation(model="finetuned", split="test", scores=tuple(scores))]
    (guarded,) = guard.evaluations(found)
    assert guarded.name == "guarded/test"
    assert [score.accuracy for score in guarded.scores] == [0.0, 0.0]  # its own on client 0, the shared one on client 1
    told = guard.told(found, "accuracy")
    assert told["helped_and_hurt"]["test"] == {
        "before": {"helped": 1, "hurt": 1, "same": 0},
        "after": {"helped": 0, "hurt": 1, "same": 1},
    }
    assert (told["own_model"], told["clients"]) == (1, 2)
