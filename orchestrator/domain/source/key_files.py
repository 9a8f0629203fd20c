"""Detect private keys in a source folder, by file name and by content."""

import re
from typing import Final

from orchestrator.contract.secrets.redaction import shapes_in

KEY_FILES: Final = (
    # The order counts, as in .gitignore: exceptions follow the pattern that they except.
    ".env", ".env.*", "!.env.example", "!.env.sample", "!.env.template", ".envrc", ".netrc", ".pypirc",
    ".git-credentials", ".ssh/", ".aws/", ".azure/", ".kube/", ".gnupg/", ".config/gcloud/",
    "application_default_credentials.json", "*.pem", "*.p12", "*.pfx", "id_rsa*", "id_dsa*", "id_ecdsa*",
    "id_ed25519*",
)  # fmt: skip
"""Patterns, in .gitignore syntax, for files that are never sent unless a pattern of the user includes them."""

SMALL: Final = 1 << 20
"""Largest file, in bytes, that is searched for keys."""

_PRIVATE: Final = "private key"
# Also with \n written out, as in JSON and in variables.
_BODY: Final = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----(?:\s|\\[nr])*[A-Za-z0-9+/]{32}")


def keys_in(text: bytes) -> list[str]:
    """Return the kinds of keys in *text*; code that only mentions the first line of a key contains none."""
    found = shapes_in(text, sure_only=True)
    return [kind for kind in found if kind != _PRIVATE or _BODY.search(text)]
