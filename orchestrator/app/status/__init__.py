"""Say what exists and how far the jobs are: the status of one deployment, and of all of them."""
