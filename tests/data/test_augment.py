"""Changes of images: each example by a draw of its own, as a slow loop over examples would do it."""

from __future__ import annotations

import pickle
from collections import Counter

import pytest
import torch
from torch import Tensor

from plures.core.errors import InvalidConfig, InvalidData
from plures.core.task import Augment
from plures.data.augment import compose, crop, flip, turn

ALL = {"crop": crop(2), "flip": flip(), "turn": turn(), "all": compose(crop(1), flip(), turn())}


def images(count: int = 40, *, dtype: torch.dtype = torch.float32, side: int = 6) -> Tensor:
    """No two pixels of one image are the same, none is 0."""
    pixels = torch.stack([torch.randperm(3 * side * side, generator=draws(n)) + 1 for n in range(count)]).reshape(
        count, 3, side, side
    )
    return pixels.to(dtype)


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def windows(image: Tensor, padding: int) -> list[bytes]:
    """Every crop that a padded image has, cut out one by one."""
    channels, height, width = image.shape
    padded = torch.zeros(channels, height + 2 * padding, width + 2 * padding, dtype=image.dtype)
    padded[:, padding : padding + height, padding : padding + width] = image
    steps = range(2 * padding + 1)
    return [padded[:, y : y + height, x : x + width].contiguous().numpy().tobytes() for y in steps for x in steps]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
def test_a_crop_is_a_window_of_the_padded_image_at_every_place_in_turn(dtype: torch.dtype) -> None:
    given = images(2000, dtype=dtype, side=4)

    cropped = crop(1)(given, draws())

    places = Counter(
        windows(before, 1).index(after.contiguous().numpy().tobytes())
        for before, after in zip(given, cropped, strict=True)
    )
    assert cropped.dtype == dtype
    assert set(places) == set(range(9))
    # Each of 9 places is drawn 222 times on average, with a deviation of 14.
    assert max(abs(count - 2000 / 9) for count in places.values()) < 70


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_a_flip_exchanges_left_and_right_of_about_half_the_images(dtype: torch.dtype) -> None:
    given = images(1000, dtype=dtype)

    changed = flip()(given, draws())

    flipped = [torch.equal(after, before.flip(2)) for before, after in zip(given, changed, strict=True)]
    same = [torch.equal(after, before) for before, after in zip(given, changed, strict=True)]
    assert changed.dtype == dtype
    assert all(a != b for a, b in zip(flipped, same, strict=True))
    assert 420 < sum(flipped) < 580  # five deviations


def test_a_turn_is_one_of_four_and_each_as_likely() -> None:
    given = images(1000)

    turned = turn()(given, draws())

    turns = Counter(
        next(quarter for quarter in range(4) if torch.equal(after, before.rot90(quarter, (1, 2))))
        for before, after in zip(given, turned, strict=True)
    )
    assert set(turns) == {0, 1, 2, 3}
    assert max(abs(count - 250) for count in turns.values()) < 70


@pytest.mark.parametrize("change", ALL.values(), ids=ALL)
def test_the_same_generator_gives_the_same_and_the_given_images_stay(change: Augment) -> None:
    given = images()
    before = given.clone()

    first, again, other = (change(given, draws(seed)) for seed in (3, 3, 4))

    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(given, before)
    assert first.shape == given.shape


def test_changes_are_composed_in_order_with_draws_of_one_generator() -> None:
    given = images()
    generator = draws(5)

    step_by_step = turn()(flip()(crop(1)(given, generator), generator), generator)

    assert torch.equal(ALL["all"](given, draws(5)), step_by_step)


@pytest.mark.parametrize("change", ALL.values(), ids=ALL)
def test_changes_can_be_sent_to_other_processes(change: Augment) -> None:
    given = images(5)

    copied = pickle.loads(pickle.dumps(change))

    assert torch.equal(copied(given, draws()), change(given, draws()))


def test_images_that_are_not_square_can_be_cropped_and_flipped_but_not_turned() -> None:
    wide = torch.rand(5, 1, 4, 7)

    assert compose(crop(2), flip())(wide, draws()).shape == wide.shape
    with pytest.raises(InvalidData, match="7x4 pixels cannot be turned"):
        turn()(wide, draws())


def test_what_is_no_image_is_refused() -> None:
    with pytest.raises(InvalidData, match=r"shape \(5, 9\)"):
        flip()(torch.rand(5, 9), draws())


@pytest.mark.parametrize("padding", [0, -1, 1.5, True])
def test_a_padding_is_a_whole_number_from_1(padding: int) -> None:
    with pytest.raises(InvalidConfig, match="padding is"):
        crop(padding)


def test_nothing_to_compose_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="at least one"):
        compose()
