"""Advise people before something goes wrong, and after: check, doctor, explain, rehearsals. Pure."""
