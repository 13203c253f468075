"""Settings of one root: `runnel.toml` in its folder, overridden by environment variables `RUNNEL_…`.

Every setting has a default that works; the defaults are the embedded installation.
"""

from __future__ import annotations

import ipaddress
import os
import re
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from runnel.entry_points import plugin_names
from runnel.errors import WorkspaceError

FILE = "runnel.toml"
REFERENCE = "docs/reference/settings.md"


class Settings(BaseSettings):
    """What can be set. Names are the same in the file (`lag_limit = 1000`) and outside (`RUNNEL_LAG_LIMIT=1000`)."""

    model_config = SettingsConfigDict(env_prefix="RUNNEL_", frozen=True, extra="forbid")

    catalog: str = Field(
        "", description="URL of the catalog; empty means a SQLite file in the root's folder.", repr=False
    )
    catalog_password_file: str = Field(
        "", description="File that holds the password of the catalog's server; empty means that the URL has it."
    )
    catalog_max_bytes: int = Field(0, ge=0, description="Quota of a SQLite catalog in bytes; 0 means no quota.")
    storage: str = Field("", description="URL of the root's files; empty means the root's folder.")
    master: str = Field("local[*]", description="Spark master URL.")
    driver_memory: str = Field("2g", description="Memory of Spark's driver.")
    executor_memory: str = Field("1g", description="Memory of each Spark executor on a cluster.")
    executor_cores: int = Field(
        0, ge=0, description="Cores of each Spark executor on a cluster; 0 leaves it to Spark's own settings."
    )
    max_batch_items: int = Field(50_000, ge=1, description="Most items matched in one micro-batch.")
    max_batch_bytes: int = Field(64 << 20, ge=1, description="Most bytes of items matched in one micro-batch.")
    slice_items: int = Field(2_048, ge=1, description="Items that one matching call takes together.")
    matcher: str = Field(
        "streams",
        description="What matches items: `streams`, `index`, `tree`, or another matcher that is installed "
        "(`runnel.matchers`). The runner compiles the queries again when it starts with another one.",
    )
    partitions: int = Field(
        0,
        ge=0,
        le=1_024,
        description="Partitions that queries are divided into, at most one a query; 1: every worker has all of them; "
        "0: what costs least.",
    )
    partition_strategy: Literal["", "grouped", "spread"] = Field(
        "", description="Whether related queries are put into one partition or dealt out; empty: what costs least."
    )
    plan_megabytes: int = Field(
        4_096, ge=1, description="Memory that the plans which a worker process has mapped at once may take."
    )
    rebalance_seconds: float = Field(
        300.0, ge=1, description="Pause between two looks at whether partitions are loaded alike."
    )
    reoptimise_seconds: float = Field(
        600.0, ge=1, description="Pause between two looks at whether compiling the plan again would make it faster."
    )
    slow_query_milliseconds: float = Field(
        5.0, gt=0, description="Time for 1,000 items from which a query is called slow, and told of in the log."
    )
    scan_seconds: float = Field(2.0, gt=0, description="How often source files and drop folders are looked at.")
    first_fetch_items: int = Field(
        100,
        ge=0,
        description="Items taken from each document of a feed's first look; older ones are only remembered as seen.",
    )
    max_document_bytes: int = Field(15 << 20, ge=1, description="Largest source document that is read.")
    max_document_items: int = Field(
        100_000, ge=1, description="Most items of a source document. A document with more is refused."
    )
    lag_limit: int = Field(
        1_000_000, ge=1, description="Items that may wait for matching before `publish` waits and then refuses."
    )
    stall_seconds: float = Field(
        600.0,
        ge=1,
        description="Seconds that items may wait without any progress in matching before `/healthz` fails.",
    )
    publish_wait_seconds: float = Field(30.0, ge=0, description="How long `publish` waits at the lag limit.")
    feed_entries: int = Field(200, ge=1, description="Entries kept in a feed file that Runnel writes.")
    out_folders: tuple[Path, ...] = Field(
        (), description="Folders besides the root's `out` in which subscriptions may write files."
    )
    shared_output: bool = Field(
        False,
        description="Whether other users of the machine, such as a web server, may read the `out` folder; `runnel"
        " doctor --repair` applies a change.",
    )
    archive_seconds: float = Field(60.0, gt=0, description="How often matched log segments move to the archive.")
    archive_segments: int = Field(64, ge=1, description="Matched log segments that are enough to archive.")
    orphan_seconds: float = Field(
        3600.0, ge=0, description="Age at which files that are not used any more are removed."
    )
    lease_seconds: float = Field(20.0, gt=0, description="How long a runner's lease holds without renewal.")
    allowed_addresses: tuple[str, ...] = Field(
        (),
        description="Networks (`10.1.0.0/16`), addresses and host names that may be reached although private.",
    )
    user_agent: str = Field("Runnel/0.1", min_length=1, description="How Runnel names itself to web servers.")
    http_seconds: float = Field(30.0, gt=0, description="Longest that a whole HTTP exchange may take.")
    poll_seconds: float = Field(1800.0, ge=1, description="How often a web feed without `every` is asked.")
    poll_budget: int = Field(600, ge=1, description="Most polls of web feeds per minute.")
    poll_concurrency: int = Field(64, ge=1, description="Most polls under way at once.")
    poll_host_concurrency: int = Field(2, ge=1, description="Most polls of one host under way at once.")
    poll_retry_seconds: float = Field(60.0, gt=0, description="First wait after a failed poll; it doubles each time.")
    poll_retry_limit_seconds: float = Field(86_400.0, gt=0, description="Longest wait after failed polls.")
    listen: str = Field(
        "",
        description="`host:port` on which a runner answers: health, metrics, WebSub, unsubscribing; empty: none.",
    )
    public_url: str = Field(
        "", description="Where others reach what `listen` offers; needed for WebSub and for the links in mails."
    )
    out_url: str = Field(
        "",
        description="The public URL of the `out` folder, such as `https://news.example/feeds`. If it is set,"
        " feed files contain their own address.",
    )
    smtp_host: str = Field("", description="Mail server that takes messages; empty means that mail is refused.")
    smtp_port: int = Field(587, ge=1, le=65535, description="Port of the mail server.")
    smtp_security: Literal["starttls", "tls", "none"] = Field("starttls", description="How mail is kept private.")
    smtp_user: str = Field("", description="Name at the mail server; empty means no login.")
    smtp_password: str = Field("", description="Password at the mail server.", repr=False)
    mail_from: str = Field("", description="Sender of mail, `name@host` or `Runnel <name@host>`.")
    send_concurrency: int = Field(200, ge=1, description="Most messages to endpoints under way at once.")
    send_host_concurrency: int = Field(8, ge=1, description="Most messages to one endpoint's host under way at once.")
    send_seconds: float = Field(15.0, gt=0, description="How long an endpoint may take over one message.")
    retry_seconds: tuple[float, ...] = Field(
        (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400),
        description="Waits before a message is tried again; after the last the message is dead.",
    )
    refusals_to_disable: int = Field(
        3,
        ge=1,
        description="A subscription is disabled after this many messages in a row that its endpoint or stylesheet"
        " refused for good.",
    )
    subscription_days: int = Field(
        365, ge=0, description="How long a subscription without `for` lasts; 0 means until somebody ends it."
    )
    owner_queries: int = Field(10_000, ge=0, description="Queries that an owner may have, unless set for the owner.")
    owner_subscriptions: int = Field(
        10_000, ge=0, description="Subscriptions that an owner may have, unless set for the owner."
    )
    owner_bytes: int = Field(
        1 << 30, ge=0, description="Bytes that an owner may publish in all, unless set for the owner."
    )
    owner_query_conditions: int = Field(
        1_000, ge=1, description="Most conditions and feeds in one query of an owner."
    )
    owner_query_constants: int = Field(
        10_000, ge=1, description="Most constants (entries of lists, words, graph edges) in one query of an owner."
    )
    owner_script_conditions: int = Field(
        100_000, ge=1, description="Most conditions and constants of all queries in one script of an owner."
    )
    owner_script_changes: int = Field(
        200,
        ge=1,
        description="Most declarations in a script of an owner that replace, drop, pause or end something.",
    )
    confirmed_domains: tuple[str, ...] = Field(
        (),
        description="Domains of mail addresses and hosts of webhooks that need not confirm owners' subscriptions:"
        " `muse.example`, or `*.muse.example` for all names below it.",
    )
    confirmation_days: int = Field(
        7, ge=1, le=365, description="Days in which a mail address or webhook can answer a request to confirm."
    )
    confirmation_requests_per_day: int = Field(
        10,
        ge=1,
        description="Most requests to confirm that are sent per day to one mailbox or to one webhook host, for all"
        " owners together. One owner may use half of them.",
    )
    owner_pending_confirmations: int = Field(
        20, ge=0, description="Most targets of an owner that may be waiting for confirmation at the same time."
    )
    owner_mails_per_hour: int = Field(
        60, ge=1, description="Most mails per hour that an owner may send to one mailbox; more must wait."
    )
    owner_webhooks_per_hour: int = Field(
        3_600, ge=1, description="Most messages per hour that an owner may post to one webhook host; more must wait."
    )
    open_items_per_minute: int = Field(
        600, ge=1, description="Most items per minute into an open feed whose statement gives no number."
    )
    open_client_items_per_minute: int = Field(
        60, ge=1, description="Most items per minute from one client address into all open feeds."
    )
    open_body_bytes: int = Field(
        1 << 20, ge=1, description="Largest body, in bytes, of a request that publishes into an open feed."
    )
    trusted_proxies: tuple[str, ...] = Field(
        (),
        description="Networks (`10.1.0.0/16`) of reverse proxies whose `X-Forwarded-For` is trusted to name clients.",
    )
    sheet_seconds: float = Field(5.0, gt=0, description="Processor time that a stylesheet may take for a document.")
    sheet_megabytes: int = Field(512, ge=64, description="Memory that a stylesheet may take.")
    operator_modules: tuple[str, ...] = Field(
        (), description="Modules, and packages with all below them, whose functions may be registered as operators."
    )
    operator_databases: dict[str, str] = Field(
        {}, description="URLs of databases, by name, that look-up operators may ask.", repr=False
    )
    operator_cache_bytes: int = Field(
        256 << 20, ge=0, description="Most bytes of operators' answers that are remembered on disk; 0 means none."
    )
    operator_processes: int = Field(
        1, ge=1, description="Processes beside each worker in which operators of plug-ins run."
    )
    operator_order: str = Field(
        "",
        description="Order in which operators are asked: `static_greedy`, `adaptive`, or another one that is "
        "installed (`runnel.operator_orders`); empty means whichever of these two is expected to cost least.",
    )
    operator_megabytes: int = Field(
        4096, ge=256, description="Memory that a process in which operators of plug-ins run may take."
    )
    keep_items_days: int = Field(365, ge=0, description="Days that items and matches are kept; 0 means for ever.")
    keep_receipts_days: int = Field(90, ge=0, description="Days that sent messages stay in the ledger one by one.")
    keep_aside_bytes: int = Field(1 << 30, ge=0, description="Most bytes of refused documents kept for inspection.")
    log_format: Literal["text", "json"] = Field("text", description="How the runner writes its log.")
    preview_operator_seconds: float = Field(
        60.0, ge=0, description="How long operators may be asked for a preview, as far as that can be foreseen."
    )
    preview_items: int = Field(
        5_000, ge=1, description="Items that `preview` looks at in the client; more are a Spark batch."
    )

    @field_validator("matcher", "operator_order")
    @classmethod
    def _installed(cls, value: str, info: ValidationInfo) -> str:
        """Refuse a name that nothing is installed under, before a worker looks for it."""
        group = {"matcher": "runnel.matchers", "operator_order": "runnel.operator_orders"}[str(info.field_name)]
        if value != cls.model_fields[str(info.field_name)].default and value not in plugin_names(group):
            installed = ", ".join(plugin_names(group))
            raise PydanticCustomError("installed_wanted", f"{value!r} is not installed; installed: {installed}")
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def _only_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        """Refuse an invalid network when the settings are read, not at the first request."""
        for network in value:
            try:
                ipaddress.ip_network(network, strict=False)
            except ValueError:
                raise PydanticCustomError("network_wanted", f"{network!r} is not an IP network") from None
        return value

    @field_validator("confirmed_domains")
    @classmethod
    def _only_domains(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        """Domains in lower case and in ASCII. A pattern that could match more than it seems to is refused."""
        return tuple(_domain_pattern(pattern) for pattern in value)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse `true` where a number is wanted: Python would take it for 1, and nobody means that."""
        if isinstance(value, bool) and cls.model_fields[info.field_name or ""].annotation in (int, float):
            raise PydanticCustomError("number_wanted", "Input should be a number, not true or false")
        return value

    @field_validator("out_url")
    @classmethod
    def _an_address(cls, value: str) -> str:
        """Refuse URLs that would make unusable addresses of files."""
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
        """What `load` passes in, then the environment."""
        return init_settings, env_settings

    @staticmethod
    def load(folder: Path, **overrides: Any) -> Settings:
        """The settings of a root's folder. Keyword arguments win over the environment, and that over the file.

        >>> Settings.load(Path("/nowhere"), max_batch_items=5).max_batch_items
        5
        """
        path = folder / FILE
        _refuse_empty_places()
        try:
            given = tomllib.loads(path.read_text("utf-8")) if path.exists() else {}
            named = {name: value for name, value in given.items() if f"RUNNEL_{name.upper()}" not in os.environ}
            return Settings(**(named | overrides))
        except tomllib.TOMLDecodeError as error:
            raise WorkspaceError(f"{path} is not valid TOML: {error}") from error
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(part) for part in first["loc"])
            raise WorkspaceError(
                f"setting {name} of {folder}: {first['msg']}", hint=f"{REFERENCE} lists every setting"
            ) from error


def _domain_pattern(pattern: str) -> str:
    name = pattern.lower().removeprefix("*.").removesuffix(".")
    try:
        name = name.encode("idna").decode("ascii")
    except UnicodeError:
        name = ""
    if not re.fullmatch(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*", name) and not re.fullmatch(r"[0-9a-f:]+:[0-9a-f:.]+", name):
        raise PydanticCustomError("domain_wanted", f"{pattern!r} is not a domain, such as muse.example")
    return f"*.{name}" if pattern.startswith("*.") else name


def _refuse_empty_places() -> None:
    """Refuse an empty variable, which would silently override the settings file."""
    for name in ("RUNNEL_CATALOG", "RUNNEL_STORAGE"):
        if os.environ.get(name) == "":
            raise WorkspaceError(f"{name} is set but empty", hint=f"unset {name}, or set it to a URL")
