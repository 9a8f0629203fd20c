"""Times as the clients read them from answers: cut to what each API writes."""


def micros(seconds: float) -> float:
    """Return a time of the TPU API: nanoseconds on the wire, of which Python's client keeps microseconds."""
    return (int(seconds) * 10**6 + int((seconds % 1) * 1e9) // 1000) / 10**6


def millis(seconds: float) -> float:
    """Return a time of the Compute or the storage API, which write milliseconds."""
    return (int(seconds) * 10**6 + int((seconds % 1) * 1e9) // 10**6 * 1000) / 10**6
