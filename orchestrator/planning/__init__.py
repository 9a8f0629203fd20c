"""Decisions: from spec, observation and record to the changes of one pass. Pure functions over frozen values."""
