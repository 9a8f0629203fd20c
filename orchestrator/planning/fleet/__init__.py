"""Decide what a fleet is: its deployments, how many nodes and where, whose job goes first, and who pays."""
