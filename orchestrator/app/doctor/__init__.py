"""The facts that the checks of `tpuctl doctor` judge: looked up on this computer and at Google."""
