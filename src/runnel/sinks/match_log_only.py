"""The match log as a sink: nothing is sent, because subscribers read every match in the log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runnel.errors import InputError
from runnel.sinks.contract import Delivery, LocalSink


class MatchLogOnly(LocalSink):
    """Sends nothing. Matches stay in the match log, where `runnel.connect(…).matches(name)` reads them.

    >>> MatchLogOnly().validate_target(None, Path("/srv/runnel")) is None
    True
    """

    kind = "log"
    is_for_owners = True
    sends_messages = False

    def validate_target(self, target: str | None, folder: Path, allowed: Sequence[Path] = ()) -> str | None:
        """Refuse a target."""
        if target is not None:
            raise InputError(
                "the output log takes no target",
                place=repr(target[:80]),
                hint="remove the target: write `output log`",
            )
        return None

    def deliver(self, delivery: Delivery) -> str:
        """Do nothing: the items are in the match log."""
        return "kept in the match log"
