"""Mask secrets in all texts that are shown or stored."""
