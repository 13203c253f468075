"""Shaping: the stylesheet of a subscription, applied to a message before it is handed over.

In: a delivery. Out: the delivery as its stylesheet wants it, or SheetFailed. Blocking, and safe for several threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from runnel.catalog.declared.stylesheets import is_kept, kept_path
from runnel.catalog.declared.subscriptions import INTERNAL
from runnel.errors import DeliveryError
from runnel.sandbox.stylesheet_process import StylesheetTransformer, transformer_of
from runnel.settings import Settings
from runnel.sinks.apply_stylesheet import Decode, apply_stylesheet
from runnel.sinks.contract import Delivery
from runnel.storage.file_storage import Storage

Shape = Callable[[Delivery], Delivery]
_KEPT = 1_000


class MessageShaper:
    """Applies stylesheets from the root's files, where they never change once stored."""

    def __init__(self, storage: Storage, settings: Settings, decode: Decode | None) -> None:
        self._storage = storage
        self._settings = settings
        self._decode = decode
        self._lock = threading.Lock()
        self._sheets: dict[str, bytes] = {}
        self._transformer: StylesheetTransformer | None = None

    def shape(self, delivery: Delivery) -> Delivery:
        """What the subscription's stylesheet makes of a delivery; the same where it has none."""
        path = delivery.subscription.sheet
        if path is None:
            return delivery
        # A materialised feed takes the document as it is: its items are made where all items are made.
        decode = None if delivery.subscription.kind == INTERNAL else self._decode
        return apply_stylesheet(delivery, self._open(), self._sheet(path), decode)

    def close(self) -> None:
        """End the processes in which stylesheets run."""
        with self._lock:
            if self._transformer is not None:
                self._transformer.close()
            self._transformer = None

    def _open(self) -> StylesheetTransformer:
        with self._lock:
            if self._transformer is None:
                self._transformer = transformer_of(self._settings)
            return self._transformer

    def _sheet(self, path: str) -> bytes:
        sheet = self._sheets.get(path)
        if sheet is None:
            try:
                sheet = self._storage.read(path)
            except OSError as error:
                # Not a matter of the endpoint's host, and it may pass: the message is tried again.
                raise DeliveryError(
                    f"the stylesheet {path} cannot be read: {error.strerror or error}",
                    hint="if it is gone for good, subscribe again",
                ) from None
            if is_kept(path) and kept_path(sheet) != path:
                raise DeliveryError(
                    f"the stylesheet {path} is damaged: its digest differs",
                    hint="put the original file back, and declare the feed or subscription that uses it again",
                )
            if len(self._sheets) >= _KEPT:
                self._sheets.clear()
            self._sheets[path] = sheet
        return sheet
