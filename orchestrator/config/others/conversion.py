"""Convert another tool's file: our settings, and a row for everything in that file."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import shorten, wrap
from typing import Any, Literal

from orchestrator.config.config_error import ConfigError, FileFinding
from orchestrator.config.load import FILE_NAME, read
from orchestrator.config.schema import SCHEMA_FILE
from orchestrator.config.setting_types import dotted, path_of
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.config.starter import FIRST_TYPE, ORDER, first_zone, yaml_value
from orchestrator.contract.image_names import IMAGE
from orchestrator.contract.secrets.redaction import masked, shapes_in
from orchestrator.domain.catalog import region_zones
from orchestrator.domain.names import region_of
from orchestrator.domain.text.clean_text import clean, cut
from orchestrator.errors import UsageError

Verdict = Literal["mapped", "decide", "left out"]

NO_COMMAND = "python3 train.py"
_WIDTH = 96
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|(?:API|ACCESS|PRIVATE|SECRET)_?KEY)(?:_|$)",
    re.IGNORECASE,
)
_V5E = re.compile(r"v5(?:e|lite|lite-?pod)-(\d+)")
GKE = {"v4-podslice": ("v4", 2), "v5-lite-device": ("v5litepod", 1), "v5-lite-podslice": ("v5litepod", 1),
       "v5p-slice": ("v5p", 2), "v6e-slice": ("v6e", 1)}  # fmt: skip
"""GKE's names of the generations: our name, and how many units a type's number counts for each chip."""
# More than a careful person writes; each round removes one.
_MAX_FINDINGS = 200


@dataclass(frozen=True)
class Converted:
    """
    Say what became of one item: *theirs* as it is in the file, and our setting.

    *key* is the setting, such as `("job", "env", "ZONE")`, or the option that has none yet; *value* is its
    text, shortened, empty for an item of a mapping.
    """

    verdict: Verdict
    theirs: str
    key: tuple[str, ...] = ()
    value: str = ""
    message: str = ""

    @property
    def ours(self) -> str:
        """Return the setting as a person reads it."""
        return ".".join(self.key) + (f": {self.value}" if self.value else "")

    def as_dict(self) -> dict[str, str]:
        """Return the row's `--json` form."""
        return {"verdict": self.verdict, "theirs": self.theirs, "ours": self.ours, "message": self.message}


@dataclass(frozen=True)
class Conversion:
    """The deployment file and its rows, in the order of the other file."""

    tool: str
    text: str
    rows: tuple[Converted, ...]


