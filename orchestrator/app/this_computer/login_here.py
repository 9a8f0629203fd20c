"""Determine the login from files of this computer, without any call."""

import configparser
import json
import os
from pathlib import Path


def credentials_file() -> Path:
    """Return GOOGLE_APPLICATION_CREDENTIALS, else the path of gcloud's application default credentials."""
    named = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    return Path(named) if named else _gcloud_folder() / "application_default_credentials.json"


def read_credentials(path: Path) -> tuple[str, str] | None:
    """Return type and e-mail of the credentials in a file, None if it has none."""
    try:
        body = json.loads(path.read_bytes())
        # Only type and account are read; tokens and keys are never kept or shown.
        return str(body["type"]), body.get("client_email") or body.get("account", "")
    except (OSError, ValueError, KeyError, TypeError):
        return None


def account_here() -> str:
    """Return the e-mail of the credentials file, else of gcloud's configuration, else ""."""
    found = read_credentials(credentials_file())
    return (found[1] if found else "") or gcloud_settings()[0]


def gcloud_settings() -> tuple[str, str]:
    """Return account and project of gcloud's active configuration; "" for what is not set."""
    folder = _gcloud_folder()
    try:
        # As gcloud does it: variables take precedence over the active configuration.
        name = os.environ.get("CLOUDSDK_ACTIVE_CONFIG_NAME") or (folder / "active_config").read_text().strip()
        # Without interpolation, which fails for a value with a percent sign.
        parser = configparser.ConfigParser(interpolation=None)
        parser.read_string((folder / "configurations" / f"config_{name}").read_text())
        core = dict(parser["core"]) if parser.has_section("core") else {}
    except (OSError, configparser.Error, UnicodeDecodeError):
        core = {}
    account = os.environ.get("CLOUDSDK_CORE_ACCOUNT") or core.get("account", "")
    return account, os.environ.get("CLOUDSDK_CORE_PROJECT") or core.get("project", "")


def _gcloud_folder() -> Path:
    return Path(os.environ.get("CLOUDSDK_CONFIG") or Path.home() / ".config" / "gcloud")
