"""The built-in operators. In: questions about an item. Out: rows of result values."""
