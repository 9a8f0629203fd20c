"""Write the commented deployment file of `tpuctl init`."""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from textwrap import wrap
from typing import Any

from orchestrator.config.load import FILE_NAME, read
from orchestrator.config.schema import SCHEMA_FILE, describe
from orchestrator.config.setting_types import keys_in, settings
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.text.suggest import did_you_mean, join
from orchestrator.domain.text.units import Duration
from orchestrator.errors import UsageError

RECIPES: Mapping[str, Mapping[str, Any]] = {
    "blank": {"job.command": 'python3 train.py --out "$TPUCTL_CHECKPOINT_DIR"'},
    "numpy-lm": {
        "job.setup": "tpuctl-venv -r requirements.txt",
        "job.command": "exec tpuctl-venv -r requirements.txt -- python train.py",
        "job.env": {"NUMPY_LM_STEPS": "400", "NUMPY_LM_STEP_SECONDS": "0.05"},
        "job.checkpoint.format": "marker",
        "job.checkpoint.dir": "local",
        "job.target_steps": 400,
    },
    "jax-lm": {
        "job.setup": "sh venv.sh",
        "job.command": "exec sh venv.sh python train.py",
        "job.env": {"JAX_LM_STEPS": "200"},
        "job.checkpoint.format": "orbax",
        "job.checkpoint.dir": "bucket",
        "job.target_steps": 200,
    },
}
"""Settings of each recipe; all others stay at their defaults, as comments. They match the folders in examples/."""

FIRST_TYPE = "v5litepod-4"
"""The largest type of v5e that Google lets a new project have (docs/facts.md 1.6)."""

ORDER = ("name", "project", "tpu", "vm", "bucket", "job", "service_account", "watch")
FIRST_SETTINGS = frozenset({
    "name", "project", "tpu.type", "tpu.zones", "job.command", "job.setup", "job.target_steps", "watch.budget_usd",
    "watch.ttl", "watch.on_vm",
})  # fmt: skip
"""Settings that the short file shows, beside those that are given: what people ask for at their first job."""
SHELL = frozenset({"job.command", "job.setup"})
"""Settings that a shell runs: written without quotes of YAML, as a block if they have quotes or signs."""
SAVES = "It must save to $TPUCTL_CHECKPOINT_DIR, and go on from its newest save there."
GUESSED_ZONE = "A guess: the cheapest documented zone. `tpuctl doctor` shows where you have quota."
TYPES = "Types, zones, prices: tpuctl zones, docs/zones.md."
_WIDTH = 80
_PLAIN = re.compile(r"[A-Za-z/][-A-Za-z0-9_./]*")
_SIMPLE = re.compile(r"[A-Za-z][-\w./]*( [-\w./]+)+", re.ASCII)
"""A command that is the same text in YAML; of several words, so never a word such as `true`."""
_WORDS = ("null", "true", "false", "yes", "no", "on", "off")


def init_text(
    name: str,
    recipe: str = "blank",
    *,
    tpu_type: str = "",
    zone: str | None = None,
    project: str | None = None,
    command: str = "",
    setup: str = "",
    setup_comment: str = "",
    setup_to_check: str = "",
    command_comment: str = "An example: write your own.",
    everything: bool = False,
) -> str:
    """
    Return a deployment file with the description of each setting; defaults are commented out.

    It has the settings of FIRST_SETTINGS, or with *everything* all of them.
    *command* and *setup* take the place of a blank recipe's; *command_comment* says where that command is from,
    *setup_comment* asks what is not known about the setup. *setup_to_check* is shown as a comment, to be decided.
    Without *tpu_type* it is one that a new project may have, without *zone* the cheapest documented one. Raise
    UsageError for an unknown recipe, and ConfigError when name, type, zone or project do not fit: what is
    returned validates.
    """
    if recipe not in RECIPES:
        hint = did_you_mean(recipe, RECIPES) or f"choose one of {join(RECIPES)}"
        raise UsageError(
            f'there is no recipe "{recipe}"', hint=hint, changed="nothing was written", code="TPU-113"
        )
    tpu_type = tpu_type or FIRST_TYPE
    values: dict[str, Any] = {
        "name": name,
        "tpu.type": tpu_type,
        "tpu.zones": [zone or first_zone(tpu_type)],
        **RECIPES[recipe],
    }
    if project:
        values["project"] = project
    if recipe == "blank":
        given = {"job.command": command, "job.setup": setup}
        values |= {key: text for key, text in given.items() if text}
    shown = settings().keys() if everything else FIRST_SETTINGS | values.keys()
    notes = {"tpu.type": TYPES}
    if recipe == "blank":
        notes |= {
            "tpu.zones": "" if zone else GUESSED_ZONE,
            "job.command": f"{command_comment} {SAVES}",
            "job.setup": setup_comment,
        }
    text = (
        "\n".join(
            _file(_Draft(values, shown, notes, {"job.setup": setup_to_check} if setup_to_check else {}))
        )
        + "\n"
    )
    # Without variables: the file must not be valid in this terminal only.
    read(text.encode(), FILE_NAME, environ={})
    return text


