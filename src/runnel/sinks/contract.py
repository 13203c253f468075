"""The contract of sinks: the messages that they get, and what every output must implement and declare.

In: a Delivery. Out: the outcome as a short text; DeliveryError if the endpoint did not take the message (it is tried
again), StorageFullError if there is no space (work pauses).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from runnel.errors import DeliveryError
from runnel.model.bindings import NO_BINDINGS, Bindings
from runnel.model.item import Attributes, Item
from runnel.model.subscription import Subscription
from runnel.settings import Settings

if TYPE_CHECKING:
    from runnel.net.http_client import (
        HttpClient,  # only runners that send need asyncio and TLS
    )

MAX_ENTRIES = 200
"""The number of entries that a feed file keeps by default; readers poll, so they need only the newest."""

Accept = Callable[[int, bytes, str, Mapping[str, Attributes]], str]
"""Accept the items of a feed document into a feed, by its id; the text names the document. Entries, by their guids,
get attributes in addition to those in the document. Returns the outcome. Raises BacklogError if the feed is paused or
too many items wait for matching: the message then waits."""


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
    `allowed` folders. `content` replaces the items if a stylesheet made something other than a feed of them.
    `signing_keys` are those of the subscription, newest first; `unsubscribe` is a link that ends it. `out_url` is
    where readers find the files of the `out` folder, if that is known. `accept` takes items into another feed.
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
    accept: Accept | None = None


@dataclass(frozen=True, slots=True)
class ConfirmationRequest:
    """A request to the recipient of a target to agree to the messages of an owner.

    It carries no item, and of what the owner wrote only the name of the feed. `key` identifies the request, and stays
    the same while its `challenge` does. Only the recipient gets the challenge. It comes back in the response (see
    Route.confirm), by the `link`, or through the owner, who enters it. Only a request to a
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


class Sink(ABC):
    """An output such as `rss` or `mail`. Subclass LocalSink, RemoteSink or ConfirmingSink.

    A sink keeps no state between calls. Its attributes are its traits: delivery and declarations read these, and
    nothing outside a sink's own module knows its kind.
    """

    kind: ClassVar[str]
    """The name in `output NAME`, and of the entry point."""
    is_offered: ClassVar[bool] = True
    """Whether error messages suggest it."""
    is_for_owners: ClassVar[bool] = False
    """Whether owners may use it, or only the admin."""
    sends_messages: ClassVar[bool] = True
    """False if subscribers read the match log themselves: no message is recorded for them."""
    is_signed: ClassVar[bool] = False
    """Whether each subscription has signing keys, which `Delivery.signing_keys` holds."""
    owns_target: ClassVar[bool] = False
    """Whether only one subscription may have a target."""
    keeps_newest: ClassVar[bool] = False
    """Whether a target keeps only the newest items, `Delivery.max_entries` of them."""
    takes_content: ClassVar[bool] = False
    """Whether it accepts the result of a stylesheet that is not a feed (`Delivery.content`)."""
    takes_documents: ClassVar[bool] = False
    """Whether it gets every result of a stylesheet as content, even a feed, whose entries otherwise become items."""

    @abstractmethod
    def validate_target(self, target: str | None, folder: Path, allowed: Sequence[Path] = ()) -> str | None:
        """The target in its canonical form, or InputError; called when somebody subscribes.

        `folder` is that of the workspace, and `allowed` are other folders that outputs may write to.
        """

    def host(self, target: str) -> str | None:
        """The queue in which messages to a target wait. Messages of different queues are sent concurrently.

        Those of a sink without queues are handed over one after the other by the runner itself.
        """
        return None


class LocalSink(Sink):
    """A sink on this machine. It may block, and cannot be interrupted."""

    @abstractmethod
    def deliver(self, delivery: Delivery) -> str:
        """Hand a message over; doing so again with the same key changes nothing."""


class RemoteSink(Sink):
    """A sink with endpoints on the network, whose messages go to others: they have a link that ends the subscription.

    Its messages are sent concurrently, so that a slow endpoint delays no other.
    """

    patience: float = 1.0
    """How many times `send_seconds` one message may take."""

    @abstractmethod
    def host(self, target: str) -> str:
        """The host of a target, which has a limit of messages under way."""

    @abstractmethod
    def connect(self, settings: Settings, client: HttpClient) -> Route:
        """A route to the endpoints of this kind, for as long as a runner lives."""


class ConfirmingSink(RemoteSink):
    """A RemoteSink whose recipients must agree before messages of an owner are sent to them.

    Only such remote sinks are for owners. Its routes implement `confirm`.
    """

    is_for_owners = True
    answers_later: ClassVar[bool] = False
    """Whether a person answers, by the link or the code, rather than the endpoint in its response.

    Only requests to persons have links.
    """

    @abstractmethod
    def recipient(self, target: str) -> str:
        """What limits count a canonical target by: all targets that may reach the same recipient have one."""

    @abstractmethod
    def refuser(self, target: str) -> str:
        """For whom a canonical target can refuse: only targets that surely reach the same recipient share a refuser.

        Targets with one refuser have one recipient too.
        """

    @abstractmethod
    def domain(self, target: str) -> str:
        """The host name by which the setting `confirmed_domains` may exempt a canonical target."""

    @abstractmethod
    def messages_per_hour(self, settings: Settings) -> int:
        """The number of messages per hour that an owner may send to one recipient."""


class Route(ABC):
    """An open route to the endpoints of a RemoteSink; it may keep connections between messages."""

    @abstractmethod
    async def deliver(self, delivery: Delivery) -> str:
        """Hand a message over; the endpoint can recognize by the key that it has it already.

        A DeliveryError that is raised `from` an OSError, a TimeoutError or UnreachableError means that the host did
        not answer at all: after several in a row the host is tried with one message at a time.
        """

    async def confirm(self, request: ConfirmationRequest) -> bool:
        """Send a request; returns whether the recipient agreed in its response. Otherwise it may answer later.

        Raises DeliveryError if the recipient did not get the request or gave a wrong response. The owner reads the
        text of the error, so it must not quote the response, which may repeat the challenge.
        """
        raise DeliveryError(f"the output {request.subscription.kind!r} cannot send confirmation requests")

    async def close(self) -> None:
        """Close connections."""
        return
