"""
A Google Cloud for your own tests: in-process, on a virtual clock, behind the official clients.

`google_cloud.GoogleCloud` takes the place of Google's addresses of TPUs, VMs and buckets for every client of
this process that speaks HTTP. Nothing reaches the network. The fixture `gcp` of `plugin` gives one to a test.
"""
