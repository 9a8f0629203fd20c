"""Prepare what is sent to machines: code, data and agent."""
