"""Format output: text of at most 80 columns, JSON documents, live lines."""