def first_zone(tpu_type: str) -> str:
    """Return the zone to start with: a documented one, at the lowest known spot price."""
    catalog = load_catalog()
    zones = catalog.zones_of(tpu_type)

    def rank(zone: str) -> tuple[bool, float, str]:
        price = catalog.tpu_price(tpu_type, zone, spot=True)
        # Documented before cheap: a zone that only the API lists may refuse a new project.
        return not catalog.is_documented(tpu_type, zone), inf if price is None else price, zone

    return min(zones, key=rank) if zones else next(iter(catalog.zones))


@dataclass(frozen=True)
class _Draft:
    """What the file says: the values given, the settings that are shown, and notes on some of them."""

    values: Mapping[str, Any]
    shown: Collection[str]
    notes: Mapping[str, str]
    proposed: Mapping[str, str]
    """Values that are shown as comments."""

    def shows(self, key: str) -> bool:
        """Return whether a setting, or one of its section, is shown."""
        return any(name == key or name.startswith(f"{key}.") for name in self.shown)

    def gives(self, key: str) -> bool:
        """Return whether a setting, or one of its section, has a value of its own."""
        return any(name == key or name.startswith(f"{key}.") for name in self.values)


def _file(draft: _Draft) -> Iterator[str]:
    yield f"# yaml-language-server: $schema={SCHEMA_FILE}"
    yield "#"
    yield "# A deployment of tpuctl. What is commented out shows the default."
    yield "# For one run: --set tpu.spot=false, or the variable TPUCTL_TPU__SPOT=false."
    if len(draft.shown) < len(settings()):
        yield "# These are the settings of a first job. All of them: docs/tpuctl-yaml.md,"
        yield "# tpuctl config show --all, or a new file by tpuctl init --all-settings."
    # A fleet needs another kind of file, described in docs/fleet.md.
    keys = [name for name in keys_in("") if name != "fleet" and draft.shows(name)]
    for key in sorted(keys, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER)):
        yield ""
        yield from _setting(key, draft, "", off=False)


def _setting(key: str, draft: _Draft, indent: str, *, off: bool) -> Iterator[str]:
    """Yield the lines of one setting; *off* says that its section is commented out as a whole."""
    setting = settings()[key]
    given = draft.gives(key)
    lead = "# " if off or not given else ""
    margin = f"# {indent}" if off else indent
    for text in (describe(key), draft.notes.get(key, "")):
        yield from (f"{margin}# {line}" for line in _comment(text, _WIDTH - len(f"{margin}# ")))
    start = f"# {indent}" if off else f"{indent}{lead}"
    if setting.section and not given and setting.default in setting.words:
        yield f"{start}{setting.name}: {setting.default}"
        # Alternatives to that word stay comments when the first sign is removed.
        inside = f"# {indent}  "
        for name in keys_in(key):
            for line in _setting(f"{key}.{name}", draft, f"{indent}  ", off=True):
                alternative = inside + "# " + line.removeprefix(inside).removeprefix("# ")
                yield alternative if off else _shift(alternative, indent)
        return
    if setting.section:
        yield f"{start}{setting.name}:"
        # A commented section keeps its shape: remove the first "# " of each line to enable it.
        for name in keys_in(key):
            if not draft.shows(f"{key}.{name}"):
                continue
            lines = _setting(f"{key}.{name}", draft, f"{indent}  ", off=off or not given)
            yield from (_shift(line, indent) if not off and not given else line for line in lines)
        return
    value = draft.values.get(key, draft.proposed.get(key, setting.default))
    if key in SHELL and value and _SIMPLE.fullmatch(value):
        yield f"{start}{setting.name}: {value}"
        return
    if given and key in SHELL and value.strip() == value and value.isprintable():
        # Without quotes: a quoted command that is edited soon has an unpaired or a wrong one.
        yield f"{start}{setting.name}: |-"
        yield f"{indent}  {value}"
        return
    text = f"{start}{setting.name}: {yaml_value(value)}"
    # In one line, since a comment sign is removed line by line.
    yield text.replace(", ", ",") if isinstance(value, (list, tuple)) and len(text) > _WIDTH else text


def _comment(text: str, width: int) -> list[str]:
    """Wrap *text* so that no line begins like a setting, which would be taken for one that is commented out."""
    glued = re.sub(r" (?=\w+: )", "\0", text)
    return [line.replace("\0", " ") for line in wrap(glued, width, break_on_hyphens=False)]


def _shift(line: str, indent: str) -> str:
    """Move the comment sign of a section's line to the column of its heading."""
    return f"{indent}# {line.removeprefix('# ').removeprefix(indent)}"


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def yaml_value(value: Any) -> str:
    """Return a value as one line of YAML."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(yaml_value(item) for item in value)}]"
    if isinstance(value, Duration):
        return str(value)
    # YAML 1.1, which editors and other tools still read, takes words such as `no` and `on` for booleans.
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    if isinstance(value, str) and '"' in value and "'" not in value and value.isprintable():
        return f"'{value}'"
    if isinstance(value, str) and not value.isprintable():
        # JSON leaves characters such as 0x7f unescaped, which YAML parsers refuse.
        inner = (_ESCAPES.get(one) or (one if one.isprintable() else f"\\U{ord(one):08X}") for one in value)
        return f'"{"".join(inner)}"'
    return json.dumps(value, ensure_ascii=False)
