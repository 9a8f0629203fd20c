"""`tpuctl rehearse`: a run that is disturbed and one that is not, held against each other."""
