"""Format amounts, durations, rates and sizes for people."""

from math import ceil


def span_text(seconds: float) -> str:
    """Return a duration in two units: 9 s, 2 min 5 s, 1 h 4 min, 6 d 23 h."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def short_span_text(seconds: float) -> str:
    """Return a duration as `span_text` does, with tenths below ten seconds: 0.9 s."""
    return f"{seconds:.1f} s" if seconds < 9.95 else span_text(seconds)


def usd_text(usd: float) -> str:
    """Return an amount in USD: two decimals, four below a dollar."""
    return f"{_usd(usd)} USD"


def usd_range_text(usd: float, most: float) -> str:
    """Return an amount between two ends as `0.54 to 0.81 USD`, as one amount if they read alike."""
    return f"{usd_range(usd, most)} USD"


def usd_range(usd: float, most: float) -> str:
    """Return an amount between two ends in USD without the unit, for a column that names it."""
    low, high = _usd(usd), _usd(max(usd, most))
    return low if low == high else f"{low} to {high}"


def _usd(usd: float) -> str:
    return f"{usd:.2f}" if usd >= 1 else f"{usd:.4f}"


def ttl_text(ttl: str, most: float) -> str:
    """Return what a deployment costs that nothing ends, not even its job, before its *ttl*."""
    return f"Running at this price until watch.ttl ({ttl}): {at_most_text(most)}, excluding storage"


def at_most_text(usd: float) -> str:
    """Return an upper bound in USD, never rounded down: in whole dollars from 100 on."""
    places = 0 if usd >= 100 else 2 if usd >= 1 else 4
    # The inner rounding takes away what binary fractions add: 2.30 * 100 is above 230.
    up = ceil(round(usd * 10**places, 6)) / 10**places
    return f"at most {up:.{places}f} USD"


def progress_percent(share: float) -> str:
    """Return a share that is done in whole percent, rounded down: 100% is the end, and nothing before it."""
    # The inner rounding puts back what binary fractions take away: 0.29 * 100 is below 29.
    return f"{int(round(100 * share, 6))}%"


def saved_text(usd: float, most: float, full: float) -> str:
    """
    Return what part of *full* a price from *usd* to *most* leaves, as `50 to 75%`; empty for nothing.

    Both ends are rounded down, so that 99.6% is not called all of it.
    """
    least, share = (int(100 * (1 - one / full)) if full > one else 0 for one in (max(usd, most), usd))
    if not share:
        return ""
    return f"{share}%" if least == share else f"{least} to {share}%" if least else f"up to {share}%"


def rate_text(rate: float) -> str:
    """Return a rate in steps per second, or in seconds per step if that is below one."""
    return f"{rate:.3g} steps/s" if rate >= 1 else f"{1 / rate:.3g} s/step" if rate > 0 else "0 steps/s"


def size_text(count: int) -> str:
    """Return a size in bytes with three significant digits and a decimal unit, for example `1.23 GB`."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
