"""Commit and restore checkpoints between this machine's disk and the bucket."""
