"""What a sink is: the contract between the ledger and everything that takes messages.

In: a Delivery. Out: the outcome as a short text; DeliveryFailed where the endpoint did not take it (it is tried
again), StorageFull where there is no room (work pauses).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from runnel.model.bindings import NO_BINDINGS, Bindings
from runnel.model.item import Item
from runnel.model.subscription import Subscription
from runnel.settings import Settings

if TYPE_CHECKING:
    from runnel.net.http_client import (
        HttpClient,  # asyncio and TLS are for runners that reach out, not for every client
    )

MAX_ENTRIES = 200
"""How many entries a feed file keeps unless told otherwise; readers poll, so they need only the newest."""


@dataclass(frozen=True, slots=True)
class DeliveredItem:
    """An item on its way, with the title of the source feed it came from (its name, where it has none).

    `bindings` are those with which it matched the query of the feed that was subscribed to.
    """

    item: Item
    feed_title: str
    bindings: Bindings = NO_BINDINGS


@dataclass(frozen=True, slots=True)
class Content:
    """What a subscription's stylesheet made of a message, where that is not a feed."""

    media_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message: items that matched, for one subscription.

    `key` stays the same over retries. `out` is the folder for relative targets; absolute ones must lie in one of the
    `allowed` folders. `content` stands in place of the items where a stylesheet made something else of them.
    `signing_keys` are those of the subscription, newest first; `unsubscribe` is a link that ends it. `out_url` is
    where readers find the files of the `out` folder, if that is known.
    """

    key: str
    subscription: Subscription
    feed_name: str
    feed_title: str
    items: Sequence[DeliveredItem]
    sent: datetime
    out: Path
    allowed: tuple[Path, ...] = ()
    max_entries: int = MAX_ENTRIES
    content: Content | None = None
    signing_keys: tuple[bytes, ...] = ()
    unsubscribe: str | None = None
    out_url: str = ""


@dataclass(frozen=True, slots=True)
class ConfirmationRequest:
    """A request to the recipient of a target to agree to the messages of an owner.

    It carries no item, and of what the owner wrote only the name of the feed. `key` identifies the request, and stays
    the same while its `challenge` does. Only the recipient gets the challenge. It comes back in the response (see
    ConfirmingRoute), by the `link`, or through the owner, who enters it. Only a request to a
    person has links, and only if the workspace has a public URL; `refuse` is the one by which the recipient refuses
    for good.
    """

    key: str
    subscription: Subscription
    feed_name: str
    owner_name: str
    challenge: str
    sent: datetime
    expires: datetime
    link: str | None = None
    refuse: str | None = None
    signing_keys: tuple[bytes, ...] = ()


@runtime_checkable
class Sink(Protocol):
    """Takes messages. A sink keeps no state of its own between calls."""

    kind: str

    def validate_target(self, target: str | None, root: Path, allowed: Sequence[Path] = ()) -> str | None:
        """The target in its canonical form, or InputError; called when somebody subscribes."""

    def deliver(self, delivery: Delivery) -> str:
        """Hand a message over; doing so again with the same key changes nothing."""


@runtime_checkable
class RemoteSink(Protocol):
    """Takes messages for endpoints on the network; these are sent side by side, so that nobody waits for others."""

    kind: str

    def validate_target(self, target: str | None, root: Path, allowed: Sequence[Path] = ()) -> str | None:
        """The target in its canonical form, or InputError; called when somebody subscribes."""

    def host(self, target: str) -> str:
        """Whose limit of messages under way a target counts for."""

    def connect(self, settings: Settings, door: HttpClient) -> Route:
        """A way to the endpoints of this kind, for as long as a runner lives."""


@runtime_checkable
class ConfirmingSink(Protocol):
    """A RemoteSink whose recipients must agree before messages of an owner are sent to them.

    Owners may subscribe to remote sinks of this sort only. Its routes are ConfirmingRoutes.
    """

    kind: str
    answers_later: bool
    """Whether a person answers, by the link or the code, rather than the endpoint in its response.

    Only requests to persons have links.
    """

    def recipient(self, target: str) -> str:
        """What limits count a canonical target by: all targets that may reach the same recipient have one."""

    def refuser(self, target: str) -> str:
        """For whom a canonical target can refuse: only targets that surely reach the same recipient share a refuser.

        Targets with one refuser have one recipient too.
        """

    def domain(self, target: str) -> str:
        """The host name by which the setting `confirmed_domains` may exempt a canonical target."""

    def messages_per_hour(self, settings: Settings) -> int:
        """The number of messages per hour that an owner may send to one recipient."""


class Route(Protocol):
    """An open way to endpoints; it may keep connections between messages."""

    async def deliver(self, delivery: Delivery) -> str:
        """Hand a message over; the endpoint can tell by the key that it had it already.

        A DeliveryFailed that is raised `from` an OSError, a TimeoutError or Unreachable says that the host did not
        answer at all: after some of those in a row the host is asked by one message at a time only.
        """

    async def close(self) -> None:
        """Let go of connections."""


@runtime_checkable
class ConfirmingRoute(Protocol):
    """A route that can ask a recipient whether it wants messages."""

    async def confirm(self, request: ConfirmationRequest) -> bool:
        """Send a request; gives whether the recipient agreed in its response. Otherwise it may answer later.

        Raises DeliveryError if the recipient did not get the request or gave a wrong response. The owner reads the
        text of the error, so it must not quote the response, which may repeat the challenge.
        """
