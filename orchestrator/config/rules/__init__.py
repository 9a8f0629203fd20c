"""Define the rules that a deployment file must obey beyond the types of its values."""
