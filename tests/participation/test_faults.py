"""Faults on purpose: whom they hit, how often, what uploads become, and that nothing but the seed decides it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
from math import exp, sqrt

import pytest
import torch

from plures.core.client import Result
from plures.core.errors import InvalidConfig
from plures.core.losses import Lost
from plures.core.visit import Upload
from plures.participation import FAULTS, Faults
from plures.participation.tampering import HUGE, TAMPERINGS
from tests.core.helpers import pair_clients, pair_program, visit_to
from tests.helpers.methods import assert_same_bits, same_bits

VISITS = list(product(range(1, 101), range(100)))
"""10,000 visits, by round and client."""


def hits(faults: Faults, seed: int = 3) -> dict[tuple[int, int], str]:
    found = {visit: faults.fault_of(seed, *visit) for visit in VISITS}
    return {visit: fault for visit, fault in found.items() if fault is not None}


# Whom faults hit


def test_every_fault_hits_its_share_of_the_visits():
    # Of 10,000 visits, 10,000 p with a deviation of sqrt(10,000 p (1 - p)); five of them are allowed.
    shares = {fault: 0.02 * number for number, fault in enumerate(FAULTS[:8], 1)}
    counts = Counter(hits(Faults(**shares)).values())
    for fault, share in shares.items():
        assert abs(counts[fault] - 10_000 * share) < 5 * sqrt(10_000 * share * (1 - share))
    assert counts.keys() == shares.keys()


def test_a_rate_is_shared_by_all_faults_alike():
    counts = Counter(hits(Faults(rate=0.55)).values())
    assert counts.keys() == set(FAULTS)
    assert all(abs(count - 500) < 5 * sqrt(10_000 * 0.05 * 0.95) for count in counts.values())
    assert Faults(rate=0.55).chance("nan") == pytest.approx(0.05)
    assert Faults(rate=0.11, nan=0.5).chance("nan") == pytest.approx(0.51)


def test_without_faults_nothing_is_hit():
    assert hits(Faults()) == {}
    assert not Faults(seed=3, delay=1.0, attack="noise").has_any
    assert all(Faults(**{name: 0.1}).has_any for name in (*FAULTS, "rate", "attackers"))


def test_the_same_seed_hits_the_same_visits_and_another_one_others():
    faults = Faults(rate=0.3)
    assert hits(faults) == hits(Faults(rate=0.3))
    for other in (hits(faults, seed=4), hits(replace(faults, seed=1))):
        both = len(hits(faults).keys() & other.keys())
        assert abs(both - 900) < 5 * sqrt(10_000 * 0.09 * 0.91)


def test_later_faults_have_no_say_in_whom_earlier_ones_hit():
    few, many = hits(Faults(absent=0.1, gone=0.1)), hits(Faults(absent=0.1, gone=0.1, huge=0.2, kill_worker=0.1))
    assert few.items() < many.items()


def test_the_questions_that_a_round_asks_agree():
    faults = Faults(absent=0.2, slow=0.2, kill_worker=0.2)
    for visit, fault in list(hits(faults).items())[:500]:
        assert faults.is_absent(3, *visit) == (fault == "absent")
        assert (faults.seconds(3, *visit) > 0) == (fault == "slow")
        assert faults.kills_worker(3, *visit) == (fault == "kill_worker")


def test_slow_visits_take_exponential_times():
    """Their mean is the delay, and a share of exp(-2) takes more than twice as long."""
    faults = Faults(slow=0.999, delay=4.0)
    seconds = [faults.seconds(3, *visit) for visit, fault in hits(faults).items() if fault == "slow"]
    assert sum(seconds) / len(seconds) == pytest.approx(4.0, rel=5 / sqrt(len(seconds)))
    long = sum(one > 8.0 for one in seconds) / len(seconds)
    assert abs(long - exp(-2)) < 5 * sqrt(exp(-2) * (1 - exp(-2)) / len(seconds))


def test_a_client_is_hostile_for_the_whole_run():
    faults = Faults(attackers=0.3)
    hostile = [client for client in range(10_000) if faults.is_hostile(3, client)]
    assert abs(len(hostile) - 3000) < 5 * sqrt(10_000 * 0.3 * 0.7)
    assert hostile != [client for client in range(10_000) if faults.is_hostile(4, client)]


@pytest.mark.parametrize(
    ("options", "problems"),
    [
        ({"absent": -0.1, "nan": 1.0}, ["faults.absent must be 0 or more and below 1, not -0.1", "faults.nan must"]),
        ({"absent": 0.6, "gone": 0.5}, ["The shares of [faults] add up to 1.1: a visit has one fault at most"]),
        ({"rate": 0.9, "gone": 0.2}, ["add up to 1.1"]),
        ({"delay": 0.0, "attack_scale": float("inf")}, ["faults.delay must be", "faults.attack_scale must be"]),
        ({"attack": "sign_flop", "seed": 1.5}, ["faults.seed must be a whole number", "Did you mean 'sign_flip'?"]),
        ({"absent": "much"}, ["faults.absent must be 0 or more and below 1, not 'much'"]),
    ],
)
def test_wrong_options_are_told_all_at_once(options, problems):
    with pytest.raises(InvalidConfig) as found:
        Faults(**options)
    assert len(found.value.problems) == len(problems)
    assert all(any(one in told for told in found.value.problems) for one in problems)


def test_shares_that_add_up_to_one_are_fine():
    assert Faults(**dict.fromkeys(FAULTS[:10], 0.1)).chance("gone") == 0.1


# What becomes of uploads

VALUES = {"w": torch.tensor([[1.0, -2.0], [0.0, 4.0]]), "b": torch.tensor([3.0])}
SPARSE = Upload({"w": VALUES["w"] * torch.eye(2), "b": VALUES["b"]}, {"w": torch.eye(2) > 0, "b": torch.ones(1) > 0})
NOT_HELD = Upload(
    {"a": torch.zeros(2), **VALUES}, {"a": torch.zeros(2) > 0, "w": VALUES["w"] != 0, "b": VALUES["b"] > 0}
)
BITS = Upload({"w": VALUES["w"] > 0})
UPLOADS = {"dense": Upload(VALUES), "sparse": SPARSE, "nothing held of the first": NOT_HELD, "bits": BITS}
uploads = pytest.mark.parametrize("upload", UPLOADS.values(), ids=UPLOADS)


def after(faults: Faults, upload: Upload, client: int = 0) -> Result | Lost:
    program = pair_program()
    visit = visit_to(program, pair_clients([(1, 1, 0)]), client=client)
    result = Result(
        client=client, state={"b": torch.ones(())}, upload=upload, buffers={}, losses={}, passes=1.0, trained={}
    )
    return faults.after(visit, result)


def surely(fault: str) -> Faults:
    """A share so close to one that the one visit that is looked at has it."""
    return Faults(**{fault: 0.999999})


@uploads
@pytest.mark.parametrize("fault", TAMPERINGS)
def test_spoiling_an_upload_leaves_the_original_and_the_clients_state_alone(upload, fault):
    before = {name: value.clone() for name, value in upload.values.items()}
    spoiled = after(surely(fault), upload)
    assert isinstance(spoiled, Result)
    assert_same_bits(upload.values, before)
    assert_same_bits(spoiled.state, {"b": torch.ones(())})
    assert not same_bits(spoiled.upload.values, upload.values)


def test_an_upload_is_spoiled_as_its_fault_says():
    def values(fault: str, upload: Upload = UPLOADS["dense"]) -> dict[str, torch.Tensor]:
        return after(surely(fault), upload).upload.values

    assert values("nan")["w"].isnan().sum() == 1
    assert_same_bits({"b": values("nan")["b"]}, {"b": VALUES["b"]})
    assert values("wrong_shape")["w"].tolist() == [1.0, -2.0, 0.0, 4.0, 0.0]
    assert list(values("wrong_name")) == ["not w", "b"]
    assert values("wrong_dtype")["w"].dtype == torch.float64
    assert values("wrong_dtype", BITS)["w"].dtype == torch.float32
    assert_same_bits(values("huge"), {name: value * HUGE for name, value in VALUES.items()})
    assert values("nothing") == {}


def test_a_value_is_spoiled_where_it_is_sent():
    assert after(surely("nan"), NOT_HELD).upload.values["w"].isnan().tolist() == [[True, False], [False, False]]
    renamed = after(surely("wrong_name"), SPARSE).upload
    assert list(renamed.held) == list(renamed.values) == ["not w", "b"]


@pytest.mark.parametrize("fault", TAMPERINGS)
@pytest.mark.parametrize(
    "upload", [Upload({}), Upload({"w": VALUES["w"] * 0}, {"w": VALUES["w"] > 9})], ids=["none", "empty"]
)
def test_where_nothing_is_sent_the_client_is_gone(fault, upload):
    lost = after(surely(fault), upload)
    assert isinstance(lost, Lost)
    assert lost.error.kind == "gone"


@pytest.mark.parametrize(("fault", "kind"), [("gone", "gone"), ("failing", "failed")])
def test_who_is_lost_is_named_with_the_round(fault, kind):
    lost = after(surely(fault), UPLOADS["dense"])
    assert (lost.client, lost.error.kind, lost.error.client, lost.error.round) == (0, kind, "client-0", 1)
    assert "one of the run's [faults]" in str(lost.error)


@pytest.mark.parametrize("fault", ["absent", "slow", "kill_worker"])
def test_what_is_no_fault_of_the_upload_leaves_it_as_it_is(fault):
    assert after(surely(fault), SPARSE).upload is SPARSE


# Attacks


def attacked(attack: str, upload: Upload, scale: float = 10.0) -> Upload:
    return after(Faults(attackers=0.999999, attack=attack, attack_scale=scale), upload).upload


def test_hostile_clients_turn_enlarge_or_drown_what_they_send():
    assert_same_bits(
        attacked("sign_flip", Upload(VALUES)).values, {name: value * -10 for name, value in VALUES.items()}
    )
    assert_same_bits(
        attacked("scaled", Upload(VALUES), 2.0).values, {name: value * 2 for name, value in VALUES.items()}
    )
    wide = Upload({"w": torch.full((100, 100), 0.5)})
    noise = attacked("noise", wide, 4.0).values["w"]
    # Mean 0 and deviation 4 * 0.5; of 10,000 draws the mean deviates by 0.02, and the deviation by 0.014.
    assert abs(noise.mean().item()) < 0.1
    assert noise.std().item() == pytest.approx(2.0, abs=0.07)
    assert_same_bits(attacked("noise", wide, 4.0).values, {"w": noise})


@uploads
@pytest.mark.parametrize("attack", ["sign_flip", "scaled", "noise"])
def test_a_hostile_upload_fits_and_says_nothing_of_what_was_not_held(upload, attack):
    values, held = attacked(attack, upload)
    assert {name: (value.shape, value.dtype) for name, value in values.items()} == {
        name: (value.shape, value.dtype) for name, value in upload.values.items()
    }
    assert held is upload.held
    for name, mask in (held or {}).items():
        assert not values[name][~mask].any()
