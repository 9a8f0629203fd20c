"""What a run cost and where its time went."""
