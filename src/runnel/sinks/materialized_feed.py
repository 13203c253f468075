"""Materialized feeds: what a stylesheet makes of a feed's items becomes items of another feed.

In: a message of the subscription behind `register feed V apply 'x.xsl' as W`. Out: items in the log of W. The
delivery brings a function that decodes and accepts them, since sinks know nothing of sources. A message that comes
twice changes nothing: the seen-set knows its items. Only materialization makes new items. The bindings with which an
item matched become attributes of the new item.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runnel.errors import DeliveryError, InputError
from runnel.model.bindings import Bindings
from runnel.model.item import MAX_NAME, Attributes
from runnel.model.subscription import INTERNAL
from runnel.sinks.contract import Delivery, LocalSink
from runnel.sinks.files.feed_entries import entry_id
from runnel.sinks.files.render_rss import rss_document


class MaterializedFeed(LocalSink):
    """The sink behind a materialised feed. Its target is the id of that feed, in digits."""

    kind = INTERNAL
    is_offered = False
    takes_content = True
    takes_documents = True

    def validate_target(self, target: str | None, folder: Path, allowed: Sequence[Path] = ()) -> str | None:
        """Nobody subscribes this way: it would put items into others' feeds."""
        raise InputError(
            "this output is not for subscriptions",
            hint="to create a feed from a stylesheet's output, use `register feed News apply 'sheet.xsl' as Shaped`",
        )

    def host(self, target: str) -> str:
        """The feed: while matching lags behind, its messages wait and delay no others."""
        return target

    def deliver(self, delivery: Delivery) -> str:
        """Accept what the stylesheet made; without a stylesheet the items as they are."""
        if delivery.accept is None:
            raise DeliveryError("this process cannot accept items", hint="start the runner of this workspace")
        target = delivery.subscription.target or ""
        if not (target.isascii() and target.isdigit()):
            raise DeliveryError(f"{target[:40]!r} is not the id of a feed", permanent=True)
        data = rss_document(delivery) if delivery.content is None else delivery.content.data
        bound = {entry_id(one.item): bound_attributes(one.bindings) for one in delivery.items if one.bindings.rows}
        try:
            return delivery.accept(
                int(target), data, f"stylesheet output for {delivery.feed_name} ({delivery.key})", bound
            )
        except InputError as error:
            raise DeliveryError(
                f"the output of the stylesheet is not a feed: {error}",
                hint="change the stylesheet to write RSS, Atom or JSON Feed",
                permanent=True,
            ) from error


def bound_attributes(bindings: Bindings) -> Attributes:
    """The attributes that stand for bindings: for every variable all values that it had.

    >>> bound_attributes(Bindings(({"people": 60.0}, {"people": 70.0}), 2))
    {'binding:people': (60.0, 70.0)}
    """
    found = {f"binding:{name}": tuple(one for one in some if one != "") for name, some in bindings.values().items()}
    return {name: values for name, values in found.items() if values and len(name) <= MAX_NAME}
