"""Read and write text for people: units, amounts, suggestions, safe text."""
