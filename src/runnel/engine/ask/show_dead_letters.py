"""Dead letters: messages that no endpoint took, shown to those whose subscriptions they belong to."""

from __future__ import annotations

from runnel.catalog.declared import subscriptions
from runnel.delivery.dead_letters import dead_letters, explain_dead_letter
from runnel.engine.actors import Actor
from runnel.engine.open_delivery import match_reader_of
from runnel.engine.outcome import Outcome
from runnel.engine.workspace import Workspace
from runnel.errors import NotFoundError

_SHOWN = 1000


def show_dead_letters(root: Workspace, actor: Actor) -> Outcome:
    """The actor's dead letters (to the operator: everybody's), newest first."""
    with root.catalog.read() as connection:
        found = dead_letters(connection, _SHOWN, owner=None if actor.is_admin else actor.owner)
    return Outcome(
        f"{len(found)} dead letters",
        {"letters": [one.to_json() for one in found]},
        tuple(one.line() for one in found),
    )


def explain_message(root: Workspace, key: str, actor: Actor) -> Outcome:
    """What is in a message, and every attempt to deliver it that failed."""
    with root.catalog.read() as connection:
        owner = subscriptions.owner_of_message(connection, key)
        if owner is None or not (actor.is_admin or owner == actor.owner):
            raise NotFoundError(f"there is no message {key}", hint="`show dead letters` lists those that nobody took")
        found = explain_dead_letter(connection, key, match_reader_of(root))
    return Outcome(f"message {key}", found.to_json(), tuple(found.lines()))
