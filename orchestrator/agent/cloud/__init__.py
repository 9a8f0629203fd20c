"""Talk to Google over HTTP with the standard library: the bucket and the metadata server."""
