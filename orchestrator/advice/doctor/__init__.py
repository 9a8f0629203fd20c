"""Define the rules of `tpuctl doctor`: facts in, findings out, without any I/O."""
