"""Explain why a deployment is in its state: what was observed, which rule decided, what comes next. Pure."""
