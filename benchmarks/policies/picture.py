"""A picture of one comparison: a bar for each policy, as a small SVG for light and dark pages."""

from html import escape
from pathlib import Path

from benchmarks.policies.replay import ComparisonResult

PICTURE = Path(__file__).parents[2] / "docs" / "policies.svg"
WIDTH, LABEL, ROW, TOP = 760, 290, 26, 64
STYLE = """
text { font: 13px sans-serif; fill: #1f2328 } .quiet { fill: #656d76 }
.bar { fill: #8c959f } .ours { fill: #0969da }
.axis { stroke: #d0d7de } .bound { stroke: #1a7f37; stroke-dasharray: 4 3 }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .quiet { fill: #8d96a0 } .bar { fill: #6e7681 }
.ours { fill: #4493f8 } .axis { stroke: #30363d } .bound { stroke: #3fb950 } }
"""


def picture(result: ComparisonResult) -> str:
    """Return the picture: kept/omniscient from 0 to 1."""
    height = TOP + ROW * len(result.by_policy) + 30
    room = WIDTH - LABEL - 70
    title = f"Progress kept, as a share of what an omniscient policy keeps: {result.comparison.title}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<text x="12" y="26">{escape(title)}</text>',
        '<text x="12" y="46" class="quiet">tpuctl: its real code. Others: models of their code.</text>',
    ]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = LABEL + room * share
        kind = "bound" if share == 1.0 else "axis"
        bottom = height - 26
        lines.append(f'<line x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{bottom}" class="{kind}"/>')
        lines.append(
            f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle" class="quiet">{share:g}</text>'
        )
    for row, name in enumerate(result.by_policy):
        reached, y = result.reached(name), TOP + row * ROW
        kind = "ours" if name.startswith("tpuctl") else "bar"
        lines.append(f'<text x="{LABEL - 8}" y="{y + 14}" text-anchor="end">{escape(name)}</text>')
        lines.append(
            f'<rect x="{LABEL}" y="{y}" width="{room * reached:.1f}" height="18" rx="2" class="{kind}"/>'
        )
        lines.append(f'<text x="{LABEL + room + 8}" y="{y + 14}">{reached:.3f}</text>')
    return "\n".join([*lines, "</svg>", ""])
