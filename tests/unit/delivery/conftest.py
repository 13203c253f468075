"""What the tests of delivery share with those of sinks: items and deliveries made in one line."""

from __future__ import annotations

from tests.unit.sinks.conftest import make_delivery, make_item

__all__ = ["make_delivery", "make_item"]
