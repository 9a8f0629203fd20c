"""Find, before money is spent, what is likely to go wrong on a TPU: rules over spec and facts."""
