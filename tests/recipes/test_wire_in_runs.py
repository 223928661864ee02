"""Codes of the wire in whole runs: they compose with methods, save what they promise, and round nothing else."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch

from plures import EvaluationPlan, RunResult, load_experiment, make_experiment, run, run_experiment
from plures.core.errors import InvalidConfig
from plures.core.wire import Uncoded
from plures.data import digits_federation
from plures.models import mlp
from plures.report import records
from plures.wire import Codec
from tests.recipes.helpers import NEED_NORMS, built, same_bits, table

THREE = {"epochs": 3, "batch": 32}
OPTIONS: dict[str, dict[str, Any]] = {
    "fedavg": {"lr": 0.2, "budget": THREE},
    "scaffold": {"lr": 0.2, "budget": THREE},
    "pflego": {"tau": 30, "client_lr": 0.1, "server": 0.02},
    "fedspa": {"lr": 0.3, "budget": THREE},
    "ditto": {"lr": 0.2, "budget": THREE, "personal_budget": THREE},
    "fedbn": {"lr": 0.2, "budget": THREE},
}
"""With which each learns digits in six rounds."""
BOTH = {"upload": "int8", "download": "float16"}


def experiment(method: str, **changes: Any) -> dict[str, Any]:
    """Digits dealt evenly to five clients."""
    return {
        "method": method,
        "rounds": 6,
        "data": {"clients": 5, "partition": "iid"},
        "model": {"hidden": [32], "batch_norm": method in NEED_NORMS},
        "evaluation": {"every": 6, "splits": ["test"]},
        "method_options": OPTIONS[method],
    } | changes


@cache
def exact(method: str) -> RunResult:
    return run_experiment(make_experiment(experiment(method)))


def accuracy(result: RunResult) -> float:
    return result.metrics[f"{result.headline}/test/accuracy"].weighted


@pytest.mark.parametrize("method", OPTIONS)
def test_codes_compose_with_a_method_save_bytes_and_leave_its_accuracy(method, tmp_path):
    before = exact(method)

    coded = run_experiment(make_experiment(experiment(method, wire=BOTH)), out=tmp_path / "run")

    # A byte for 4, and two for 4; names, shapes, positions and masks are as long as before. Of fedspa's upload, a mask
    # and positions are a ninth (2 * n / 8 bytes beside 4 * n / 2), so that 1/9 + 8/9/4 = 1/3 is left.
    most = 0.35 if method == "fedspa" else 0.3
    assert 0.24 < coded.cost["bytes_up"] / before.cost["bytes_up"] < most
    assert 0.49 < coded.cost["bytes_down"] / before.cost["bytes_down"] < 0.54
    assert coded.cost["values_up"] == before.cost["values_up"]
    assert accuracy(before) > 0.7
    assert accuracy(coded) > accuracy(before) - 0.03
    again = run_experiment(load_experiment(tmp_path / "run" / records.EXPERIMENT))
    assert again.fingerprint == coded.fingerprint != before.fingerprint


@pytest.mark.parametrize("method", OPTIONS)
@pytest.mark.parametrize("wire", [Uncoded(), Codec(through_bytes=True)], ids=["none", "through bytes"])
def test_the_exact_wire_changes_no_bit(method, wire):
    usual = run_small(method)

    other = run_small(method, wire=wire)

    assert other.fingerprint == usual.fingerprint
    assert other.cost["values_up"] == usual.cost["values_up"]
    if isinstance(wire, Codec):  # what is measured is what is really encoded
        assert other.cost["bytes_up"] == usual.cost["bytes_up"]
        assert other.cost["bytes_down"] == usual.cost["bytes_down"]


def run_small(method: str, **changes: Any) -> RunResult:
    network = mlp(hidden=(8,), batch_norm=method in NEED_NORMS)
    federation = digits_federation(num_clients=5)
    return run(method, federation, start(network), rounds=2, evaluation=EvaluationPlan(splits=("test",)), **changes)


def start(network: torch.nn.Module) -> torch.nn.Module:
    """Always from the same values."""
    draws = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in network.parameters():
            value.uniform_(-0.3, 0.3, generator=draws)
    return network


def test_python_and_a_file_give_the_same_run():
    in_python = run("fedavg", digits_federation(num_clients=5), mlp, rounds=1, wire=Codec(**BOTH))
    in_a_file = run_experiment(
        make_experiment({"method": "fedavg", "rounds": 1, "data": {"clients": 5}, "wire": dict(BOTH)})
    )

    assert in_python.fingerprint == in_a_file.fingerprint
    assert in_python.cost["bytes_up"] == in_a_file.cost["bytes_up"]


@pytest.mark.parametrize("code", ["float16", "bfloat16", "int8"])
def test_a_code_of_one_direction_leaves_the_other_as_it_is(code):
    usual = run_small("fedavg")
    up, down = (run_small("fedavg", wire=Codec(**{way: code})) for way in ("upload", "download"))

    assert up.history[0]["bytes_down"] == usual.history[0]["bytes_down"]
    assert up.history[0]["bytes_up"] < 0.6 * usual.history[0]["bytes_up"]
    assert down.history[0]["bytes_down"] < 0.6 * usual.history[0]["bytes_down"]


def test_draws_of_int8_follow_the_seed():
    """The network is the same; batches, like the draws of the code, are those of the seed."""
    one, same, other = (run_small("fedavg", wire=Codec(upload="int8"), seed=seed) for seed in (0, 0, 1))

    assert one.fingerprint == same.fingerprint
    assert one.fingerprint["final_state"] != other.fingerprint["final_state"]


# What no code may round


class Watched(Codec):
    """Remembers what was sent and what arrived."""

    def carry(self, message, *, upward, draws):
        arrived, sent = super().carry(message, upward=upward, draws=draws)
        SEEN.append((upward, message, arrived))
        return arrived, sent


SEEN: list[tuple[bool, Any, Any]] = []


@pytest.fixture
def seen():
    SEEN.clear()
    yield SEEN
    SEEN.clear()


def test_running_statistics_arrive_bit_by_bit(seen):
    watched("fedavg", model={"hidden": [5], "batch_norm": True}, split={"buffers": "shared"})

    assert len(seen) == 2 * 2 * 4  # ways, rounds, clients
    for _, sent, arrived in seen:
        assert {name.rpartition(".")[2] for name in sent.exact} == {
            "running_mean",
            "running_var",
            "num_batches_tracked",
        }
        assert same_bits(arrived.exact, sent.exact)
        assert not same_bits(arrived.parcel.values, sent.parcel.values)


def test_masks_arrive_bit_by_bit(seen):
    watched("fedspa", rounds=3)

    uploads = [(sent, arrived) for upward, sent, arrived in seen if upward]
    assert any(name.startswith("mask.") for sent, _ in uploads for name in sent.exact)
    for _, sent, arrived in seen:
        assert same_bits(arrived.exact, sent.exact)
        assert same_bits(arrived.parcel.held, sent.parcel.held)
        for name, value in arrived.parcel.values.items():
            assert not value[~sent.parcel.held[name]].any()


def watched(method: str, **changes: Any) -> RunResult:
    """On the tests' own small data, both ways coded in a byte."""
    made = built(method, **changes)
    rounds = changes.get("rounds", 2)
    return run(made.method, made.federation, made.networks, rounds=rounds, wire=Watched(upload="int8", download="int8"))


