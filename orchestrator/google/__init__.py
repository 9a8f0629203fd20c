"""
Adapt Google Cloud's official clients: adapters, request bodies, refusals and hints.

Every Google error becomes one of `orchestrator.errors`; adapters return states and never wait.
"""
