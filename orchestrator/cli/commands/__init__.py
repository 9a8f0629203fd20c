"""Hold one module for each command: its options, one call to a use case, its output."""
