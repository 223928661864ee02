"""A round whose validation metric is no number is never the one that is chosen."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from plures import EvaluationPlan, run
from plures.core.types import Batch
from plures.data import federate
from plures.local import steps
from plures.methods import fedavg


class Logarithm(nn.Module):
    """log(a - x), which is no number until a has grown beyond x."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor(1.0))

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.log(self.a - inputs)


def test_the_first_round_that_has_a_number_is_chosen_over_earlier_ones_that_have_none():
    """Trained at x = 0 towards e^3, a goes from 1 up to 20; validated at x = 2.5 against 0, where a = 3.5 is best."""
    train = Batch(torch.zeros(2, 1), torch.full((2,), 3.0))
    held = Batch(torch.full((2, 1), 2.5), torch.zeros(2))
    clients = federate([(train, held, held)], goal="regression")
    method = fedavg(lr=0.2, budget=steps(1))
    result = run(method, clients, Logarithm(), rounds=6, evaluation=EvaluationPlan(every=1))
    curve = [line["metrics"]["global/validation/rmse"]["weighted"] for line in result.history]
    assert curve[0] == torch.inf
    assert result.selected_round == 1 + curve.index(min(curve)) > 1
