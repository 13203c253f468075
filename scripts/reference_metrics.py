"""Generate the page of the metrics, from the figures that a scrape gives."""

from __future__ import annotations

from scripts.reference_markdown import code, page, table

from runnel.web.metrics import METRICS


def metrics_page() -> str:
    """All metrics: name, kind, meaning."""
    rows = [(code(_name(figure.name, figure.kind)), figure.kind, figure.help) for figure in METRICS]
    return page(
        "# Metrics",
        "A runner serves these at `/metrics`, in Prometheus' text format, if the setting `listen` is set. A metric "
        "without a value yet (no plan, no batch) is left out. [Monitor a workspace](../operate/monitor.md) "
        "has alerts.",
        table(["metric", "kind", "meaning"], rows),
    )


def _name(name: str, kind: str) -> str:
    return f'{name}_total{{what="…"}}' if kind == "counter" else name
