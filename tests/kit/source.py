"""
Python code as tests of the house read it: a file is parsed and walked once for all tests of a module.

Such a module has the mark `usefixtures("code_read_once")`, which frees the trees in the end: those of the package
alone take 150 MB.
"""

import ast
from functools import cache


@cache
def tree(path):
    """Return the syntax tree of a file; it is shared: do not change it."""
    return ast.parse(path.read_text())


@cache
def nodes(path):
    """Return all nodes of a file, in the order of `ast.walk`."""
    return tuple(ast.walk(tree(path)))


def forget():
    """Free the trees."""
    nodes.cache_clear()
    tree.cache_clear()
