"""List and explain dead letters, each visible to the owner of its subscription and to the admin."""

from __future__ import annotations

from runnel.catalog.declared import subscriptions
from runnel.delivery.dead_letters import DeadLetter, dead_letters, explain_dead_letter
from runnel.engine.actors import Actor
from runnel.engine.answers import Listing
from runnel.engine.ask.shown import MessageDetails
from runnel.engine.open_delivery import match_reader_of
from runnel.engine.workspace import Workspace
from runnel.errors import NotFoundError

_SHOWN = 1000


def show_dead_letters(workspace: Workspace, actor: Actor) -> Listing[DeadLetter]:
    """List the actor's dead letters, or all if the actor is the admin, newest first."""
    with workspace.catalog.read() as connection:
        letters = dead_letters(connection, _SHOWN, owner=None if actor.is_admin else actor.owner)
    return Listing(f"{len(letters)} dead letters", "letters", tuple(letters))


def explain_message(workspace: Workspace, key: str, actor: Actor) -> MessageDetails:
    """Describe a message: its items, its state, and the failed attempts to deliver it."""
    with workspace.catalog.read() as connection:
        owner = subscriptions.owner_of_message(connection, key)
        if owner is None or not (actor.is_admin or owner == actor.owner):
            raise NotFoundError(
                f"there is no message {key}", hint="`show dead letters` lists messages that were given up"
            )
        return MessageDetails(key, explain_dead_letter(connection, key, match_reader_of(workspace)))
