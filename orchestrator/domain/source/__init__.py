"""Interpret what the user's folder and file refer to: data, keys, secrets, open services."""
