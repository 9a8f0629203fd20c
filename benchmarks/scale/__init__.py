"""What a pass over many nodes costs: list calls, computing and memory."""
