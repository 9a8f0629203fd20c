"""Checkpoints between this machine's disk and the bucket."""
