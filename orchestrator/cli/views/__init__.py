"""What people and programs see: text of at most 80 columns, JSON documents, live lines."""
