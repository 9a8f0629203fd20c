"""Add a checksum over all other keys to stored JSON, so that any change of a byte is detected."""

import hashlib
import hmac
import json
from collections.abc import Mapping
from enum import Enum
from typing import Any

CHECKSUM = "checksum"
PROOF = "proof"
"""Key of the proof: the key's name and a keyed checksum that only a holder of the key can write."""


class Origin(Enum):
    """Say what is known about the writer of a stored body."""

    OURS = "ours"
    UNKEYED = "unkeyed"
    FOREIGN = "foreign"


def checksum(body: Mapping[str, Any]) -> str:
    """Return the sha256 over everything but the checksum, independent of white space and the order of keys."""
    rest = {key: value for key, value in body.items() if key != CHECKSUM}
    # The exact output of `json.dumps` is part of the stored format: other separators would invalidate
    # every old file.
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def with_checksum(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return *body* with its checksum."""
    return {**body, CHECKSUM: checksum(body)}


def bytes_with_checksum(body: Mapping[str, Any]) -> bytes:
    """Return a non-empty *body* with its checksum as JSON; it is serialised once for both."""
    text = json.dumps(body, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f'{{"{CHECKSUM}": "{digest}", {text[1:]}'.encode()


def proven(body: Mapping[str, Any], key: bytes) -> dict[str, Any]:
    """Return *body* with the proof that a holder of *key* wrote it."""
    proof = {"key": _name_of(key), "mac": _mac(body, key)}
    return {**body, PROOF: proof}


def origin_of(body: Mapping[str, Any], key: bytes) -> Origin:
    """Return whether a holder of *key* wrote *body*, which may have a checksum or not."""
    proof = body.get(PROOF)
    if proof is None:
        return Origin.UNKEYED
    mac = proof.get("mac") if isinstance(proof, dict) else None
    # In constant time, or anyone who may write the bucket could guess a proof character by character.
    ours = isinstance(mac, str) and hmac.compare_digest(
        mac.encode(errors="replace"), _mac(body, key).encode()
    )
    return Origin.OURS if ours else Origin.FOREIGN


def _mac(body: Mapping[str, Any], key: bytes) -> str:
    # Without both: the checksum is made after the proof and covers it.
    rest = {name: value for name, value in body.items() if name not in {CHECKSUM, PROOF}}
    return hmac.new(key, json.dumps(rest, sort_keys=True).encode(), "sha256").hexdigest()


def _name_of(key: bytes) -> str:
    return hashlib.sha256(b"name of a key of tpuctl" + key).hexdigest()[:16]


def verified(data: bytes) -> dict[str, Any]:
    """
    Return the body that was stored as *data*; without a checksum it is an earlier version's and accepted.

    Raise ValueError if it is no JSON or does not fit its checksum, TypeError if it is no object.
    """
    try:
        body = json.loads(data)
    except RecursionError as error:
        raise ValueError("it is nested without end") from error
    if not isinstance(body, dict):
        raise TypeError("it is no JSON object")
    # A removed checksum passes here: only the proof protects against an attacker.
    if body.get(CHECKSUM, checksum(body)) != checksum(body):
        raise ValueError("its checksum does not fit")
    return {key: value for key, value in body.items() if key != CHECKSUM}
