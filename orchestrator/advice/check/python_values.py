"""Evaluate names and literals of a Python file without running it."""

import ast
from collections.abc import Iterator
from typing import Final


class UnknownValue:
    """Stand for a value that only a run would show."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = UnknownValue()

_PATHS: Final = frozenset({"pathlib.Path", "os.path.join", "os.path.expanduser", "os.fspath"})
_SAME: Final = frozenset({"expanduser", "absolute", "resolve", "as_posix"})
# An empty node: a name that is bound twice must be UNKNOWN, and stay so.
_TWICE: Final = ast.Pass()
_BINDERS: Final = (
    ast.Import, ast.ImportFrom, ast.Assign, ast.arg, ast.AugAssign, ast.AnnAssign, ast.For, ast.AsyncFor,
    ast.NamedExpr, ast.comprehension, ast.withitem,
)  # fmt: skip


class Values:
    """Resolve the names of a file: imports, and names that are assigned exactly once."""

    def __init__(self, tree: ast.Module) -> None:
        self.imported: dict[str, int] = {}
        self._aliases: dict[str, str] = {}
        self._assigned: dict[str, ast.AST] = {}
        for node in ast.walk(tree):
            if isinstance(node, _BINDERS):
                self._bind(node)

    def dotted(self, node: ast.AST) -> str:
        """Return the dotted name of an expression, without nameless parts: `.item` for `(a + b).item`."""
        if isinstance(node, ast.Name):
            return self._aliases.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            return f"{self.dotted(node.value)}.{node.attr}"
        return f"{self.dotted(node.func)}()" if isinstance(node, ast.Call) else ""

    def imported_name(self, node: ast.Attribute) -> str:
        """Return the full name if it begins with an import, else an empty text."""
        root: ast.AST = node
        while isinstance(root, ast.Attribute):
            root = root.value
        return self.dotted(node) if isinstance(root, ast.Name) and root.id in self._aliases else ""

    def assigned(self, node: ast.AST) -> ast.AST | None:
        """Return the expression that a name stands for; other expressions are returned as they are."""
        return self._assigned.get(node.id) if isinstance(node, ast.Name) else node

    def of(self, node: ast.AST, depth: int = 0) -> object:
        """Return a literal value, or UNKNOWN; of a composed text or path its literal beginning."""
        if isinstance(node, ast.Constant):
            return node.value
        if depth > 8:
            return UNKNOWN
        if isinstance(node, ast.JoinedStr):
            return self._text(node.values[:1], depth)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Div):
            return self._text([node.left], depth)
        if isinstance(node, ast.Call):
            return self._path(node, depth)
        found = self._assigned.get(node.id) if isinstance(node, ast.Name) else None
        return UNKNOWN if found is None else self.of(found, depth + 1)

    def tail(self, node: ast.AST, depth: int = 0) -> str:
        """Return the literal end of a composed text or path, else an empty text."""
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else ""
        if depth > 8:
            return ""
        if isinstance(node, ast.JoinedStr):
            return self.tail(node.values[-1], depth + 1) if node.values else ""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Div):
            return self.tail(node.right, depth + 1)
        if isinstance(node, ast.Call) and self.dotted(node.func) in _PATHS and node.args:
            return self.tail(node.args[-1], depth + 1)
        found = self._assigned.get(node.id) if isinstance(node, ast.Name) else None
        return "" if found is None else self.tail(found, depth + 1)

    def is_numpy(self, node: ast.AST) -> bool:
        """Return whether an expression uses numpy or pandas, so that it runs on the host, with any shape."""
        for part in ast.walk(node):
            found = self._assigned.get(part.id) if isinstance(part, ast.Name) else part
            for inner in ast.walk(found) if found is not None else ():
                if isinstance(inner, ast.Name) and self.dotted(inner).partition(".")[0] in (
                    "numpy",
                    "pandas",
                ):
                    return True
                if isinstance(inner, ast.Attribute) and inner.attr == "numpy":
                    return True
        return False

    def _text(self, parts: list[ast.expr], depth: int) -> object:
        value = self.of(parts[0], depth + 1) if parts else UNKNOWN
        return value if isinstance(value, str) else UNKNOWN

    def _path(self, node: ast.Call, depth: int) -> object:
        """Return the beginning of a path built by os.path or pathlib, or of a format string."""
        if self.dotted(node.func) in _PATHS:
            return self._text(node.args[:1], depth)
        if isinstance(node.func, ast.Attribute) and node.func.attr in _SAME and not node.args:
            return self._text([node.func.value], depth)
        return UNKNOWN

    def _bind(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for item in node.names:
                self.imported.setdefault(item.name, node.lineno)
                top = item.name.partition(".")[0]
                self._aliases[item.asname or top] = item.name if item.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for item in node.names:
                name = f"{node.module}.{item.name}"
                self.imported.setdefault(name, node.lineno)
                self._aliases[item.asname or item.name] = name
        elif (
            isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
        ):
            self._assign(node.targets[0].id, node.value)
        else:
            for name in _bound(node):
                self._assign(name, _TWICE)

    def _assign(self, name: str, value: ast.AST) -> None:
        # Only a run would show which of two values applies where.
        self._assigned[name] = _TWICE if name in self._assigned else value


def _bound(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement other than a plain assignment binds."""
    if isinstance(node, ast.arg):
        yield node.arg
    targets: list[ast.AST] = []
    if isinstance(node, ast.Assign):
        targets = [*node.targets]
    elif isinstance(
        node, ast.AugAssign | ast.AnnAssign | ast.For | ast.AsyncFor | ast.NamedExpr | ast.comprehension
    ):
        targets = [node.target]
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        targets = [node.optional_vars]
    for target in targets:
        yield from (part.id for part in ast.walk(target) if isinstance(part, ast.Name))