class Draft:
    """Collect settings and rows while a file is read."""

    def __init__(self, tool: str) -> None:
        self.tool = tool
        self.values: dict[str, Any] = {}
        self.rows: list[Converted] = []

    def take(self, key: str, value: Any, theirs: str, message: str = "") -> None:
        """Add a setting; in a mapping such as job.env *value* is added to the entries."""
        place = path_of(key)
        if isinstance(value, Mapping):
            self.values[key] = {**self.values.get(key, {}), **value}
            keys = [(*place, name) for name in value] or [place]
            self.rows += [Converted("mapped", theirs, one, "", message) for one in keys]
        else:
            self.values[key] = value
            self.rows.append(Converted("mapped", theirs, place, _short(value), message))

    def image(self, name: str, theirs: str) -> None:
        """Add the job's container image; one without a registry or a user may exist on one computer only."""
        if "/" not in name or IMAGE.fullmatch(name) is None:
            self.leave(
                theirs, "write its whole name to job.image, such as europe-docker.pkg.dev/P/R/NAME:TAG"
            )
        else:
            self.take("job.image", name, theirs, "setup and command run in it, in the source folder")

    def leave(self, theirs: str, message: str) -> None:
        """Add a row for something that is not converted, and why."""
        self.rows.append(Converted("left out", theirs, message=message))

    def decide(self, key: str, message: str, *, item: str | None = None, value: str = "") -> None:
        """Add a row for something that a person has to decide or do; *item* is one of a mapping such as job.env."""
        place = path_of(key) if item is None else (*path_of(key), item)
        self.rows.append(Converted("decide", "", place, value, message))

    def name(self, text: object, theirs: str) -> None:
        """Use a name for the deployment, reduced to the characters that cloud resources may have."""
        name = re.sub(r"[^a-z0-9]+", "-", str(text).lower()).strip("-")[:40].rstrip("-")
        name = name if re.match("[a-z]", name) else f"job-{name}"[:40].rstrip("-")
        self.take("name", name, theirs, "" if name == text else "cloud resources allow a-z, 0-9 and - only")

    def variable(self, name: str, value: object, theirs: str) -> None:
        """Add a variable of the job; a secret becomes a reference, and its value is written nowhere."""
        text = "" if value is None else _plain(value)
        if _SECRET_NAME.search(name) or shapes_in(text, sure_only=True):
            self.secret(name, theirs)
        elif value is None or text == "":
            self.take("job.env", {name: ""}, theirs)
            self.decide("job.env", "the file leaves its value to the command line: write it here", item=name)
        else:
            self.take("job.env", {name: text}, f"{theirs}={_short(text)}")

    def secret(self, name: str, theirs: str) -> None:
        """Add a variable whose value is a secret, as a reference."""
        place = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "secret"
        message = f"its value is not copied; store it with: tpuctl secret set {place}"
        self.take("job.secrets", {name: f"secret://{place}"}, theirs, message)

    def source(self, folder: str, theirs: str) -> None:
        """Use the folder with the code if it lies below the deployment file."""
        parts = folder.split("/")
        if folder.startswith(("/", "~")) or "$" in folder or ".." in parts or "://" in folder:
            self.leave(theirs, "code is sent from the folder of tpuctl.yaml: put the file there")
        else:
            self.take("job.source", folder.rstrip("/").removeprefix("./") or ".", theirs)

    def tpu(self, names: Sequence[str], theirs: str) -> None:
        """Use accelerators in order of preference; those that are not TPUs are left out."""
        found = list(dict.fromkeys(kind for name in names if (kind := tpu_type(name))))
        if not found:
            self.leave(theirs, no_type(names[0] if names else ""))
            return
        self.take("tpu.type", found[0], theirs)
        if found[1:]:
            self.take("tpu.other_types", found[1:], theirs)

    def spot(self, *, spot: bool, theirs: str) -> None:
        """Use the kind of capacity; for on demand add a row that suggests spot."""
        self.take("tpu.spot", spot, theirs)
        if not spot:
            message = "true costs less, and tpuctl brings the job back after each preemption"
            self.decide("tpu.spot", message)

    def reservation(self, name: str, theirs: str) -> None:
        """Use a reservation, which the API accepts only in a queue and without spot."""
        self.take("tpu.reservation", name, theirs)
        self.take("tpu.request", "queued", theirs)
        self.take("tpu.spot", value=False, theirs=theirs)

    def several_regions(self, theirs: str) -> None:
        """Allow zones of several regions if there are some, and add a row about the cost."""
        if len({region_of(zone) for zone in self.values.get("tpu.zones", [])}) > 1:
            self.take("tpu.across_regions", True, theirs)
            message = "the bucket stays in the first region; traffic to others is billed"
            self.decide("tpu.across_regions", message)

    def region(self, region: str, theirs: str) -> None:
        """Use all zones of a region that have the type."""
        catalog = load_catalog()
        tpu_type = self.values.get("tpu.type", FIRST_TYPE)
        inside = [zone for zone in region_zones(catalog, region) if zone in catalog.zones_of(tpu_type)]
        if inside:
            self.zones(inside, theirs)
        else:
            self.leave(theirs, f"no known zone of it has {tpu_type}")

    def zones(self, zones: Sequence[str], theirs: str) -> None:
        """Append zones to those already present."""
        both = list(dict.fromkeys([*self.values.get("tpu.zones", []), *zones]))
        self.take("tpu.zones", both, theirs)


def tpu_type(name: str) -> str:
    """Return the API's name of a TPU type that other tools spell differently, or an empty text."""
    text = name.strip().lower()
    for theirs, (generation, counted) in GKE.items():
        if match := re.fullmatch(rf"(?:tpu-)?{theirs}(?::(\d+))?", text):
            return f"{generation}-{int(match[1] or 1) * counted}"
    text = re.sub(r"^tpu[-:]?(?=v\d)|:1$", "", text)
    if match := _V5E.fullmatch(text):
        return f"v5litepod-{match[1]}"
    if match := re.fullmatch(r"(v\d\w*)-(\d+(?:x\d+)+)", text):
        generation = "v5litepod" if match[1] in ("v5e", "v5litepod") else match[1]
        same = (kind for kind, one in load_catalog().accelerators.items() if one.topology == match[2])
        return next((kind for kind in same if kind.startswith(f"{generation}-")), "")
    return text if re.fullmatch(r"v\d\w*-\d+", text) else ""


