"""Collect the facts that the rules of `tpuctl doctor` judge, from this computer and from Google."""
