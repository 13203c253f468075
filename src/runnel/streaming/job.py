"""What the reader, the workers and the writer of one run must agree on; it travels as a Spark option.

Options can be seen: in plans, in Spark's pages and logs. So a catalog's password does not travel in one. A sealed job
names a file of the root instead, which only this user may read. Only processes beside the driver ask the catalog; a
worker on another machine needs neither the file nor the catalog.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from runnel.storage.file_storage import Storage, open_storage

if TYPE_CHECKING:
    from runnel.catalog.store.connection import Catalog

FORM = "match/1"
"""The form of the job and of its offsets: a checkpoint of another form is abandoned."""


def form_of(slots: int) -> str:
    """Return the form of a job whose keyed stage has `slots` slots. Their number is part of Spark's checkpoint.

    >>> form_of(0), form_of(4)
    ('match/1', 'match/1 in 4 slots')
    """
    return f"{FORM} in {slots} slots" if slots else FORM


_SEALED = "sealed:"
_SECRET_FILE = "private/catalog-url"  # noqa: S105


@dataclass(frozen=True, slots=True)
class Job:
    """One run: where the root is, which lineage it continues, under which epoch, and how it cuts batches."""

    catalog: str = field(repr=False)
    catalog_max_bytes: int
    storage: str
    lineage: int
    after_sequence: int
    epoch: int
    max_batch_items: int
    max_batch_bytes: int
    slice_items: int
    parallelism: int
    slots: int = 0
    """Slots of the keyed stage; 0: there is none."""
    plan_bytes: int = 4 << 30
    """Bytes of plans that a worker process may have mapped at once."""

    def sealed(self) -> Job:
        """The same job without the catalog's URL, which is put into a file that only this user may read."""
        if self.catalog.startswith((_SEALED, "sqlite:")):
            return self
        self.open_storage().replace(_SECRET_FILE, self.catalog.encode())
        return replace(self, catalog=f"{_SEALED}{_SECRET_FILE}")

    def dump(self) -> str:
        """As text, for an option; sealed."""
        return json.dumps(asdict(self.sealed()))

    @staticmethod
    def load(text: str) -> Job:
        """From an option's text."""
        return Job(**json.loads(text))

    def open_catalog(self) -> Catalog:
        """The catalog, in this process."""
        from runnel.catalog.store.connection import Catalog  # most processes of a run never ask it

        return Catalog(self._catalog_url(), max_bytes=self.catalog_max_bytes)

    def _catalog_url(self) -> str:
        if not self.catalog.startswith(_SEALED):
            return self.catalog
        return self.open_storage().local(self.catalog.removeprefix(_SEALED)).read_text("utf-8")

    def open_storage(self) -> Storage:
        """The storage, in this process."""
        return open_storage(self.storage)
