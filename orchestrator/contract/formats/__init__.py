"""How each framework lays its checkpoints out: one file for each, judged with the standard library only."""
