"""What the reader, the workers and the writer of one run must agree on; it travels as a Spark option."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from runnel.log.storage import Storage, open_storage

if TYPE_CHECKING:
    from runnel.catalog.connection import Catalog

FORM = "match/1"
"""The form of the job and of its offsets: a checkpoint of another form is abandoned."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run: where the root is, which lineage it continues, under which epoch, and how it cuts batches."""

    catalog: str
    catalog_max_bytes: int
    storage: str
    lineage: int
    after_sequence: int
    epoch: int
    max_batch_items: int
    max_batch_bytes: int
    slice_items: int
    parallelism: int

    def dump(self) -> str:
        """As text, for an option."""
        return json.dumps(asdict(self))

    @staticmethod
    def load(text: str) -> Job:
        """From an option's text."""
        return Job(**json.loads(text))

    def open_catalog(self) -> Catalog:
        """The catalog, in this process."""
        from runnel.catalog.connection import Catalog  # most processes of a run never ask it

        return Catalog(self.catalog, max_bytes=self.catalog_max_bytes)

    def open_storage(self) -> Storage:
        """The storage, in this process."""
        return open_storage(self.storage)
