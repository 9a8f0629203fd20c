"""Extract from a Python file what the rules need: imports and calls, with their literal values and lines."""

import ast
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from orchestrator.advice.check.python_values import UNKNOWN, Values

_SHORT: Final = 200
_STEPS: Final = frozenset({"backward", "optimizer_step", "mark_step"})
_COMPARED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)


@dataclass(frozen=True)
class Call:
    """
    One call; *name* is dotted with import aliases resolved (`tensorflow.unique`), *method* its last part.

    Values are literals, or UNKNOWN; of a composed text the literal beginning is known. *spread* says that
    more arguments come from `*` or `**`; *scope* numbers the enclosing function; *every_step* says that a
    training loop runs it unconditionally. *plain* names the arguments that are literals in the call itself,
    *tail* is the literal end of the first argument if that is a text. *in_loop* says that it is inside a loop
    of its function. *within* names that function, empty at module level.
    """

    line: int
    name: str
    args: tuple[object, ...]
    keywords: Mapping[str, object]
    spread: bool
    scope: int
    every_step: bool
    plain: frozenset[int | str] = frozenset()
    tail: str = ""
    in_loop: bool = False
    within: str = ""

    @property
    def method(self) -> str:
        """Return the last part of the name."""
        return self.name.rpartition(".")[2]

    def value(self, keyword: str, position: int | None = None) -> object:
        """Return the value of an argument: None if it is not given, UNKNOWN if it is not a literal."""
        if keyword in self.keywords:
            return self.keywords[keyword]
        if position is not None and position < len(self.args):
            return self.args[position]
        return UNKNOWN if self.spread else None


@dataclass(frozen=True)
class Import:
    """
    One import: the full *name*, with *level* dots for `from . import x`.

    *sure* says that it always runs: neither in a function nor below an `if` or a `try`.
    """

    name: str
    line: int
    level: int
    sure: bool


@dataclass(frozen=True)
class Code:
    """
    One Python file.

    *modules* are top-level names of imports, *names* full names with their first line, *masks* the lines that
    select elements by a comparison, such as `x[labels >= 0]`. *texts* are its short strings.
    """

    file: str
    modules: frozenset[str]
    names: Mapping[str, int]
    calls: tuple[Call, ...]
    masks: tuple[int, ...]
    imports: tuple[Import, ...] = ()
    texts: frozenset[str] = frozenset()

    def where(self, line: int) -> str:
        """Return the place as file:line."""
        return f"{self.file}:{line}"


def read_code(file: str, text: str) -> Code:
    """Parse a Python file; raise SyntaxError, ValueError or RecursionError if that is impossible."""
    # Suppress warnings about invalid escapes in the user's code, which would look like ours.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(text)
    reader = _Reader(Values(tree))
    reader.visit(tree)
    names = reader.values.imported | reader.names
    modules = frozenset(name.partition(".")[0] for name in reader.values.imported)
    return Code(
        file, modules, names, tuple(reader.calls), tuple(sorted(set(reader.masks))),
        tuple(reader.imports), frozenset(reader.texts),
    )  # fmt: skip


class _Reader(ast.NodeVisitor):
    """Walk over a file once and collect what the rules need."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self.names: dict[str, int] = {}
        self.calls: list[Call] = []
        self.masks: list[int] = []
        self.imports: list[Import] = []
        self.texts: set[str] = set()
        self._branches = 0
        self._scopes = 0
        self._scope = 0
        self._every_step = False
        self._loops = 0
        self._within = ""

    def visit_Call(self, node: ast.Call) -> None:
        """Record the call, then visit its arguments."""
        starred = any(isinstance(arg, ast.Starred) for arg in node.args)
        call = Call(
            node.lineno,
            self.values.dotted(node.func),
            tuple(self.values.of(arg) for arg in node.args),
            {word.arg: self.values.of(word.value) for word in node.keywords if word.arg},
            starred or any(word.arg is None for word in node.keywords),
            self._scope,
            self._every_step,
            frozenset(
                [n for n, arg in enumerate(node.args) if _is_plain(arg)]
                + [word.arg for word in node.keywords if word.arg and _is_plain(word.value)]
            ),
            self.values.tail(node.args[0]) if node.args else "",
            self._loops > 0,
            self._within,
        )
        self.calls.append(call)
        self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        """Record each imported module with its line."""
        sure = not self._scope and not self._branches
        self.imports += [Import(item.name, node.lineno, 0, sure) for item in node.names]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Record each imported name, because it may be a module of its own."""
        sure = not self._scope and not self._branches
        start = f"{node.module}." if node.module else ""
        self.imports += [Import(start + item.name, node.lineno, node.level, sure) for item in node.names]

    def visit_Try(self, node: ast.Try) -> None:
        """Visit everything; an import that may fail is not required."""
        self._branches += 1
        self.generic_visit(node)
        self._branches -= 1

    def visit_Constant(self, node: ast.Constant) -> None:
        """Record strings short enough to be a name or a path."""
        if isinstance(node.value, str) and len(node.value) <= _SHORT:
            self.texts.add(node.value)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Record the full name of an imported attribute that is read, not of one that is assigned."""
        name = self.values.imported_name(node)
        if name and isinstance(node.ctx, ast.Load):
            self.names.setdefault(name, node.lineno)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """Record the line if a comparison selects the elements that are read."""
        index = self.values.assigned(node.slice)
        compared = isinstance(index, ast.Compare) and isinstance(index.ops[0], _COMPARED)
        plain = self.values.is_numpy(node.value) or (index is not None and self.values.is_numpy(index))
        # Only if it is read: an assignment to x[mask] keeps its shape.
        if compared and not plain and isinstance(node.ctx, ast.Load):
            self.masks.append(node.lineno)
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        """Enter a new scope; a function's body runs at each call, not at its definition."""
        outer = self._scope, self._every_step, self._loops, self._within
        self._scopes += 1
        name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
        self._scope, self._every_step, self._loops, self._within = self._scopes, False, 0, name
        self.generic_visit(node)
        self._scope, self._every_step, self._loops, self._within = outer

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815
    visit_Lambda = visit_FunctionDef  # noqa: N815

    def visit_For(self, node: ast.For | ast.AsyncFor | ast.While) -> None:
        """Find out whether the loop trains; then its body runs at every step."""
        outer = self._every_step
        self._every_step = outer or _trains(node)
        self._loops += 1
        self.generic_visit(node)
        self._loops -= 1
        self._every_step = outer

    visit_AsyncFor = visit_For  # noqa: N815
    visit_While = visit_For  # noqa: N815

    def visit_If(self, node: ast.If) -> None:
        """Visit the test, which always runs, and the branches, which may not."""
        self.visit(node.test)
        outer, self._every_step = self._every_step, False
        # The body of `if __name__ == "__main__"` always runs in the program itself.
        main = isinstance(node.test, ast.Compare) and ast.unparse(node.test.left) == "__name__"
        self._branches += not main
        for statement in (*node.body, *node.orelse):
            self.visit(statement)
        self._branches -= not main
        self._every_step = outer


def _is_plain(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or (isinstance(node, ast.JoinedStr) and bool(node.values))


def _trains(loop: ast.For | ast.AsyncFor | ast.While) -> bool:
    """Return whether the loop itself contains a training step; a loop of epochs around it does not count."""
    open_nodes: list[ast.AST] = [*loop.body]
    while open_nodes:
        node = open_nodes.pop()
        if isinstance(node, ast.For | ast.AsyncFor | ast.While | ast.FunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _STEPS:
            return True
        open_nodes.extend(ast.iter_child_nodes(node))
    return False
