"""Shakespeare's plays: the next character or word, by role."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from plures.core.errors import InvalidData
from plures.data.corpora import UNITS, Text, Unit, text_dataset, tokens_of, usual_length
from plures.data.datasets import DataSet
from plures.data.sources.finding import find_form, given_path
from plures.data.sources.json_files import listed, read_json, taken
from plures.data.sources.leaf_text import Share, leaf_shares
from plures.data.sources.reading import check_choice, check_count, wrong
from plures.data.sources.registry import source

FORM = "It is a list of plays, each with play and roles; a role has role and speeches. Fetch the file again"
WINDOW_FORM = "x holds pieces of text and y the character that follows each: give LEAF's files as they are"


class Role(NamedTuple):
    """All that somebody says, speech by speech or as one text."""

    name: str
    texts: list[str]
    test_texts: list[str]

    @property
    def num_characters(self) -> int:
        """With one sign between two texts."""
        texts = self.texts + self.test_texts
        return sum(map(len, texts)) + len(texts) - 1


@source(
    "shakespeare",
    about="4.3 million characters of 37 plays, next character or word; clients are the roles with enough to say",
    files=(
        "shakespeare/shakespeare-by-role.json.gz, or shakespeare/train/*.json and shakespeare/test/*.json in the form"
        " of LEAF",
    ),
)
def shakespeare(
    *,
    path: str | Path | None = None,
    min_characters: int = 2000,
    unit: Unit = "character",
    length: int | None = None,
    vocabulary: int = 10_000,
) -> DataSet:
    """Sequences of 80 characters of all that a role says, or of 20 words of a speech; in the order of the plays.

    A role has at least `min_characters`. LEAF's test texts are kept as the data set's own; its windows, which overlap
    in all but one character, are put together again to the text that they were cut from.
    """
    check_choice("unit", unit, UNITS)
    check_count("min_characters", min_characters)
    check_count("vocabulary", vocabulary)
    check_count("length", length := usual_length(unit) if length is None else length)
    place = _found() if path is None else given_path(path)
    roles = [role for role in roles_in(place) if role.num_characters >= min_characters]
    if not roles:
        raise InvalidData(f"No role of {place} has {min_characters} characters: lower min_characters.")
    texts = (text for role in roles for text in _texts(role, unit))
    return text_dataset("shakespeare", texts, length=length, vocabulary=vocabulary)


def _found() -> Path:
    forms = {
        "roles": ("shakespeare/shakespeare-by-role.json*",),
        "leaf": ("shakespeare/**/train/*.json*", "shakespeare/**/test/*.json*"),
    }
    form, paths = find_form("shakespeare", forms)
    return paths[0] if form == "roles" else paths[0].parent.parent


def roles_in(place: Path) -> Iterator[Role]:
    """Every role, from either form of file."""
    if place.is_dir():
        return roles_of_leaf(place)
    content = read_json(place)
    return roles_of_leaf(place) if isinstance(content, dict) else roles_of_plays(place, content)


def roles_of_plays(path: Path, content: object) -> Iterator[Role]:
    for number, play in enumerate(listed(path, content, FORM)):
        title = taken(path, play, "play", str, f"play {number}", FORM)
        for role in taken(path, play, "roles", list, title, FORM):
            name = taken(path, role, "role", str, f"a role of {title}", FORM)
            speeches = taken(path, role, "speeches", list, f"{name} of {title}", FORM)
            if not speeches or not all(isinstance(speech, str) and speech for speech in speeches):
                raise wrong(path, f"has in {name} of {title} speeches that are no text, or none at all", FORM)
            yield Role(f"{title}: {name}", speeches, [])


def roles_of_leaf(place: Path) -> Iterator[Role]:
    """Users of LEAF's files; what train and test files have of one user comes together."""
    roles: dict[str, Role] = {}
    for share in leaf_shares(place):
        role = roles.setdefault(share.user, Role(share.user, [], []))
        (role.test_texts if share.test else role.texts).extend(joined_windows(share))
    return iter(roles.values())


def joined_windows(share: Share) -> list[str]:
    """Windows that continue one another become one text, as long as they do."""
    path, where = share.path, f"user '{share.user}'"
    if not all(isinstance(text, str) and text for text in share.x + share.y):
        raise wrong(path, f"has in {where} something other than text", WINDOW_FORM)
    if not share.y:
        return share.x
    if len(share.x) != len(share.y):
        raise wrong(path, f"has in {where} {len(share.x)} x but {len(share.y)} y", WINDOW_FORM)
    runs: list[list[str]] = []
    expected = None
    for window, following in zip(share.x, share.y, strict=True):
        if window == expected:
            runs[-1].append(following)
        else:
            runs.append([window, following])
        expected = (window + following)[-len(window) :]
    return ["".join(run) for run in runs]


def _texts(role: Role, unit: Unit) -> Iterator[Text]:
    for texts, test in ((role.texts, False), (role.test_texts, True)):
        # Most speeches are shorter than two sequences of characters: cut one by one, much would be padding.
        for text in texts if unit == "word" else ["\n".join(texts)] * bool(texts):
            yield Text(owner=role.name, tokens=tokens_of(text, unit), test=test)
