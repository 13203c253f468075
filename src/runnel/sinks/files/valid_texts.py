"""Texts, URLs and names as feed formats allow them: repair or drop what the W3C feed validator refuses.

In: values of an item. Out: text without undeclared markup, URLs in ASCII, and existing languages and media types.
"""

from __future__ import annotations

import re
from html import escape, unescape
from html.entities import name2codepoint
from urllib.parse import SplitResult, quote, urlsplit
from uuid import UUID, uuid5

import idna
import nh3

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_BAD = re.compile("[\x7f-\x9f\ufdd0-\ufdef\ufffd]|[\U0001fffe-\U0001ffff]")
_FEEDS = UUID("a7b4dc5e-7a0d-5d0e-9c0d-7f1f6c1a3b52")
_LONGEST_ADDRESS = 8192
_ROUNDS = 4
_TAGS = (
    "a abbr acronym address applet area article aside audio b base basefont bdi bdo big blink blockquote body br "
    "button canvas caption center cite code col colgroup data datalist dd del details dfn dialog dir div dl dt em "
    "embed fieldset figcaption figure font footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html i "
    "iframe img input ins isindex kbd label legend li link main map mark marquee math menu meta meter nav nobr "
    "noembed noframes noscript object ol optgroup option output p param picture plaintext pre progress q rb rp rt "
    "rtc ruby s samp script search section select slot small source span strike strong style sub summary sup svg "
    "table tbody td template textarea tfoot th thead time title tr track tt u ul var video wbr xmp"
)
_MARKUP = re.compile(
    rf"</?(?:{'|'.join(_TAGS.split())})(?:[\s/][^<>]*)?>|&(?:#\w+|{'|'.join(sorted(name2codepoint))}|apos);",
    re.IGNORECASE | re.ASCII,
)
_TEXT_ONLY = nh3.Cleaner(tags=set())
_CODES = (
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el "
    "en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu "
    "ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na "
    "nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so "
    "sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu"
)
_LANGUAGES = frozenset(_CODES.split())
_LANGUAGE = re.compile(r"([A-Za-z]{2,3})(?:-[A-Za-z0-9]{2,8}){0,4}", re.ASCII)
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,100}/[A-Za-z0-9!#$&^_.+-]{1,100}", re.ASCII)
_HOST = re.compile(r"[A-Za-z0-9._~-]{1,253}|\[[0-9A-Fa-f:.]+\]", re.ASCII)
_STRAY_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})")


def xml_text(text: str) -> str:
    """Remove characters that XML 1.0 does not allow, and characters that are not text.

    >>> xml_text("a\\x01b \\x93c\\x94")
    'ab “c”'
    """
    return _BAD.sub(_readable, _NOT_XML.sub("", text))


def _readable(match: re.Match[str]) -> str:
    """Replace a character from U+0080 to U+009F, which nearly always is Windows-1252 that was decoded as Latin-1."""
    character = match.group()
    if "\x80" <= character <= "\x9f":
        return character.encode("latin-1").decode("cp1252", "ignore")
    return "?" if character == "\ufffd" else ""


def has_markup(text: str) -> bool:
    """Return whether readers would interpret part of a text as HTML.

    >>> has_markup("<b>Rock</b>"), has_markup("R&amp;B"), has_markup("Rock & <Roll>, 1 < 2")
    (True, True, False)
    """
    return _MARKUP.search(text) is not None


def plain_text(text: str) -> str:
    """Remove the markup of a text, for elements that cannot declare markup.

    >>> plain_text("<b>Rock</b> &amp;amp; Roll")
    'Rock & Roll'
    """
    for _ in range(_ROUNDS):
        if not has_markup(text):
            return text
        text = " ".join(xml_text(unescape(_TEXT_ONLY.clean(text))).split())
    return text.replace("<", "‹").replace("&", "＆") if has_markup(text) else text


def html_of(text: str) -> str:
    """Return HTML that shows a text."""
    return escape(text, quote=False)


def web_address(text: str) -> str | None:
    """Convert an http URL with any characters (RFC 3987) to ASCII (RFC 3986). Return None for anything else.

    >>> web_address("https://münchen.example/käse?q=ä b#é")
    >>> web_address("https://münchen.example/käse?q=ä#é")
    'https://xn--mnchen-3ya.example/k%C3%A4se?q=%C3%A4#%C3%A9'
    """
    if len(text) > _LONGEST_ADDRESS or not text.isprintable() or " " in text:
        return None
    try:
        split = urlsplit(text)
        host = _host(split)
        if split.scheme not in ("http", "https") or host is None:
            return None
        port = "" if split.port is None else f":{split.port}"
    except ValueError:
        return None
    user, at, _ = split.netloc.rpartition("@")
    address = f"{split.scheme}://{_quoted(user, ':')}{at}{host}{port}{_quoted(split.path, '/:@')}"
    address += f"?{_quoted(split.query, '/:@?')}" if split.query else ""
    return address + (f"#{_quoted(split.fragment, '/:@?')}" if split.fragment else "")


def _host(split: SplitResult) -> str | None:
    name = split.hostname or ""
    if ":" in name:
        name = f"[{name}]"
    elif not name.isascii():
        try:
            name = idna.encode(name, uts46=True).decode("ascii")
        except idna.IDNAError:
            return None
    return name if _HOST.fullmatch(name) else None


def _quoted(part: str, also: str) -> str:
    return quote(_STRAY_PERCENT.sub("%25", part), safe=f"!$&'()*+,;=~%{also}", errors="replace")


def language(text: str) -> str | None:
    """Return the language tag, or None if it is not valid.

    >>> language("de-CH"), language("deutsch"), language("xx")
    ('de-CH', None, None)
    """
    match = _LANGUAGE.fullmatch(text)
    if match is None or (len(match[1]) == 2 and match[1].lower() not in _LANGUAGES):
        return None
    return text


def media_type(text: str) -> str | None:
    """Return the media type without parameters, or None if it is not valid.

    >>> media_type("audio/mpeg"), media_type("music")
    ('audio/mpeg', None)
    """
    return text if _MEDIA_TYPE.fullmatch(text) else None


def feed_id(name: str) -> str:
    """Return the id of a feed whose URL is unknown, derived from its name.

    >>> feed_id("Rock") == feed_id("Rock") != feed_id("Jazz")
    True
    """
    return uuid5(_FEEDS, name.encode("utf-8", "replace").decode()).urn


def file_address(base: str, target: str | None) -> str | None:
    """Return the public URL of a target below the out folder, if the URL of that folder is known.

    >>> file_address("https://news.example/feeds/", "music/röck.xml")
    'https://news.example/feeds/music/r%C3%B6ck.xml'
    """
    if not base or not target or target.startswith("/"):
        return None
    return web_address(f"{base.rstrip('/')}/{quote(target, errors='replace')}")
