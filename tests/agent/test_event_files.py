"""The reader of TensorBoard's event files, against bytes that tensorboardX and tensorboard have written."""

import base64
import os
import random
import struct
from pathlib import Path

import pytest

from orchestrator.agent.telemetry.event_files import (
    MAX_RECORD,
    PATTERN,
    BucketEvents,
    EventFiles,
    fields,
    masked_crc,
    scalar,
)
from orchestrator.agent.telemetry.progress import ProgressReader
from tests.agent.agent_lab import BUCKET, running_lab

TENSORBOARDX = (
    "7ytkO00000qkl^x31*yq^WnhSK^hHWa$#w1E=6`_Zge^_h*t?rAOHXW00000Deb9H2~*d7^WnhSK@b5d6ABRu3UqQ|X>KoUZ"
    "*y}M004kMdF2<e9{>OV00000QA<P^35M}~^WnhSK@b5d5(*Fs31xO+Y%gqYb8{5{01!d*SJ>JZ000000001^e@h|>`15`9;l"
    "SEK5CJL+3JD4VY;qON%*;Ik$T$oj000000000f?Ws@+N%Vd5;lSEK5CSR_3K0qlbaG*7ZZB+ab8{5{002OoeIrsI00000000"
    "0{OGFq6f%JXz;lSEK5CSR^3J?kjWp-g~FKlmfa}@vp5J5l5gyk3j00000005(ZOCkxn^nLT;z}i6&0xAm%2?_#iauv<Y%so%"
    ");{YH400000001fNsZa^<^nLT;z}i6&11b{=5ef=)a$#w1FKlmfa}}$qsy`a<Pw*cA00000002=-L>LKE^?mc<z}i6&11b^<"
    "5DE!pc42HUY;SXO6#xJbL5;P{Cl~+#000000Hc3PA_<xGee>bK+CdNlDhmn;3Ic3$70t}dJu9rsrT"
)
"""tensorboardX 2.6.5: train/loss 4/step, eval/loss 9 and lr at steps 1 to 3."""
TENSORBOARD = (
    "NB{r;00000{*p+Y30x(B^WnhSK^hHWa$#w1E=6`_Zge^_QZ5QCbY*UHZ*pR9VRB?Hb9HTPVRCsccXDZTWpXZMc4cmKUuJ1+W"
    "nXu4X>?_BoYyg!D*ylh00000h8x365C<wJ3MC2(WpHm}XkTn^b8|up2mulRA_M>cKtD<g3JD4ab7Ns_VRCcAf7tya0000000"
    "026pLatL2r3^69SQ_&Z*y}(2nYcx1ONa4KS~P<2?_^uV_|Gza&w!HEaC"
)
"""tensorboard 2.21.0, numbers in tensors as TF 2 has them: epoch_loss 0.75 at step 7, loss 0.5 at step 8."""


