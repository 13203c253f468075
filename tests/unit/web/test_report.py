"""The report is one safe, self-contained page, whatever the texts and however little there is to show."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree, html

from runnel.engine.planning.ports import FigureTable
from runnel.web.html_parts import MAX_ROWS, text
from runnel.web.report import (
    FeedFigures,
    NextStep,
    OperatorRow,
    OperatorsUsed,
    OutputFile,
    PlanSharing,
    QueryMatches,
    RunReport,
    SampleMatch,
    SummaryFigure,
    TimelinePoint,
    render_report,
)

NOW = datetime(2026, 11, 15, 9, 30, tzinfo=UTC)
SECTIONS = [
    "timeline",
    "queries",
    "sharing",
    "partitions",
    "operators",
    "samples",
    "feeds",
    "outputs",
    "failures",
    "next",
]
HOSTILE = "</title></script><script>alert(1)</script><img src=x onerror=alert(1)>\x00\x1b[31m'\"&amp;"


def full_report(word: str = "word") -> RunReport:
    return RunReport(
        title=f"Run of {word}",
        generated=NOW,
        figures=(SummaryFigure(f"Items {word}", f"4,000 {word}", f"note {word}"), SummaryFigure("Queries", "3,000")),
        timeline=tuple(TimelinePoint(NOW + timedelta(hours=hour), hour, 10 * hour) for hour in range(200)),
        matches_per_query=tuple(QueryMatches(f"{word} {rank}", 1000 // rank) for rank in range(1, 2000)),
        sharing=PlanSharing(3000, 1484, 902, 733, 12_000_000, 181_402, 64_120, 203_411),
        distribution=FigureTable(
            "Partitions",
            (f"2 grouped: {word}", "0.29 copies of an item expected"),
            ("Partition", "Queries", "Items lately", "Matches", "Microseconds an item"),
            (("1", "1,600", "2,000", "1,083", "12.5"), ("2", "1,400", "0", "0", "")),
        ),
        operators=OperatorsUsed(
            (OperatorRow("seldom", 1, 0.0004), OperatorRow(f"mob {word}", 1200, 1.5)),
            calls=5120,
            known_answers=1,
            unknown=7,
            waiting=2,
        ),
        feeds=tuple(FeedFigures(f"Feed {word} {number}", number, 2 * number) for number in range(30)),
        outputs=(OutputFile(f"out/{word}.rss", "rss", 12),),
        samples=(SampleMatch(f"Query {word}", f"create {word};", f"Title {word}", f"Feed {word}", (f"why {word}",)),),
        failures=(f"failure {word}",),
        next_steps=(NextStep(f"runnel {word}", f"does {word}"),),
    )


def elements(page: str) -> Any:
    return html.document_fromstring(page)


def test_a_full_report_shows_every_section_in_order() -> None:
    page = render_report(full_report())
    tree = elements(page)
    assert [section.get("id") for section in tree.iter("section")] == SECTIONS
    assert [heading.text for heading in tree.iter("h1")] == ["Run of word"]
    for shown in (
        "2026-11-15 09:30 UTC",
        "4,000 word",
        "note word",
        "19,900 items had 199,000 matches",
        "3,000 queries needed only 1,484 different predicates, 902 clauses and 733 atoms",
        "1 in 66",
        "64,120 clauses were checked",
        "12,000,000",
        "out/word.rss",
        "create word;",
        "why word",
        "failure word",
        "runnel word",
        "18 more",
    ):
        assert shown in page


def test_report_has_partitions_only_if_queries_are_partitioned() -> None:
    page = render_report(full_report())
    assert "<p>2 grouped: word</p>" in page
    rows = elements(page).xpath("//section[@id='partitions']//tbody/tr")
    assert [[cell.text_content() for cell in row] for row in rows] == [
        ["1", "1,600", "2,000", "1,083", "12.5"],
        ["2", "1,400", "0", "0", ""],
    ]
    assert 'id="partitions"' not in render_report(RunReport("Run", NOW))


def test_report_has_operators_only_if_they_are_used() -> None:
    page = render_report(full_report())
    assert "Operators answered 5,120 calls, and the cache contains 1 answer." in page
    assert "could not be decided for an item 7 times" in page
    assert "Waiting for a retry: 2 items" in page
    rows = elements(page).xpath("//section[@id='operators']//tbody/tr")
    assert [[cell.text_content() for cell in row] for row in rows] == [
        ["mob word", "1,200", "1,500.0"],
        ["seldom", "1", "0.4"],
    ]
    assert 'id="operators"' not in render_report(RunReport("Run", NOW))
    quiet = render_report(RunReport("Run", NOW, operators=OperatorsUsed((), calls=1)))
    assert "answered 1 call," in quiet
    assert "decided" not in quiet
    assert "retry" not in quiet


def test_ten_queries_with_most_matches_are_listed_in_descending_order() -> None:
    shuffled = tuple(reversed(full_report().matches_per_query))
    tree = elements(render_report(RunReport("Run", NOW, matches_per_query=shuffled)))
    rows = tree.xpath("//section[@id='queries']//tbody/tr")
    assert len(rows) == 10
    cells = [[cell.text_content() for cell in row] for row in rows]
    assert cells[0][:2] == ["word 1", "1,000"]
    assert cells[9][:2] == ["word 10", "100"]
    assert "999 of them have no match yet" in render_report(RunReport("Run", NOW, matches_per_query=shuffled))


def test_each_of_three_plots_has_a_wide_and_a_narrow_version_with_unique_ids() -> None:
    tree = elements(render_report(full_report()))
    assert len(tree.xpath("//div[@class='plot wide']/svg")) == 3
    assert len(tree.xpath("//div[@class='plot narrow']/svg")) == 3
    ids = [element.get("id") for element in tree.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    for reference in re.findall(r'(?:href="#|url\(#)([^")]+)', render_report(full_report())):
        assert reference in ids


def test_plots_use_the_colors_and_fonts_of_the_page() -> None:
    page = render_report(full_report())
    plots = "".join(re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL))
    assert "var(--first)" in plots
    assert "var(--second)" in plots
    assert not re.search(r"#[0-9a-f]{6}\b", plots)
    assert "Items accepted</text>" in plots
    assert "DejaVu" not in plots
    assert "<style" not in plots


def test_equal_reports_are_rendered_to_equal_bytes() -> None:
    assert render_report(full_report()) == render_report(full_report())


def test_page_loads_no_resources_and_runs_no_scripts() -> None:
    page = render_report(full_report(HOSTILE))
    tree = elements(page)
    policy = tree.xpath("//meta[@http-equiv='Content-Security-Policy']/@content")
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]
    for element in tree.iter(etree.Element):
        assert element.tag not in ("script", "img", "iframe", "link", "object", "embed", "form", "base", "image")
        for name, value in element.attrib.items():
            assert not name.lower().startswith("on")
            assert name not in ("src", "srcset", "action")
            if name.endswith("href"):
                assert value.startswith("#")
            assert "url(http" not in value
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)


def test_markup_in_texts_is_escaped() -> None:
    page = render_report(full_report(HOSTILE))
    assert "<script" not in page
    assert "<img" not in page
    assert "\x00" not in page
    assert "\x1b" not in page
    tree = elements(page)
    shown = "</title></script><script>alert(1)</script><img src=x onerror=alert(1)>[31m'\"&amp;"
    assert tree.findtext("head/title") == f"Run of {shown}"
    for part in ("figures", "queries", "partitions", "operators", "samples", "feeds", "outputs", "failures", "next"):
        path = "//dl[@class='figures']" if part == "figures" else f"//section[@id='{part}']"
        assert shown in tree.xpath(path)[0].text_content()
    assert [section.get("id") for section in tree.iter("section")] == SECTIONS


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.text(st.characters(codec=None), max_size=60))
def test_any_text_is_escaped_and_can_be_encoded(value: str) -> None:
    shown = text(value)
    assert not re.search("[<>\"']", shown)
    assert unescape(shown).encode("utf-8") is not None
    if value.isascii() and value.isprintable():
        assert unescape(shown) == value


def test_long_texts_and_long_tables_are_truncated() -> None:
    assert len(text("a" * 10**6)) < 3000
    feeds = tuple(FeedFigures(f"F{number}", number, 0) for number in range(MAX_ROWS + 50))
    page = render_report(RunReport("Run", NOW, feeds=feeds))
    assert page.count("<tr>") == MAX_ROWS + 2
    assert "And 50 more." in page


def test_page_for_a_hundred_thousand_queries_is_small() -> None:
    queries = tuple(QueryMatches(f"Q{number}", number % 977) for number in range(100_000))
    points = tuple(TimelinePoint(NOW + timedelta(seconds=second), 3, 4) for second in range(20_000))
    page = render_report(RunReport("Run", NOW, timeline=points, matches_per_query=queries))
    assert len(page) < 300_000
    assert "60,000 items had 80,000 matches" in page


def test_empty_report_says_that_each_section_is_empty() -> None:
    page = render_report(RunReport("Nothing yet", NOW))
    assert [section.get("id") for section in elements(page).iter("section")] == [
        section for section in SECTIONS if section not in ("partitions", "operators")
    ]
    assert "<svg" not in page
    for sentence in (
        "No items have been accepted yet.",
        "There are no queries yet.",
        "The plan has no conditions yet.",
        "There are no matches to show yet.",
        "No feeds are registered yet.",
        "No subscription has written a file yet.",
        "There are no problems.",
    ):
        assert sentence in page


@pytest.mark.parametrize(
    "report",
    [
        RunReport("One moment", NOW, timeline=(TimelinePoint(NOW, 5, 0),)),
        RunReport("Same moment", NOW, timeline=(TimelinePoint(NOW, 5, 0), TimelinePoint(NOW, 1, 2))),
        RunReport(
            "Out of order", NOW, timeline=(TimelinePoint(NOW, 5, 0), TimelinePoint(NOW - timedelta(days=900), 1, 2))
        ),
        RunReport("Without a zone", NOW, timeline=(TimelinePoint(datetime(2026, 1, 1), 5, 1),)),
        RunReport("Nothing at all", NOW, timeline=(TimelinePoint(NOW, 0, 0),)),
        RunReport(
            "Instants", NOW, timeline=tuple(TimelinePoint(NOW + timedelta(microseconds=n), n, n) for n in range(5))
        ),
    ],
    ids=lambda report: report.title,
)
def test_timeline_is_plotted_for_few_or_unusual_points(report: RunReport) -> None:
    assert render_report(report).count("<svg") == 2


def test_queries_without_matches_and_without_matched_items_are_reported() -> None:
    page = render_report(
        RunReport("Run", NOW, matches_per_query=(QueryMatches("A", 0),), sharing=PlanSharing(1, 1, 1, 1))
    )
    assert "No query has matched yet." in page
    assert "1 query needed only 1 different predicate, 1 clause and 1 atom, each stored once." in page
    assert "No items have been matched yet." in page


def test_ranks_of_few_queries_are_not_plotted() -> None:
    page = render_report(RunReport("Run", NOW, matches_per_query=(QueryMatches("A", 1), QueryMatches("B", 0))))
    assert "2 queries had 1 match; 1 of them have no match yet." in page
    assert "<svg" not in page
