"""
A seal on what is stored as JSON: a checksum over everything else in it, so that no byte changes unseen.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

SEAL = "checksum"


def checksum(body: Mapping[str, Any]) -> str:
    """
    Return the sha256 of everything but the seal, whatever the white space and the order of the keys.
    """
    rest = {key: value for key, value in body.items() if key != SEAL}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def sealed(body: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return *body* with its seal.
    """
    return {**body, SEAL: checksum(body)}


def sealed_bytes(body: Mapping[str, Any]) -> bytes:
    """
    Return *body*, which is not empty, with its seal as JSON; it is written out once for both.
    """
    text = json.dumps(body, sort_keys=True)
    seal = hashlib.sha256(text.encode()).hexdigest()
    return f'{{"{SEAL}": "{seal}", {text[1:]}'.encode()


def unsealed(data: bytes) -> dict[str, Any]:
    """
    Return the body that was stored as *data*; one without a seal is an earlier version's and is believed.

    Raise ValueError when it is no JSON or does not fit its seal, TypeError when it is no object.
    """
    try:
        body = json.loads(data)
    except RecursionError as error:
        raise ValueError("it is nested without end") from error
    if not isinstance(body, dict):
        raise TypeError("it is no JSON object")
    if body.get(SEAL, checksum(body)) != checksum(body):
        raise ValueError("its checksum does not fit")
    return {key: value for key, value in body.items() if key != SEAL}
