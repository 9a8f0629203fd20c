"""The drawings of the pages: whole, without script, and in step with the program."""

import re
import runpy
from xml.etree import ElementTree as ET

import pytest

from tests.cli.cli_kit import ROOT
from tests.docs.pages import refused

DRAWINGS = sorted((ROOT / "docs").glob("*.svg"))
COMMANDS = runpy.run_path(str(ROOT / ".ci/recording"))["COMMANDS"]


@pytest.mark.parametrize("path", DRAWINGS, ids=lambda path: path.name)
def test_a_drawing_is_whole_and_asks_for_nothing(path):
    """Shown as an image or opened alone: no script, no file of another host."""
    text = path.read_text()
    elements = ET.fromstring(text).iter()  # noqa: S314 - files of ours
    assert not [one.tag for one in elements if one.tag.endswith(("script", "foreignObject", "image"))]
    assert not re.findall(r"https?://(?!www\.w3\.org|127\.0\.0\.1)|@import|file:", text)


def test_the_recording_shows_its_commands_to_their_end():
    """Those that the script types; the program takes each of them, and nothing is left at the end."""
    shown = ET.parse(ROOT / "docs/recording.svg").getroot().iter("{http://www.w3.org/2000/svg}text")  # noqa: S314
    rows = ["".join(one.itertext()) for one in shown]
    assert tuple(row[2:] for row in rows if row.startswith("$ ")) == COMMANDS
    assert {line: why for line in COMMANDS if (why := refused(line.split(" &&")[0]))} == {}
    assert any("preempted" in row.lower() for row in rows)
    assert any("nothing of numpy-lm is left" in row for row in rows)
    assert not [row for row in rows if "/home/" in row or "/tmp/" in row or "/work/" in row]
