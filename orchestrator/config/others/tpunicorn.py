"""Convert a script that calls `pu create`, `pu recreate` or `pu babysit`, because tpunicorn has no file."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from orchestrator.config.others.conversion import Draft
from orchestrator.config.others.scripts import Variables, configured, options, take_variables

TOOL = "tpunicorn"

_FLAGS = {
    "-p": "--project", "-v": "--version", "-a": "--accelerator-type", "-dd": "--data-disk", "-n": "--network",
    "-sn": "--subnetwork", "-r": "--range", "-i": "--interval", "-c": "--command", "-d": "--description",
    "-pre": "--preemptible", "-np": "--non-preemptible", "-y": "--yes",
    **dict.fromkeys(("--async", "--preemptible", "--non-preemptible", "--yes", "--dry-run", "--preempted"), ""),
}  # fmt: skip
_NO_SETTING = {
    "--command": "the job is started again by tpuctl itself, on each new TPU: no command is needed for that",
    "--range": "addresses are Google's choice", "--description": "tpuctl sets its own labels only",
    "--retry": "always on: capacity is requested until watch.ttl",
    "--retry-randomness": "tpuctl waits longer each time",
    "--preempted": "only a TPU that is gone is replaced",
}  # fmt: skip
_TRAINS = re.compile(r"(?:python[\d.]*|torchrun|accelerate|deepspeed)$")


def is_call(words: list[str]) -> bool:
    """Return whether these words call tpunicorn for a TPU."""
    verbs = ("create", "recreate", "babysit", "reimage")
    return Path(words[0]).name in ("pu", "tpunicorn") and any(verb in words[1:3] for verb in verbs)


def convert(found: list[list[str]]) -> Draft:
    """Return the draft for a script that calls tpunicorn; *found* are the words of its commands."""
    draft = Draft(TOOL)
    variables = Variables(found)
    taken: set[tuple[str, str]] = set()
    for words in filter(is_call, found):
        at = 1 if not words[1].startswith("-") else 2
        given, rest = options(words[at + 1 :], _FLAGS)
        for name in rest[:1] if "name" not in draft.values else ():
            filled = variables.filled(name)
            if filled:
                draft.name(filled, f"pu {words[at]} {name}")
        for name, values in given.items():
            # `create` and `babysit` both name the zone.
            if (name, values[0]) not in taken:
                taken.add((name, values[0]))
                _option(draft, words[at], name, values[0], variables)
    for name, values in configured(found).items():
        if _OURS[name] not in draft.values:
            _option(draft, "config", name, values[0], variables)
    if "tpu.spot" not in draft.values:
        draft.take("tpu.spot", True, "preemptible, tpunicorn's default")
    trains = (one for one in map(_training, found) if one)
    for command in list(trains)[:1]:
        draft.take(
            "job.command", command, "the first training command of the script", "written again by its words"
        )
        take_variables(draft, command, variables, ("TPU_NAME",))
    return draft


def _training(words: list[str]) -> str:
    """Return a training command without the babysitting loop around it; empty for other commands."""
    rest = list(words)
    while rest and (
        rest[0] in ("timeout", "nohup", "do", "then", "exec", "time")
        or re.match(r"\w+=|-|\d+[smhd]?$", rest[0])
    ):
        rest.pop(0)
    if not rest or not _TRAINS.search(Path(rest[0]).name) or (rest[1:2] == ["-m"] and rest[2:3] == ["pip"]):
        return ""
    # Double quotes, because the words may contain variables, and other quotes are not known any more.
    return " ".join(word if re.fullmatch(r"[\w@%+=:,./${}-]+", word) else _quoted(word) for word in rest)


def _quoted(word: str) -> str:
    return '"' + re.sub(r'(["\\`])', r"\\\1", word) + '"'


def _option(draft: Draft, verb: str, name: str, raw: str, variables: Variables) -> None:
    value = variables.filled(raw)
    theirs = f"pu {verb} {name} {raw}".rstrip()
    if name in _NOTHING:
        return
    if value is None and name not in _NO_SETTING:
        draft.decide(name, f"the script computes it: {theirs}")
    elif value is not None and name in _TAKEN and (name != "--version" or verb == "create"):
        _TAKEN[name](draft, value, theirs)
    else:
        draft.leave(theirs, _NO_SETTING.get(name, "tpuctl has nothing like it"))


_OURS = {"--project": "project", "--zone": "tpu.zones"}
_NOTHING = ("--yes", "--dry-run", "--async")
_TAKEN: Mapping[str, Callable[[Draft, str, str], None]] = {
    "--zone": lambda draft, value, theirs: draft.zones([value], theirs),
    "--accelerator-type": lambda draft, value, theirs: draft.tpu([value], theirs),
    "--project": lambda draft, value, theirs: draft.take("project", value, theirs),
    "--version": lambda draft, value, theirs: draft.take("tpu.runtime", value, theirs),
    "--network": lambda draft, value, theirs: draft.take("network", value, theirs),
    "--subnetwork": lambda draft, value, theirs: draft.take("subnetwork", value, theirs),
    "--data-disk": lambda draft, value, theirs: draft.take("tpu.disks", [f"{value}:read-write"], theirs),
    "--preemptible": lambda draft, _, theirs: draft.take("tpu.spot", value=True, theirs=theirs),
    "--non-preemptible": lambda draft, _, theirs: draft.take("tpu.spot", value=False, theirs=theirs),
    "--interval": lambda draft, value, theirs: draft.take("watch.poll", f"{value}s", theirs),
}
"""Function for each option with a counterpart here: the draft, the option's value, and the option itself."""
