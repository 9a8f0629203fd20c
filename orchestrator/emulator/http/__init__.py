"""The HTTP shapes of Google's APIs as a thin skin over local/model."""
