"""The operators that come with Runnel: questions about an item in, rows of result values out."""
