"""Ten mistakes in 200 differently arranged files: each is reported, at its own line."""

import random

import pytest

from orchestrator.config.config_error import ConfigError
from orchestrator.config.load import read

# Sections with their lines; a line with a mistake names the key that must be reported.
SECTIONS = [
    [("name: Demo", "name")],
    [("service_account: nobody", "service_account")],
    [
        ("tpu:", None),
        ("  type: v9-8", "tpu.type"),
        ("  zones: [europe-west4-b]", None),
        ("  spto: true", "tpu.spto"),
    ],
    [("vm:", None), ("  disk_gb: big", "vm.disk_gb"), ("  zone: us-west4-a", "vm.zone")],
    [
        ("job:", None),
        ("  command: python3 train.py", None),
        ("  failures: 0", "job.failures"),
        ("  checkpoint:", None),
        ("    keep: 1", "job.checkpoint.keep"),
    ],
    [("watch:", None), ("  poll: 15", "watch.poll"), ("  budget_usd: -1", "watch.budget_usd")],
]


def arrange(rng):
    """Return the lines with their keys: sections in any order, comments and empty lines in between."""
    lines = []
    for section in rng.sample(SECTIONS, len(SECTIONS)):
        for line in section:
            lines += [(rng.choice(("", "# note: x", "    # deeper")), None)] * rng.randint(0, 2)
            lines.append((f"{line[0]}  # why" if rng.random() < 0.3 else line[0], line[1]))
    return lines


@pytest.mark.parametrize("seed", range(20))
def test_ten_mistakes_are_reported_at_their_lines_however_the_file_is_arranged(seed):
    """Ten arrangements for each of twenty seeds."""
    rng = random.Random(seed)
    for _ in range(10):
        lines = arrange(rng)
        with pytest.raises(ConfigError) as caught:
            read("\n".join(text for text, _ in lines).encode(), "tpuctl.yaml", environ={})
        reported = [(finding.line, finding.setting) for finding in caught.value.findings]
        assert reported == [(number, key) for number, (_, key) in enumerate(lines, 1) if key]
        assert len(reported) == 10
