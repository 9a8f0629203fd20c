"""Machines as real processes: process (no privileges) and namespace (root on Linux)."""
