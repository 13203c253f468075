"""The contract of sinks: the messages that they receive, and the methods and traits of every output.

In: a Delivery. Out: the outcome as a short text. Raise DeliveryError if the endpoint did not accept the message (it
is retried), or StorageFullError if there is no disk space (delivery pauses).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from runnel.errors import DeliveryError
from runnel.model.annotation import JoinedItems
from runnel.model.bindings import NO_BINDINGS, Bindings
from runnel.model.item import Attributes, Item
from runnel.model.subscription import Subscription
from runnel.settings import Settings

if TYPE_CHECKING:
    from runnel.net.http_client import (
        HttpClient,  # only runners that send messages need asyncio and TLS
    )

MAX_ENTRIES = 200
"""The default number of entries in a feed file. Readers poll it and need only the newest entries."""

Accept = Callable[[int, bytes, str, Mapping[str, Attributes]], str]
"""A function that accepts the items of a feed document into the feed with the given id. The text names the document.

The mapping gives attributes, by guid of an entry, in addition to those in the document. It returns the outcome. It
raises BacklogError if the feed is paused or too many items wait for matching; the message then waits.
"""


@dataclass(frozen=True, slots=True)
class DeliveredItem:
    """An item of a message, with the title of its source feed, or the feed's name if it has no title.

    `bindings` are the bindings of the match with the subscribed feed, and `annotations` the items that it joined.
    """

    item: Item
    feed_title: str
    bindings: Bindings = NO_BINDINGS
    annotations: tuple[JoinedItems, ...] = ()


@dataclass(frozen=True, slots=True)
class Content:
    """The output of a subscription's stylesheet, if it is not a feed."""

    media_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message: the matched items for one subscription.

    `key` is the same in every attempt. `out` is the folder for relative targets; absolute targets must be in one of
    the `allowed` folders. `content` replaces the items if the output of the stylesheet is not a feed. `signing_keys`
    are those of the subscription, newest first. `unsubscribe` is a link that ends the subscription. `out_url` is the
    public URL of the `out` folder, or empty. `accept` accepts items into another feed.
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

    It contains no items. The only text chosen by the owner is the name of the feed. `key` identifies the request and
    changes only with its `challenge`. Only the recipient receives the challenge. It is returned in the response (see
    Route.confirm), with the `link`, or by the owner, who enters it. Only a request to a person has links, and only if
    the workspace has a public URL. With the link `refuse`, the recipient refuses permanently.
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

    A sink keeps no state between calls. Its attributes are its traits. Delivery and declarations depend only on them,
    never on the kind.
    """

    kind: ClassVar[str]
    """The name in `output NAME` and of the entry point."""
    is_offered: ClassVar[bool] = True
    """Whether error messages suggest this output."""
    is_for_owners: ClassVar[bool] = False
    """Whether owners may use this output, or only the admin."""
    sends_messages: ClassVar[bool] = True
    """False if subscribers read the match log directly. No messages are recorded for them."""
    is_signed: ClassVar[bool] = False
    """Whether each subscription has signing keys (`Delivery.signing_keys`)."""
    owns_target: ClassVar[bool] = False
    """Whether a target may have only one subscription."""
    keeps_newest: ClassVar[bool] = False
    """Whether a target keeps only the newest `Delivery.max_entries` items."""
    takes_content: ClassVar[bool] = False
    """Whether it accepts the output of a stylesheet that is not a feed (`Delivery.content`)."""
    takes_documents: ClassVar[bool] = False
    """Whether it receives every output of a stylesheet as content. Otherwise the entries of a feed become items."""

    @abstractmethod
    def validate_target(self, target: str | None, folder: Path, allowed: Sequence[Path] = ()) -> str | None:
        """Return the target in canonical form, or raise InputError. Called when a subscription is made.

        `folder` is the folder of the workspace, and `allowed` are other folders to which outputs may write.
        """

    def host(self, target: str) -> str | None:
        """Return the queue for messages to a target. Messages of different queues are sent concurrently.

        The runner itself delivers the messages of a sink without queues, one after the other.
        """
        return None


class LocalSink(Sink):
    """A sink on this machine. It may block and cannot be interrupted."""

    @abstractmethod
    def deliver(self, delivery: Delivery) -> str:
        """Deliver a message. A second delivery with the same key must have no further effect."""


class RemoteSink(Sink):
    """A sink with endpoints on the network. Its messages contain a link that ends the subscription.

    Its messages are sent concurrently, so that a slow endpoint does not delay the others.
    """

    patience: float = 1.0
    """The time limit of one message, as a multiple of `send_seconds`."""

    @abstractmethod
    def host(self, target: str) -> str:
        """Return the host of a target. The number of concurrent messages per host is limited."""

    @abstractmethod
    def connect(self, settings: Settings, client: HttpClient) -> Route:
        """Open a route to the endpoints of this kind, for the lifetime of a runner."""


class ConfirmingSink(RemoteSink):
    """A RemoteSink whose recipients must agree before messages of an owner are sent to them.

    Owners may use only such remote sinks. Their routes implement `confirm`.
    """

    is_for_owners = True
    answers_later: ClassVar[bool] = False
    """Whether a person answers later, with the link or the code, instead of the endpoint in its response.

    Only requests to persons have links.
    """

    @abstractmethod
    def recipient(self, target: str) -> str:
        """Return the key under which limits count a canonical target.

        All targets that may reach the same recipient have the same key.
        """

    @abstractmethod
    def refuser(self, target: str) -> str:
        """Return the key for which a refusal by a canonical target applies.

        Only targets that certainly reach the same recipient share a key. Targets with the same refuser also have the
        same recipient.
        """

    @abstractmethod
    def domain(self, target: str) -> str:
        """Return the host name with which the setting `confirmed_domains` may exempt a canonical target."""

    @abstractmethod
    def messages_per_hour(self, settings: Settings) -> int:
        """Return the number of messages per hour that an owner may send to one recipient."""


class Route(ABC):
    """An open route to the endpoints of a RemoteSink. It may keep connections between messages."""

    @abstractmethod
    async def deliver(self, delivery: Delivery) -> str:
        """Deliver a message. The endpoint can recognize duplicates by the key.

        A DeliveryError raised `from` an OSError, TimeoutError or UnreachableError means that the host did not
        respond. After several of them in a row, the host gets one message at a time.
        """

    async def confirm(self, request: ConfirmationRequest) -> bool:
        """Send a request and return whether the recipient agreed in its response. Otherwise it may answer later.

        Raise DeliveryError if the recipient did not receive the request or gave a wrong response. The owner reads the
        text of the error, so it must not quote the response, which may repeat the challenge.
        """
        raise DeliveryError(f"the output {request.subscription.kind!r} cannot send confirmation requests")

    async def close(self) -> None:
        """Close connections."""
        return
