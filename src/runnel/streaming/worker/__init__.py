"""Code that runs in Spark's Python workers: reads slices, writes match parts. It must not import SQLAlchemy."""
