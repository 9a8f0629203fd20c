"""Which files of a source folder are keys: by their names, and by what stands in them."""

import re
from typing import Final

from orchestrator.contract.redaction import shapes_in

KEY_FILES: Final = (
    # The order counts, as in .gitignore: exceptions come after what they except.
    ".env", ".env.*", "!.env.example", "!.env.sample", "!.env.template", ".envrc", ".netrc", ".pypirc",
    ".git-credentials", ".ssh/", ".aws/", ".azure/", ".kube/", ".gnupg/", ".config/gcloud/",
    "application_default_credentials.json", "*.pem", "*.p12", "*.pfx", "id_rsa*", "id_dsa*", "id_ecdsa*",
    "id_ed25519*",
)  # fmt: skip
"""Rules, in the language of .gitignore, of what is never sent unless a rule of the user's asks for it."""

SMALL: Final = 1 << 20
"""Bytes of the largest file that is searched for keys."""

_PRIVATE: Final = "private key"
# Also with \n written out, as keys stand in JSON and in variables.
_BODY: Final = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----(?:\s|\\[nr])*[A-Za-z0-9+/]{32}")


def keys_in(text: bytes) -> list[str]:
    """Return what kinds of keys stand in *text*; code that only knows how a private key begins holds none."""
    found = shapes_in(text, sure_only=True)
    return [kind for kind in found if kind != _PRIVATE or _BODY.search(text)]
