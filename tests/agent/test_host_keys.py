"""What a machine reports of its host keys."""

from orchestrator.agent.telemetry.heartbeat import public_host_keys


def test_the_report_holds_the_public_keys_without_their_comments(tmp_path):
    """Private keys, other files and what is no key stay out."""
    (tmp_path / "ssh_host_ed25519_key.pub").write_text("ssh-ed25519 AAAA root@host\n")
    (tmp_path / "ssh_host_rsa_key.pub").write_text("ssh-rsa BBBB\n")
    (tmp_path / "ssh_host_dsa_key.pub").write_text("\n")
    (tmp_path / "ssh_host_ed25519_key").write_text("PRIVATE KEY\n")
    assert public_host_keys({"TPUCTL_SSH_DIR": str(tmp_path)}) == ["ssh-ed25519 AAAA", "ssh-rsa BBBB"]
    assert public_host_keys({"TPUCTL_SSH_DIR": str(tmp_path / "none")}) == []
