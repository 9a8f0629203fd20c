"""Recognise and judge checkpoints: one file for each framework, with the standard library only."""
