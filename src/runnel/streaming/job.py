"""The parameters of one run, which the item source, the workers and the match sink receive as a Spark option.

Spark shows options in query plans, on its web pages and in its logs. The option therefore does not contain the
catalog's URL, which may include a password. It refers to a file of the workspace that only this user may read. Only
processes on the driver's machine use the catalog, so workers on other machines do not need that file.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from runnel.storage.file_storage import Storage, open_storage

if TYPE_CHECKING:
    from runnel.catalog.store.connection import Catalog

FORM = "match/1"
"""The format of the job and of its offsets. A checkpoint with another format is abandoned."""


def form_of(slots: int) -> str:
    """Return the format of a job whose keyed stage has `slots` slots. Spark's checkpoint depends on their number.

    >>> form_of(0), form_of(4)
    ('match/1', 'match/1 in 4 slots')
    """
    return f"{FORM} in {slots} slots" if slots else FORM


_SEALED = "sealed:"
_SECRET_FILE = "private/catalog-url"  # noqa: S105


@dataclass(frozen=True, slots=True)
class Job:
    """The parameters of one run: its workspace, lineage, epoch and limits."""

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
    """Slots of the keyed stage, or 0 if there is no such stage."""
    plan_bytes: int = 4 << 30
    """Limit for the bytes of plans that a worker process maps at once."""

    def hide_catalog_url(self) -> Job:
        """Move the catalog's URL to a file that only this user may read, and return a job that refers to the file.

        The URL of a SQLite file contains no secret and stays.
        """
        if self.catalog.startswith((_SEALED, "sqlite:")):
            return self
        self.open_storage().replace(_SECRET_FILE, self.catalog.encode())
        return replace(self, catalog=f"{_SEALED}{_SECRET_FILE}")

    def dump(self) -> str:
        """Return the job as text for a Spark option, with its catalog URL hidden."""
        return json.dumps(asdict(self.hide_catalog_url()))

    @staticmethod
    def load(text: str) -> Job:
        """Parse the text that `dump` returned."""
        return Job(**json.loads(text))

    def open_catalog(self) -> Catalog:
        """Open the catalog in this process."""
        from runnel.catalog.store.connection import Catalog  # most processes of a run do not use the catalog

        return Catalog(self._catalog_url(), max_bytes=self.catalog_max_bytes)

    def _catalog_url(self) -> str:
        if not self.catalog.startswith(_SEALED):
            return self.catalog
        return self.open_storage().local(self.catalog.removeprefix(_SEALED)).read_text("utf-8")

    def open_storage(self) -> Storage:
        """Open the storage in this process."""
        return open_storage(self.storage)
