"""Translate failures of HTTP requests into messages for users.

In: an exception of aiohttp or the operating system. Out: an UnreachableError with a reason and, for some failures, a
hint.
"""

from __future__ import annotations

import os
import socket

from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorDNSError,
    ClientError,
    ClientOSError,
    ClientPayloadError,
    ClientResponseError,
    ClientSSLError,
    ConnectionTimeoutError,
    ServerDisconnectedError,
    ServerTimeoutError,
)
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from runnel.errors import UnreachableError

FAILURES = (ClientError, HttpProcessingError, OSError, TimeoutError, ValueError)
"""Exceptions of a request that the server or the network causes."""


def explain_failure(error: Exception, place: str, connect: float, idle: float, total: float) -> UnreachableError:
    """Return the error to report to the user. `connect`, `idle` and `total` are the time limits in seconds.

    >>> str(explain_failure(TimeoutError(), "http://muse.example/rss", 10, 15, 30))
    'http://muse.example/rss: the request took more than 30 seconds'
    """
    message, hint = _message_and_hint(error, connect, idle, total)
    return UnreachableError(message, place=place, hint=hint)


def _message_and_hint(error: Exception, connect: float, idle: float, total: float) -> tuple[str, str | None]:
    match error:
        case ClientConnectorDNSError() if error.os_error.errno == socket.EAI_AGAIN:
            return "the DNS lookup of the host failed temporarily", None
        case ClientConnectorDNSError():
            return "the host name does not exist", "check the spelling"
        case ClientConnectorCertificateError():
            reason = getattr(error.certificate_error, "verify_message", None) or "it is not trusted"
            return (
                f"the server's certificate is not valid: {reason}",
                "ask the operator of the server to fix its certificate",
            )
        case ClientSSLError():
            return "the TLS handshake failed", "check that the server uses https on this port"
        case ConnectionTimeoutError():
            return f"could not connect within {connect:g} seconds", None
        case ServerTimeoutError():
            return f"the server sent nothing for {idle:g} seconds", None
        case ServerDisconnectedError():
            return "the server closed the connection without a response", None
        case TimeoutError():
            return f"the request took more than {total:g} seconds", None
        case ClientPayloadError():
            return "the response was cut off", None
        case LineTooLong() | ClientResponseError() | HttpProcessingError():
            return _protocol_failure(error)
        case ClientOSError() | OSError():
            return f"the connection failed: {_system_reason(error)}", None
        case _:
            return "the request or its response is not valid HTTP", None


def _protocol_failure(error: Exception) -> tuple[str, str | None]:
    text = str(getattr(error, "message", ""))
    if "Too many" in text or "more than" in text or "too long" in text.lower():
        return "the headers of the response are too large", None
    return "the response is not valid HTTP", None


def _system_reason(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno and error.errno > 0 else "the network failed"