def record(data: bytes) -> bytes:
    """Return a record as a writer makes it; the sum of the data is not looked at."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc(length)) + data + b"0000"


def event(step: int, tag: str, number: float) -> bytes:
    """Return a record with one scalar."""
    value = b"\x0a" + bytes([len(tag)]) + tag.encode() + b"\x15" + struct.pack("<f", number)
    summary = b"\x0a" + bytes([len(value)]) + value
    return record(b"\x10" + bytes([step]) + b"\x2a" + bytes([len(summary)]) + summary)


def files(folder: Path) -> EventFiles:
    """Return a reader for a job that has begun before everything that the test writes."""
    made = EventFiles([folder])
    made.begin(0.0)
    return made


@pytest.mark.parametrize(
    ("written", "newest"),
    [(TENSORBOARDX, ProgressReader(3, 4 / 3)), (TENSORBOARD, ProgressReader(8, 0.5))],
    ids=["tensorboardX", "tensorboard"],
)
def test_files_of_the_real_writers_are_understood(
    tmp_path: Path, written: str, newest: ProgressReader
) -> None:
    """The newest training loss and its step, found in a subfolder."""
    observed = files(tmp_path)
    path = tmp_path / "runs" / "one" / f"{PATTERN}1.host.1.v2"
    path.parent.mkdir(parents=True)
    path.write_bytes(base64.b85decode(written))

    observed.read_new()

    assert observed.newest.step == newest.step
    assert observed.newest.loss == pytest.approx(newest.loss)


def test_a_file_is_read_as_it_grows_whatever_part_is_there(tmp_path: Path) -> None:
    """Byte by byte, each record counts once it is whole."""
    data, path = base64.b85decode(TENSORBOARDX), tmp_path / f"{PATTERN}1"
    observed, steps = files(tmp_path), []
    for byte in data:
        with path.open("ab") as file:
            file.write(bytes([byte]))
        observed.read_new()
        steps.append(observed.newest.step)

    assert sorted({step for step in steps if step}) == [1, 2, 3]
    assert steps == sorted(steps, key=lambda step: step or 0)


def test_what_an_earlier_start_wrote_does_not_count(tmp_path: Path) -> None:
    """Files that were restored or left keep their old steps to themselves; what is appended counts."""
    path = tmp_path / f"{PATTERN}1"
    path.write_bytes(event(90, "loss", 1.0))
    observed = files(tmp_path)
    observed.read_new()
    assert observed.newest == ProgressReader()

    with path.open("ab") as file:
        file.write(event(40, "loss", 2.0))
    observed.read_new()

    assert observed.newest == ProgressReader(40, 2.0)


def test_an_evaluation_is_no_training(tmp_path: Path) -> None:
    """Neither by its tag, nor by its folder, as Keras names it."""
    (tmp_path / "validation").mkdir()
    (tmp_path / "validation" / f"{PATTERN}1").touch()
    observed = files(tmp_path)
    (tmp_path / "validation" / f"{PATTERN}1").write_bytes(event(9, "epoch_loss", 1.0))
    (tmp_path / f"{PATTERN}1").write_bytes(
        event(5, "eval/loss", 1.0) + event(6, "val_loss", 1.0) + event(7, "loss_scale", 1.0)
    )
    observed.read_new()

    assert observed.newest == ProgressReader()


def test_images_and_histograms_are_passed_over(tmp_path: Path) -> None:
    """A record larger than any scalar costs nothing, also when only its beginning is there yet."""
    observed, path = files(tmp_path), tmp_path / f"{PATTERN}1"
    large = record(bytes(MAX_RECORD * 3))
    path.write_bytes(large[: MAX_RECORD * 2])
    observed.read_new()
    path.write_bytes(large + event(3, "Loss", 1.5))
    observed.read_new()

    assert observed.newest == ProgressReader(3, 1.5)


def test_no_bytes_raise(tmp_path: Path) -> None:
    """A file that is cut, changed at random or of another kind is passed over."""
    chance, data = random.Random(3), base64.b85decode(TENSORBOARDX)
    observed = files(tmp_path)
    for number in range(150):
        mixed = bytes(b if chance.random() > 0.03 else chance.randrange(256) for b in data)
        (tmp_path / f"{PATTERN}{number % 20}").write_bytes(mixed[chance.randrange(40) :])
        observed.read_new()
        for reader in (scalar, lambda part: list(fields(part))):
            try:
                reader(mixed[chance.randrange(len(mixed)) :])
            except ValueError:
                continue
    (tmp_path / f"{PATTERN}dir").mkdir()
    os.mkfifo(tmp_path / f"{PATTERN}pipe")
    observed.read_new()


def test_a_folder_that_is_not_there_is_no_news(tmp_path: Path) -> None:
    """Most jobs write no event files."""
    observed = files(tmp_path / "nowhere")
    observed.read_new()
    assert observed.newest == ProgressReader()


def test_files_in_the_bucket_are_read_as_they_grow(tmp_path: Path) -> None:
    """TensorFlow writes to gs:// by replacing the object by a longer one; only what is new is asked for."""
    with running_lab(tmp_path) as lab:
        machine = lab.machine("m1", CHECKPOINT_DIR=f"gs://{BUCKET}/checkpoints")
        context = machine.context()
        context.events.begin(1000.5)
        stored = BucketEvents(context.settings, context.bucket, context.events)
        old, new = (f"{PATTERN}{time}.host.1.0.v2" for time in (900, 1000))
        lab.put(f"tensorboard/train/{old}", event(90, "loss", 9.0))
        lab.put(f"checkpoints/run/validation/{new}", event(91, "loss", 8.0))
        first = event(3, "loss", 2.5)
        lab.put(f"tensorboard/train/{new}", first + event(4, "loss", 2.0)[:20])
        stored.read_new()
        assert context.events.newest == ProgressReader(3, 2.5)
        lab.put(f"tensorboard/train/{new}", first + event(4, "loss", 2.0))
        stored.read_new()
        stored.read_new()
        assert context.events.newest == ProgressReader(4, 2.0)
        lab.put(f"checkpoints/run/train/{new}", event(5, "epoch_loss", 1.5))
        stored.read_new()
        assert context.events.newest == ProgressReader(5, 1.5)
        assert context.bucket.read_from(f"tensorboard/train/{new}", 10**6, 10) == b""
        assert context.bucket.read_from("tensorboard/none", 0, 10) == b""
