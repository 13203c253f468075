"""The Spark session of an engine: opened when it is first needed, and again after its JVM was lost."""

from __future__ import annotations

import logging
import os
import pwd
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from runnel.engine.workspace import Workspace
from runnel.errors import WorkspaceError
from runnel.private_files import make_private_folder

if TYPE_CHECKING:
    from runnel.streaming.spark_folder import SparkFolder

logger = logging.getLogger("runnel")


class OwnSpark:
    """The Spark session for one workspace. An existing session of the caller is used and never closed."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._session: Any = None
        self._folder: SparkFolder | None = None
        self._started_jvm = False
        self._has_warned = False

    def session(self) -> Any:
        """Return the session. Raise SparkLostError if the JVM of the caller's session has ended."""
        from pyspark.sql import SparkSession

        from runnel.streaming.jvm import jvm_process, lost_jvm
        from runnel.streaming.session import open_session

        lost = lost_jvm()
        if lost is None:
            active = self._session or SparkSession.getActiveSession()
            if active is not None:
                self._warn_if_open(active)
                return active
        elif not self._started_jvm:
            raise lost
        self._refuse_root()
        self.close()
        self._started_jvm = jvm_process() is None
        self._folder = self._claim_folder()
        settings, logs = self._workspace.settings, self._workspace.folder / "logs"
        make_private_folder(logs)  # the JVM would make it readable for other users
        self._session = open_session(
            master=settings.master,
            driver_memory=settings.driver_memory,
            logs=logs,
            local_folder=self._folder.path,
            executor_memory=settings.executor_memory,
            executor_cores=settings.executor_cores,
            log_format=settings.log_format,
        )
        return self._session

    def _refuse_root(self) -> None:
        """Raise WorkspaceError for root in another user's workspace: that user could not open the JVM's files."""
        owner = self._workspace.folder.stat().st_uid
        if os.geteuid() == 0 and owner != 0:
            name = f"#{owner}"
            with suppress(KeyError):
                name = pwd.getpwuid(owner).pw_name
            raise WorkspaceError(
                f"root cannot start Spark in {self._workspace.folder}, which belongs to another user",
                hint=f"run the command as that user: sudo -u '{name}' runnel …",
            )

    def _warn_if_open(self, session: Any) -> None:
        """Log one warning if the caller's session does not require authentication. Sessions opened here always do."""
        is_open = str(session.conf.get("spark.authenticate", "false")).lower() != "true"
        if is_open and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "the Spark session of this process does not require authentication: anyone who can reach its ports"
                " can run code as this user; set spark.authenticate and spark.network.crypto.enabled to true"
            )

    def _claim_folder(self) -> SparkFolder:
        from runnel.streaming.spark_folder import claim_folder

        try:
            return claim_folder(self._workspace.spark_folder)
        except OSError as error:
            raise WorkspaceError(
                f"{self._workspace.spark_folder} cannot be written: {error.strerror}",
                hint="make the folder writable for this user: Spark keeps its temporary files there",
            ) from error

    def close(self) -> None:
        """Close the session and the JVM if they were opened here, and delete their temporary files."""
        if self._session is not None or self._started_jvm:
            from runnel.streaming.jvm import close_session

            close_session(self._session, with_jvm=self._started_jvm)
            self._session = None
            self._started_jvm = False
        if self._folder is not None:
            self._folder.remove()
            self._folder = None
