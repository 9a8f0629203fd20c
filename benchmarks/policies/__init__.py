"""Replay recovery policies over recorded spot markets: ours is the product's own code, the others are models."""
