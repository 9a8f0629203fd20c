"""
Provide a Google Cloud for users' tests: in-process, on a virtual clock, behind the official clients.

`google_cloud.GoogleCloud` answers at Google's addresses for TPUs, VMs and buckets, for every HTTP client of
this process. Nothing reaches the network. The fixture `gcp` of `plugin` provides one to a test.
"""
