"""
Define what controller and machines agree on: objects of the bucket, formats of checkpoints, redaction, retries.

Both import it, and it is copied to the machines with the agent: only the standard library of Python 3.8.
"""
