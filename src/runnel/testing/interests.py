"""Generate the interests of a world's readers: conditions that overlap, as they do in reality.

In: a seed and a number of interests. Out: `Interest`s, most popular first, each a conjunction of clauses in the
language of statements. Clauses are drawn from a pool with few popular ones, so many conditions share clauses.
"""

from __future__ import annotations

from dataclasses import dataclass

from runnel.algebra.nodes.render import quote
from runnel.testing.dice import Dice
from runnel.testing.world_words import TOPICS, Topic, companies, people, places, rarities

NUMBER_CLAUSES: tuple[str, ...] = (
    "rating >= 4",
    "price < 10",
    "price between 10 and 25",
    "rating between 3 and 4.5",
    "price <= 50",
    "rating > 4.5",
    "price between 20 and 80",
    "rating < 2",
    "price >= 99.5",
    "price exists",
)

SIDE_CLAUSES: tuple[tuple[str, str], ...] = (
    ("Breaking", "category = 'breaking'"),
    ("Weekend", "published.weekday in (6, 7)"),
    ("Morning", "published.hour between 6 and 9"),
    ("Calm", "not category = 'breaking'"),
    ("Workday", "published.weekday between 1 and 5"),
    ("Evening", "published.hour >= 18"),
    ("Recent", "published >= date '2026-11-04'"),
    ("Original", "not title contains 'Update'"),
    ("Edited", "title contains 'Update'"),
    ("Midweek", "published between date '2026-11-03' and date '2026-11-05'"),
    ("Friday", "published.day = 6"),
    ("Maintained", "updated exists"),
    ("Night", "(published.hour < 5 or published.hour >= 22)"),
)
"""Conditions that can be combined with any topic, each with an adjective for names of queries."""


@dataclass(frozen=True, slots=True)
class Interest:
    """A topic, a subject for names of queries (ASCII letters), and clauses. The first clause is about the subject."""

    topic: str
    subject: str
    clauses: tuple[str, ...]

    @property
    def condition(self) -> str:
        """The conjunction of all clauses, as written in a `where`."""
        return " and ".join(self.clauses)


def make_interests(seed: int, count: int) -> tuple[Interest, ...]:
    """Generate `count` interests, most popular first. Some of them are equal.

    >>> make_interests(7, 5) == make_interests(7, 5)
    True
    """
    dice = Dice(seed, "interests")
    topics = dice.ranks(len(TOPICS), count, 0.5).tolist()
    kinds = dice.weighted(tuple(weight for weight, _ in _SHAPES), count).tolist()
    ranks = dice.uniforms(count * 3).reshape(count, 3).tolist()
    second = dice.ranks(8, count * 2, 0.8).reshape(count, 2).tolist()
    sides = dice.ranks(len(SIDE_CLAUSES), count, 0.9).tolist()
    length = dice.weighted((4, 4, 3, 1), count).tolist()
    negated = dice.chances(0.3, count).tolist()
    interests = []
    for index in range(count):
        topic = TOPICS[topics[index]]
        subject, first = _SHAPES[kinds[index]][1](topic, *ranks[index])
        more = [
            _refinement(topic, *second[index], negated=negated[index]),
            SIDE_CLAUSES[sides[index]][1],
            f"category = {quote(topic.name)}",
        ]
        # Popular interests have few clauses.
        interests.append(Interest(topic.name, subject, (first, *more[: min(length[index], 1 + 8 * index // count)])))
    return tuple(interests)


def _refinement(topic: Topic, first: int, second: int, *, negated: bool) -> str:
    """Return a second condition with the topic's most frequent words."""
    noun, other = topic.nouns[first], topic.nouns[(first + second + 1) % len(topic.nouns)]
    if negated:
        return f"not title contains {quote(noun)}"
    return f"(description contains {quote(noun)} or description contains {quote(other)})"


def _rank(uniform: float, size: int) -> int:
    """Convert a uniform random number to a rank whose probability is about proportional to 1 / rank."""
    return min(size - 1, int((size + 1) ** uniform) - 1)


def _camel(text: str) -> str:
    """Join words to one name in camel case, without characters outside ASCII.

    >>> _camel("sold-out Vélodrome")
    'SoldOutVlodrome'
    """
    parts = text.replace("-", " ").split()
    return "".join(part[0].upper() + part[1:] for part in parts).encode("ascii", "ignore").decode()


def _word(topic: Topic, first: float, second: float, third: float) -> tuple[str, str]:
    noun = topic.nouns[_rank(first, len(topic.nouns))]
    attribute = "title" if second < 0.5 else "description"
    return _camel(noun), f"{attribute} contains {quote(noun)}"


def _anywhere(topic: Topic, first: float, second: float, third: float) -> tuple[str, str]:
    noun = topic.nouns[_rank(first, len(topic.nouns))]
    return _camel(noun), f"(title contains {quote(noun)} or description contains {quote(noun)})"


def _phrase(topic: Topic, first: float, second: float, third: float) -> tuple[str, str]:
    text = f"{topic.adjectives[_rank(first, 8)]} {topic.nouns[_rank(second, 20)]}"
    attribute = "title" if third < 0.3 else "description"
    return _camel(text), f"{attribute} contains {quote(text)}"


def _either(topic: Topic, first: float, second: float, third: float) -> tuple[str, str]:
    noun = topic.nouns[_rank(first, len(topic.nouns))]
    other = topic.nouns[_rank(second, len(topic.nouns))]
    place = places()[_rank(third, len(places()))]
    choices = dict.fromkeys((noun, other, place))
    return _camel(noun), "(" + " or ".join(f"title contains {quote(choice)}" for choice in choices) + ")"


def _person(topic: Topic, first: float, second: float, third: float) -> tuple[str, str]:
    name = people()[_rank(first, len(people()))]
    family = name.split()[-1]
    if second < 0.15:
        return f"By{family}", f"author = {quote(name)}"
    return family, f"description contains {quote(name)}"


def _place(topic: Topic, first: float, second: float, third: float) -> tuple[str, str]:
    name = places()[_rank(first, len(places()))]
    noun = topic.nouns[_rank(second, 12)]
    if third < 0.5:
        return name, f"title contains {quote(name)}"
    return f"{name}{_camel(noun)}", f"title contains {quote(name)} and description contains {quote(noun)}"


def _company(topic: Topic, first: float, second: float, third: float) -> tuple[str, str]:
    name = companies()[_rank(first, len(companies()))]
    return name.split()[0], f"description contains {quote(name)}"


def _section(topic: Topic, first: float, second: float, third: float) -> tuple[str, str]:
    section = topic.sections[_rank(first, len(topic.sections))]
    other = TOPICS[int(second * len(TOPICS))].name
    if third < 0.5:
        return _camel(section), f"category = {quote(section)}"
    return _camel(section), f"category in ({quote(section)}, {quote(other)})"


def _rarity(topic: Topic, first: float, second: float, third: float) -> tuple[str, str]:
    word = rarities()[_rank(first, len(rarities()))]
    return word, f"description contains {quote(word)}"


def _unspaced(topic: Topic, first: float, second: float, third: float) -> tuple[str, str]:
    phrase = topic.unspaced[int(first * len(topic.unspaced))]
    return f"{_camel(topic.name)}Asia", f"description contains {quote(phrase if second < 0.7 else phrase[:2])}"


_SHAPES = (
    (26, _word),
    (14, _anywhere),
    (12, _phrase),
    (10, _either),
    (10, _person),
    (10, _place),
    (7, _company),
    (6, _section),
    (4, _rarity),
    (1, _unspaced),
)
"""The weight of each kind of first clause."""
