# %% [markdown]
# # Matching the rows of a DataFrame
#
# `runnel.compile` turns `create feed` statements into a plan: all queries together, what they share laid out once.
# `runnel.spark.match` adds a column to a DataFrame: the names of the feeds that each row is in. There is no root, no
# catalog and no stream. Run this file cell by cell in an editor that knows `# %%`, or as a script.

# %%
from __future__ import annotations

import os
import sys
from datetime import UTC, datetime

# Spark's workers must run this interpreter, not the first python3 on the PATH.
os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import runnel
import runnel.spark

# %% [markdown]
# ## Queries
#
# A name that is read and not created is a source feed: here `Shop`. `Bargains` reads another query.

# %%
plan = runnel.compile(
    """
    create feed Vinyl from Shop where category = 'vinyl';
    create feed Bargains from Vinyl where price < 15;
    create feed Rock from Shop where title contains 'rock' or category = 'rock';
    create feed Christmas from Shop where added.month = 12 and not title contains 'sold out';
    """
)
print(f"sources: {', '.join(plan.sources)}; queries: {', '.join(plan.queries.values())}")

# %% [markdown]
# ## Without Spark
#
# The same plan matches plain mappings in this process. This is handy in tests.

# %%
print(plan.match([{"title": "Rock ballads", "category": "vinyl", "price": 9.5}]))

# %% [markdown]
# ## Rows
#
# Columns are attributes. An array column gives an attribute several values; a null gives none.

# %%
spark = (
    SparkSession.builder.master("local[2]")
    .appName("runnel-example")
    .config("spark.ui.enabled", "false")
    # Without these, every user of the machine can run code through Spark's ports.
    .config("spark.authenticate", "true")
    .config("spark.network.crypto.enabled", "true")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")

rows = spark.createDataFrame(
    [
        ("1", "Rock ballads", ["vinyl", "rock"], 9.5, datetime(2026, 11, 3, tzinfo=UTC)),
        ("2", "String quartets", ["vinyl"], 22.0, datetime(2026, 12, 1, tzinfo=UTC)),
        ("3", "Carols (sold out)", ["cd"], 7.0, datetime(2026, 12, 5, tzinfo=UTC)),
        ("4", "Radio plays", None, None, datetime(2026, 12, 6, tzinfo=UTC)),
    ],
    "id string, title string, category array<string>, price double, added timestamp",
)

# %%
matched = runnel.spark.match(rows, plan).cache()
matched.select("id", "title", "feeds").orderBy("id").show(truncate=False)

# %% [markdown]
# ## One row per match, and counts

# %%
pairs = matched.select("id", F.explode("feeds").alias("feed"))
counts = {row["feed"]: row["count"] for row in pairs.groupBy("feed").count().collect()}
for name in plan.queries.values():
    print(f"{name}: {counts.get(name, 0)} rows")

# %% [markdown]
# ## Rows that are in no feed

# %%
left = [row["id"] for row in matched.where(F.size("feeds") == 0).select("id").orderBy("id").collect()]
print(f"in no feed: {', '.join(left)}")

# %%
spark.stop()
