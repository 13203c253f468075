"""Fixtures that the tests of delivery share with those of sinks: functions that create items and deliveries."""

from __future__ import annotations

from tests.unit.sinks.conftest import make_delivery, make_item

__all__ = ["make_delivery", "make_item"]
