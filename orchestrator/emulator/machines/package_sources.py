"""Where this computer takes Python packages from, as its user told pip: machines take them from there too."""

import configparser
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

SOURCES = ("index-url", "extra-index-url", "find-links", "no-index", "trusted-host", "cert")
"""What passes; everything else that pip can be told (a target, --user, a proxy, hashes) stays here."""
SECTIONS = ("global", "install")


def package_sources(environ: Mapping[str, str]) -> dict[str, str]:
    """
    Return pip's variables for a machine: those of the caller, else what pip's files say.

    The order is pip's (its documentation, "Configuration"): files of the system, the user and the
    environment, then PIP_CONFIG_FILE, then variables. A file that cannot be read says nothing.
    """
    found: dict[str, str] = {}
    for path in _files(environ):
        found.update(_read(path))
    for name in SOURCES:
        value = environ.get(_variable(name), "").strip()
        if value:
            found[name] = value
    return {_variable(name): value for name, value in found.items()}


def _variable(name: str) -> str:
    return "PIP_" + name.upper().replace("-", "_")


def _files(environ: Mapping[str, str]) -> Iterator[Path]:
    chosen = environ.get("PIP_CONFIG_FILE", "")
    if chosen == os.devnull:
        return
    home = Path(environ.get("HOME") or Path.home())
    for folder in environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":"):
        yield Path(folder) / "pip/pip.conf"
    yield Path("/etc/pip.conf")
    yield home / ".pip/pip.conf"
    yield Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip/pip.conf"
    yield Path(sys.prefix) / "pip.conf"
    if chosen:
        yield Path(chosen)


def _read(path: Path) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, UnicodeError, OSError):
        return {}
    return {
        name: " ".join(parser.get(section, name).split())
        for section in SECTIONS if parser.has_section(section)
        for name in SOURCES if parser.has_option(section, name)
    }  # fmt: skip
