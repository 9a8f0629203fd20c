"""
The ports straight on the model: no HTTP, no clients, the same answers; for long simulations and benchmarks.

Each adapter makes the calls that its counterpart in `cloud/` makes, one for one, so that counts and faults
mean the same. The contract tests hold both to it.
"""
