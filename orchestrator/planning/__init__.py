"""Decide the changes of one pass from spec, observation and record. Pure functions over frozen values."""
