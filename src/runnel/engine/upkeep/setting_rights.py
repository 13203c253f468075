"""The settings that grant rights: to run code, or to access files, networks and mail.

In: the settings file of a backup, which may have been modified. Out: the settings that an admin must see and accept
before a workspace is restored with them. Every setting is in exactly one of the groups below.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from typing import Final

from runnel.errors import CorruptDataError
from runnel.settings import FILE, FORMER_NAMES, Settings

GIVES_RIGHTS: Final[dict[str, str]] = {
    "catalog_password_file": "reads this file and sends it to the catalog's server",
    "master": "runs code and sends items on this Spark cluster",
    "out_folders": "lets subscriptions write files in these folders",
    "shared_output": "lets other users of the machine read `out`",
    "allowed_addresses": "lets feeds, webhooks and operators reach these private addresses",
    "listen": "serves HTTP requests on this address",
    "public_url": "is the address in links in messages and for pushes from WebSub hubs",
    "out_url": "writes this address into feed files",
    "trusted_proxies": "trusts the client addresses that these proxies report",
    "confirmed_domains": "sends owners' messages to these domains without confirmation by the recipients",
    "smtp_host": "sends mail, and the password, to this server",
    "smtp_port": "sends mail to this port",
    "smtp_security": "decides whether mail and its password are encrypted",
    "smtp_user": "logs in to the mail server with this name",
    "smtp_password": "logs in to the mail server with this password",
    "mail_from": "sends mail with this sender",
    "operator_modules": "lets functions of these Python modules run as operators",
    "operator_databases": "lets operators query these databases",
}
"""Settings that grant rights, and what each of them allows."""

LIMITS: Final = frozenset(
    {
        *("catalog_max_bytes", "max_document_bytes", "max_document_items", "lag_limit", "first_fetch_items"),
        *("window_fill_items",),
        *("feed_entries", "confirmation_days", "confirmation_requests_per_day"),
        *("poll_budget", "poll_concurrency", "poll_host_concurrency", "send_concurrency", "send_host_concurrency"),
        *("http_seconds", "send_seconds", "refusals_to_disable", "subscription_days"),
        *("owner_queries", "owner_subscriptions", "owner_bytes", "owner_pending_confirmations"),
        *("owner_mails_per_hour", "owner_webhooks_per_hour"),
        *("owner_query_conditions", "owner_query_constants", "owner_script_conditions", "owner_script_changes"),
        *("open_items_per_minute", "open_client_items_per_minute", "open_body_bytes"),
        *(
            "stylesheet_seconds",
            "stylesheet_megabytes",
            "operator_megabytes",
            "operator_processes",
            "operator_cache_bytes",
        ),
        *("keep_items_days", "keep_receipts_days", "keep_quarantine_bytes"),
    }
)
"""Settings that limit the use of resources. They grant no access."""

TUNING: Final = frozenset(
    {
        *("driver_memory", "executor_memory", "executor_cores", "max_batch_items", "max_batch_bytes", "slice_items"),
        *("partitions", "partition_strategy", "plan_megabytes", "rebalance_seconds"),
        *("reoptimize_seconds", "slow_query_milliseconds", "scan_seconds", "publish_wait_seconds"),
        *("archive_seconds", "archive_segments", "orphan_seconds", "lease_seconds", "stall_seconds"),
        *("table_tail_rows", "poll_seconds", "poll_retry_seconds", "poll_retry_limit_seconds", "retry_seconds"),
        *("matcher", "operator_order", "log_format", "user_agent", "preview_operator_seconds", "preview_items"),
    }
)
"""Settings that affect speed and intervals."""

REPLACED: Final = frozenset({"catalog", "storage"})
"""Settings that are never taken from a backup, because restoring determines them."""


@dataclass(frozen=True, slots=True)
class GivenRight:
    """A setting of a backup that grants a right, in the form in which it is shown."""

    setting: str
    value: str
    allows: str

    def __str__(self) -> str:
        return f"{self.setting} = {self.value}: {self.allows}"


def rights_in(text: str) -> list[GivenRight]:
    """Return the settings in a file that grant rights beyond the defaults.

    >>> [str(right) for right in rights_in('operator_modules = ["os"]\\nlag_limit = 5\\nlisten = ""')]
    ['operator_modules = ["os"]: lets functions of these Python modules run as operators']
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CorruptDataError(f"{FILE} in the backup is not valid: {error}", hint="use another backup") from error
    return [
        GivenRight(name, _shown(name, value), GIVES_RIGHTS.get(name, "is not a known setting"))
        for name, value in values.items()
        if FORMER_NAMES.get(name, name) not in LIMITS | TUNING | REPLACED and not _is_default(name, value)
    ]


def _is_default(name: str, value: object) -> bool:
    field = Settings.model_fields.get(name)
    if field is None:
        return False
    default = list(field.default) if isinstance(field.default, tuple) else field.default
    return type(value) is type(default) and value == default


def _shown(name: str, value: object) -> str:
    """Return a value as JSON in one line, without passwords."""
    field = Settings.model_fields.get(name)
    return "***" if field is not None and not field.repr else json.dumps(value, default=str, ensure_ascii=True)
