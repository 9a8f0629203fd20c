"""
Adapters over the official Google clients, one for each resource.

Every Google error becomes one of ours here; adapters return states and never wait.
"""
