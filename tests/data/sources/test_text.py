"""Texts by user, role and author, from files of each form."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plures.core.errors import InvalidConfig, InvalidData
from plures.data import SOURCES, DataSet, check_federation, natural, partition
from plures.data.sources.finding import at_hand

SPECIAL = ("<pad>", "<bos>", "<eos>", "<oov>")


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def words(dataset: DataSet, row: int, *, test: bool = False) -> list[str]:
    """The targets of one sequence, without padding."""
    batch = dataset.test if test else dataset.examples
    assert batch is not None
    return [dataset.class_names[token] for token in batch.targets[row].tolist() if token]


def post(text: str, date: str = "2014-01-21") -> dict[str, Any]:
    return {"id": 1, "type": "question", "score": 0, "date": date, "title": "T", "tags": ["a"], "text": text}


USERS = [
    {"site": "beer", "user": 7, "posts": [post("One two three.", "2014-01-23"), post("Four"), post("Five six")]},
    {"site": "beer", "user": 8, "posts": [post("Short")]},
    {"site": "ai", "user": 7, "posts": [post("a " * 25), post("b"), post("c")]},
]

STACKEXCHANGE = "stackexchange/stackexchange-by-user.json.gz"


def test_users_of_stackexchange_who_wrote_enough_are_clients(data_folder: Path) -> None:
    write(data_folder / STACKEXCHANGE, USERS)
    dataset = SOURCES["stackexchange"].load(min_words=6)
    assert dataset.owner_names == ("beer/7", "ai/7")
    assert words(dataset, 0) == ["one", "two", "three", ".", "<eos>"]
    # 25 words are a sequence of 20 and one of 5.
    assert dataset.owners is not None
    assert dataset.owners.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert words(dataset, 4) == ["a"] * 5 + ["<eos>"]
    assert dataset.groups is not None
    assert dataset.groups.tolist() == [0, 1, 2, 3, 3, 4, 5]
    assert dataset.times is not None
    assert (dataset.times - dataset.times[1]).tolist() == [2, 0, 0, 0, 0, 0, 0]
    assert dataset.examples.inputs.shape == (7, 20)


def test_sites_of_stackexchange_can_be_clients(data_folder: Path) -> None:
    write(data_folder / STACKEXCHANGE, USERS)
    assert SOURCES["stackexchange"].load(by="site", min_words=6).owner_names == ("beer", "ai")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"users": []}, "is not a list of entries"),
        ([{"site": "beer", "user": 7}], "has no 'posts' in entry 0"),
        ([{"site": "beer", "user": "x", "posts": []}], "'user' that is not a whole number: 'x'"),
        ([{"site": "beer", "user": 7, "posts": []}], "has no posts of user 7 on beer. Remove the user"),
        ([{"site": "beer", "user": 7, "posts": [{"date": "2014-01-21"}]}], "has no 'text' in a post of user 7 on beer"),
        ([{"site": "beer", "user": 7, "posts": [post("a", "last May")]}], "the date 'last May'. Write dates as 2014"),
        ("[{", "Cannot read .*fetch it again"),
        (USERS, "No user .* has 500 words in 3 posts: lower min_words"),
    ],
)
def test_a_broken_file_of_stackexchange_is_one_error_that_names_it(
    data_folder: Path, content: Any, message: str
) -> None:
    path = write(data_folder / STACKEXCHANGE, content)
    with pytest.raises(InvalidData, match=message) as caught:
        SOURCES["stackexchange"].load()
    assert len(caught.value.problems) == 1
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["stackexchange", "shakespeare"])
def test_a_packed_file_that_is_cut_off_is_one_error(data_folder: Path, name: str) -> None:
    file = {"stackexchange": STACKEXCHANGE, "shakespeare": "shakespeare/shakespeare-by-role.json.gz"}[name]
    path = write(data_folder / file, USERS * 50)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(InvalidData, match=f"Cannot read {path}.*fetch it again") as caught:
        SOURCES[name].load()
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize("name", ["stackexchange", "stackoverflow", "shakespeare", "uci-har", "heart-disease"])
def test_what_is_not_at_hand_says_where_to_put_it(data_folder: Path, name: str) -> None:
    with pytest.raises(InvalidData, match=f"'{name}' is not at hand .*Put into a folder of PLURES_DATA: {name}/"):
        SOURCES[name].load()
    assert at_hand(SOURCES[name]) == "no"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("stackexchange", {"by": "sites"}, "by is 'sites'. Did you mean 'site'"),
        ("stackexchange", {"min_words": 0}, "min_words is 0: it must be a whole number of at least 1"),
        ("stackoverflow", {"users": -1}, "users is -1"),
        ("stackoverflow", {"length": 2.5}, "length is 2.5"),
        ("shakespeare", {"unit": "line"}, "unit is 'line'"),
        ("shakespeare", {"length": 0}, "length is 0"),
        ("text-by-author", {"path": ".", "vocabulary": 0}, "vocabulary is 0"),
    ],
)
def test_options_that_cannot_be_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        SOURCES[name].load(**options)


def lines(*rows: dict[str, Any]) -> str:
    return "\n".join(map(json.dumps, rows)) + "\n"


def many(user: Any, train: int, test: int, text: Any = "Hello there") -> list[dict[str, Any]]:
    splits = ["train"] * train + ["test"] * test
    return [{"user": user, "text": text, "split": split} for split in splits]


def test_stackoverflow_keeps_users_with_100_training_and_10_test_texts(data_folder: Path) -> None:
    rows = many("enough", 100, 10) + many("little", 99, 10) + many("untested", 100, 9) + many(4, 150, 30)
    write(data_folder / "stackoverflow/posts.jsonl.gz", lines(*rows))
    dataset = SOURCES["stackoverflow"].load()
    assert dataset.owner_names == ("enough", "4")
    assert dataset.test is not None
    assert (dataset.examples.num_examples, dataset.test.num_examples) == (250, 40)
    assert words(dataset, 0) == ["hello", "there", "<eos>"]


def test_texts_without_words_do_not_count(data_folder: Path) -> None:
    write(data_folder / "stackoverflow/posts.jsonl", lines(*many("a", 2, 1), *many("b", 2, 1, " \n"), *many("c", 1, 1)))
    assert SOURCES["stackoverflow"].load(min_train=2, min_test=1).owner_names == ("a",)


def test_texts_of_stackoverflow_are_cut_at_20_words_and_users_at_1000_sequences(data_folder: Path) -> None:
    write(data_folder / "stackoverflow/posts.jsonl", lines(*many("a", 5, 4, "x " * 45)))
    dataset = SOURCES["stackoverflow"].load(min_train=1, min_test=1, max_sequences=3)
    assert dataset.test is not None
    assert dataset.examples.inputs.shape == dataset.test.inputs.shape == (3, 20)
    assert words(dataset, 0) == ["x"] * 20


def test_of_more_users_so_many_are_drawn_by_the_seed(data_folder: Path) -> None:
    rows = [row for user in range(40) for row in many(user, 2, 1)]
    write(data_folder / "stackoverflow/posts.jsonl", lines(*rows))
    load = SOURCES["stackoverflow"].load
    drawn = [load(min_train=1, min_test=1, users=10, seed=seed).owner_names for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0])) == 10


def leaf(users: dict[str, dict[str, Any]]) -> dict[str, Any]:
    sizes = [len(data["x"]) for data in users.values()]
    return {"users": list(users), "num_samples": sizes, "user_data": users}


def test_stackoverflow_reads_texts_and_token_lists_of_leaf(data_folder: Path) -> None:
    tokens = ["<BOS>", "How", "<UNK>", "?", "<EOS>", "<PAD>"]
    write(data_folder / "stackoverflow/train/a.json", leaf({"ann": {"x": ["Why so?", tokens]}}))
    write(data_folder / "stackoverflow/test/a.json", leaf({"ann": {"x": [["New"]]}}))
    dataset = SOURCES["stackoverflow"].load(min_train=2, min_test=1)
    assert [words(dataset, row) for row in (0, 1)] == [["why", "so", "?", "<eos>"], ["how", "<oov>", "?", "<eos>"]]
    assert words(dataset, 0, test=True) == ["new", "<eos>"]
    # The vocabulary is learnt from training texts: "new" is not in it, nor is the file's own unknown word.
    fitted = dataset.fitted(np.arange(2))
    assert fitted.class_names == (*SPECIAL, "?", "how", "so", "why")
    assert words(fitted, 0, test=True) == ["<oov>", "<eos>"]


def test_without_test_texts_a_user_needs_as_many_as_both_together(data_folder: Path) -> None:
    users = {"ann": {"x": ["a"] * 11}, "bob": {"x": ["a"] * 10}}
    write(data_folder / "all.json", leaf(users))
    dataset = SOURCES["stackoverflow"].load(path="all.json", min_train=10, min_test=1)
    assert dataset.owner_names == ("ann",)
    assert dataset.test is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"user": 1}\n', "has no 'text' in line 1"),
        ('{"user": 1, "text": "a"}\n\n{"text": "a"}\n', "has no 'user' in line 3"),
        ('{"user": 1, "text": 5}\n', "in line 1 a text that is '5'. A text is a string or a list of words"),
        ('{"user": 1, "text": "a", "split": "dev"}\n', "the split 'dev' in line 1"),
        ('{"user": 1, "text": "a"}\n{"user"\n', "Line 2 is no json: correct or remove it"),
        ("[1]\n", "has in line 1 no table"),
        (
            '{"user": 1, "text": "a"}\n',
            "No user .* has 110 texts to train and 0 to test on .*has 1 and 0.*lower min_train",
        ),
    ],
)
def test_broken_lines_are_one_error_that_names_file_and_line(data_folder: Path, content: str, message: str) -> None:
    path = write(data_folder / "stackoverflow/posts.jsonl", content)
    with pytest.raises(InvalidData, match=message) as caught:
        SOURCES["stackoverflow"].load()
    assert len(caught.value.problems) == 1
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["stackoverflow", "shakespeare"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"users": ["ann"]}, "has no 'user_data' in it"),
        ({"users": ["ann"], "user_data": {}}, "has no 'ann' in user_data"),
        ({"users": ["ann"], "user_data": {"ann": {"y": []}}}, "has no 'x' in user 'ann'"),
        ({"users": ["ann"], "user_data": {"ann": {"x": []}}}, "has no texts of user 'ann'. Remove the user"),
        (
            {"users": ["ann"], "user_data": {"ann": {"x": [3]}}},
            "has in user 'ann' .*(a text that is '3'|other than text)",
        ),
    ],
)
def test_files_that_are_not_leafs_are_one_error(data_folder: Path, name: str, content: Any, message: str) -> None:
    path = write(data_folder / "leaf.json", content)
    with pytest.raises(InvalidData, match=message) as caught:
        SOURCES[name].load(path=path)
    assert len(caught.value.problems) == 1
    assert str(path) in str(caught.value)


def test_a_folder_without_json_is_one_error(data_folder: Path) -> None:
    with pytest.raises(InvalidData, match=r"has no json files\. Give a folder with train"):
        SOURCES["shakespeare"].load(path=data_folder)


PLAYS = [
    {"play": "Hamlet", "roles": [{"role": "GHOST", "speeches": ["Mark me.", "My hour\nis almost come"]}]},
    {"play": "Macbeth", "roles": [{"role": "GHOST", "speeches": ["Boo"]}]},
]


def test_characters_of_a_role_are_one_text_with_the_next_one_at_every_place(data_folder: Path) -> None:
    write(data_folder / "shakespeare/shakespeare-by-role.json.gz", PLAYS)
    dataset = SOURCES["shakespeare"].load(min_characters=10, length=20)
    assert dataset.owner_names == ("Hamlet: GHOST",)
    text = "Mark me.\nMy hour\nis almost come"
    assert words(dataset, 0) + words(dataset, 1) == [*text, "<eos>"]
    inputs = [dataset.class_names[token] for token in dataset.examples.inputs[0].tolist()]
    assert inputs == ["<bos>", *text[:19]]
    assert dataset.groups is None
    assert dataset.times is not None
    assert dataset.times.tolist() == [0, 1]


def test_sequences_of_shakespeare_have_80_characters_or_20_words_unless_told_otherwise(data_folder: Path) -> None:
    write(data_folder / "shakespeare/shakespeare-by-role.json.gz", PLAYS)
    assert SOURCES["shakespeare"].load(min_characters=3).examples.inputs.shape == (2, 80)
    spoken = SOURCES["shakespeare"].load(min_characters=3, unit="word")
    assert spoken.examples.inputs.shape == (3, 20)
    assert words(spoken, 1) == ["my", "hour", "is", "almost", "come", "<eos>"]


def test_windows_of_leaf_are_put_together_to_their_text(data_folder: Path) -> None:
    def windows(text: str, size: int = 4) -> dict[str, list[str]]:
        starts = range(len(text) - size)
        return {"x": [text[at : at + size] for at in starts], "y": [text[at + size] for at in starts]}

    torn = {part: windows("first part")[part] + windows("and more")[part] for part in ("x", "y")}
    write(data_folder / "shakespeare/data/train/a.json", leaf({"HAMLET": torn}))
    write(data_folder / "shakespeare/data/test/a.json", leaf({"HAMLET": windows("the end")}))
    dataset = SOURCES["shakespeare"].load(min_characters=1, length=100)
    # What does not continue the window before it begins a new line.
    assert words(dataset, 0) == [*"first part\nand more", "<eos>"]
    assert words(dataset, 0, test=True) == [*"the end", "<eos>"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([{"roles": []}], "has no 'play' in play 0"),
        ([{"play": "Hamlet", "roles": [{"role": "GHOST"}]}], "has no 'speeches' in GHOST of Hamlet"),
        ([{"play": "Hamlet", "roles": [{"role": "GHOST", "speeches": []}]}], "GHOST of Hamlet .*none at all"),
        (PLAYS, "No role of .* has 2000 characters: lower min_characters"),
        (leaf({"A": {"x": ["abcd", "bcde"], "y": ["e"]}}), "user 'A' 2 x but 1 y"),
    ],
)
def test_a_broken_file_of_plays_is_one_error(data_folder: Path, content: Any, message: str) -> None:
    path = write(data_folder / "shakespeare/shakespeare-by-role.json", content)
    with pytest.raises(InvalidData, match=message) as caught:
        SOURCES["shakespeare"].load()
    assert len(caught.value.problems) == 1
    assert str(path) in str(caught.value)


def folders(folder: Path) -> Path:
    write(folder / "texts/ann/2.txt", "Second text")
    write(folder / "texts/ann/1.txt", "\ufeffFirst text")
    write(folder / "texts/bob/only.txt", "Two words")
    write(folder / "texts/bob/notes.md", "not read")
    return folder / "texts"


def one_file(folder: Path) -> Path:
    rows = [("ann", "First text"), ("bob", "Two words"), ("ann", "Second text")]
    return write(folder / "texts.jsonl", lines(*({"author": author, "text": text} for author, text in rows)))


@pytest.mark.parametrize("make", [folders, one_file])
def test_own_texts_come_by_author(data_folder: Path, make: Callable[[Path], Path]) -> None:
    dataset = SOURCES["text-by-author"].load(path=make(data_folder), min_words=2, whole_texts=True)
    assert dataset.owner_names == ("ann", "bob")
    assert [words(dataset, row)[0] for row in range(3)] == ["first", "second", "two"]
    assert dataset.groups is not None
    assert dataset.groups.tolist() == [0, 1, 2]
    assert SOURCES["text-by-author"].load(path=make(data_folder), min_words=4).owner_names == ("ann",)


def test_own_texts_can_be_cut_into_characters_and_columns_have_any_name(data_folder: Path) -> None:
    path = write(data_folder / "posts.jsonl", lines({"who": 5, "said": "Aa b"}))
    load = SOURCES["text-by-author"].load
    dataset = load(path="posts.jsonl", author="who", text="said", unit="character", min_words=1)
    assert words(dataset, 0) == ["A", "a", " ", "b", "<eos>"]
    assert dataset.owner_names == ("5",)
    with pytest.raises(InvalidData, match=f"{path} has no 'author' in line 1. Give each line 'author' and 'text'"):
        load(path=path)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"texts/readme.txt": "a"}, "texts has no folders. Give each author a folder"),
        ({"texts/ann/a.txt": "a", "texts/bob/b.md": "b"}, "bob has no .txt file with text in it"),
        ({"texts/ann/a.txt": " \n"}, "ann has no .txt file with text in it. Put some there"),
        ({"texts/ann/a.txt": "a b"}, "No author of .* has 100 words: lower min_words"),
    ],
)
def test_folders_without_text_are_one_error(data_folder: Path, files: dict[str, str], message: str) -> None:
    for name, text in files.items():
        write(data_folder / name, text)
    with pytest.raises(InvalidData, match=message) as caught:
        SOURCES["text-by-author"].load(path="texts")
    assert len(caught.value.problems) == 1


def test_an_author_without_text_and_a_file_that_is_no_text_are_one_error(data_folder: Path) -> None:
    path = write(data_folder / "texts.jsonl", lines({"author": "ann", "text": " "}))
    with pytest.raises(InvalidData, match=r"has no text of author 'ann'\. Give some"):
        SOURCES["text-by-author"].load(path=path)
    bad = data_folder / "texts/ann/a.txt"
    bad.parent.mkdir(parents=True)
    bad.write_bytes(b"caf\xe9")
    with pytest.raises(InvalidData, match=f"Cannot read {bad}.*Save it as text in UTF-8"):
        SOURCES["text-by-author"].load(path="texts")


def real(name: str, **options: Any) -> DataSet:
    if at_hand(SOURCES[name]) != "yes":
        pytest.skip(f"{name} is not in PLURES_DATA")
    return SOURCES[name].load(**options)


@pytest.mark.data
def test_stackexchange_has_its_1226_users_and_186_who_wrote_500_words() -> None:
    everybody = real("stackexchange", min_words=1, min_posts=1)
    assert len(everybody.owner_names) == 1226
    assert everybody.groups is not None
    assert len(set(everybody.groups.tolist())) == 3946
    assert len(real("stackexchange", min_words=500, min_posts=1).owner_names) == 186
    assert real("stackexchange", by="site").owner_names == ("beer", "ai", "coffee")


@pytest.mark.data
def test_stackexchange_makes_a_federation_with_the_papers_vocabulary() -> None:
    federation = partition(real("stackexchange"), natural(), seed=0, split_by="time")
    check_federation(federation)
    # The 10,000 commonest words and the four special tokens.
    assert (federation.classes, federation.input_shape, federation.goal.name) == (10_004, (20,), "next_token")


@pytest.mark.data
def test_shakespeare_has_the_roles_that_its_makers_count() -> None:
    counts = [len(real("shakespeare", min_characters=least).owner_names) for least in (1, 2000, 5000, 10_000)]
    # Two editions: that of the Moby texts, and that of Project Gutenberg with fewer roles.
    assert counts in ([1361, 447, 266, 134], [901, 435, 252, 121])


@pytest.mark.data
def test_shakespeare_makes_federations_of_characters_and_of_words() -> None:
    for unit, length in (("character", 80), ("word", 20)):
        federation = partition(real("shakespeare", unit=unit), natural(), seed=0, split_by="time")
        check_federation(federation)
        assert federation.input_shape == (length,)
