"""
Google Cloud over the official clients: adapters, bodies, refusals and their hints.

Every Google error becomes one of ours here; adapters return states and never wait.
"""
