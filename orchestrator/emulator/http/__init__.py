"""Serve Google's APIs over HTTP, as a thin layer over `state`: routes, shapes, metadata servers, proxies."""
