"""
What is known of Google's APIs without any client: bodies that we send, refusals and how they are read.

Shared by the adapters over the official clients and those straight on the local cloud's model.
"""
