"""Masking: nothing that is known or looks like a token gets into a log, however the output was cut."""

import base64
import json
import random
import string
import textwrap

import pytest

from orchestrator.agent.settings import read_settings
from orchestrator.agent.telemetry.heartbeat import HeartbeatContent
from orchestrator.agent.telemetry.logs import SEGMENT, JobLog
from orchestrator.cli import console
from orchestrator.cli.main import run
from orchestrator.clock import VirtualClock
from orchestrator.contract.secrets.redaction import MAX_KEY, RedactedStream, Redactor, masked, shapes_in
from orchestrator.contract.secrets.secret_forms import SHORTEST, forms_of
from orchestrator.errors import UsageError
from tests.security.secret_kit import KEY, canaries, spellings

ALPHABET = string.ascii_letters + string.digits
FRAMES = ("{}", "token={} end", '"key": "{}",\n', "Authorization: Bearer {}\r\n", "({})", "a\n{}\nb")


def shapes(count: int = 200) -> list[str]:
    """Return made-up tokens of every known shape."""
    rng = random.Random(11)
    some = lambda size, letters=ALPHABET: "".join(rng.choices(letters, k=size))  # noqa: E731
    makers = (
        lambda: "hf_" + some(34),
        lambda: "ya29." + some(60, ALPHABET + "-_."),
        lambda: some(40, "0123456789abcdef"),
        lambda: "wandb_v1_" + some(40),
        lambda: "ghp_" + some(36),
        lambda: "github_pat_" + some(50),
        lambda: "AIza" + some(35),
        lambda: KEY.format("\n".join(some(64) for _ in range(4))),
        lambda: "-----BEGIN RSA PRIVATE KEY-----\n" + some(600) + "\n-----END RSA PRIVATE KEY-----",
    )
    return [makers[number % len(makers)]() for number in range(count)]


def hidden(token: str, shown: str) -> bool:
    """Return whether nothing of a token that is worth anything is in a text."""
    return not any(token[at : at + 12] in shown for at in range(16, len(token) - 28)) and token not in shown


@pytest.mark.parametrize("frame", FRAMES)
def test_every_shape_is_masked_in_every_frame(frame):
    """Two hundred tokens; the words around them stay."""
    for token in shapes():
        shown = masked(frame.format(token))
        assert hidden(token, shown), token
        assert "[masked: " in shown
        before, _, after = frame.partition("{}")
        assert shown.startswith(before)
        assert shown.endswith(after)


def test_ordinary_text_stays_as_it_is():
    """Digests of other lengths, words that begin like a token, progress bars, other languages."""
    plain = (
        "sha256 " + "ab" * 32 + "\nmd5 " + "ab" * 16 + "\nshelf_life hf_ ya29 AIza\n"
        "-----\n--- incarnation 3, worker 0 ---\nstep 12 loss 0.3 学習 학습\r 40%|####  |\x1b[0m\n\x00\xff"
    )
    assert masked(plain) == plain
    assert shapes_in(plain) == []


def test_whatever_the_cuts_the_same_is_shown():
    """A stream of values and tokens, cut at every byte, and in 100 random ways."""
    redactor = Redactor()
    for name, value in canaries(4).items():
        redactor.know(name, value)
    words = [*canaries(4).values(), *shapes(7)]
    text = "".join(f"line {n} {word} end\n" for n, word in enumerate(words)).encode()
    whole = fed(redactor, [text])
    assert not any(form in whole for value in canaries(4).values() for form in spellings(value))
    for cut in range(len(text)):
        assert fed(redactor, [text[:cut], text[cut:]]) == whole
    rng = random.Random(3)
    for _ in range(100):
        cuts = sorted(rng.choices(range(len(text)), k=rng.randint(1, 60)))
        assert (
            fed(redactor, [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]) == whole
        )


def fed(redactor: Redactor, pieces: list[bytes]) -> bytes:
    """Return what is shown of a stream; nothing that was held back is lost."""
    stream = RedactedStream(redactor)
    return b"".join(stream.feed(piece) for piece in pieces) + stream.end()


WRAPPED = (
    lambda value: base64.encodebytes(value.encode() * 4).decode(),
    lambda value: "\n".join(textwrap.wrap(f"the value of the variable is {value}, and more", 35)),
    lambda value: "\r\n\t".join(value[at : at + 7] for at in range(0, len(value), 7)),
    lambda value: value[:9] + "\n" + value[9:],
    lambda value: value[:-1] + "\n    " + value[-1],
)


