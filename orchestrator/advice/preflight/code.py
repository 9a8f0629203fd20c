"""One Python file as the rules see it: what it imports and calls, with which plain values, and where."""

import ast
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from orchestrator.advice.preflight.python_values import UNKNOWN, Values

_SHORT: Final = 200
_STEPS: Final = frozenset({"backward", "optimizer_step", "mark_step"})
_COMPARED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)


@dataclass(frozen=True)
class Call:
    """
    Hold one call. *name* is dotted, import aliases resolved (`tensorflow.unique`), *method* its last part.

    Values are plain ones, or UNKNOWN; a text that is put together is known by its beginning.
    *spread* says that more arguments come from `*` or `**`; *scope* numbers the function around it;
    *every_step* says that a training loop runs it unconditionally. *plain* holds which arguments are written
    out in the call itself, *tail* is the known end of the first argument, when that is a text.
    *in_loop*: a loop of the same function is around it. *within* names that function, empty outside of all.
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
        """Return the value of an argument: None when it is not given, UNKNOWN when it cannot be known."""
        if keyword in self.keywords:
            return self.keywords[keyword]
        if position is not None and position < len(self.args):
            return self.args[position]
        return UNKNOWN if self.spread else None


@dataclass(frozen=True)
class Import:
    """
    Hold one import: the full *name*, for `from . import x` with the *level* of its dots.

    *sure* says that it runs whenever the file does: neither in a function nor below an `if` or a `try`.
    """

    name: str
    line: int
    level: int
    sure: bool


@dataclass(frozen=True)
class Code:
    """
    Hold one Python file.

    *modules* are top-level names of imports, *names* full names with their first line, *masks* the lines
    that pick elements by a comparison, such as `x[labels >= 0]`. *texts* are the short texts in it.
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
    """Read a Python file; raise SyntaxError, ValueError or RecursionError when it is not one we can read."""
    # Strange escapes in the user's texts would be warned of as if they were ours.
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
    """Walk a file once and keep what the rules ask for."""

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
        """Keep the call, then look inside it."""
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
        """Keep what is imported."""
        sure = not self._scope and not self._branches
        self.imports += [Import(item.name, node.lineno, 0, sure) for item in node.names]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Keep what is imported, each name of it: it may be a module of its own."""
        sure = not self._scope and not self._branches
        start = f"{node.module}." if node.module else ""
        self.imports += [Import(start + item.name, node.lineno, node.level, sure) for item in node.names]

    def visit_Try(self, node: ast.Try) -> None:
        """Look at all of it; an import that may fail is not needed."""
        self._branches += 1
        self.generic_visit(node)
        self._branches -= 1

    def visit_Constant(self, node: ast.Constant) -> None:
        """Keep short texts."""
        if isinstance(node.value, str) and len(node.value) <= _SHORT:
            self.texts.add(node.value)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Keep the full name of something imported and read; one that is given a value is no use of it."""
        name = self.values.imported_name(node)
        if name and isinstance(node.ctx, ast.Load):
            self.names.setdefault(name, node.lineno)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """Keep the line when a comparison picks the elements that are read."""
        index = self.values.assigned(node.slice)
        compared = isinstance(index, ast.Compare) and isinstance(index.ops[0], _COMPARED)
        plain = self.values.is_numpy(node.value) or (index is not None and self.values.is_numpy(index))
        # Only where it is read: an assignment to x[mask] keeps its shape.
        if compared and not plain and isinstance(node.ctx, ast.Load):
            self.masks.append(node.lineno)
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        """Give the function a number; what it holds runs when it is called, not where it stands."""
        outer = self._scope, self._every_step, self._loops, self._within
        self._scopes += 1
        name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
        self._scope, self._every_step, self._loops, self._within = self._scopes, False, 0, name
        self.generic_visit(node)
        self._scope, self._every_step, self._loops, self._within = outer

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815
    visit_Lambda = visit_FunctionDef  # noqa: N815

    def visit_For(self, node: ast.For | ast.AsyncFor | ast.While) -> None:
        """Tell whether the loop trains: then its body runs at every step."""
        outer = self._every_step
        self._every_step = outer or _trains(node)
        self._loops += 1
        self.generic_visit(node)
        self._loops -= 1
        self._every_step = outer

    visit_AsyncFor = visit_For  # noqa: N815
    visit_While = visit_For  # noqa: N815

    def visit_If(self, node: ast.If) -> None:
        """Look at the test, which always runs, and at the branches, which do not."""
        self.visit(node.test)
        outer, self._every_step = self._every_step, False
        # What stands below `if __name__ == "__main__"` runs in the program itself.
        main = isinstance(node.test, ast.Compare) and ast.unparse(node.test.left) == "__name__"
        self._branches += not main
        for statement in (*node.body, *node.orelse):
            self.visit(statement)
        self._branches -= not main
        self._every_step = outer


def _is_plain(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or (isinstance(node, ast.JoinedStr) and bool(node.values))


def _trains(loop: ast.For | ast.AsyncFor | ast.While) -> bool:
    """Say whether the loop itself holds a step of training; a loop of epochs around it does not count."""
    open_nodes: list[ast.AST] = [*loop.body]
    while open_nodes:
        node = open_nodes.pop()
        if isinstance(node, ast.For | ast.AsyncFor | ast.While | ast.FunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _STEPS:
            return True
        open_nodes.extend(ast.iter_child_nodes(node))
    return False
