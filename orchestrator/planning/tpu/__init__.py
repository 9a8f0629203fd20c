"""Decide about TPUs: where and when to request one, when to keep, race, replace or leave it."""
