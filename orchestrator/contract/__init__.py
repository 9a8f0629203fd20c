"""
What controller and machine agree on: names in the bucket, manifests, completeness of checkpoints, redaction.

Both import it, and it travels to the machines beside the agent: the standard library of Python 3.8, nothing else.
"""