def no_type(name: str) -> str:
    """Return why *name* is no type here."""
    if re.match(r"(tpu|v)-?\d", name.strip().lower()):
        return (
            "no type of the Cloud TPU API, which makes the machines here (TPU7x: GKE or Compute Engine only)"
        )
    return "this is not a TPU"


def finish(draft: Draft, default_name: str) -> Conversion:
    """Add required settings, remove what our own rules refuse, and render the file."""
    if "name" not in draft.values:
        draft.name(default_name, "")
    command, setup = draft.values.get("job.command", ""), draft.values.get("job.setup", "")
    _about_saving(draft, command, setup)
    for _ in range(_MAX_FINDINGS):
        _complete(draft)
        text = "\n".join(_file(draft)) + "\n"
        try:
            # Without variables: the file must not be valid in this terminal only.
            read(text.encode(), FILE_NAME, environ={})
        except ConfigError as error:
            _drop(draft, error.findings[0])
        else:
            return Conversion(draft.tool, text, tuple(_tidy(row) for row in draft.rows))
    raise UsageError(
        "too much in this file is not possible here", hint="write the file by hand; begin with: tpuctl init",
        changed="nothing was written",
    )  # fmt: skip


def _complete(draft: Draft) -> None:
    values = draft.values
    if "tpu.type" not in values:
        _stand_in(
            draft,
            "tpu.type",
            FIRST_TYPE,
            "the file names no TPU that fits (tpuctl check: is it large enough?)",
        )
    if not values.get("tpu.zones"):
        zone = first_zone(values["tpu.type"])
        _stand_in(draft, "tpu.zones", zone, "the file names no zone that has it")
        values["tpu.zones"] = [zone]
    if not values.get("job.command"):
        values["job.command"] = NO_COMMAND
        draft.decide("job.command", f"the file has no command that fits: {NO_COMMAND} is a placeholder")


def _stand_in(draft: Draft, key: str, value: str, message: str) -> None:
    """Use *value* until a person has decided; what the table asked about *key* before becomes part of its row."""
    questions = (row for row in draft.rows if row.verdict == "decide" and not row.value)
    asked = next((row for row in questions if row.key == path_of(key)), None)
    if asked is not None:
        draft.rows.remove(asked)
    draft.values[key] = value
    draft.decide(key, f"{asked.message if asked else message}; choose yours", value=value)


def _about_saving(draft: Draft, command: str, setup: str) -> None:
    """Add the rows that every conversion needs: where to save, and when to stop spending."""
    if "TPUCTL_CHECKPOINT_DIR" not in command:
        draft.decide(
            "job.checkpoint",
            "save to $TPUCTL_CHECKPOINT_DIR and resume from $TPUCTL_RESUME: other files are lost with the machine",
        )
    if "watch.budget_usd" not in draft.values:
        draft.decide("watch.budget_usd", "set a sum at which it stops")
    if "sky_workdir" in command + setup:
        draft.decide("job.command", "names ~/sky_workdir; here the job starts in the source folder: use .")


def _drop(draft: Draft, finding: FileFinding) -> None:
    """Remove one setting that our own rules refuse, and say why."""
    lengths = range(len(finding.setting_path), 0, -1)
    length = next((n for n in lengths if dotted(finding.setting_path[:n]) in draft.values), 0)
    if not length:
        raise ConfigError((finding,))
    key, below = dotted(finding.setting_path[:length]), finding.setting_path[length:]
    value, gone = draft.values[key], Converted("left out", "", tuple(map(str, finding.setting_path[:length])))
    if isinstance(value, dict) and below and below[0] in value:
        value.pop(below[0])
        gone = replace(gone, key=(*gone.key, str(below[0])))
    elif isinstance(value, list) and below and isinstance(below[0], int) and below[0] < len(value):
        gone = replace(gone, value=str(value.pop(below[0])))
    else:
        draft.values.pop(key)
    # A hint may list all zones, which is no row of a table.
    hint = shorten(finding.hint or "", 120, placeholder=" ...")
    message = f"{finding.message}; {hint}" if hint else finding.message
    # The row that promised it must not stay: it is no longer in the file.
    promised = [row for row in draft.rows if row.verdict == "mapped" and _is_below(row.key, gone.key)]
    if not (isinstance(value, list) and value):
        draft.rows = [row for row in draft.rows if row not in promised]
    draft.leave(promised[0].theirs if promised else gone.ours, message)
    if not value and isinstance(value, dict):
        draft.values.pop(key, None)