# What is refused


@pytest.mark.parametrize("way", ["upload", "download"])
@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("int4", "is 'int4', which is no code for values. Did you mean 'int8'?"),
        ("zip", "is 'zip', which is no code for values. Known: bfloat16, exact, float16, int8"),
        (8, "= 8: input should be a valid string"),
        (True, "= True: input should be a valid string"),
    ],
)
def test_a_wrong_code_in_a_file_is_one_clear_error_before_round_1(way, code, says, tmp_path):
    with pytest.raises(InvalidConfig) as found:
        run_experiment(make_experiment(table(wire={way: code})), out=tmp_path / "run")

    (problem,) = found.value.problems
    assert problem.startswith(f"wire.{way} ")
    assert says in problem
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_key_of_the_wire_is_told_with_the_right_one():
    with pytest.raises(InvalidConfig, match=r"Unknown key 'wire\.uplaod'\. Did you mean 'upload'"):
        make_experiment({"method": "fedavg", "wire": {"uplaod": "int8"}})


def test_a_wrong_code_in_python_is_one_clear_error():
    with pytest.raises(InvalidConfig, match=r"wire\.upload is 'int9'"):
        Codec(upload="int9")


@pytest.mark.parametrize("wire", ["int8", {"upload": "int8"}, Codec, 8])
def test_what_is_no_wire_is_refused_before_round_1(wire, tmp_path):
    with pytest.raises(InvalidConfig, match=r"give a wire, such as plures\.wire\.Codec\(upload='int8'\)"):
        run("fedavg", digits_federation(num_clients=5), mlp, wire=wire, out=tmp_path / "run")

    assert list(tmp_path.iterdir()) == []
