"""Render a message as a mail: subject, text and HTML.

In: a delivery. Out: Rendered. Text and HTML have the same content. The HTML fetches nothing and sets no colors except
one gray that is legible on white and on black, so it works in dark mode. Every item is included: a few items in full,
more as excerpts, and the rest as titles with links.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape

from runnel.errors import DeliveryError
from runnel.model.item import Item
from runnel.sinks.contract import Content, DeliveredItem, Delivery
from runnel.sinks.files.feed_entries import ShownAnnotation, ShownItem, show
from runnel.sinks.mail.mail_html import HtmlTooLargeError, one_line, safe_html, text_of_html
from runnel.sinks.show_bindings import INCOMPLETE, binding_text

WIDTH = 78
"""Columns of the text part. Links may be longer, because a broken link does not work."""

IN_FULL = 5
"""Maximum number of items that are shown in full."""

WITH_EXCERPT = 100
"""Number of items with an excerpt. Further items have only a title and a link."""

_EXCERPT = 400
_ROWS = 5
_LONGEST_ROW = 200
_LONGEST_TITLE = 200
_LONGEST_TEXT = 50_000
_LONGEST_LINK = 2000
_WAY_OUT = re.compile(r"https?://[!#-;=?-~]{1,900}")
_STYLE = (
    "body{margin:0;padding:24px 16px;"
    "font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif}"
    ".page{max-width:38em;margin:0 auto;overflow-wrap:break-word}"
    "h1{font-size:22px;line-height:1.25;margin:0 0 4px}"
    "h2{font-size:18px;line-height:1.3;margin:0 0 2px}"
    "h2 a{color:inherit;text-decoration-thickness:1px;text-underline-offset:3px}"
    ".item{margin:28px 0 0;padding:0}"
    ".about,.foot{color:#767676;font-size:14px;margin:0}.about a{color:inherit}"
    "ul.about{padding-left:20px}"
    ".said p,.said{margin:10px 0 0}.said ul,.said ol{margin:10px 0 0;padding-left:24px}"
    ".said pre{white-space:pre-wrap}"
    ".said blockquote{margin:10px 0 0;padding:0 0 0 12px;border-left:3px solid #767676}"
    ".said h1,.said h2,.said h3{font-size:16px;margin:14px 0 0}"
    ".said table{border-collapse:collapse}.said td,.said th{padding:2px 12px 2px 0;text-align:left}"
    "hr{border:0;border-top:1px solid #767676;margin:32px 0 12px;opacity:.5}"
    "@media(prefers-color-scheme:dark){.about,.foot,.foot a{color:#a0a0a0!important}}"
)


@dataclass(frozen=True, slots=True)
class Attachment:
    """A document attached to a mail."""

    name: str
    media_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Rendered:
    """A mail without its headers. `html` is a complete document, or None for a mail of plain text."""

    subject: str
    text: str
    html: str | None = None
    attachment: Attachment | None = None


def render_mail(delivery: Delivery) -> Rendered:
    """Render a message for a person."""
    if delivery.content is not None:
        return _of_content(delivery, delivery.content)
    entries = [show(item, delivery.sent) for item in delivery.items]
    titles = [_title(entry) for entry in entries]
    feed = _feed(delivery)
    subject = titles[0] if len(entries) == 1 else f"{feed}: {len(entries):,} new items"
    heading = feed if len(entries) == 1 else subject
    plain: list[str] = []
    rich: list[str] = []
    for number, (delivered, entry, title) in enumerate(zip(delivery.items, entries, titles, strict=True)):
        body = _body(delivered, entry, number, len(entries))
        plain.append(_item_text(entry, title, body.text))
        rich.append(_item_html(entry, title, body.html))
    return Rendered(subject, _page_text(heading, plain, delivery), _page_html(subject, heading, rich, delivery))


def unsubscribe_link(delivery: Delivery) -> str | None:
    """Return the link that ends the subscription, if it is valid in a mail and its headers."""
    link = delivery.unsubscribe
    return link if link is not None and _WAY_OUT.fullmatch(link) else None


# --- output of a stylesheet ---------------------------------------------------------------------------------------


def _of_content(delivery: Delivery, content: Content) -> Rendered:
    """Use HTML content as the mail's HTML and text as its text; attach everything else."""
    feed = _feed(delivery)
    count = len(delivery.items)
    subject = f"{feed}: {count:,} new items" if count > 1 else feed
    text = content.data.decode("utf-8", "replace")
    match content.media_type.partition(";")[0].strip().lower():
        case "text/html" | "application/xhtml+xml":
            try:
                cleaned = safe_html(text)
            except HtmlTooLargeError as error:
                hint = "shorten the output of the stylesheet or the subscription's period"
                raise DeliveryError(
                    f"the output of the stylesheet cannot be mailed: {error}", hint=hint, permanent=True
                ) from error
            body = f'<div class="said">{cleaned}</div>'
            return Rendered(
                subject,
                _page_text("", [_wrapped(text_of_html(cleaned))], delivery),
                _page_html(subject, "", [body], delivery),
            )
        case "text/plain":
            return Rendered(subject, _page_text("", [_wrapped(_lines(text))], delivery))
        case media_type:
            name = f"{_file_name(delivery.feed_name)}.{'xml' if media_type.endswith('xml') else 'bin'}"
            note = f"The message is attached as {name}."
            attachment = Attachment(name, media_type, content.data)
            return Rendered(subject, _page_text(feed, [note], delivery), attachment=attachment)


