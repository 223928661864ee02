"""Goals: what is counted, how it is pooled, and which way is better."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import plures
from plures.core.errors import InvalidConfig
from plures.core.goals import CLASSIFICATION, REGRESSION, next_token
from plures.core.types import Batch
from plures.data import federate, iid, partition
from plures.evaluate import scoring
from plures.evaluate.scores import ClientScore, Evaluation, compare
from plures.local import steps
from plures.methods import fedavg


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values)


def test_the_accuracy_is_the_share_of_largest_outputs():
    output = torch.tensor([[2.0, 1.0], [0.0, 3.0], [5.0, 4.0]])
    assert CLASSIFICATION.metrics["accuracy"](output, torch.tensor([0, 1, 1])) == pytest.approx(2 / 3)


def test_errors_of_regression_by_hand():
    """Errors 1 and -3: mean 2, mean square 5; a last dimension of one is no dimension."""
    output, targets = numbers(2.0, 1.0)[:, None], numbers(1.0, 4.0)
    assert float(REGRESSION.loss(output, targets)) == 5.0
    assert REGRESSION.metrics["mae"](output, targets) == 2.0
    assert REGRESSION.metrics["rmse"](output, targets) == pytest.approx(math.sqrt(5))


def test_special_tokens_have_no_say_and_padding_no_loss():
    """Tokens 0 to 3 are special; of the others (5, 6 and 5) two are right. Padding is token 0."""
    goal = next_token()
    targets = torch.tensor([[5, 6, 2], [5, 0, 0]])
    output = torch.zeros(2, 8, 3)
    output[0, 5, 0] = output[0, 2, 1] = output[0, 2, 2] = output[1, 5, 0] = 9.0
    assert goal.count(targets) == 3
    assert goal.metrics["accuracy"](output, targets) == pytest.approx(2 / 3)
    with_other_padding = output.clone()
    with_other_padding[1, :, 1:] = 7.0 * torch.arange(16).reshape(8, 2)
    assert torch.equal(goal.loss(output, targets), goal.loss(with_other_padding, targets))


def scores(*pairs: tuple[int, float]) -> tuple[ClientScore, ...]:
    return tuple(ClientScore(client=i, examples=n, values={"rmse": v}) for i, (n, v) in enumerate(pairs))


def test_the_weighted_root_mean_square_is_that_of_all_examples_pooled():
    """3 examples with mean square 4 and 1 with 16: (12 + 16) / 4 = 7."""
    found = Evaluation(model="personal", split="test", scores=scores((3, 2.0), (1, 4.0))).summaries()
    assert found["personal/test/rmse"].weighted == pytest.approx(math.sqrt(7))
    assert found["personal/test/rmse"].worst == 4.0


def test_a_smaller_error_helps():
    found = compare(scores((1, 1.0), (1, 3.0)), scores((1, 2.0), (1, 2.0)), metric="rmse")
    assert (found.helped, found.hurt, found.same) == (1, 1, 0)


def line(size: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    """y = 3 x - 1."""
    x = torch.linspace(-1, 1, size)[:, None]
    return x, (3 * x - 1).squeeze(-1)


@pytest.mark.parametrize("loss", [None, F.l1_loss, F.mse_loss])
def test_regression_on_arrays_of_ones_own_learns_with_any_loss(loss):
    federation = partition(line(), iid(4), seed=0, goal="regression")
    method = fedavg(lr=0.1, budget=steps(5))
    result = plures.run(method, federation, lambda: nn.Linear(1, 1), rounds=40, loss=loss)
    assert result.metric == "rmse"
    assert result.metrics["global/test/rmse"].weighted < 0.3
    assert result.as_json()["selected"]["by"] == "global/validation/rmse, weighted"


def test_clients_with_their_own_data_may_have_numbers_as_targets():
    clients = [(Batch(*line()), Batch(*line(10))) for _ in range(3)]
    result = plures.run("fedavg", federate(clients, goal="regression"), lambda: nn.Linear(1, 1), rounds=1)
    assert "global/test/mae" in result.metrics


def network() -> nn.Module:
    return plures.models.transformer(shape=(3,), classes=8, width=8, depth=1, heads=1, hidden=8)


def test_a_client_of_whom_nothing_is_scored_is_left_out_of_the_numbers():
    tokens = torch.tensor([[4, 5, 6], [4, 5, 6]])
    special = torch.tensor([[1, 2, 3], [1, 2, 3]])
    clients = [(Batch(tokens, tokens), Batch(tokens, tokens)), (Batch(tokens, tokens), Batch(tokens, special))]
    result = plures.run("fedavg", federate(clients, goal="next_token", num_classes=8), network, rounds=1)
    assert [score.client for score in result.scores()] == [0]


@pytest.mark.parametrize("targets_at_once", [3, 7])
def test_long_texts_are_scored_in_parts_and_each_token_counts_once(targets_at_once, monkeypatch):
    """With 3 at once, a sequence is a part: of one only the end is scored, one is all padding, one all special."""
    targets = torch.tensor([[5, 0, 0], [4, 5, 6], [0, 0, 0], [2, 3, 0], [7, 4, 7], [6, 5, 0]])
    text = Batch(torch.tensor([[4, 5, 6], [7, 4, 5], [4, 0, 0], [5, 2, 3], [6, 7, 4], [7, 6, 5]]), targets)
    federation = federate([(text, text), (text, text)], goal="next_token", num_classes=8)

    def scored(at_once: int) -> list[ClientScore]:
        monkeypatch.setattr(scoring, "TARGETS_AT_ONCE", at_once)
        plan = plures.EvaluationPlan(models=["global", "post_local"], splits=["test"])
        result = plures.run("fedavg", federation, lambda: network().double(), rounds=1, evaluation=plan)
        return [*result.scores("global"), *result.scores("post_local")]

    for whole, parts in zip(scored(4096), scored(targets_at_once), strict=True):
        assert (whole.client, whole.examples) == (parts.client, parts.examples) == (whole.client, 9)
        assert parts.values == pytest.approx(whole.values, rel=1e-12)


def test_each_place_has_the_loss_of_a_class():
    output, targets = torch.randn(3, 8, 5, dtype=torch.float64), torch.randint(8, (3, 5))
    wanted = F.cross_entropy(output, targets, ignore_index=0)

    for laid in (output, output.transpose(1, 2).contiguous().transpose(1, 2)):
        assert torch.allclose(next_token().loss(laid, targets), wanted, rtol=1e-14)
    last = output[:, :, -1], targets[:, -1]
    assert torch.equal(next_token().loss(*last), F.cross_entropy(*last, ignore_index=0))


def test_class_numbers_that_are_no_whole_numbers_are_still_refused():
    with pytest.raises(plures.PluresError, match="whole numbers"):
        partition(line(), iid(4), seed=0)


def test_a_loss_of_ones_own_may_stand_in_a_file(tmp_path, monkeypatch):
    (tmp_path / "my_losses.py").write_text(
        "from torch.nn import functional as F\n\ndef smooth(output, targets):\n"
        "    return F.cross_entropy(output, targets, label_smoothing=0.1)\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    table = {"method": "fedavg", "rounds": 1}
    plain = plures.run_experiment(plures.make_experiment(table))
    smooth = plures.run_experiment(plures.make_experiment(table | {"loss": "my_losses:smooth"}))
    assert smooth.fingerprint["final_state"] != plain.fingerprint["final_state"]
    with pytest.raises(InvalidConfig, match="Cannot load the loss"):
        plures.run_experiment(plures.make_experiment(table | {"loss": "my_losses:rough"}))
