"""HTML that is passed on: only harmless URLs survive, in every attribute, and cleaning again changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.net.hostile_html import CLEANERS, RELATIVE, TAGS, TEXTS, URLS, bad_urls, fragments

from runnel.net import safe_html
from runnel.net.safe_html import URL_ATTRIBUTES, URL_LISTS, HtmlCleaner, safe_url, settle

ATTACKS = (
    '<q cite="javascript:alert(1)">a</q>',
    '<blockquote cite="data:text/html,x">a</blockquote>',
    '<del cite="vbscript:x">a</del><ins cite="java&#10;script:x">a</ins>',
    '<a href=" &#1;JavaScript:x">a</a><img src="data:image/svg+xml,x">',
)


@pytest.mark.parametrize("cleaner", CLEANERS)
@pytest.mark.parametrize("attack", ATTACKS)
def test_script_urls_are_removed(cleaner: str, attack: str) -> None:
    cleaned = CLEANERS[cleaner](f"<p>{attack}</p>")
    assert "a" in cleaned
    assert not any(word in cleaned.lower() for word in ("script", "data:", "cite", "href", "src"))


@pytest.mark.parametrize("url", ["https://ok.example/a", "http://ok.example/", "mailto:me@ok.example"])
def test_harmless_urls_are_kept(url: str) -> None:
    for name in ("from_feed", "from_web_feed", "in_feed_file", "in_linked_feed_file"):
        assert f'<q cite="{url}">a</q>' in CLEANERS[name](f'<q cite="{url}">a</q>'), name
        assert f'<a href="{url}"' in CLEANERS[name](f'<a href="{url}">a</a>'), name


def test_relative_urls_are_completed_or_removed() -> None:
    html = '<q cite="/a">a</q><a href="b">b</a>'
    assert "https://base.example/a" in CLEANERS["in_linked_feed_file"](html)
    assert "https://base.example/b" in CLEANERS["in_linked_feed_file"](html)
    assert not any(word in CLEANERS["in_feed_file"](html) for word in ("cite", "href"))


@pytest.mark.parametrize("name", sorted(URL_ATTRIBUTES | URL_LISTS))
def test_every_attribute_that_takes_a_url_is_checked(name: str) -> None:
    """Also those that no cleaner allows today."""
    cleaner = HtmlCleaner(tags={"b"}, attributes={"b": {name}})
    assert cleaner.clean(f'<b {name}="javascript:x">a</b>') == "<b>a</b>"
    assert (name in cleaner.clean(f'<b {name}="https://ok.example/">a</b>')) == (name in URL_ATTRIBUTES)


@pytest.mark.parametrize("cleaner", CLEANERS)
def test_cleaned_hostile_fragments_are_stable_and_have_safe_urls(cleaner: str) -> None:
    clean = CLEANERS[cleaner]
    for fragment in fragments(7, 4_000):
        cleaned = clean(fragment)
        assert clean(cleaned) == cleaned, fragment
        assert bad_urls(cleaned, relative=cleaner in RELATIVE) == [], fragment


_PIECES = st.one_of(
    st.sampled_from(TEXTS),
    st.text(max_size=5),
    st.builds("<{}>".format, st.sampled_from(TAGS)),
    st.builds("</{}>".format, st.sampled_from(TAGS)),
    st.builds(
        '<{} {}="{}">'.format, st.sampled_from(TAGS), st.sampled_from(sorted(URL_ATTRIBUTES)), st.sampled_from(URLS)
    ),
)


@pytest.mark.parametrize("cleaner", CLEANERS)
@given(pieces=st.lists(_PIECES, max_size=20))
def test_cleaned_generated_fragments_are_stable_and_have_safe_urls(cleaner: str, pieces: list[str]) -> None:
    cleaned = CLEANERS[cleaner]("".join(pieces))
    assert CLEANERS[cleaner](cleaned) == cleaned
    assert bad_urls(cleaned, relative=cleaner in RELATIVE) == []


def test_generator_creates_fragments_that_need_several_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks above would notice a cleaner that runs once."""
    monkeypatch.setattr("runnel.sinks.files.feed_entries.settle", lambda clean, html: clean(html))
    clean = CLEANERS["in_feed_file"]
    assert any(clean(cleaned) != cleaned for cleaned in map(clean, fragments(7, 4_000)))


@pytest.mark.parametrize("cleaner", CLEANERS)
def test_html_that_keeps_changing_becomes_stable_text(cleaner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        # What the first round changes counts as unsettled.
        patch.setattr(safe_html, "_MAX_ROUNDS", 1)
        texts = [CLEANERS[cleaner](fragment) for fragment in fragments(3, 1_000)]
    assert any(texts)
    assert [CLEANERS[cleaner](text) for text in texts] == texts


def test_number_of_cleaning_passes_is_limited() -> None:
    rounds = []

    def grow(html: str) -> str:
        rounds.append(html)
        return f"<i>{html}</i>"

    assert settle(grow, "Rock & <b>Roll</b>") == "Rock &amp; Roll"
    assert len(rounds) == 6
    assert settle(str.strip, " a ") == "a"
    assert settle(str.strip, "") == ""


@pytest.mark.parametrize("url", ["", " ", "javascript:", "http//no", "//host/x", "\0javascript:x", "ja vascript:x"])
def test_safe_url_refuses_relative_urls_by_default(url: str) -> None:
    assert safe_url(url) is None


@pytest.mark.parametrize("cleaner", CLEANERS)
@pytest.mark.parametrize("lines", [1, 2, 7, 50])
def test_leading_empty_lines_in_pre_keep_the_markup(cleaner: str, lines: int) -> None:
    cleaned = CLEANERS[cleaner]("<p>See <b>this</b>.</p><pre>" + "\n" * lines + "code</pre>")
    assert "<b>this</b>" in cleaned
    assert CLEANERS[cleaner](cleaned) == cleaned
