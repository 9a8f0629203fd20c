"""Say what exists and how far the jobs are: the status of one deployment, its quick path, and all of them."""
