"""A checksum in what is stored as JSON, over everything else in it, so that no byte changes unseen."""

import hashlib
import hmac
import json
from collections.abc import Mapping
from enum import Enum
from typing import Any

CHECKSUM = "checksum"
PROOF = "proof"
"""What only a holder of the key can write: the key's name and a keyed checksum over everything else."""


class Origin(Enum):
    """Say what is known of the writer of a stored body."""

    OURS = "ours"
    UNKEYED = "unkeyed"
    FOREIGN = "foreign"


def checksum(body: Mapping[str, Any]) -> str:
    """Return the sha256 of everything but the checksum, whatever the white space and the order of the keys."""
    rest = {key: value for key, value in body.items() if key != CHECKSUM}
    # The exact spelling of `json.dumps` is part of the stored format: other
    # separators would break every old file.
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def with_checksum(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return *body* with its checksum."""
    return {**body, CHECKSUM: checksum(body)}


def bytes_with_checksum(body: Mapping[str, Any]) -> bytes:
    """Return *body*, which is not empty, with its checksum as JSON; it is written out once for both."""
    text = json.dumps(body, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f'{{"{CHECKSUM}": "{digest}", {text[1:]}'.encode()


def proven(body: Mapping[str, Any], key: bytes) -> dict[str, Any]:
    """Return *body* with the proof that a holder of *key* has written it."""
    proof = {"key": _name_of(key), "mac": _mac(body, key)}
    return {**body, PROOF: proof}


def origin_of(body: Mapping[str, Any], key: bytes) -> Origin:
    """Say whether a holder of *key* has written *body*, checksum or not."""
    proof = body.get(PROOF)
    if proof is None:
        return Origin.UNKEYED
    mac = proof.get("mac") if isinstance(proof, dict) else None
    # In constant time: whoever may write the bucket could try proofs one character at a time.
    ours = isinstance(mac, str) and hmac.compare_digest(
        mac.encode(errors="replace"), _mac(body, key).encode()
    )
    return Origin.OURS if ours else Origin.FOREIGN


def _mac(body: Mapping[str, Any], key: bytes) -> str:
    # Both are left out: the checksum is made after the proof and covers it.
    rest = {name: value for name, value in body.items() if name not in {CHECKSUM, PROOF}}
    return hmac.new(key, json.dumps(rest, sort_keys=True).encode(), "sha256").hexdigest()


def _name_of(key: bytes) -> str:
    return hashlib.sha256(b"name of a key of tpuctl" + key).hexdigest()[:16]


def verified(data: bytes) -> dict[str, Any]:
    """
    Return the body that was stored as *data*; one without a checksum is an earlier version's and is believed.

    Raise ValueError when it is no JSON or does not fit its checksum, TypeError when it is no object.
    """
    try:
        body = json.loads(data)
    except RecursionError as error:
        raise ValueError("it is nested without end") from error
    if not isinstance(body, dict):
        raise TypeError("it is no JSON object")
    # A removed checksum passes here: against people who mean it, only the proof helps.
    if body.get(CHECKSUM, checksum(body)) != checksum(body):
        raise ValueError("its checksum does not fit")
    return {key: value for key, value in body.items() if key != CHECKSUM}
