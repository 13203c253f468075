"""The log of Spark's JVM with the log format JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import runnel.streaming

pytestmark = pytest.mark.spark
CONFIGURATION = Path(runnel.streaming.__file__).with_name("log4j2-json.properties")


def test_an_exception_is_in_its_own_field(spark: Any, tmp_path: Path) -> None:
    jvm, log = spark.sparkContext._jvm, tmp_path / "spark.log"
    before = jvm.java.lang.System.getProperty("runnel.log")
    jvm.java.lang.System.setProperty("runnel.log", str(log))
    context = jvm.org.apache.logging.log4j.core.LoggerContext("test")
    try:
        context.setConfigLocation(jvm.java.io.File(str(CONFIGURATION)).toURI())
        context.getLogger("one").warn("it failed", jvm.java.lang.IllegalStateException("the reason"))
    finally:
        context.stop()
        if before is None:
            jvm.java.lang.System.clearProperty("runnel.log")
        else:
            jvm.java.lang.System.setProperty("runnel.log", before)
    (line,) = [json.loads(text) for text in log.read_text().splitlines()]
    assert (line["level"], line["event"], line["logger"]) == ("warn", "it failed", "one")
    assert line["trace"].startswith("java.lang.IllegalStateException: the reason")
