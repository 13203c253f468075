"""Mail addresses: parse exactly one address into an unambiguous canonical form.

In: the target of a subscription, or the setting `mail_from`. Out: an address in canonical form. Forms that RFC 5321
allows but nobody uses (quoted names, comments, routes, addresses in brackets) are refused, because they can hide a
second recipient or another route.
"""

from __future__ import annotations

import re
from email.headerregistry import Address

from runnel.errors import InputError

_HINT = "give one address, such as 'me@mail.example'"
_PROGRAMS = "mail programs may treat such a name as an option or a command; use another address"
_LONGEST = 254
_LONGEST_NAME = 64
# Without % and !, with which old servers forward a mail to another host.
_NAME = re.compile(r"[A-Za-z0-9#$&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9#$&'*+/=?^_`{|}~-]+)*")
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_WITHOUT_DOTS = frozenset({"gmail.com", "googlemail.com"})
"""Domains of providers that ignore dots in names, so names that differ only in dots belong to the same person."""
_FROM = re.compile(r'\s*(?:"?([^"<>]*?)"?\s*<([^<>]*)>|([^<>]*))\s*')


def check_address(text: str | None) -> str:
    """Return the address with its domain in lower-case ASCII, or raise InputError.

    >>> check_address(" Me.Too+runnel@Mail.Example ")
    'Me.Too+runnel@mail.example'
    """
    if text is None or not text.strip():
        raise InputError("this output requires a target", hint=_HINT)
    name, domain = _parts(text.strip(" "))
    if "." not in domain:
        raise InputError("the domain of the address must have at least two parts", place=repr(text[:80]), hint=_HINT)
    return f"{name}@{domain}"


def mailbox_of(address: str) -> str:
    """Return the key under which limits count an address.

    Many providers ignore case, dots and the part of the name after a plus. Addresses of different people may share a
    limit if their provider distinguishes such names.

    >>> mailbox_of("Me.Too+runnel@mail.example")
    'metoo@mail.example'
    """
    name, _, domain = address.rpartition("@")
    base = name.partition("+")[0] or name
    return f"{base.replace('.', '').lower()}@{domain}"


def certain_mailbox_of(address: str) -> str:
    """Return the key for which a refusal by an address applies. Dots are significant unless the provider ignores
    them.

    >>> certain_mailbox_of("Me.Too+runnel@mail.example"), certain_mailbox_of("Me.Too+runnel@gmail.com")
    ('me.too@mail.example', 'metoo@gmail.com')
    """
    name, _, domain = address.rpartition("@")
    if domain in _WITHOUT_DOTS:
        return mailbox_of(address)
    return f"{(name.partition('+')[0] or name).lower()}@{domain}"


def sender_of(setting: str) -> Address:
    """Parse the setting `mail_from`, which may include a display name.

    >>> str(sender_of("Runnel <runnel@muse.example>"))
    'Runnel <runnel@muse.example>'
    """
    match = _FROM.fullmatch(setting)
    if match is None or not setting.isprintable():
        raise InputError("mail_from is not an address", hint="write it as 'Runnel <name@host>'")
    shown, bracketed, bare = match.groups()
    name, domain = _parts((bracketed or bare or "").strip())
    return Address(display_name=(shown or "").strip(), username=name, domain=domain)


def _parts(text: str) -> tuple[str, str]:
    """Return the name and the domain of an address."""
    place = repr(text[:80])
    if len(text) > _LONGEST:
        raise InputError(f"the address is longer than {_LONGEST} characters", place=place, hint=_HINT)
    if re.search(r"[,;]", text):
        raise InputError(
            "the target must be a single address", place=place, hint="create a subscription for each address"
        )
    if not text.isprintable() or " " in text:
        raise InputError("the address contains spaces or invisible characters", place=place, hint=_HINT)
    name, at, domain = text.rpartition("@")
    if not at or not name or not domain:
        raise InputError("the address must have the form name@domain", place=place, hint=_HINT)
    if not name.isascii():
        hint = "few mail servers accept such names; use an address with an ASCII name before the @"
        raise InputError("the name before the @ contains non-ASCII characters", place=place, hint=hint)
    if len(name) > _LONGEST_NAME or _NAME.fullmatch(name) is None:
        raise InputError("the name before the @ contains characters that are not allowed", place=place, hint=_HINT)
    if name.startswith(("-", "|")):
        raise InputError("the name before the @ must not begin with - or |", place=place, hint=_PROGRAMS)
    canonical = _domain(domain, place)
    if len(name) + 1 + len(canonical) > _LONGEST:
        raise InputError(f"the address is longer than {_LONGEST} characters", place=place, hint=_HINT)
    return name, canonical


def _domain(text: str, place: str) -> str:
    """Return a domain in lower-case ASCII (IDNA)."""
    domain = text.lower()
    if not domain.isascii():
        try:
            encoded = domain.encode("idna")
            # Python's IDNA 2003 maps some names (ß → ss) to a domain that may belong to another person.
            readable = encoded.decode("idna") == domain
        except UnicodeError:
            encoded, readable = b"", False
        if not readable:
            hint = "write it in its ASCII form, which begins with xn--"
            raise InputError("the domain has no unique ASCII form", place=place, hint=hint)
        domain = encoded.decode("ascii")
    labels = domain.split(".")
    if len(domain) > 253 or not all(_LABEL.fullmatch(label) for label in labels) or labels[-1].isdigit():
        raise InputError("the part after the @ is not a domain name", place=place, hint=_HINT)
    return domain
