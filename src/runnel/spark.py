"""Matching inside any PySpark job: `runnel.spark.match(dataframe, plan)`.

plan = runnel.compile(["create feed Rock from Wire where title contains 'rock'"])
matched = runnel.spark.match(spark.read.json("items.jsonl"), plan)
"""

from __future__ import annotations

from runnel.streaming.dataframe import match

__all__ = ["match"]
