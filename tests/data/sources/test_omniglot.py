"""Omniglot from npz files and from folders: the same drawings, never on both sides unless that is asked for."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plures.core.errors import InvalidConfig, InvalidData
from plures.data import SOURCES, DataSet
from tests.data.sources.image_files import write_npz, write_picture

ALPHABETS = {"background": {"Greek": 5, "Arcadian": 4}, "evaluation": {"Angelic": 6}}
NUM_CHARACTERS, NUM_DRAWERS = 15, 20


def names_of(part: str) -> list[tuple[str, str]]:
    return [
        (alphabet, f"character{number:02d}")
        for alphabet, count in ALPHABETS[part].items()
        for number in range(1, count + 1)
    ]


def paper_of(part: str) -> np.ndarray:
    """True is paper; every drawing differs from all others, also when turned."""
    rng = np.random.default_rng(ord(part[0]))
    paper = np.ones((len(names_of(part)), NUM_DRAWERS, 105, 105), dtype=bool)
    blocks = rng.random((*paper.shape[:2], 7, 7)) < 0.5
    paper[:, :, :105, :105] = ~np.kron(blocks, np.ones((15, 15), dtype=bool))
    return paper


def write_npz_form(folder: Path) -> None:
    table = {}
    for part in ALPHABETS:
        alphabets, characters = zip(*names_of(part), strict=True)
        table[part] = {"alphabet": alphabets, "character": characters}
        paper = paper_of(part)
        labels = np.repeat(np.arange(len(paper))[:, None], NUM_DRAWERS, axis=1)
        write_npz(folder / f"images_{part}.npz", images=paper, labels=labels)
    (folder / "alphabets.json").write_text(json.dumps(table), encoding="utf-8")


def write_folders(folder: Path) -> None:
    """Black on white, one bit per pixel, named <number>_<drawer>.png as published."""
    pytest.importorskip("PIL", reason="Pillow is not installed")
    for part in ALPHABETS:
        for number, ((alphabet, character), paper) in enumerate(zip(names_of(part), paper_of(part), strict=True)):
            place = folder / f"images_{part}" / alphabet / character
            for drawer, pixels in enumerate(paper, 1):
                write_picture(place / f"{number:04d}_{drawer:02d}.png", pixels.astype(np.uint8) * 255, mode="1")


@pytest.fixture
def load(data_folder: Path) -> Any:
    write_npz_form(data_folder / "omniglot")
    return SOURCES["omniglot"].load


def drawings(dataset: DataSet) -> list[bytes]:
    return [image.numpy().tobytes() for image in dataset.examples.inputs]


def upright(batch: Any) -> list[bytes]:
    """One of the four turns of each image stands for all of them."""
    return [min(np.rot90(image, turn).tobytes() for turn in range(4)) for image in batch.inputs[:, 0].numpy()]


def test_each_character_has_15_drawings_to_train_and_5_others_to_test(load: Any) -> None:
    loaded = load()

    assert loaded.examples.inputs.shape == (NUM_CHARACTERS * 15, 1, 28, 28)
    assert loaded.examples.inputs.dtype == torch.uint8
    assert set(Counter(loaded.examples.targets.tolist()).values()) == {15}
    assert Counter(loaded.test.targets.tolist()) == dict.fromkeys(range(NUM_CHARACTERS), 5)
    assert not set(upright(loaded.examples)) & set(upright(loaded.test))


def test_clients_are_alphabets_and_classes_have_their_names(load: Any) -> None:
    loaded = load()

    assert loaded.owner_names == ("Arcadian", "Greek", "Angelic")
    assert loaded.class_names[:5] == (*(f"Arcadian/character0{n}" for n in (1, 2, 3, 4)), "Greek/character01")
    for owners, batch in ((loaded.owners, loaded.examples), (loaded.test_owners, loaded.test)):
        owned = {loaded.owner_names[owner] for owner in owners}
        assert owned == set(loaded.owner_names)
        for owner, label in zip(owners, batch.targets, strict=True):
            assert loaded.class_names[label].startswith(loaded.owner_names[owner] + "/")


def test_ink_is_bright_and_images_are_reduced_over_the_area_of_a_pixel(load: Any) -> None:
    whole, small = load(size=105), load(size=7)

    paper = paper_of("background")
    expected = {np.where(image, 0, 255).astype(np.uint8).tobytes() for image in paper.reshape(-1, 105, 105)}
    background = [image for image, owner in zip(drawings(whole), whole.owners, strict=True) if owner < 2]
    assert set(background) <= expected
    # Bilinear weights of a block of 15 pixels reach 15 pixels further: 1/2 to 1 of a pixel is its own block.
    block = whole.examples.inputs[:, :, 7::15, 7::15] > 0
    assert small.examples.inputs.shape[2:] == (7, 7)
    assert int(small.examples.inputs[block].min()) >= 127
    assert int(small.examples.inputs[~block].max()) <= 128


def test_folders_of_png_files_give_the_same_as_npz_files(load: Any, tmp_path: Path, monkeypatch: Any) -> None:
    from_npz = load(size=20)
    write_folders(tmp_path / "other" / "omniglot")
    monkeypatch.setenv("PLURES_DATA", str(tmp_path / "other"))

    from_folders = load(size=20)

    assert all(map(torch.equal, from_npz.examples, from_folders.examples))
    assert all(map(torch.equal, from_npz.test, from_folders.test))
    assert (from_npz.owner_names, from_npz.class_names) == (from_folders.owner_names, from_folders.class_names)
    assert np.array_equal(from_npz.owners, from_folders.owners)


def test_rotations_are_added_to_train_only_with_the_class_and_group_of_their_drawing(load: Any) -> None:
    plain, turned = load(), load(rotations=True)

    assert turned.examples.num_examples == 4 * plain.examples.num_examples
    assert all(map(torch.equal, plain.test, turned.test))
    assert not set(upright(turned.examples)) & set(upright(turned.test))
    for group in np.unique(turned.groups)[::37]:
        places = np.flatnonzero(turned.groups == group)
        images = turned.examples.inputs[places, 0].numpy()
        assert len(places) == 4
        assert len(set(turned.examples.targets[places].tolist())) == 1
        assert {image.tobytes() for image in images} == {np.rot90(images[0], turn).tobytes() for turn in range(4)}


def test_the_leaky_way_of_the_papers_has_copies_of_test_drawings_in_train(load: Any) -> None:
    loaded = load(leaky=True)

    assert set(Counter(loaded.examples.targets.tolist()).values()) == {60}
    assert set(Counter(loaded.test.targets.tolist()).values()) == {20}
    assert set(upright(loaded.test)) & set(upright(loaded.examples))
    assert loaded.groups is None


def test_a_drawer_of_an_alphabet_draws_each_character_once_and_is_always_tested(load: Any) -> None:
    loaded = load(clients="drawer")

    assert len(loaded.owner_names) == 3 * NUM_DRAWERS
    assert loaded.owner_names[:2] == ("Arcadian/01", "Arcadian/02")
    pairs = [
        (owner, label)
        for owners, batch in ((loaded.owners, loaded.examples), (loaded.test_owners, loaded.test))
        for owner, label in zip(owners.tolist(), batch.targets.tolist(), strict=True)
    ]
    assert len(set(pairs)) == len(pairs) == NUM_CHARACTERS * NUM_DRAWERS
    assert min(np.bincount(loaded.owners, minlength=60)) >= 3
    assert min(np.bincount(loaded.test_owners, minlength=60)) >= 1


def test_another_seed_tests_on_other_drawings(load: Any) -> None:
    assert all(map(torch.equal, load().test, load(seed=0).test))
    assert set(upright(load().test)) != set(upright(load(seed=1).test))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"clients": "alphabets"}, "Did you mean 'alphabet'"),
        ({"size": 0}, "size is 0: it must be a whole number"),
        ({"size": "28"}, "size is '28'"),
    ],
)
def test_options_are_checked_before_files_are_read(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidConfig, match=says):
        SOURCES["omniglot"].load(**options)


def test_names_that_do_not_fit_the_drawings_are_refused(load: Any, data_folder: Path) -> None:
    path = data_folder / "omniglot" / "alphabets.json"
    table = json.loads(path.read_text(encoding="utf-8"))
    for change, says in (({"character": ["one"]}, "Cannot read"), ({"alphabet": ["a"], "character": ["b"]}, "names 1")):
        path.write_text(json.dumps(table | {"evaluation": table["evaluation"] | change}), encoding="utf-8")
        with pytest.raises(InvalidData, match=f"(?s){says}.*|alphabets.json.*{says}") as refused:
            load()
        assert str(path) in str(refused.value)


def test_a_character_with_fewer_drawings_is_refused_by_name(data_folder: Path) -> None:
    write_folders(data_folder / "omniglot")
    next((data_folder / "omniglot/images_background/Greek/character03").glob("*_07.png")).unlink()

    with pytest.raises(InvalidData, match="fewer drawings of Greek/character03 than 20"):
        SOURCES["omniglot"].load()


def test_a_broken_drawing_is_refused_by_name(data_folder: Path) -> None:
    write_folders(data_folder / "omniglot")
    path = next((data_folder / "omniglot/images_background/Greek/character03").glob("*_07.png"))
    path.write_bytes(path.read_bytes()[:-30])

    with pytest.raises(InvalidData, match=r"Cannot read .*_07.png"):
        SOURCES["omniglot"].load()


def test_images_of_another_type_are_refused(load: Any, data_folder: Path) -> None:
    write_npz(data_folder / "omniglot/images_background.npz", images=np.zeros((9, 20, 105, 105), np.uint8))

    with pytest.raises(InvalidData, match=r"images_background.npz has images of type uint8"):
        load()