def _file(draft: Draft) -> Iterator[str]:
    yield f"# yaml-language-server: $schema={SCHEMA_FILE}"
    yield f"# Made by tpuctl init --from, from a file of {draft.tool}. Each setting says where it comes from."
    yield "# All settings with their defaults: tpuctl init, in another folder."
    tree: dict[str, Any] = {}
    for key, value in draft.values.items():
        *sections, last = path_of(key)
        place = tree
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = value
    rank = {name: place for place, name in enumerate(ORDER)}
    for name in sorted(tree, key=lambda one: rank.get(one, len(rank))):
        yield ""
        yield from _setting(draft, (name,), tree[name], "")
    open_yet = [row for row in draft.rows if row.verdict == "decide" and not _is_in(tree, row.key)]
    without = [row for row in draft.rows if row.verdict == "left out"]
    for title, lines in (
        ("DECIDE, of what is not in this file yet:", [f"- {row.ours}: {row.message}" for row in open_yet]),
        ("Left out:", [f"- {_short(row.theirs)}: {row.message}" for row in without]),
    ):
        if lines:
            yield ""
            yield f"# {title}"
            for line in lines:
                yield from _comment(line, "")


def _is_below(key: tuple[str, ...], above: tuple[str, ...]) -> bool:
    """Return whether a setting is *above*, or an item of that mapping."""
    return key[: len(above)] == above


def _is_in(tree: Any, key: tuple[str, ...]) -> bool:
    """Return whether the file has the setting that a row is about, and so the row's comment."""
    for part in key:
        if not isinstance(tree, dict) or part not in tree:
            return False
        tree = tree[part]
    return True


def _setting(draft: Draft, key: tuple[str, ...], value: Any, indent: str) -> Iterator[str]:
    name, whole = key[-1], ".".join(key) in draft.values
    for row in draft.rows:
        # The rows of a mapping's items are placed above the mapping.
        if not (_is_below(row.key, key) if whole else row.key == key):
            continue
        if row.verdict == "mapped" and row.theirs:
            yield from _comment(f"From {row.theirs}" + (f": {row.message}" if row.message else ""), indent)
        elif row.verdict == "decide":
            yield from _comment(f"DECIDE: {row.message}", indent)
    if not whole:
        yield f"{indent}{name}:"
        for part, inner in value.items():
            yield from _setting(draft, (*key, part), inner, f"{indent}  ")
    elif isinstance(value, Mapping) and value:
        yield f"{indent}{name}:"
        yield from (f"{indent}  {yaml_value(part)}: {yaml_value(inner)}" for part, inner in value.items())
    elif isinstance(value, str) and fits_a_block(value):
        yield f"{indent}{name}: |-"
        yield from (f"{indent}  {line}" if line else "" for line in value.split("\n"))
    else:
        yield f"{indent}{name}: {yaml_value(value) if value != {} else '{}'}"


def fits_a_block(text: str) -> bool:
    """Return whether YAML's literal block returns this text unchanged."""
    plain = all(sign.isprintable() or sign in "\n\t" for sign in text)
    return "\n" in text and plain and text == text.strip() and not text.startswith(("%", "---", "..."))


def _comment(text: str, indent: str) -> Iterator[str]:
    line = " ".join(clean(masked(text)).split())
    return (f"{indent}# {one}" for one in wrap(line, _WIDTH - len(indent), break_on_hyphens=False))


def _tidy(row: Converted) -> Converted:
    """Return a row that is safe to print and store: no tokens, no control characters, one line each."""

    def safe(text: str) -> str:
        return " ".join(clean(masked(text)).split())

    key = tuple(map(safe, row.key))
    return Converted(row.verdict, safe(row.theirs), key, safe(row.value), safe(row.message))


def _plain(value: object) -> str:
    """Return a YAML scalar as the shell would see it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _short(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else _plain(value)
    line = " ".join(text.split())
    return cut(line, 50)
