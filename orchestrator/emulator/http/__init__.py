"""The HTTP of Google's APIs, a thin skin over `state`: routes, shapes, metadata servers, proxies."""
