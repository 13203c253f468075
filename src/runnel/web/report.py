"""The report of a run: one HTML file that needs no network, runs no script and can be sent by mail.

In: a `RunReport`, plain data. Out: the page, from `render_report`. Titles of items and names of files may contain
anything, so every text is escaped by `html_parts.text`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files

from runnel.engine.planning.ports import FigureTable
from runnel.model.item import moment
from runnel.web.html_parts import MAX_ROWS, count, long_table, more, panel, paragraph, ratio, section, table, text
from runnel.web.plots import plot_bars, plot_ranks, plot_timeline

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_TOP = 10
_MIN_RANKS = 10
"""Number of queries with matches from which on their ranks are plotted."""


@dataclass(frozen=True, slots=True)
class SummaryFigure:
    """A number in the header of the page, with a label and an optional note."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class TimelinePoint:
    """Items, and their matches, in the interval that begins at `time`."""

    time: datetime
    items: int
    matches: int


@dataclass(frozen=True, slots=True)
class QueryMatches:
    """The number of matches of a query."""

    name: str
    matches: int


@dataclass(frozen=True, slots=True)
class PlanSharing:
    """Conditions that the queries of the plan share, and the work that sharing saved.

    `naive_evaluations` is the number of items times the number of queries, `candidates` the number of predicates that
    the index proposed, `clause_checks` the number of clauses that were checked to decide them, and `atom_evaluations`
    the number of atoms that were evaluated.
    """

    queries: int = 0
    distinct_predicates: int = 0
    distinct_clauses: int = 0
    distinct_atoms: int = 0
    naive_evaluations: int = 0
    candidates: int = 0
    clause_checks: int = 0
    atom_evaluations: int = 0


@dataclass(frozen=True, slots=True)
class FeedFigures:
    """A source feed, the number of its items, and the number of their matches."""

    name: str
    items: int
    matches: int


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file that a subscription wrote, and the number of its entries."""

    path: str
    kind: str
    entries: int


@dataclass(frozen=True, slots=True)
class SampleMatch:
    """An explained match: the query and its statement, the item's title and feed, and the output of `why`."""

    query: str
    statement: str
    title: str
    feed: str
    why: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NextStep:
    """A suggested command, and its purpose."""

    command: str
    purpose: str


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """An operator, the number of queries that use it, and the measured (or declared) seconds per call."""

    name: str
    queries: int
    seconds: float


@dataclass(frozen=True, slots=True)
class OperatorsUsed:
    """The operators, and the number of their calls, including those answered from the cache.

    `known_answers` is the number of cached answers. `unknown` counts the pairs of a query and an item that could not
    be decided, and `waiting` the items that wait for a retry.
    """

    operators: tuple[OperatorRow, ...]
    calls: int = 0
    known_answers: int = 0
    unknown: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class JoinRow:
    """The joins of queries, the number of items that reached them, and per item the comparisons and joined items."""

    queries: str
    items: int
    compared: float
    joined: float


@dataclass(frozen=True, slots=True)
class JoinsUsed:
    """The joins, and their windows: the number of windows, their items, and the bytes of the files."""

    joins: tuple[JoinRow, ...]
    windows: int = 0
    window_items: int = 0
    window_bytes: int = 0
    items: int = 0
    candidates: int = 0


@dataclass(frozen=True, slots=True)
class RunReport:
    """The content of the page. For each empty part, the page says that there is nothing to show yet."""

    title: str
    generated: datetime
    figures: tuple[SummaryFigure, ...] = ()
    timeline: tuple[TimelinePoint, ...] = ()
    matches_per_query: tuple[QueryMatches, ...] = ()
    sharing: PlanSharing = PlanSharing()
    distribution: FigureTable | None = None
    operators: OperatorsUsed | None = None
    joins: JoinsUsed | None = None
    feeds: tuple[FeedFigures, ...] = ()
    outputs: tuple[OutputFile, ...] = ()
    samples: tuple[SampleMatch, ...] = ()
    failures: tuple[str, ...] = ()
    next_steps: tuple[NextStep, ...] = ()


