"""Who may log in, by the metadata."""

from datetime import datetime, timezone

from orchestrator.emulator.machines.accounts import accounts

NOW = datetime(2026, 11, 21, tzinfo=timezone.utc)


def test_each_line_names_a_user_and_a_key():
    """Several users and several keys; lines that are neither are skipped."""
    text = (
        "ada:ssh-ed25519 AAA ada@laptop\nbob:ssh-rsa BBB\n\nada:ssh-ed25519 CCC\nno key\n../x:ssh-rsa DDD\n"
    )
    assert accounts({"ssh-keys": text}, {}, NOW) == {
        "ada": ("ssh-ed25519 AAA ada@laptop", "ssh-ed25519 CCC"),
        "bob": ("ssh-rsa BBB",),
    }


def test_a_key_with_a_date_ends_at_that_date():
    """The google-ssh form carries expireOn; what cannot be read has expired."""
    form = 'ada:ssh-rsa {} google-ssh {{"userName":"ada","expireOn":"{}"}}'
    lines = [form.format("OLD", "2026-11-20T23:59:59+0000"), form.format("NEW", "2026-11-21T00:00:01+0000")]
    lines.append("ada:ssh-rsa BAD google-ssh {nonsense")
    assert accounts({"ssh-keys": "\n".join(lines)}, {}, NOW) == {"ada": ("ssh-rsa NEW",)}


def test_project_keys_count_unless_blocked():
    """block-project-ssh-keys leaves the project's keys out."""
    project = {"ssh-keys": "pat:ssh-rsa P"}
    assert set(accounts({"ssh-keys": "ada:ssh-rsa A"}, project, NOW)) == {"ada", "pat"}
    assert set(accounts({"ssh-keys": "ada:ssh-rsa A", "block-project-ssh-keys": "TRUE"}, project, NOW)) == {
        "ada"
    }


def test_os_login_turns_keys_off():
    """The instance's word wins over the project's."""
    keys = {"ssh-keys": "ada:ssh-rsa A"}
    assert accounts({**keys, "enable-oslogin": "TRUE"}, {}, NOW) == {}
    assert accounts(keys, {"enable-oslogin": "true"}, NOW) == {}
    assert set(accounts({**keys, "enable-oslogin": "FALSE"}, {"enable-oslogin": "TRUE"}, NOW)) == {"ada"}
