"""Repeat passes: for one deployment, for many, and on the VM."""