def render_report(report: RunReport) -> str:
    """Render a report as an HTML page. The same report always gives the same bytes.

    >>> from datetime import UTC
    >>> page = render_report(RunReport("A <b>run</b>", datetime(2026, 11, 15, tzinfo=UTC)))
    >>> "<h1>A &lt;b&gt;run&lt;/b&gt;</h1>" in page, "<script" in page
    (True, False)
    """
    style = files("runnel.web").joinpath("report.css").read_text(encoding="utf-8")
    time = moment(report.generated).strftime("%Y-%m-%d %H:%M UTC")
    title = text(report.title)
    sections = (
        _timeline(report.timeline),
        _queries(report.matches_per_query),
        _sharing(report.sharing),
        "" if report.distribution is None else _distribution(report.distribution),
        "" if report.operators is None else _operators(report.operators),
        "" if report.joins is None else _joins(report.joins),
        _samples(report.samples),
        _feeds(report.feeds),
        _outputs(report.outputs),
        _failures(report.failures),
        _next_steps(report.next_steps),
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        f"<header>\n<h1>{title}</h1>\n<p>A run of Runnel, reported on {time}</p>\n"
        f"{_figures(report.figures)}</header>\n"
        + "".join(sections)
        + "<footer>This page is one file: it loads nothing and runs no script.</footer>\n</main>\n</body>\n</html>\n"
    )