@pytest.mark.parametrize("wrap", WRAPPED)
def test_a_value_that_lines_are_broken_in_is_masked(wrap):
    """By `base64`, by a library, by the width of a terminal; wherever the output is cut as well."""
    value = "".join(random.Random(9).choices(ALPHABET, k=100))
    redactor = Redactor()
    redactor.know("wandb", value)
    redactor.know("doubled", value * 4)
    text = f"step 1\n{wrap(value)}\nstep 2\n".encode()
    whole = fed(redactor, [text])
    assert whole.startswith(b"step 1\n")
    assert whole.endswith(b"\nstep 2\n")
    assert b"[masked: " in whole
    for line in text.split()[2:-2]:
        assert len(line) < 7 or line == b"variable" or line[-8:] not in whole, line
    for cut in range(len(text)):
        assert fed(redactor, [text[:cut], text[cut:]]) == whole, cut


def test_lines_that_end_like_a_value_begins_are_shown_at_once():
    """Only two letters and more of one are waited for; and what is not one appears with the next line."""
    redactor = Redactor()
    redactor.know("wandb", "qzxvbnmkjhgf")
    stream = RedactedStream(redactor)
    assert stream.feed(b"loss q\n") == b"loss q\n"
    assert stream.feed(b"loss qz\n") == b"loss "
    assert stream.feed(b"step 2\n") == b"qz\nstep 2\n"


HEX = "3f786850e387550fdab836ed7e6dc881de23001b"


@pytest.mark.parametrize(
    "line",
    [
        f"/opt/tpuctl/venv/py3.10-{HEX}/bin/python", f"Running git checkout -q {HEX}", f"commit {HEX}",
        f"Resolved https://x.invalid/a to commit {HEX}", f"a @ git+https://x.invalid/a@{HEX}", f"sha1: {HEX}",
        f"/root/.cache/huggingface/hub/models--x/snapshots/{HEX}/config.json", f"revision='{HEX}'",
        f"{HEX}/model.safetensors", f"py-{HEX}",
    ],
)  # fmt: skip
def test_a_folder_or_a_commit_is_no_key(line):
    """Forty hexadecimal digits are a W&B key only where nothing calls them something else; in any pieces."""
    text = f"{line}\nnext\n".encode()
    for cut in range(len(text)):
        assert fed(Redactor(), [text[:cut], text[cut:]]) == text, cut


@pytest.mark.parametrize(
    "line",
    [
        f"{HEX}", f"WANDB_API_KEY={HEX}", f"wandb login {HEX}", f"commit abc\n{HEX}", f"key /{HEX}",
        f"token for commit {HEX}", f"password: {HEX}", f"recommit{HEX[0]} {HEX}", f"x:{HEX}",
    ],
)  # fmt: skip
def test_forty_digits_that_nothing_explains_are_masked(line):
    """And those that something calls a key, whatever else is said."""
    text = f"{line}\n".encode()
    for cut in range(len(text)):
        shown = fed(Redactor(), [text[:cut], text[cut:]])
        assert HEX.encode() not in shown, cut
        assert b"[masked: a W&B API key]" in shown


def test_no_piece_shows_the_beginning_of_a_value():
    """Output that stops in the middle of a secret, for a minute or for ever, shows nothing of it."""
    redactor = Redactor()
    redactor.know("wandb", "abcdefghijklmnop")
    stream = RedactedStream(redactor)
    assert stream.feed(b"key abcdefgh") == b"key "
    assert stream.feed(b"ijklmnop.\n") == b"[masked: wandb].\n"


def test_a_key_without_an_end_does_not_swallow_the_log():
    """After 16 KiB text is shown again."""
    stream = RedactedStream(Redactor())
    shown = stream.feed(b"-----BEGIN PRIVATE KEY-----\n" + b"x" * (MAX_KEY - 100))
    shown += stream.feed(b"y" * 200) + stream.feed(b"\nstep 7\n") + stream.end()
    assert shown.startswith(b"[masked: private key]")
    assert shown.endswith(b"step 7\n")


def test_a_value_is_known_in_each_spelling_and_inside_basic_authorization():
    """A library may log a header; base64 then begins at any of three places."""
    import base64

    redactor = Redactor()
    for name, value in canaries().items():
        redactor.know(name, value)
        for spelling in spellings(value):
            assert spelling not in redactor.text(f"<{spelling.decode()}>").encode(), spelling
    secret = canaries()["CANARY_3"]
    for user in ("a", "ab", "abc"):
        header = base64.b64encode(f"{user}:{secret}".encode()).decode()
        assert header[10:-10] not in redactor.text(f"Authorization: Basic {header}")


