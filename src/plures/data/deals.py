"""Who gets which examples, for what: a rule, a split and a test rule applied to a data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from plures.core.errors import InvalidData, first_of
from plures.core.types import Batch
from plures.data.datasets import DataSet, class_numbers
from plures.data.dealing import Indices
from plures.data.dividing import divider, refuse_divided_groups
from plures.data.partitioners import AnyPartitioner, ChangesInputs, ChoosesClients, NeedsDataSet, Partitioner
from plures.data.splitting import ClientIndices, Ratios, divide_clients, refuse_small_clients
from plures.data.test_sets import TestRule, choose_test_rule, tests_in_proportion, with_test_rule


@dataclass(frozen=True, kw_only=True)
class ClientChange:
    """How the clients of a rule see their inputs, by their numbers in the federation."""

    rule: ChangesInputs
    numbers: tuple[int, ...]
    """By which the rule knows them."""
    seed: int

    def __call__(self, client: int, split: str, inputs: Tensor) -> Tensor:
        return self.rule.change(inputs, client=self.numbers[client], split=split, seed=self.seed)


@dataclass(frozen=True, kw_only=True, eq=False)
class Deal:
    """Positions in two pools of examples for each client."""

    dataset: DataSet
    """In the form that the training examples decide."""
    pool: Batch
    test_pool: Batch
    clients: list[ClientIndices]
    names: list[str]
    change: ClientChange | None


def deal(
    dataset: DataSet,
    partitioner: AnyPartitioner,
    *,
    seed: int,
    split: Ratios,
    split_by: str,
    test_rule: str | None,
    test_size: int,
) -> Deal:
    """Deal, split, test, choose clients, and learn the form of examples from what they train on, in this order."""
    chosen_rule = choose_test_rule(test_rule, dataset)
    dataset = with_test_rule(chosen_rule, dataset)
    divide = divider(split_by, dataset, seed)
    rule = partitioner.bind(dataset, seed) if isinstance(partitioner, NeedsDataSet) else partitioner
    assigned = checked("assign", rule.assign(dataset.labels, seed), rule, dataset.examples.num_examples)
    names = list(getattr(rule, "names", None) or map(str, range(rule.num_clients)))
    if split_by == "group" and dataset.groups is not None:
        refuse_divided_groups(dataset.groups, assigned, names)
    clients = divide_clients(assigned, split, divide, dealt_tests(chosen_rule, dataset, rule, seed))
    if dataset.test is not None and chosen_rule == "proportions":
        test_labels = class_numbers(dataset.test.targets)
        clients = tests_in_proportion(clients, dataset.labels, test_labels, size=test_size, seed=seed)
    kept = rule.choose(clients, seed) if isinstance(rule, ChoosesClients) else dict(enumerate(clients))
    names = [names[number] for number in kept]
    refuse_small_clients(list(kept.values()), split, names, own_test=dataset.test is not None)
    fitted = dataset.fitted(np.concatenate([client.train for client in kept.values()]))
    return Deal(
        dataset=fitted,
        pool=fitted.examples,
        test_pool=fitted.examples if fitted.test is None else fitted.test,
        clients=list(kept.values()),
        names=names,
        change=change_of(rule, dataset, tuple(kept), seed),
    )


def dealt_tests(test_rule: TestRule, dataset: DataSet, rule: Partitioner, seed: int) -> list[Indices] | None:
    """A data set's test examples by the rule that deals the others; none yet where they are drawn afterwards."""
    if dataset.test is None:
        return None
    if test_rule == "proportions":
        return [np.empty(0, dtype=np.int64)] * rule.num_clients
    dealt = rule.assign_test(dataset.labels, class_numbers(dataset.test.targets), seed)
    return checked("assign_test", dealt, rule, dataset.test.num_examples)


def change_of(rule: Partitioner, dataset: DataSet, numbers: tuple[int, ...], seed: int) -> ClientChange | None:
    if not isinstance(rule, ChangesInputs):
        return None
    rule.refuse_inputs(dataset.examples.inputs)
    return ClientChange(rule=rule, numbers=numbers, seed=seed)


def checked(what: str, assigned: Sequence[Indices], rule: Partitioner, num_examples: int) -> list[Indices]:
    """Refuse what a user's own partitioner may get wrong; clients without examples may yet be dropped by its choice."""
    problems = []
    if len(assigned) != rule.num_clients:
        problems.append(f"`{what}` gave {len(assigned)} lists of positions for {rule.num_clients} clients.")
    for client, indices in enumerate(assigned):
        if len(indices) == 0:
            if not isinstance(rule, ChoosesClients):
                problems.append(f"`{what}` gave client {client} no examples: use fewer clients.")
        elif indices.ndim != 1 or not np.issubdtype(indices.dtype, np.integer):
            problems.append(f"`{what}` gave client {client} something other than a list of whole numbers.")
        elif indices.min() < 0 or indices.max() >= num_examples:
            problems.append(f"`{what}` gave client {client} positions outside 0 to {num_examples - 1}.")
    if problems:
        raise InvalidData(first_of(problems))
    return [np.asarray(indices).astype(np.int64, copy=False) for indices in assigned]
