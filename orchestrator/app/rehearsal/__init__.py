"""Implement `tpuctl rehearse`: compare a run with faults to an undisturbed one."""
