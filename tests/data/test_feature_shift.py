"""Each client sees images in a style of its own: fixed, drawn by seed and client, of the same type as the images."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch

from plures.core.errors import InvalidConfig, InvalidData
from plures.core.types import Batch
from plures.data import DataSet, Scaled, check_federation, dirichlet, feature_shift, iid, mixture, partition
from plures.data.partitioners.styles import Style, Styles, styled

PLAIN = {"rotation": 0.0, "contrast": 0.0, "noise": 0.0, "dilation": 0}


def images(kind: str = "bytes") -> DataSet:
    pixels = torch.randint(0, 256, (120, 1, 9, 9), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    inputs = pixels if kind == "bytes" else pixels.float() / 255
    return DataSet(name="images", examples=Batch(inputs, torch.arange(120) % 4), prepare=None)


def look(inputs: torch.Tensor, **style: Any) -> torch.Tensor:
    plain = {"rotation": 0.0, "contrast": 1.0, "noise": 0.0, "dilation": 0}
    return styled(inputs, Style(**plain | style), client=0, split="train", seed=0)


def dot(row: int, column: int) -> torch.Tensor:
    image = torch.zeros(1, 1, 9, 9)
    image[0, 0, row, column] = 1.0
    return image


def test_clients_are_those_of_the_rule_it_is_put_around() -> None:
    plain, shifted = (partition(images(), rule, seed=3) for rule in (dirichlet(5), feature_shift(dirichlet(5))))

    for client in range(5):
        one, other = plain.client(client), shifted.client(client)
        for split in one.splits:
            assert torch.equal(one.splits[split].targets, other.splits[split].targets)
            assert one.splits[split].inputs.shape == other.splits[split].inputs.shape
            assert not torch.equal(one.splits[split].inputs, other.splits[split].inputs)


def test_without_any_shift_images_are_as_they_were() -> None:
    plain, shifted = (partition(images(), rule, seed=3) for rule in (iid(4), feature_shift(iid(4), **PLAIN)))

    assert all(torch.equal(plain.client(c).train.inputs, shifted.client(c).train.inputs) for c in range(4))


@pytest.mark.parametrize("kind", ["bytes", "numbers"])
def test_bytes_stay_bytes_and_numbers_stay_between_0_and_1(kind: str) -> None:
    dataset = images(kind)
    federation = partition(dataset, feature_shift(iid(4), noise=0.5, dilation=2), seed=0)

    inputs = federation.client(0).train.inputs
    assert inputs.dtype == dataset.examples.inputs.dtype
    assert 0 <= float(inputs.min()) <= float(inputs.max()) <= (255 if kind == "bytes" else 1)
    check_federation(federation)


def test_a_client_looks_the_same_at_every_load_and_in_every_copy() -> None:
    federation = partition(images(), feature_shift(iid(4), noise=0.3), seed=0)
    copy = pickle.loads(pickle.dumps(federation))

    for client in range(4):
        first, again = federation.population.load(client), federation.population.load(client)
        assert first is not again
        assert torch.equal(first.train.inputs, again.train.inputs)
        assert torch.equal(first.test.inputs, copy.client(client).test.inputs)


def test_the_pool_is_neither_copied_nor_changed() -> None:
    dataset = images()
    before = dataset.examples.inputs.clone()

    federation = partition(dataset, feature_shift(iid(4)), seed=0)
    federation.client(0)

    assert federation.population.pool.inputs.data_ptr() == dataset.examples.inputs.data_ptr()
    assert torch.equal(dataset.examples.inputs, before)


def test_styles_differ_between_clients_and_seeds_and_stay_in_their_ranges() -> None:
    styles = Styles(rotation=30.0, contrast=0.5, noise=0.2, dilation=2)
    drawn = [styles.of(client, seed) for client in range(50) for seed in (0, 1)]

    assert len(set(drawn)) == 100
    assert all(abs(s.rotation) <= 30 and 0.5 <= s.contrast <= 1.5 and 0 <= s.noise <= 0.2 for s in drawn)
    assert {s.dilation for s in drawn} == {0, 1, 2}
    assert styles.of(7, 1) == styles.of(7, 1)


def test_a_quarter_turn_against_the_clock_moves_the_right_edge_to_the_top() -> None:
    turned = look(dot(4, 8), rotation=90.0)

    assert torch.allclose(turned, dot(0, 4), atol=1e-4)


def test_a_turn_of_an_image_that_is_no_square_keeps_distances() -> None:
    image = torch.zeros(1, 1, 5, 9)
    image[0, 0, 2, 6] = 1.0  # two to the right of the middle

    turned = look(image, rotation=90.0)

    assert float(turned[0, 0, 0, 4]) == pytest.approx(1.0, abs=1e-4)  # two above it


def test_strokes_grow_to_each_side() -> None:
    grown = look(dot(4, 4), dilation=1)

    expected = torch.zeros(1, 1, 9, 9)
    expected[0, 0, 3:6, 3:6] = 1.0
    assert torch.equal(grown, expected)


def test_contrast_is_a_distance_from_middle_grey() -> None:
    grey = torch.tensor([0.0, 0.25, 0.5, 1.0]).reshape(1, 1, 2, 2)

    assert look(grey, contrast=0.5).flatten().tolist() == [0.25, 0.375, 0.5, 0.75]
    assert look(grey, contrast=3.0).flatten().tolist() == [0.0, 0.0, 0.5, 1.0]


def test_noise_has_its_standard_deviation_and_is_new_for_each_split() -> None:
    grey = torch.full((50, 1, 20, 20), 0.5)
    style = Style(rotation=0.0, contrast=1.0, noise=0.1, dilation=0)
    train, test = (styled(grey, style, client=0, split=split, seed=0) for split in ("train", "test"))

    # 20,000 draws give a standard deviation to 0.5 percent.
    assert float((train - 0.5).std()) == pytest.approx(0.1, rel=0.02)
    assert not torch.equal(train, test)


def test_the_fingerprint_of_the_data_knows_the_styles() -> None:
    rules = [iid(4), feature_shift(iid(4)), feature_shift(iid(4), rotation=29), feature_shift(iid(4), dilation=2)]
    prints = [partition(images(), rule, seed=0).fingerprint() for rule in rules]

    assert len({found["data"] for found in prints}) == 4
    assert len({found["split"] for found in prints}) == 1


def test_a_mixture_may_have_shifted_clients_beside_others() -> None:
    plain = partition(images(), mixture([(0.5, iid(2)), (0.5, iid(2))]), seed=0)
    mixed = partition(images(), mixture([(0.5, iid(2)), (0.5, feature_shift(iid(2)))]), seed=0)
    around = partition(images(), feature_shift(mixture([(0.5, iid(2)), (0.5, feature_shift(iid(2)))])), seed=0)

    same = [torch.equal(plain.client(c).train.inputs, mixed.client(c).train.inputs) for c in range(4)]
    assert same == [True, True, False, False]
    assert not any(torch.equal(mixed.client(c).train.inputs, around.client(c).train.inputs) for c in range(4))


def test_prepared_inputs_are_prepared_after_the_shift() -> None:
    dataset = DataSet(name="images", examples=images().examples, prepare=Scaled())
    data = partition(dataset, feature_shift(iid(4)), seed=0).client(0)

    assert data.train.inputs.dtype == torch.float32
    assert data.data.train.inputs.dtype == torch.uint8  # type: ignore[union-attr]


def test_however_many_clients_are_asked_for_only_so_many_bytes_are_kept() -> None:
    pixels = torch.zeros(40_000, 1, 28, 28, dtype=torch.uint8)
    dataset = DataSet(name="many", examples=Batch(pixels, torch.arange(40_000) % 4), prepare=Scaled())
    federation = partition(dataset, feature_shift(iid(200), **PLAIN), seed=0)
    for client in range(200):
        assert federation.client(client).train.inputs.dtype == torch.float32

    # 31 MB of bytes: at most 8 MB of them are kept a second time, and none as real numbers.
    assert federation.cache.held_bytes <= federation.cache.limit_bytes == 8 * 2**20
    assert 0 < len(federation.cache) < 200


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (torch.zeros(40, 5), r"for images .*, but inputs have shape \(5,\)"),
        (torch.full((40, 1, 3, 3), 7.0), "bytes or go from 0 to 1: scale the inputs"),
        (torch.zeros(40, 1, 3, 3, dtype=torch.int64), "bytes or go from 0 to 1"),
    ],
    ids=["flat", "large", "whole numbers"],
)
def test_what_is_no_image_is_refused_when_it_is_dealt(inputs: torch.Tensor, message: str) -> None:
    dataset = DataSet(name="other", examples=Batch(inputs, torch.arange(40) % 2))

    with pytest.raises(InvalidData, match=message):
        partition(dataset, feature_shift(iid(4)), seed=0)


def test_all_bad_options_are_listed_at_once() -> None:
    with pytest.raises(InvalidConfig) as caught:
        feature_shift(iid(2), rotation=200, contrast=-1, noise=2, dilation=1.5)  # type: ignore[arg-type]

    assert [problem.split()[0] for problem in caught.value.problems] == ["rotation", "contrast", "noise", "dilation"]


def test_it_is_not_put_around_itself() -> None:
    with pytest.raises(InvalidConfig, match="cannot be put around itself"):
        feature_shift(feature_shift(iid(2)))
