"""Collect the facts that the checks of `tpuctl doctor` judge, from this computer and from Google."""
