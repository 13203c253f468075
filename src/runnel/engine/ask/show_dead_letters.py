"""Dead letters: messages that no endpoint took, shown to those whose subscriptions they belong to."""

from __future__ import annotations

from runnel.catalog.declared import subscriptions
from runnel.delivery.dead_letters import dead_letters, explain_letter
from runnel.engine.actors import Actor
from runnel.engine.open_delivery import shares_of
from runnel.engine.outcome import Outcome
from runnel.engine.workspace import Root
from runnel.errors import NotFound

_SHOWN = 1000


def show_letters(root: Root, actor: Actor) -> Outcome:
    """The actor's dead letters (to the operator: everybody's), newest first."""
    with root.catalog.read() as connection:
        found = dead_letters(connection, _SHOWN, owner=None if actor.is_operator else actor.owner)
    return Outcome(
        f"{len(found)} dead letters",
        {"letters": [one.to_json() for one in found]},
        tuple(one.line() for one in found),
    )


def explain_message(root: Root, key: str, actor: Actor) -> Outcome:
    """What is in a message, and every attempt to deliver it that failed."""
    with root.catalog.read() as connection:
        owner = subscriptions.owner_of_message(connection, key)
        if owner is None or not (actor.is_operator or owner == actor.owner):
            raise NotFound(f"there is no message {key}", hint="`show dead letters` lists those that nobody took")
        found = explain_letter(connection, key, shares_of(root))
    return Outcome(f"message {key}", found.to_json(), tuple(found.lines()))
