"""A linear layer trained on all features of a client at once: two products of matrices a step, and little else.

With P = softmax(W X) and one-hot targets Y, one column for each example, a step adds (P - Y) X^T to W. Features are
kept both by rows and by columns, for products of such thin matrices are up to four times faster the right way round;
the bias is one more column of W, and losses are read off many steps together.
"""

from __future__ import annotations

import torch
from torch import Tensor

from plures.core.problem import Outcome, Problem
from plures.core.types import Params
from plures.engines.paces import Mover, Pace, is_plain, paces_of
from plures.local.heads import HeadProblem

MOST_FEATURES = 2**22
"""Numbers; more are not copied."""
LIKELIHOODS = 2**17
"""Numbers; of so many steps' likelihoods the losses are read together, while they are still in the cache."""
WHOLE = "head"


def head_steps(problem: Problem) -> Outcome | None:
    """The steps of a phase on a head and all its features; None where there is more to it."""
    if type(problem) is not HeadProblem or not is_plain(problem) or problem.visit.data.inputs.numel() > MOST_FEATURES:
        return None
    paces, num_steps = paces_of(problem), whole_batches(problem)
    own = {problem.weight} if problem.bias is None else {problem.weight, problem.bias}
    if num_steps < 2 or set(paces) != own or len(set(paces.values())) > 1:
        return None
    steps = HeadSteps(problem, paces[problem.weight])
    losses = steps.take(num_steps)
    return Outcome(problem.params | steps.params(), {}, losses.mean(), float(num_steps))


def whole_batches(problem: Problem) -> int:
    """How many batches there are, if each is of all examples; else none."""
    count = 0
    for batch in problem.batches():
        if batch.inputs is not problem.visit.data.inputs:
            return 0
        count += 1
    return count


class HeadSteps:
    """One client's head, its features and what the steps write into."""

    def __init__(self, problem: HeadProblem, pace: Pace) -> None:
        self.problem = problem
        features, targets = problem.visit.data
        weight = problem.params[problem.weight]
        self.rows = features if problem.bias is None else torch.cat([features, features.new_ones(len(features), 1)], 1)
        self.columns = self.rows.T.contiguous()
        whole = weight.clone()
        if problem.bias is not None:
            whole = torch.cat([weight, problem.params[problem.bias].unsqueeze(1)], dim=1)
        self.mover = Mover({WHOLE: whole}, {WHOLE: pace})
        self.whole, self.targets = whole, targets.unsqueeze(0)
        self.logits = features.new_empty(len(weight), len(features))
        self.error = torch.empty_like(self.logits)
        self.wanted = torch.zeros_like(self.logits).scatter_(0, self.targets, 1.0)

    def take(self, num_steps: int) -> Tensor:
        """The loss before each step."""
        at_once = max(1, min(num_steps, LIKELIHOODS // self.logits.numel()))
        likely = self.logits.new_empty(at_once, *self.logits.shape)
        losses = list[Tensor]()
        for start in range(0, num_steps, at_once):
            some = likely[: num_steps - start]
            for one in some:
                self.step(one)
            chosen = self.targets.unsqueeze(0).expand(len(some), -1, -1)
            losses.append(some.gather(1, chosen).mean(dim=(1, 2)).neg_())
        return torch.cat(losses)

    def step(self, likely: Tensor) -> None:
        """Writes the logarithms of the likelihoods it began with."""
        torch.mm(self.whole, self.columns, out=self.logits)
        torch.log_softmax(self.logits, dim=0, out=likely)
        error = torch.exp(likely, out=self.error).sub_(self.wanted)
        self.mover.by_product(WHOLE, error, self.rows, 1.0 / error.shape[1])

    def params(self) -> Params:
        weight, bias = self.problem.weight, self.problem.bias
        if bias is None:
            return {weight: self.whole}
        return {weight: self.whole[:, :-1].contiguous(), bias: self.whole[:, -1].contiguous()}