def _figures(figures: Sequence[SummaryFigure]) -> str:
    if not figures:
        return ""
    cells = "".join(
        f'<div><dt>{text(figure.label)}</dt><dd class="value">{text(figure.value)}</dd>'
        + (f'<dd class="note">{text(figure.note)}</dd>' if figure.note else "")
        + "</div>\n"
        for figure in figures
    )
    # Choose the number of columns with the fewest empty cells in the last row, and then the fewest rows.
    columns = min((4, 3, 5), key=lambda width: (-len(figures) % width, -(-len(figures) // width)))
    return f'<dl class="figures" style="--columns:{min(columns, len(figures))}">\n{cells}</dl>\n'


def _timeline(points: Sequence[TimelinePoint]) -> str:
    heading = "Items and matches over time"
    if not points:
        return section("timeline", heading, paragraph("No items have been accepted yet.", "quiet"))
    items, matches = sum(point.items for point in points), sum(point.matches for point in points)
    summary = f"{count(items, 'item')} had {count(matches, 'match', 'matches')}. Times are in UTC."
    plot = plot_timeline([(moment(point.time), point.items, point.matches) for point in points])
    return section("timeline", heading, paragraph(summary), panel(plot))


def _queries(queries: Sequence[QueryMatches]) -> str:
    heading = "Matches per query"
    ordered = sorted(queries, key=lambda query: (-query.matches, query.name))
    total, busy = sum(query.matches for query in ordered), sum(query.matches > 0 for query in ordered)
    if not total:
        summary = "No query has matched yet." if queries else "There are no queries yet."
        return section("queries", heading, paragraph(summary, "quiet"))
    top = ordered[: max(1, len(ordered) // 10)]
    share = sum(query.matches for query in top) / total
    summary = f"{count(len(ordered), 'query', 'queries')} had {count(total, 'match', 'matches')}"
    if busy < len(ordered):
        summary += f"; {len(ordered) - busy:,} of them have no match yet"
    if busy >= _MIN_RANKS:
        summary += f". The tenth with the most matches has {share:.0%} of all matches"
    rows = [
        (
            text(query.name),
            f"{query.matches:,}",
            f'<span style="width:{query.matches / top[0].matches:.1%}"></span>',
        )
        for query in ordered[:_TOP]
        if query.matches
    ]
    rows_table = table("Queries with the most matches", ("Query", "Matches", ""), ("", "number", "bar"), rows)
    plot = [panel(plot_ranks([query.matches for query in ordered]))] if busy >= _MIN_RANKS else []
    return section("queries", heading, paragraph(f"{summary}."), *plot, panel(rows_table))


def _sharing(sharing: PlanSharing) -> str:
    heading = "Work saved by sharing conditions"
    if not sharing.queries:
        return section("sharing", heading, paragraph("The plan has no conditions yet.", "quiet"))
    summary = (
        f"{count(sharing.queries, 'query', 'queries')} needed only "
        f"{count(sharing.distinct_predicates, 'different predicate')}, "
        f"{count(sharing.distinct_clauses, 'clause')} and {count(sharing.distinct_atoms, 'atom')}, "
        "each stored once."
    )
    if not sharing.naive_evaluations:
        return section("sharing", heading, paragraph(summary), paragraph("No items have been matched yet.", "quiet"))
    bars = (
        ("Each query evaluated on each item", sharing.naive_evaluations),
        ("Candidates that the index proposed", sharing.candidates),
        ("Clauses checked to decide them", sharing.clause_checks),
        ("Atoms evaluated", sharing.atom_evaluations),
    )
    saved = (
        f"Evaluating each query on each item would have taken {sharing.naive_evaluations:,} evaluations. "
        f"The index proposed {ratio(sharing.candidates, sharing.naive_evaluations)} of these as candidates; "
        f"to decide them, {sharing.clause_checks:,} clauses were checked and {sharing.atom_evaluations:,} atoms "
        "were evaluated."
    )
    plot = plot_bars(bars, "Work compared with evaluating each query on each item, logarithmic axis")
    return section("sharing", heading, paragraph(f"{summary} {saved}"), panel(plot))


def _distribution(table: FigureTable) -> str:
    shown = long_table(table.heads, ("number",) * len(table.heads), table.rows)
    return section(table.title.lower(), table.title, *(paragraph(text(fact)) for fact in table.facts), panel(shown))


def _operators(used: OperatorsUsed) -> str:
    summary = (
        f"Operators answered {count(used.calls, 'call')}, and the cache contains "
        f"{count(used.known_answers, 'answer')}."
    )
    if used.unknown:
        summary += (
            f" Because an operator failed, a query could not be decided for an item {count(used.unknown, 'time')}."
        )
    if used.waiting:
        summary += f" Waiting for a retry: {count(used.waiting, 'item')}."
    rows = [
        (f"<bdi>{text(operator.name)}</bdi>", f"{operator.queries:,}", f"{operator.seconds * 1000:,.1f}")
        for operator in sorted(used.operators, key=lambda operator: (-operator.queries, operator.name))
    ]
    shown = long_table(("Operator", "Queries", "Milliseconds per call"), ("", "number", "number"), rows)
    return section("operators", "Operators", paragraph(summary), *([panel(shown)] if rows else []))


def _joins(used: JoinsUsed) -> str:
    summary = (
        f"{count(used.windows, 'window')} of joins had {count(used.window_items, 'item')} in "
        f"{used.window_bytes:,} bytes. Items reached joins {count(used.items, 'time')}, and were compared with "
        f"{count(used.candidates, 'candidate')} that indexes proposed."
    )
    rows = [
        (f"<bdi>{text(join.queries)}</bdi>", f"{join.items:,}", f"{join.compared:,.2f}", f"{join.joined:,.2f}")
        for join in sorted(used.joins, key=lambda join: (-join.items * join.compared, join.queries))
    ]
    heads = ("Query", "Items", "Compared per item", "Joined per item")
    shown = long_table(heads, ("", "number", "number", "number"), rows)
    return section("joins", "Joins", paragraph(summary), *([panel(shown)] if rows else []))


def _samples(samples: Sequence[SampleMatch]) -> str:
    heading = "Examples of matches"
    if not samples:
        return section("samples", heading, paragraph("There are no matches to show yet.", "quiet"))
    panels = []
    for sample in samples[:MAX_ROWS]:
        lines = "".join(f"<li><code>{text(line)}</code></li>" for line in sample.why)
        panels.append(
            panel(
                f"<h3><bdi>{text(sample.query)}</bdi></h3>"
                f'<p class="found"><bdi>{text(sample.title)}</bdi> '
                f'<span class="quiet">from <bdi>{text(sample.feed)}</bdi></span></p>'
                f"<pre><code>{text(sample.statement)}</code></pre>"
                + (f'<ul class="why">{lines}</ul>' if lines else "")
            )
        )
    return section("samples", heading, *panels)


def _feeds(feeds: Sequence[FeedFigures]) -> str:
    heading = "Source feeds"
    if not feeds:
        return section("feeds", heading, paragraph("No feeds are registered yet.", "quiet"))
    busiest = sorted(feeds, key=lambda feed: (-feed.items, feed.name))
    rows = [(f"<bdi>{text(feed.name)}</bdi>", f"{feed.items:,}", f"{feed.matches:,}") for feed in busiest]
    return section("feeds", heading, panel(long_table(("Feed", "Items", "Matches"), ("", "number", "number"), rows)))


def _outputs(outputs: Sequence[OutputFile]) -> str:
    heading = "Files written"
    if not outputs:
        return section("outputs", heading, paragraph("No subscription has written a file yet.", "quiet"))
    rows = [(f"<code>{text(output.path)}</code>", text(output.kind), f"{output.entries:,}") for output in outputs]
    return section("outputs", heading, panel(long_table(("File", "Kind", "Entries"), ("", "kind", "number"), rows)))


def _failures(failures: Sequence[str]) -> str:
    heading = "Problems"
    if not failures:
        return section("failures", heading, paragraph("There are no problems.", "well"))
    lines = "".join(f"<li><bdi>{text(failure)}</bdi></li>\n" for failure in failures[:MAX_ROWS])
    return section("failures", heading, panel(f'<ul class="failures">\n{lines}</ul>'), more(len(failures)))


def _next_steps(steps: Sequence[NextStep]) -> str:
    heading = "Next steps"
    if not steps:
        return section("next", heading, paragraph("<code>runnel --help</code> lists all commands.", "quiet"))
    lines = "".join(
        f"<div><dt><code>{text(step.command)}</code></dt><dd>{text(step.purpose)}</dd></div>\n" for step in steps
    )
    return section("next", heading, panel(f'<dl class="steps">\n{lines}</dl>'))