def _file_name(name: str) -> str:
    """Return a file name that is safe on every system."""
    return (
        "".join(
            character for character in name if character.isascii() and (character.isalnum() or character in "-_")
        )[:60]
        or "message"
    )


# --- items --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Body:
    text: str
    html: str


def _body(delivered: DeliveredItem, shown: ShownItem, number: int, count: int) -> _Body:
    """Return the part of an item that is shown below its title."""
    if count <= IN_FULL:
        return _in_full(delivered.item, shown.content or shown.summary or "")
    if number >= WITH_EXCERPT:
        return _Body("", "")
    text = one_line(_plain(delivered.item, "description") or _plain(delivered.item, "content"), _EXCERPT)
    return _Body(text, f"<p>{escape(text)}</p>" if text else "")


def _in_full(item: Item, source: str) -> _Body:
    try:
        html = safe_html(source)
        text = text_of_html(html)
    except HtmlTooLargeError:
        # The item's plain text has the same content.
        text = _plain(item, "content") or _plain(item, "description")
        html = "".join(f"<p>{escape(line)}</p>" for line in text.split("\n") if line)
    return _Body(text, html)


def _plain(item: Item, name: str) -> str:
    texts = (value for value in item.attributes.get(name, ()) if isinstance(value, str))
    return _lines("\n\n".join(texts)[:_LONGEST_TEXT])


def _title(shown: ShownItem) -> str:
    return one_line(shown.title, _LONGEST_TITLE) or "(untitled)"


def _about(shown: ShownItem) -> str:
    """Return the source, author and date of an item."""
    authors = ", ".join(shown.authors[:3])
    parts = [one_line(shown.source, 80), one_line(authors, 120), _date(shown.published) if shown.published else ""]
    return " · ".join(part for part in parts if part)


def _bound(shown: ShownItem) -> list[str]:
    """Return the bindings of an item, one line for each of the first rows."""
    lines = [one_line(binding_text(row), _LONGEST_ROW) for row in shown.bindings.rows[:_ROWS]]
    more = shown.bindings.count - len(lines)
    lines = [line for line in lines if line] + ([f"and {more:,} more"] if more else [])
    return lines if shown.bindings.is_whole else [*lines, INCOMPLETE]


def _joined_text(annotation: ShownAnnotation) -> Iterator[str]:
    """Yield the lines that show the first joined items, with whole links."""
    yield f"{annotation.name}:"
    for item in annotation.items[:_ROWS]:
        yield from textwrap.wrap(_title(item), WIDTH, initial_indent="  ", subsequent_indent="  ")
        if link := _link(item):
            yield f"  {link}"
    if more := annotation.count - len(annotation.items[:_ROWS]):
        yield f"  and {more:,} more"


