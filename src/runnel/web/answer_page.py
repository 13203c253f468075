"""Small pages that the runner serves to people who follow a link in a message."""

from __future__ import annotations

from html import escape

from fastapi.responses import HTMLResponse

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 1.05rem/1.5 system-ui, sans-serif; max-width: 32rem; margin: 18vh auto 0; padding: 0 1.2rem }}
h1 {{ font-size: 1.4rem }}
button {{ font: inherit; padding: .5rem 1.1rem; border: 1px solid; border-radius: .4rem; cursor: pointer }}
</style></head><body><h1>{title}</h1>{body}</body></html>
"""


def answer_page(title: str, body: str, status: int = 200) -> HTMLResponse:
    """Return a page with a title, which is escaped, and a body of HTML."""
    return HTMLResponse(_PAGE.format(title=escape(title), body=body), status_code=status)
