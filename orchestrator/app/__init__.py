"""Implement the use cases behind the commands: one function each, without click and without printing."""
