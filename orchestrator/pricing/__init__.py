"""Estimate what machines cost from price tables; never a bill. Pure."""