def test_a_new_value_is_added_and_the_old_one_stays_masked():
    """A job that runs since before the rotation may still print the old one."""
    redactor = Redactor()
    redactor.know("wandb", "first-value")
    redactor.know("wandb", "second-value")
    assert redactor.text("first-value second-value") == "[masked: wandb] [masked: wandb]"


def test_very_short_values_are_not_redacted():
    """They would be found in every line; docs/secrets.md says so."""
    assert forms_of("x" * (SHORTEST - 1)) == []


def test_the_job_log_holds_no_secret_on_disk_or_for_the_bucket(tmp_path):
    """Across the border of two segments as well, and in lines of the agent's own."""
    redactor, secret = Redactor(), "the-secret-value"
    redactor.know("wandb", secret)
    log = JobLog(tmp_path / "job.log", VirtualClock(), redactor)
    log.write(b"x" * (SEGMENT - 8) + secret.encode()[:9])
    log.say(f"restored by {secret}")
    log.write(secret.encode()[9:] + b" and hf_" + b"Q" * 20)
    log.settle()
    full, growing = log.waiting()
    retained = b"".join([*full, growing])
    assert (tmp_path / "job.log").read_bytes() == retained
    assert secret.encode() not in retained
    assert b"QQ" not in retained
    assert retained.count(b"[masked: wandb]") == 2
    assert log.tail().endswith(b"[masked: a Hugging Face token]")


def test_a_heartbeat_holds_no_secret(tmp_path):
    """Neither its message nor a warning, nor why an attempt began or failed."""
    keys = {"DEPLOYMENT": "d", "BUCKET": "b", "INCARNATION": "1", "BUNDLE": "x", "COMMAND": "c"}
    heartbeat = HeartbeatContent(
        read_settings({f"TPUCTL_{k}": v for k, v in keys.items()} | {"TPUCTL_ROOT": str(tmp_path)}),
        VirtualClock(),
    )
    redactor = Redactor()
    redactor.know("wandb", "the-secret-value")
    heartbeat.masked = redactor.text
    heartbeat.set(message="failed with the-secret-value")
    heartbeat.warn("logs", "hf_" + "Q" * 34)
    assert heartbeat.body()["message"] == "failed with [masked: wandb]; logs: [masked: a Hugging Face token]"
    for key in ("failure_message", "attempt_message", "ended_message", "aside_message", "failure_line"):
        heartbeat.set(**{key: "exit 1: the-secret-value"})
        assert heartbeat.body()[key] == "exit 1: [masked: wandb]"


@pytest.mark.parametrize("token", shapes(9))
@pytest.mark.parametrize("kind", [UsageError, RuntimeError])
@pytest.mark.parametrize("words", [("status",), ("status", "--json")])
def test_an_error_shows_no_token_neither_here_nor_in_the_file_of_a_bug(
    words, kind, token, monkeypatch, tmp_path, capsys
):
    """A message may repeat what a service or a file said."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    error = kind(f"the service said {token} and left")
    (console.show_error if kind is UsageError else console.show_unexpected)(error, words)
    reported = "".join(capsys.readouterr()) + "".join(path.read_text() for path in tmp_path.iterdir())
    assert "and left" in reported
    assert hidden(token, reported)


@pytest.mark.parametrize("words", [("plan",), ("plan", "--json"), ("check",), ("up", "--dry-run")])
@pytest.mark.parametrize("token", [t for t in shapes(9) if "\n" not in t and not t.isalnum()])
def test_a_token_in_the_wrong_place_is_refused_without_being_shown(
    words, token, tmp_path, monkeypatch, capsys
):
    """In the environment, in the command, and as the value of a secret."""
    for job in ({"env": {"K": token}}, {"secrets": {"K": token}}):
        body = {
            "name": "d", "tpu": {"type": "v5litepod-8", "zones": ["europe-west4-b"]},
            "job": {"command": "c", **job},
        }  # fmt: skip
        (tmp_path / "tpuctl.yaml").write_text(json.dumps(body))
        monkeypatch.chdir(tmp_path)
        assert run([*words, "--cloud", "local"]) == 2
        out = "".join(capsys.readouterr())
        assert token not in out
        assert "secret://NAME" in out