def _joined_html(annotation: ShownAnnotation) -> str:
    parts = [_linked_title(item, _title(item)) for item in annotation.items[:_ROWS]]
    more = annotation.count - len(parts)
    parts += [f"and {more:,} more"] if more else []
    shown = "".join(f"<li>{part}</li>" for part in parts)
    return f'<p class="about">{escape(annotation.name)}:</p><ul class="about">{shown}</ul>'


def _date(moment: datetime) -> str:
    return f"{moment.day} {moment:%B} {moment.year}, {moment:%H:%M} UTC"


def _link(shown: ShownItem) -> str | None:
    return shown.link if shown.link and len(shown.link) <= _LONGEST_LINK else None


def _item_text(shown: ShownItem, title: str, body: str) -> str:
    lines = [*textwrap.wrap(title, WIDTH, break_long_words=False), *textwrap.wrap(_about(shown), WIDTH)]
    lines += [part for line in _bound(shown) for part in textwrap.wrap(line, WIDTH)]
    lines += [line for annotation in shown.annotations for line in _joined_text(annotation)]
    if body:
        lines += ["", _wrapped(body)]
    link = _link(shown)
    if link:
        lines += ["", link] if body else [link]
    return "\n".join(lines)


def _item_html(shown: ShownItem, title: str, content: str) -> str:
    head = _linked_title(shown, title)
    about = f'<p class="about">{escape(_about(shown))}</p>'
    about += "".join(f'<p class="about">{escape(line)}</p>' for line in _bound(shown))
    about += "".join(map(_joined_html, shown.annotations))
    body = f'<div class="said">{content}</div>' if content else ""
    return f'<div class="item"><h2>{head}</h2>{about}{body}</div>'


def _linked_title(shown: ShownItem, title: str) -> str:
    link = _link(shown)
    return f'<a href="{escape(link)}">{escape(title)}</a>' if link else escape(title)


# --- the page -----------------------------------------------------------------------------------------------------


def _feed(delivery: Delivery) -> str:
    return one_line(delivery.feed_title, 80) or one_line(delivery.feed_name, 80) or "Runnel"


def _why(delivery: Delivery) -> str:
    return f"This address is subscribed to the feed {one_line(delivery.feed_name, 80)}."


def _page_text(heading: str, parts: Sequence[str], delivery: Delivery) -> str:
    blocks = [f"{heading}\n{'=' * min(len(heading), WIDTH)}"] if heading else []
    blocks += [part for part in parts if part]
    # Mail programs recognize "-- " as the beginning of a signature.
    foot = ["-- ", *textwrap.wrap(_why(delivery), WIDTH)]
    link = unsubscribe_link(delivery)
    if link is not None:
        foot.append(f"To unsubscribe: {link}")
    return "\n\n\n".join(blocks) + "\n\n" + "\n".join(foot) + "\n"


def _page_html(title: str, heading: str, parts: Sequence[str], delivery: Delivery) -> str:
    foot = escape(_why(delivery))
    link = unsubscribe_link(delivery)
    if link is not None:
        foot += f' <a href="{escape(link)}" style="color:#767676">Unsubscribe</a>'
    head = f"<h1>{escape(heading)}</h1>" if heading else ""
    return (
        '<!DOCTYPE html>\n<html><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>:root{{color-scheme:light dark}}{_STYLE}</style></head>\n"
        f'<body><div class="page">{head}\n'
        + "\n".join(parts)
        + f'\n<hr>\n<p class="foot">{foot}</p></div></body></html>\n'
    )


def _lines(text: str) -> str:
    """Remove control characters except line ends."""
    return "\n".join(
        "".join(character for character in line if character.isprintable() or character in "\t\u200c\u200d")
        for line in text.splitlines()
    )


def _wrapped(text: str) -> str:
    """Wrap each line of a text. Words longer than a line are not broken."""
    return "\n".join(
        "\n".join(textwrap.wrap(line, WIDTH, break_long_words=False, break_on_hyphens=False))
        for line in text.split("\n")
    )
