"""FedEM of one component is FedAvg, whatever the network, the data and the options (METHODS 6)."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from plures.core.goals import squared_error
from plures.core.types import Batch
from plures.local import sgd, steps
from plures.methods import fedavg, fedem
from plures.participation import uniform
from tests.helpers.methods import NormedNetwork, Population, assert_same_bits, network, play
from tests.local.test_mixture import Words
from tests.methods.test_fedem import BUDGET, networks_of, tiny


def padded():
    """Sequences of 4 tokens, with 0 to 3 of padding, which is token 0."""
    draws = torch.Generator().manual_seed(1)
    batches = []
    for size in (5, 8):
        targets = torch.randint(1, 6, (size, 4), generator=draws)
        targets[torch.arange(4) >= torch.randint(1, 5, (size, 1), generator=draws)] = 0
        batches.append(Batch(torch.randint(1, 6, (size, 4), generator=draws), targets))
    return Population(batches)


def numbers():
    draws = torch.Generator().manual_seed(1)
    sizes = (5, 8)
    inputs = [torch.randn(size, 4, generator=draws, dtype=torch.float64) for size in sizes]
    return Population([Batch(rows, rows.sum(dim=1)) for rows in inputs])


def with_dropout():
    return nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, 3))


CASES = {
    "plain": {},
    "full batch, three": {"budget": steps(2), "sampler": uniform(3)},
    "momentum and clipping": {"lr": sgd(0.3, momentum=0.9), "clip_norm": 0.2},
    "shared statistics": {"module": network(NormedNetwork), "budget": steps(2), "buffers": "shared"},
    "own statistics": {"module": network(NormedNetwork), "budget": steps(2), "buffers": "personal"},
    "forgotten statistics": {"module": network(NormedNetwork), "budget": steps(2), "buffers": "reset"},
    "dropout": {"module": network(with_dropout)},
    "given in evaluation mode": {"module": network(with_dropout).eval()},
    "padded sequences": {
        "module": network(Words),
        "population": padded(),
        "loss": partial(F.cross_entropy, ignore_index=0),
    },
    "values": {
        "module": network(lambda: nn.Sequential(nn.Linear(4, 1))),
        "population": numbers(),
        "loss": squared_error,
        "lr": 0.05,
        "outputs": "values",
    },
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_of_one_component_it_is_fedavg_bit_for_bit_with_one_more_pass(case):
    surroundings = {key: case[key] for key in ("sampler", "module", "population", "loss") if key in case}
    options = {"lr": 0.3, "budget": BUDGET} | {key: case[key] for key in case if key not in surroundings}
    mixed = play(fedem(components=1, **options), **surroundings)
    plain = play(fedavg(**{key: options[key] for key in options if key != "outputs"}), **surroundings)
    for one, expected in zip(mixed.servers, plain.servers, strict=True):
        assert_same_bits(networks_of(one.shared, 1)[0], expected.shared)
    assert any(not torch.equal(value, plain.servers[0].shared[name]) for name, value in plain.shared.items())
    for client, state in mixed.final.items():
        assert_same_bits(networks_of(state, 1)[0], plain.final[client])
        assert state["mixing"].tolist() == [1.0]
    for one, expected in zip(mixed.reports, plain.reports, strict=True):
        assert one.network_passes == pytest.approx(expected.network_passes + len(expected.cohort))
        assert (one.values_up, one.values_down) == (expected.values_up, expected.values_down)


def test_of_one_component_predictions_are_fedavgs_probabilities():
    mixed, plain = tiny(components=1), play(fedavg(lr=0.3, budget=BUDGET))
    inputs, targets = mixed.population.batches[3]
    output, expected = mixed.output(mixed.model(3), inputs), plain.output(plain.model(3), inputs)
    assert torch.allclose(output.exp(), torch.softmax(expected, dim=1), rtol=1e-12)
    assert F.cross_entropy(output, targets).item() == pytest.approx(
        F.cross_entropy(expected, targets).item(), rel=1e-12
    )
