"""Every layout of docs/formats.md, run with small files of ours: recognised, committed, torn, restored."""

from collections.abc import Iterator

import pytest

from tests.agent.agent_lab import running_lab
from tests.formats.layouts import LAYOUTS, SaveLayout
from tests.formats.table import PAGE, FormatLab, in_page, row_of, text_of


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FormatLab]:
    """Run one bucket for all layouts of a process."""
    with running_lab(tmp_path_factory.mktemp("formats")) as agents:
        yield FormatLab(agents)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda one: one.name)
def test_the_page_says_what_a_run_of_the_layout_finds(lab: FormatLab, layout: SaveLayout) -> None:
    """The row of docs/formats.md is the row of this run, and none of its cells is empty."""
    line = text_of([row_of(layout, lab)]).splitlines()[-1]
    assert line in PAGE.read_text().splitlines(), "write it anew: python -m tests.formats.table"


def test_the_page_names_every_layout_once() -> None:
    """A layout that is gone leaves no row behind."""
    page = PAGE.read_text()
    for layout in LAYOUTS:
        assert page.count(f"\n| {layout.name} |") == 1
    assert in_page("", page).count("\n| ") <= page.count("\n| ") - len(LAYOUTS)
