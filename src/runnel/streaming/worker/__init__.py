"""What runs in Spark's Python workers: slices in, written match parts out. No SQLAlchemy here."""
