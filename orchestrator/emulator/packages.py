"""Name the Python packages that the local cloud needs: those of the extra `local` that it imports."""

from importlib.util import find_spec

PACKAGES = ("uvicorn", "asyncssh", "cronsim", "google_crc32c", "h11", "certifi")
INSTALL = "pip install 'tpuctl[local]'"


def missing_packages() -> tuple[str, ...]:
    """Return the packages that are not installed, without importing any."""
    return tuple(name for name in PACKAGES if find_spec(name) is None)
