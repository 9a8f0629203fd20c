"""What machines cost: estimates from price tables, never a bill. Pure."""
