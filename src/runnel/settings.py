"""The settings of a workspace: `runnel.toml` in its folder, overridden by environment variables `RUNNEL_…`.

Every setting has a default. With the defaults alone, a workspace uses a SQLite catalog, local files and local Spark.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import tomllib
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from runnel.entry_points import plugin_names
from runnel.errors import WorkspaceError

FILE = "runnel.toml"
REFERENCE = "docs/reference/settings.md"
FORMER_NAMES: Final = {
    "reoptimise_seconds": "reoptimize_seconds",
    "sheet_seconds": "stylesheet_seconds",
    "sheet_megabytes": "stylesheet_megabytes",
    "keep_aside_bytes": "keep_quarantine_bytes",
}
"""Former names of settings. They still work, and a warning gives the current name."""

_log = logging.getLogger(__name__)


class Settings(BaseSettings):
    """All settings, each with the same name in the file (`lag_limit = 1000`) and in the environment
    (`RUNNEL_LAG_LIMIT=1000`).
    """

    model_config = SettingsConfigDict(env_prefix="RUNNEL_", frozen=True, extra="forbid")

    catalog: str = Field(
        "", description="URL of the catalog. Empty: a SQLite file in the folder of the workspace.", repr=False
    )
    catalog_password_file: str = Field(
        "", description="File that contains the password for the catalog's server. Empty: the URL contains it."
    )
    catalog_max_bytes: int = Field(0, ge=0, description="Maximum size of a SQLite catalog in bytes. 0: no maximum.")
    storage: str = Field("", description="URL of the workspace's files. Empty: the folder of the workspace.")
    master: str = Field("local[*]", description="Spark master URL.")
    driver_memory: str = Field("2g", description="Memory of Spark's driver.")
    executor_memory: str = Field("1g", description="Memory of each Spark executor on a cluster.")
    executor_cores: int = Field(
        0, ge=0, description="Cores of each Spark executor on a cluster. 0: as Spark is configured."
    )
    max_batch_items: int = Field(50_000, ge=1, description="Maximum number of items per micro-batch.")
    max_batch_bytes: int = Field(64 << 20, ge=1, description="Maximum size of a micro-batch's items in bytes.")
    slice_items: int = Field(2_048, ge=1, description="Maximum number of items that one task matches at a time.")
    matcher: str = Field(
        "streams",
        description="The algorithm that matches items: `streams`, `index`, `tree`, or an installed plug-in "
        "(`runnel.matchers`). After a change the runner compiles all queries again when it starts.",
    )
    partitions: int = Field(
        0,
        ge=0,
        le=1_024,
        description="Number of partitions that the queries are divided into, at most one per query. 1: every worker "
        "holds all queries. 0: the number with the lowest expected cost.",
    )
    partition_strategy: Literal["", "grouped", "spread"] = Field(
        "",
        description="`grouped` puts related queries into the same partition, `spread` distributes them. Empty: the "
        "strategy with the lowest expected cost.",
    )
    plan_megabytes: int = Field(
        4_096, ge=1, description="Maximum memory per worker process for plans that are mapped at the same time."
    )
    rebalance_seconds: float = Field(
        300.0, ge=1, description="Interval at which the runner checks whether the load of the partitions is balanced."
    )
    reoptimize_seconds: float = Field(
        600.0,
        ge=1,
        description="Interval at which the runner checks whether compiling the plan again would save time.",
    )
    slow_query_milliseconds: float = Field(
        5.0, gt=0, description="Milliseconds per 1,000 items from which a query counts as slow and is logged."
    )
    scan_seconds: float = Field(
        2.0, gt=0, description="Interval at which source files and drop folders are checked for changes."
    )
    first_fetch_items: int = Field(
        100,
        ge=0,
        description="Maximum number of items that the first fetch of a feed accepts from each document. Older items "
        "are recorded as seen and not published.",
    )
    max_document_bytes: int = Field(15 << 20, ge=1, description="Maximum size of a source document in bytes.")
    max_document_items: int = Field(
        100_000, ge=1, description="Maximum number of items in a source document. A document with more is refused."
    )
    lag_limit: int = Field(
        1_000_000,
        ge=1,
        description="Number of items waiting to be matched at which `publish` waits and then refuses new items.",
    )
    window_fill_items: int = Field(
        2_000_000,
        ge=0,
        description="Maximum number of past items that are matched to fill the window of a new join. Matching of new "
        "items waits until the window is filled.",
    )
    stall_seconds: float = Field(
        600.0,
        ge=1,
        description="Time without progress, while items wait for matching, after which `/healthz` fails.",
    )
    publish_wait_seconds: float = Field(30.0, ge=0, description="How long `publish` waits at the lag limit.")
    feed_entries: int = Field(200, ge=1, description="Maximum number of entries in a feed file that Runnel writes.")
    out_folders: tuple[Path, ...] = Field(
        (), description="Folders in which subscriptions may write files, in addition to the workspace's `out`."
    )
    shared_output: bool = Field(
        False,
        description="Whether other users of the machine, such as a web server, may read the `out` folder. `runnel"
        " doctor --repair` applies a change.",
    )
    archive_seconds: float = Field(
        60.0, gt=0, description="Interval at which matched log segments are moved to the archive."
    )
    archive_segments: int = Field(
        64, ge=1, description="Number of matched log segments of the current hour at which they are archived."
    )
    orphan_seconds: float = Field(3600.0, ge=0, description="Age at which files that are no longer used are deleted.")
    lease_seconds: float = Field(20.0, gt=0, description="Time after which a runner's lease expires unless renewed.")
    allowed_addresses: tuple[str, ...] = Field(
        (),
        description="Private networks (`10.1.0.0/16`), addresses and host names to which Runnel may connect.",
    )
    user_agent: str = Field("Runnel/0.1", min_length=1, description="The User-Agent header of HTTP requests.")
    http_seconds: float = Field(30.0, gt=0, description="Maximum duration of an HTTP request and its response.")
    poll_seconds: float = Field(1800.0, ge=1, description="Polling interval of web feeds without `every`.")
    poll_budget: int = Field(600, ge=1, description="Maximum number of polls of web feeds per minute.")
    poll_concurrency: int = Field(64, ge=1, description="Maximum number of concurrent polls.")
    poll_host_concurrency: int = Field(2, ge=1, description="Maximum number of concurrent polls per host.")
    poll_retry_seconds: float = Field(
        60.0, gt=0, description="Delay after the first failed poll. It doubles after each further failure."
    )
    poll_retry_limit_seconds: float = Field(86_400.0, gt=0, description="Maximum delay after failed polls.")
    listen: str = Field(
        "",
        description="`host:port` on which the runner serves health checks, metrics, WebSub, confirmation and "
        "unsubscribe links, and open feeds. Empty: no HTTP server.",
    )
    public_url: str = Field(
        "",
        description="Public URL of the HTTP server that `listen` starts. WebSub and the links in mails need it.",
    )
    out_url: str = Field(
        "",
        description="Public URL of the `out` folder, such as `https://news.example/feeds`. If it is set, each feed"
        " file contains its own URL.",
    )
    smtp_host: str = Field("", description="Host name of the mail server. Empty: subscriptions by mail are refused.")
    smtp_port: int = Field(587, ge=1, le=65535, description="Port of the mail server.")
    smtp_security: Literal["starttls", "tls", "none"] = Field(
        "starttls", description="How the connection to the mail server is encrypted."
    )
    smtp_user: str = Field("", description="User name at the mail server. Empty: no login.")
    smtp_password: str = Field("", description="Password at the mail server.", repr=False)
    mail_from: str = Field("", description="Sender of mail, `name@host` or `Runnel <name@host>`.")
    send_concurrency: int = Field(200, ge=1, description="Maximum number of messages sent concurrently.")
    send_host_concurrency: int = Field(
        8, ge=1, description="Maximum number of messages sent concurrently to the same host."
    )
    send_seconds: float = Field(15.0, gt=0, description="Time limit for sending one message.")
    retry_seconds: tuple[float, ...] = Field(
        (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400),
        description="Delays before each further attempt to send a message. If the attempt after the last delay "
        "fails, the message becomes a dead letter.",
    )
    refusals_to_disable: int = Field(
        3,
        ge=1,
        description="Number of consecutive messages, permanently refused by the endpoint or by the stylesheet, "
        "after which a subscription is disabled.",
    )
    subscription_days: int = Field(
        365,
        ge=0,
        description="Lifetime in days of subscriptions without `for`: all subscriptions of owners, and those by mail "
        "or webhook. Other subscriptions of the admin do not expire. 0: none expires.",
    )
    owner_queries: int = Field(
        10_000, ge=0, description="Maximum number of queries per owner. `runnel owner quota` sets it for one owner."
    )
    owner_subscriptions: int = Field(
        10_000,
        ge=0,
        description="Maximum number of subscriptions per owner. `runnel owner quota` sets it for one owner.",
    )
    owner_bytes: int = Field(
        1 << 30,
        ge=0,
        description="Total number of bytes that an owner may publish. `runnel owner quota` sets it for one owner.",
    )
    owner_query_conditions: int = Field(
        1_000, ge=1, description="Maximum number of conditions and feeds in one query of an owner."
    )
    owner_query_constants: int = Field(
        10_000,
        ge=1,
        description="Maximum number of constants (entries of lists, words, graph edges) in one query of an owner.",
    )
    owner_script_conditions: int = Field(
        100_000,
        ge=1,
        description="Maximum number of conditions and constants of all queries in one script of an owner.",
    )
    owner_script_changes: int = Field(
        200,
        ge=1,
        description="Maximum number of declarations in a script of an owner that replace, drop, pause or end "
        "something.",
    )
    confirmed_domains: tuple[str, ...] = Field(
        (),
        description="Domains of mail addresses and hosts of webhooks that need not confirm owners' subscriptions:"
        " `muse.example`, or `*.muse.example` for all names below it.",
    )
    confirmation_days: int = Field(
        7, ge=1, le=365, description="Days after which a confirmation request to a mail address or webhook expires."
    )
    confirmation_requests_per_day: int = Field(
        10,
        ge=1,
        description="Maximum number of confirmation requests per day to one mailbox or webhook host, for all owners"
        " together. One owner may use half of them.",
    )
    owner_pending_confirmations: int = Field(
        20, ge=0, description="Maximum number of an owner's targets that wait for confirmation at the same time."
    )
    owner_mails_per_hour: int = Field(
        60, ge=1, description="Maximum number of mails per hour from an owner to one mailbox. Further mails wait."
    )
    owner_webhooks_per_hour: int = Field(
        3_600,
        ge=1,
        description="Maximum number of messages per hour from an owner to one webhook host. Further messages wait.",
    )
    open_items_per_minute: int = Field(
        600, ge=1, description="Maximum number of items per minute in an open feed whose statement gives no limit."
    )
    open_client_items_per_minute: int = Field(
        60, ge=1, description="Maximum number of items per minute from one client address in all open feeds together."
    )
    open_body_bytes: int = Field(
        1 << 20, ge=1, description="Maximum size in bytes of a request that publishes into an open feed."
    )
    trusted_proxies: tuple[str, ...] = Field(
        (),
        description="Networks (`10.1.0.0/16`) of reverse proxies whose `X-Forwarded-For` header is trusted to name"
        " the client.",
    )
    stylesheet_seconds: float = Field(5.0, gt=0, description="Maximum CPU time of a stylesheet per document.")
    stylesheet_megabytes: int = Field(512, ge=64, description="Maximum memory of the process that runs stylesheets.")
    operator_modules: tuple[str, ...] = Field(
        (),
        description="Modules whose functions may be registered as operators. A package includes its submodules.",
    )
    operator_databases: dict[str, str] = Field(
        {}, description="URLs, by name, of the databases that look-up operators may query.", repr=False
    )
    operator_cache_bytes: int = Field(
        256 << 20, ge=0, description="Maximum size in bytes of the cache of operators' answers on disk. 0: no cache."
    )
    operator_processes: int = Field(
        1, ge=1, description="Number of processes per worker in which plug-in operators run."
    )
    operator_order: str = Field(
        "",
        description="Order of the calls of operators: `static_greedy`, `adaptive`, `adaptive_weighted`, `sub_order`, "
        "`sequential`, `naive`, or an order of a plug-in (`runnel.operator_orders`). Empty: `static_greedy` or "
        "`adaptive`, whichever has the lower expected cost.",
    )
    operator_megabytes: int = Field(
        4096, ge=256, description="Maximum memory of a process in which plug-in operators run."
    )
    keep_items_days: int = Field(365, ge=0, description="Days that items and matches are kept. 0: forever.")
    table_tail_rows: int = Field(
        1_000_000,
        ge=1,
        description="The base of a table is rewritten when more changes than this, or than a quarter of its rows (at "
        "least 10,000), came after it.",
    )
    keep_receipts_days: int = Field(
        90, ge=0, description="Days that each sent message keeps its row in the ledger. Older rows are only counted."
    )
    keep_quarantine_bytes: int = Field(
        1 << 30, ge=0, description="Maximum size in bytes of quarantined documents. The oldest are deleted first."
    )
    log_format: Literal["text", "json"] = Field("text", description="Format of the runner's application log.")
    preview_operator_seconds: float = Field(
        60.0, ge=0, description="Maximum expected duration of operator calls in a preview."
    )
    preview_items: int = Field(
        5_000, ge=1, description="Number of items up to which `preview` matches without Spark."
    )

    @field_validator("matcher", "operator_order")
    @classmethod
    def _check_installed(cls, value: str, info: ValidationInfo) -> str:
        """Refuse a plug-in that is not installed when the settings are read, not when a worker loads it."""
        group = {"matcher": "runnel.matchers", "operator_order": "runnel.operator_orders"}[str(info.field_name)]
        if value != cls.model_fields[str(info.field_name)].default and value not in plugin_names(group):
            installed = ", ".join(plugin_names(group))
            raise PydanticCustomError("installed_wanted", f"{value!r} is not installed; installed: {installed}")
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def _check_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        """Refuse an invalid network when the settings are read, not at the first request."""
        for network in value:
            try:
                ipaddress.ip_network(network, strict=False)
            except ValueError:
                raise PydanticCustomError("network_wanted", f"{network!r} is not an IP network") from None
        return value

    @field_validator("confirmed_domains")
    @classmethod
    def _normalize_domains(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        """Convert domains to lower-case ASCII. Refuse a pattern that could match more than it appears to."""
        return tuple(_normalize_domain(pattern) for pattern in value)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_boolean_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse `true` and `false` for a number, which Python would convert to 1 and 0."""
        if isinstance(value, bool) and cls.model_fields[info.field_name or ""].annotation in (int, float):
            raise PydanticCustomError("number_wanted", "Input should be a number, not true or false")
        return value

    @field_validator("out_url")
    @classmethod
    def _check_url(cls, value: str) -> str:
        """Refuse a URL that a feed reader could not open."""
        if value and not value.startswith(("http://", "https://")):
            raise PydanticCustomError("address_wanted", "Input should begin with http:// or https://")
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Prefer the values that `load` passes in to the environment."""
        return init_settings, env_settings

    @staticmethod
    def load(folder: Path, **overrides: Any) -> Settings:
        """Load the settings of a workspace. Keyword arguments override the environment, which overrides the file.

        >>> Settings.load(Path("/nowhere"), max_batch_items=5).max_batch_items
        5
        """
        path = folder / FILE
        _refuse_empty_urls()
        try:
            written = tomllib.loads(path.read_text("utf-8")) if path.exists() else {}
            values = _use_current_names(written, f"in {path}") | _former_environment()
            values = {name: value for name, value in values.items() if _variable(name) not in os.environ}
            return Settings(**(values | _use_current_names(overrides, "among the arguments")))
        except tomllib.TOMLDecodeError as error:
            raise WorkspaceError(f"{path} is not valid TOML: {error}") from error
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(part) for part in first["loc"])
            raise WorkspaceError(
                f"setting {name} of {folder}: {first['msg']}", hint=f"{REFERENCE} lists every setting"
            ) from error


def _variable(name: str) -> str:
    return f"RUNNEL_{name.upper()}"


def _use_current_names(values: dict[str, Any], source: str) -> dict[str, Any]:
    """Replace former names of settings with the current ones, and log a warning for each."""
    for former in values.keys() & FORMER_NAMES.keys():
        _log.warning("setting %s %s is now named %s; the old name still works", former, source, FORMER_NAMES[former])
    return {FORMER_NAMES.get(name, name): value for name, value in values.items()}


def _former_environment() -> dict[str, Any]:
    """Read the environment variables of settings' former names."""
    given = {former: os.environ[_variable(former)] for former in FORMER_NAMES if _variable(former) in os.environ}
    return _use_current_names(given, "in the environment")


def _normalize_domain(pattern: str) -> str:
    name = pattern.lower().removeprefix("*.").removesuffix(".")
    try:
        name = name.encode("idna").decode("ascii")
    except UnicodeError:
        name = ""
    if not re.fullmatch(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*", name) and not re.fullmatch(r"[0-9a-f:]+:[0-9a-f:.]+", name):
        raise PydanticCustomError("domain_wanted", f"{pattern!r} is not a domain, such as muse.example")
    return f"*.{name}" if pattern.startswith("*.") else name


def _refuse_empty_urls() -> None:
    """Refuse an empty variable, which would silently override the settings file."""
    for name in ("RUNNEL_CATALOG", "RUNNEL_STORAGE"):
        if os.environ.get(name) == "":
            raise WorkspaceError(f"{name} is set but empty", hint=f"unset {name}, or set it to a URL")
