"""What is likely to go wrong on a TPU, found before money is spent: rules over spec and facts."""
