"""The two checksums of Cloud Storage, in the base64 form of its API."""

import base64
import hashlib
from collections.abc import Iterable


def checksums(pieces: Iterable[bytes]) -> tuple[str, str]:
    """Return (crc32c, md5) of the bytes in *pieces*."""
    import google_crc32c

    crc = google_crc32c.Checksum()
    md5 = hashlib.md5(usedforsecurity=False)
    for piece in pieces:
        crc.update(piece)
        md5.update(piece)
    return base64.b64encode(crc.digest()).decode(), base64.b64encode(md5.digest()).decode()
