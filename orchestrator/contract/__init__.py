"""
Define what controller and machines agree on: object names, manifests, completeness of checkpoints, redaction.

Both import it, and it is copied to the machines with the agent: only the standard library of Python 3.8.
"""
