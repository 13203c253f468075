"""Why an exchange failed, in words for the person who named the address.

In: whatever aiohttp, the system or the clock raised. Out: Unreachable with a reason and, where there is one, a hint.
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
"""What an exchange may raise that is the other side's doing, or the network's."""


def explain_failure(error: Exception, place: str, connect: float, idle: float, total: float) -> UnreachableError:
    """The error for a person. `connect`, `idle` and `total` are the limits in seconds that a failure may have met.

    >>> str(explain_failure(TimeoutError(), "http://muse.example/rss", 10, 15, 30))
    'http://muse.example/rss: the whole exchange took more than 30 seconds'
    """
    message, hint = _words(error, connect, idle, total)
    return UnreachableError(message, place=place, hint=hint)


def _words(error: Exception, connect: float, idle: float, total: float) -> tuple[str, str | None]:
    match error:
        case ClientConnectorDNSError() if error.os_error.errno == socket.EAI_AGAIN:
            return "the host's name could not be looked up just now", None
        case ClientConnectorDNSError():
            return "there is no host of that name", "check the spelling"
        case ClientConnectorCertificateError():
            reason = getattr(error.certificate_error, "verify_message", None) or "it is not trusted"
            return f"the server's certificate is not valid: {reason}", "whoever runs the server must renew it"
        case ClientSSLError():
            return "no encrypted connection could be agreed on", "the server may not speak https on this port"
        case ConnectionTimeoutError():
            return f"no connection within {connect:g} seconds", None
        case ServerTimeoutError():
            return f"the server sent nothing for {idle:g} seconds", None
        case ServerDisconnectedError():
            return "the server closed the connection without an answer", None
        case TimeoutError():
            return f"the whole exchange took more than {total:g} seconds", None
        case ClientPayloadError():
            return "the answer was cut off", None
        case LineTooLong() | ClientResponseError() | HttpProcessingError():
            return _not_http(error)
        case ClientOSError() | OSError():
            return f"no connection: {_system_words(error)}", None
        case _:
            return "the request or its answer is not valid HTTP", None


def _not_http(error: Exception) -> tuple[str, str | None]:
    said = str(getattr(error, "message", ""))
    if "Too many" in said or "more than" in said or "too long" in said.lower():
        return "the answer's headers are too large", None
    return "the answer is not valid HTTP", None


def _system_words(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno and error.errno > 0 else "the network failed"
