"""Deployment files of other tools, read as text and never run: what becomes of them here."""
