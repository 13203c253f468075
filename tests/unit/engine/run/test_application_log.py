"""The application log: one line per record, uniform fields, and no secrets."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.engine.run.application_log import configure_logging, scrub, stop_logging
from runnel.settings import Settings


@pytest.fixture(autouse=True)
def _stop_logging_after_test() -> Iterator[None]:
    yield
    stop_logging()


def log_to_stream(folder: Path, form: Literal["text", "json"]) -> io.StringIO:
    stream = io.StringIO()
    configure_logging(Settings.load(folder, log_format=form), folder, stream=stream)
    return stream


def test_json_lines_contain_fields_and_are_identical_in_the_file(tmp_path: Path) -> None:
    stream = log_to_stream(tmp_path, "json")
    logging.getLogger("runnel").warning("the feed could not be read", extra={"feed": "News", "status": 503})
    line = json.loads(stream.getvalue())
    assert (line["level"], line["event"], line["feed"], line["status"]) == (
        "warning",
        "the feed could not be read",
        "News",
        503,
    )
    assert (tmp_path / "logs" / "runnel.log").read_text() == stream.getvalue()


def test_exception_is_logged_in_one_json_line_without_secrets(tmp_path: Path) -> None:
    stream = log_to_stream(tmp_path, "json")
    try:
        raise ValueError("at postgresql://runnel:s3cret@db.example/x")
    except ValueError:
        logging.getLogger("runnel").exception("a turn failed")
    assert len(stream.getvalue().splitlines()) == 1
    assert "ValueError" in json.loads(stream.getvalue())["trace"]
    assert "s3cret" not in stream.getvalue()


def test_records_of_libraries_warnings_and_uncaught_errors_are_json(tmp_path: Path) -> None:
    hooks = (sys.excepthook, threading.excepthook)
    stream = log_to_stream(tmp_path, "json")
    logging.getLogger("uvicorn.error").error("a request was broken")
    logging.getLogger("uvicorn.error").info("a connection came")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("this is old", UserWarning, stacklevel=1)
    failing = threading.Thread(target=lambda: 1 / 0)
    failing.start()
    failing.join()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["level"] for line in lines] == ["error", "warning", "critical"]
    assert [line.get("logger") for line in lines] == ["uvicorn.error", "py.warnings", None]
    assert "ZeroDivisionError" in lines[2]["trace"]
    stop_logging()
    assert (sys.excepthook, threading.excepthook) == hooks


def test_configuring_again_does_not_duplicate_lines(tmp_path: Path) -> None:
    log_to_stream(tmp_path, "text")
    stream = log_to_stream(tmp_path, "text")
    logging.getLogger("runnel").warning("once")
    assert stream.getvalue().count("once") == 1
    assert (tmp_path / "logs" / "runnel.log").read_text().count("once") == 1


@pytest.mark.parametrize("form", ["text", "json"])
def test_logged_text_cannot_inject_a_line(tmp_path: Path, form: Literal["text", "json"]) -> None:
    stream = log_to_stream(tmp_path, form)
    logging.getLogger("runnel").warning("title %s", "x\n2026-01-01 ERROR forged\x1b[2J")
    assert len(stream.getvalue().splitlines()) == 1
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("postgresql+psycopg://u:s3c@ret@db.example/r", "s3c"),
        ("the key whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw is used", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        ("token runnel_12_abcDEF-_0123", "abcDEF-_0123"),
        ("smtp_password='hunter2' refused", "hunter2"),
        ('{"password": "hunter2"}', "hunter2"),
        ("https://feeds.example/news?token=hunter2 answered 404", "hunter2"),
        ("https://feeds.example/token=hunter2/news", "hunter2"),
        ("https://feeds.example/secret:hunter2", "hunter2"),
        ("https://feeds.example/secret: token: hunter2", "hunter2"),
        ("the secret: hunter2", "hunter2"),
        ("/srv/runnel/secret = hunter2", "hunter2"),
    ],
)
def test_secrets_are_scrubbed(text: str, secret: str) -> None:
    assert secret not in scrub(text)
    assert "***" in scrub(text)


@pytest.mark.parametrize(
    "text",
    [
        "https://feeds.example/secret: the server answered 404",
        "https://feeds.example/a/Token: connection refused",
        "cannot read '/run/secrets/password': permission denied",
        "https://feeds.example/secret/news.xml: gone",
        "https://feeds.example/secrets: gone",
    ],
)
def test_paths_that_end_in_the_name_of_a_secret_are_not_scrubbed(text: str) -> None:
    assert scrub(text) == text


@given(st.text(alphabet=st.characters(codec="ascii", categories=["L", "N"]), min_size=8, max_size=40))
def test_passwords_in_urls_are_scrubbed(password: str) -> None:
    secret = f"Q{password}Z"
    assert secret not in scrub(f"connecting to postgresql://runnel:{secret}@db.example:5432/runnel failed")
