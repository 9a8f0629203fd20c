"""Recognise by content which tool a file belongs to."""

from collections.abc import Mapping
from typing import Any

from orchestrator.config.config_error import ConfigError
from orchestrator.config.document import MAX_BYTES, parse
from orchestrator.config.others import dstack, skypilot, tpunicorn, xpk
from orchestrator.config.others.conversion import Conversion, Draft, finish
from orchestrator.config.others.scripts import commands
from orchestrator.errors import UsageError


def convert(raw: bytes, name: str, deployment: str, *, keep_name: bool = True) -> Conversion:
    """
    Return the deployment file for another tool's file *raw*; nothing of it is run.

    *name* is used in findings, *deployment* names the deployment if the file does not, or always without
    *keep_name*. Raise UsageError (or ConfigError with the place) if the tool is not known.
    """
    draft = _script(raw) or _document(raw, name)
    if not keep_name:
        draft.values.pop("name", None)
        draft.rows = [row for row in draft.rows if row.key != ("name",)]
        draft.values["name"] = deployment
    return finish(draft, deployment)


def _script(raw: bytes) -> Draft | None:
    """Return the draft for a script; None if it calls neither xpk nor tpunicorn."""
    # Megabytes are no script; the YAML parser reports larger files in the same way.
    if len(raw) > MAX_BYTES or not any(word in raw for word in (b"xpk", b"pu ", b"tpunicorn")):
        return None
    found = list(commands(raw.decode("utf-8", "replace")))
    if any(xpk.is_create(words, "workload") for words in found):
        return xpk.convert(found)
    return tpunicorn.convert(found) if any(map(tpunicorn.is_call, found)) else None


def _document(raw: bytes, name: str) -> Draft:
    try:
        data: Mapping[str, Any] = parse(raw, name).data
    except ConfigError as error:
        if raw.startswith(b"#!") or any(word in raw for word in (b"xpk ", b"pu create")):
            # It is not YAML, and what a YAML parser says about a script does not help.
            raise UsageError(
                f"{name}: no line of it calls xpk workload create or pu create in plain words",
                hint="put that one command into a file of its own: a call in quotes or by eval is not read",
                changed="nothing was written", code="TPU-146",
            ) from error  # fmt: skip
        error.explain(
            hint="the file must be a task of SkyPilot or dstack, or a script that calls xpk or tpunicorn",
            changed="nothing was written",
        )
        raise
    if data.get("type") in dstack.KINDS:
        return dstack.convert(data)
    if "tpu" not in data and "job" not in data and any(key in data for key in skypilot.KEYS):
        return skypilot.convert(data)
    ours = (
        "it is a deployment file of tpuctl already"
        if {"tpu", "job"} & data.keys()
        else "it is of no tool known here"
    )
    raise UsageError(
        f"{name}: {ours}",
        hint="give a task of SkyPilot or dstack, or a script that calls xpk workload create or pu create",
        changed="nothing was written", code="TPU-146",
    )  # fmt: skip
