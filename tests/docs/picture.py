"""The picture in docs/architecture.md, made from the imports: `python -m tests.docs.picture` writes it again."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "```mermaid\n", "```\n"


def packages() -> dict[str, set[str]]:
    """Return each package of the package with the packages that its files import."""
    package = ROOT / "orchestrator"
    names = {path.parent.name for path in package.glob("*/__init__.py")}
    found: dict[str, set[str]] = {name: set() for name in names}
    for name in names:
        for path in (package / name).rglob("*.py"):
            found[name] |= {package for package in _imported(path) if package in names and package != name}
    return found


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "orchestrator":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("orchestrator."):
            yield str(node.module).split(".")[1]


def below(graph: dict[str, set[str]], package: str) -> set[str]:
    """Return every package that *package* reaches."""
    reached: set[str] = set()
    todo = list(graph[package])
    while todo:
        one = todo.pop()
        if one not in reached:
            reached.add(one)
            todo.extend(graph[one])
    return reached


def picture() -> str:
    """Return the packages as a mermaid graph: an arrow for each import that no longer path contains already."""
    graph = packages()
    arrows = [
        (package, other)
        for package in sorted(graph)
        for other in sorted(graph[package])
        if not any(other in below(graph, between) for between in graph[package] - {other})
    ]
    lines = ["graph TD", *(f"  {package} --> {other}" for package, other in arrows)]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the picture into the page."""
    text = PAGE.read_text()
    before, rest = text.split(BEGIN, 1)
    PAGE.write_text(before + BEGIN + picture() + END + rest.split(END, 1)[1])


if __name__ == "__main__":
    main()
