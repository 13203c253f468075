"""Statistics as plain data, and how two of them are merged: of the stream, of operators, of queries."""
