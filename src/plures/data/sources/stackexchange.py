"""Posts on Stack Exchange: the next word, by user or by site."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from plures.core.errors import InvalidData
from plures.data.corpora import Text, text_dataset
from plures.data.datasets import DataSet
from plures.data.sources.finding import find_form, given_path
from plures.data.sources.json_files import listed, read_json, taken
from plures.data.sources.reading import check_choice, check_count, wrong
from plures.data.sources.registry import source
from plures.data.text import WORDS_PER_SEQUENCE, words_of

By = Literal["user", "site"]

FILE = "stackexchange/stackexchange-by-user.json*"

FORM = "It is a list of users, each with site, user and posts; a post has date and text. Fetch the file again"


class Post(NamedTuple):
    """What is used of one."""

    site: str
    user: int
    day: int
    text: str


@source(
    "stackexchange",
    about="3,946 posts on three Stack Exchange sites, next word; clients are the users who wrote enough, or the sites",
    files=("stackexchange/stackexchange-by-user.json.gz",),
)
def stackexchange(
    *,
    path: str | Path | None = None,
    by: By = "user",
    min_words: int = 500,
    min_posts: int = 3,
    length: int = WORDS_PER_SEQUENCE,
    vocabulary: int = 10_000,
) -> DataSet:
    """Sequences of posts without their titles; all of one post are a group, and its date is their time.

    A client has `min_words` (between white space) and `min_posts`, so that train, validation and test each get a post.
    """
    check_choice("by", by, get_args(By))
    for option, count in (("min_words", min_words), ("min_posts", min_posts), ("length", length)):
        check_count(option, count)
    check_count("vocabulary", vocabulary)
    found = find_form("stackexchange", {"json": (FILE,)})[1][0] if path is None else given_path(path)
    clients: dict[str, list[Post]] = {}
    for post in posts_of(found):
        clients.setdefault(post.site if by == "site" else f"{post.site}/{post.user}", []).append(post)
    chosen = {name: posts for name, posts in clients.items() if _wrote_enough(posts, min_words, min_posts)}
    if not chosen:
        problem = f"No {by} of {found} has {min_words} words in {min_posts} posts"
        raise InvalidData(f"{problem}: lower min_words or min_posts.")
    texts = (
        Text(owner=name, tokens=words_of(post.text), time=post.day) for name, posts in chosen.items() for post in posts
    )
    return text_dataset("stackexchange", texts, length=length, vocabulary=vocabulary, whole_texts=True)


def _wrote_enough(posts: list[Post], min_words: int, min_posts: int) -> bool:
    written = [len(post.text.split()) for post in posts]
    return sum(written) >= min_words and sum(count > 0 for count in written) >= min_posts


def posts_of(path: Path) -> Iterator[Post]:
    """Every post of a file, user by user."""
    for place, entry in enumerate(listed(path, read_json(path), FORM)):
        where = f"entry {place}"
        site, user = (taken(path, entry, key, kind, where, FORM) for key, kind in (("site", str), ("user", int)))
        posts = taken(path, entry, "posts", list, where, FORM)
        if not posts:
            raise wrong(path, f"has no posts of user {user} on {site}", "Remove the user, or fetch the file again")
        for post in posts:
            about = f"a post of user {user} on {site}"
            yield Post(site, user, _day(path, post, about), taken(path, post, "text", str, about, FORM))


def _day(path: Path, post: Any, where: str) -> int:
    written = taken(path, post, "date", str, where, FORM)
    try:
        return date.fromisoformat(written[:10]).toordinal()
    except ValueError:
        raise wrong(path, f"has in {where} the date '{written}'", "Write dates as 2014-01-21") from None
