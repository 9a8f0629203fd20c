"""
Apply environment variables and flags to the file: flag > TPUCTL_* > file > default.

The variable of `tpu.spot` is TPUCTL_TPU__SPOT: upper case, two underscores for each dot. TPUCTL_* variables
without a double underscore that name no setting belong to other parts of tpuctl and are ignored.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.config.config_error import FileFinding, flag_for
from orchestrator.config.document import Document
from orchestrator.config.setting_types import Setting, SettingPath, at, settings
from orchestrator.domain.text.suggest import did_you_mean
from orchestrator.errors import UsageError

PREFIX = "TPUCTL_"
ENV_KEY = "job.env"


def lay(
    document: Document, overrides: Mapping[str, str], environ: Mapping[str, str]
) -> dict[SettingPath, str]:
    """Write variables, then flags into the document's data; return the origin of each value written."""
    origins: dict[SettingPath, str] = {}
    for key, text, origin in (*_variables(environ), *_flags(overrides)):
        path = _put(document, key, text, origin)
        if path:
            origins[path] = origin
    # Lowest priority: it is set for many programs, so a project in the file wins.
    if not document.data.get("project") and environ.get("GOOGLE_CLOUD_PROJECT"):
        document.data["project"] = environ["GOOGLE_CLOUD_PROJECT"]
        origins["project",] = "GOOGLE_CLOUD_PROJECT"
    return origins


def overrides_of(settings: Sequence[str]) -> dict[str, str]:
    """Return the values of --set by key; raise UsageError if one has no value."""
    return dict(_override(text) for text in settings)


def _override(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign:
        raise UsageError(
            f"--set {text}: there is no '='",
            hint="write --set key=value, for example --set tpu.spot=false",
            changed="nothing was changed",
        )
    return key.strip(), value


def _flags(overrides: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for key, text in overrides.items():
        yield key, text, flag_for(key)


def _variables(environ: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for variable in sorted(environ):
        if not variable.startswith(PREFIX):
            continue
        parts = variable.removeprefix(PREFIX).split("__")
        key = ".".join(part.lower() for part in parts)
        # Names of the job's variables keep their case and underscores.
        if key.startswith(f"{ENV_KEY}."):
            key = f"{ENV_KEY}.{'__'.join(parts[2:])}"
        plain = settings().get(key)
        # TPUCTL_STATE_DIR and others are no settings: without a double underscore only known names count.
        if len(parts) > 1 or (plain and (not plain.section or plain.words)):
            yield key, environ[variable], variable


def _put(document: Document, key: str, text: str, origin: str) -> SettingPath | None:
    """Write one value into the data; return its path, or None after a finding."""
    setting = settings().get(key)
    named = key.startswith(f"{ENV_KEY}.")
    if setting is None and not named:
        hint = did_you_mean(key, settings()) or "`tpuctl config schema` lists all settings"
        document.findings.append(FileFinding(origin, 0, 0, (key,), "there is no such setting", hint))
        return None
    # One text for a whole section would discard what the file says below it.
    if setting and text not in setting.words and (setting.section or setting.mapped):
        message = "is a section; set one of its keys"
        document.findings.append(FileFinding(origin, 0, 0, (key,), message, f"for example {_example(key)}"))
        return None
    path: SettingPath = at(ENV_KEY, key.removeprefix(f"{ENV_KEY}.")) if named else at(key)
    _store(document.data, path, _value(setting, text))
    return path


def _example(key: str) -> str:
    below = [name for name in settings() if name.startswith(f"{key}.")]
    return f"{below[0] if below else f'{key}.NAME'}=..."


def _value(setting: Setting | None, text: str) -> Any:
    if setting and setting.listed:
        return [part.strip() for part in text.strip().strip("[]").split(",") if part.strip()]
    if setting and setting.optional and text.strip() in ("", "null", "~"):
        return None
    return text


def _store(data: dict[str, Any], path: SettingPath, value: Any) -> None:
    holder: Any = data
    for part in path[:-1]:
        # A section that was null, or a word such as `vm: none`, is replaced by a mapping.
        if holder.get(part) is None or isinstance(holder.get(part), str):
            holder[part] = {}
        holder = holder[part]
        if not isinstance(holder, dict):
            return
    holder[path[-1]] = value
