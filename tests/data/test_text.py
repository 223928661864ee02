"""Text becomes sequences of numbers, by a vocabulary that training text alone decides."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from plures.core.errors import InvalidConfig, InvalidData
from plures.data import DataSet, Vocabulary, check_federation, from_arrays, natural, partition
from plures.data.corpora import Text, text_dataset
from plures.data.text import BOS, EOS, OOV, PAD, SPECIAL, sequences, words_of


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("I don't, O_2!", ["i", "don't", ",", "o", "_", "2", "!"]),
        ("It\N{RIGHT SINGLE QUOTATION MARK}s  \n 'so'", ["it's", "'", "so", "'"]),
        ("e.g. C++ (7,5 °C)", ["e", ".", "g", ".", "c", "+", "+", "(", "7", ",", "5", "°", "c", ")"]),
        ("Ärger 東京", ["ärger", "東京"]),
        (" \t\n", []),
    ],
)
def test_tokens_are_lower_case_words_and_single_signs(text: str, tokens: list[str]) -> None:
    assert words_of(text) == tokens


@given(st.text(max_size=50))
def test_no_sign_but_white_space_is_lost(text: str) -> None:
    lowered = text.lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    assert "".join(words_of(text)) == "".join(lowered.split())


def test_special_tokens_come_first_then_the_commonest_and_ties_by_alphabet() -> None:
    vocabulary = Vocabulary.of(["b", "a", "c", "c", "<pad>"], size=2)
    assert vocabulary.words == ("<pad>", "<bos>", "<eos>", "<oov>", "c", "a")
    assert (PAD, BOS, EOS, OOV) == (0, 1, 2, 3)
    assert len(vocabulary) == 6


def test_what_is_encoded_can_be_decoded_and_unknown_words_are_oov() -> None:
    vocabulary = Vocabulary.of(["to", "be", "be"])
    assert vocabulary.encode(["be", "or", "to"]).tolist() == [4, 3, 5]
    assert vocabulary.decode([4, 3, 5]) == ["be", "<oov>", "to"]


@pytest.mark.parametrize("words", [("a", "b"), (*SPECIAL, "a", "a")])
def test_a_vocabulary_without_special_tokens_or_with_a_word_twice_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(InvalidData, match=r"begins with <pad>.*no word twice"):
        Vocabulary(words=words)


def test_a_short_text_is_one_sequence_with_an_end_and_padding() -> None:
    inputs, targets = sequences(np.array([10, 11, 12]), 5)
    assert inputs.tolist() == [[BOS, 10, 11, 12, PAD]]
    assert targets.tolist() == [[10, 11, 12, EOS, PAD]]


def test_a_text_as_long_as_a_sequence_has_no_end() -> None:
    inputs, targets = sequences(np.array([10, 11, 12]), 3)
    assert inputs.tolist() == [[BOS, 10, 11]]
    assert targets.tolist() == [[10, 11, 12]]


@given(st.lists(st.integers(4, 99), max_size=40), st.integers(1, 9))
def test_each_token_is_a_target_once_and_follows_its_input(tokens: list[int], length: int) -> None:
    inputs, targets = sequences(np.array(tokens, dtype=np.int64), length)
    assert inputs.shape == targets.shape == (-(-len(tokens) // length), length)
    assert [token for token in targets.ravel().tolist() if token > OOV] == tokens
    assert (inputs[:, 0] == BOS).all()
    following = targets[:, :-1]
    assert (inputs[:, 1:] == np.where(following == EOS, PAD, following)).all()


def texts(*written: tuple[str, str], start: int = 0) -> list[Text]:
    return [Text(owner=owner, tokens=words_of(text), time=start + day) for day, (owner, text) in enumerate(written)]


def test_sequences_know_their_owner_their_text_and_their_time() -> None:
    dataset = text_dataset(
        "t", texts(("ann", "a b c d e"), ("bob", "a"), ("ann", "c"), start=7), length=2, vocabulary=9, whole_texts=True
    )
    assert dataset.owner_names == ("ann", "bob")
    assert dataset.owners is not None
    assert dataset.groups is not None
    assert dataset.times is not None
    assert dataset.owners.tolist() == [0, 0, 0, 1, 0]
    assert dataset.groups.tolist() == [0, 0, 0, 1, 2]
    assert dataset.times.tolist() == [7, 7, 7, 8, 9]
    assert dataset.goal.name == "next_token"
    assert dataset.examples.inputs.dtype == dataset.examples.targets.dtype == torch.int64


def test_the_vocabulary_has_the_commonest_words_of_the_training_sequences_only() -> None:
    dataset = text_dataset("t", texts(("ann", "b b a"), ("ann", "c c c c"), ("ann", "a z")), length=4, vocabulary=2)
    fitted = dataset.fitted(np.array([0, 2]))
    assert fitted.class_names == (*SPECIAL, "a", "b")
    assert fitted.num_classes == 6
    assert fitted.examples.targets.tolist() == [[5, 5, 4, EOS], [OOV] * 4, [4, OOV, EOS, PAD]]
    assert fitted.examples.inputs.tolist() == [[BOS, 5, 5, 4], [BOS, OOV, OOV, OOV], [BOS, 4, OOV, PAD]]
    assert fitted.fit is None


def test_test_texts_are_encoded_by_the_training_vocabulary() -> None:
    known = [Text(owner="ann", tokens=["a", "b"]), Text(owner="ann", tokens=["b", "new", "new"], test=True)]
    fitted = text_dataset("t", known, length=4, vocabulary=None).fitted(np.array([0]))
    assert fitted.test is not None
    assert fitted.class_names == (*SPECIAL, "a", "b")
    assert fitted.test.targets.tolist() == [[5, OOV, OOV, EOS]]
    assert fitted.test_owners is not None
    assert fitted.test_owners.tolist() == [0]


@pytest.mark.parametrize("split_by", ["random", "group", "time"])
def test_nothing_trained_on_changes_with_what_is_held_out(split_by: str) -> None:
    """The same posts, then with new words wherever the split does not train: all that is trained on stays the same."""
    rng = np.random.default_rng(0)
    posts = [(f"u{number % 3}", " ".join(rng.choice(list("abcdefgh"), 12))) for number in range(60)]

    def federation(written: list[tuple[str, str]]):  # type: ignore[no-untyped-def]
        dataset = text_dataset("t", texts(*written), length=6, vocabulary=5, whole_texts=True)
        return dataset, partition(dataset, natural(), seed=3, split_by=split_by)  # type: ignore[arg-type]

    dataset, first = federation(posts)
    trained = np.concatenate([own.train for own in first.population.indices])
    touched = set(dataset.groups[trained].tolist())
    changed = [post if place in touched else (post[0], "zz " * 12) for place, post in enumerate(posts)]
    assert changed != posts
    _, second = federation(changed)
    check_federation(second)

    assert second.classes == first.classes == 4 + 5
    for client in range(3):
        for ours, theirs in zip(first.client(client).train, second.client(client).train, strict=True):
            assert torch.equal(ours, theirs)


def test_a_client_that_is_only_tested_is_refused() -> None:
    known = [Text(owner="ann", tokens=["a"]), Text(owner="bob", tokens=["b"], test=True)]
    with pytest.raises(InvalidData, match="client 'bob' has no training text: give it some, or remove it"):
        text_dataset("t", known, length=4, vocabulary=9)


def test_no_text_at_all_is_refused() -> None:
    with pytest.raises(InvalidData, match="no text to train on"):
        text_dataset("t", [Text(owner="ann", tokens=[])], length=4, vocabulary=9)


def test_a_data_set_that_learns_nothing_stays_as_it_is() -> None:
    dataset = DataSet(name="d", examples=from_arrays(np.ones((3, 2)), [0, 1, 0]))
    assert dataset.fitted(np.array([0])) is dataset


def test_tokens_have_no_label_space_of_a_clients_own() -> None:
    dataset = text_dataset("t", texts(*[("ann", "a b c")] * 9), length=4, vocabulary=9)
    with pytest.raises(InvalidConfig, match="label_space is 'local', but the data set 't' has no classes to number"):
        partition(dataset, natural(), seed=0, label_space="local")
