# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mutations of a Python text: one small change each, at one place.

Comparisons are flipped and moved by their boundary, numbers grow by one, a condition loses a part,
`and` and `or`, + and -, True and False, PASS and FAIL change places, branches are swapped. Texts,
annotations, decorators and documentation are left alone: nothing judges by them.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

COMPARISONS: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
ARITHMETIC: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
OUTCOMES = {"PASS": "FAIL", "FAIL": "NOT_MEASURED", "NOT_MEASURED": "PASS"}


@dataclass(frozen=True)
class Mutation:
    """One change; `index` is the number of the node in the order of the walk."""

    index: int
    kind: str
    line: int
    column: int
    what: str
    # The outermost function that it is in, and its first line; "" at module level.
    function: str = ""
    function_line: int = 0


Change = Callable[[Any], ast.AST]


def _code(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 70 else text[:67] + "..."


def changes(node: ast.AST) -> Iterator[tuple[str, Change]]:
    """Every change of this node alone: its name, and what makes the new node of the old one."""
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            for new in COMPARISONS[type(operator)]:
                yield f"{place}:{new.__name__}", _compare(place, new)
    elif isinstance(node, ast.BoolOp):
        yield "and-or", _other_boolean
        for place in range(len(node.values)):
            yield f"drop:{place}", _drop(place)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not", lambda old: old.operand
    elif isinstance(node, (ast.BinOp, ast.AugAssign)):
        if type(node.op) in ARITHMETIC and not _of_text(node):
            yield "arithmetic", _other_arithmetic
    elif isinstance(node, (ast.If, ast.IfExp, ast.While)):
        if not isinstance(node.test, (ast.Compare, ast.BoolOp, ast.UnaryOp)):
            yield "negate", _negate
    elif isinstance(node, (ast.Constant, ast.Name)):
        yield from _values(node)
    elif isinstance(node, ast.Continue):
        yield "loop", lambda _old: ast.Break()


def _values(node: ast.Constant | ast.Name) -> Iterator[tuple[str, Change]]:
    if isinstance(node, ast.Name):
        if node.id in OUTCOMES and isinstance(node.ctx, ast.Load):
            yield "outcome", lambda old: ast.Name(OUTCOMES[old.id], ast.Load())
    elif isinstance(node.value, bool):
        yield "bool", lambda old: ast.Constant(not old.value)
    elif isinstance(node.value, (int, float)):
        # Of a large float one more is the same.
        step = 1 if node.value + 1 != node.value else node.value
        yield "number", lambda old: ast.Constant(old.value + step)


def _of_text(node: ast.AST) -> bool:
    """A text or a list that is put together is not arithmetic."""
    return any(
        isinstance(part, (ast.JoinedStr, ast.List))
        or (isinstance(part, ast.Constant) and isinstance(part.value, (str, bytes)))
        for part in ast.walk(node)
    )


def _compare(place: int, new: type) -> Change:
    def change(old: Any) -> ast.AST:
        made = copy.deepcopy(old)
        made.ops[place] = new()
        return made

    return change


def _drop(place: int) -> Change:
    def change(old: Any) -> ast.AST:
        values = [value for n, value in enumerate(old.values) if n != place]
        return values[0] if len(values) == 1 else ast.BoolOp(old.op, values)

    return change


def _other_boolean(old: Any) -> ast.AST:
    new = ast.Or() if isinstance(old.op, ast.And) else ast.And()
    return ast.BoolOp(new, old.values)


def _other_arithmetic(old: Any) -> ast.AST:
    made = copy.copy(old)
    made.op = ARITHMETIC[type(old.op)]()
    return made


def _negate(old: Any) -> ast.AST:
    made = copy.copy(old)
    made.test = ast.UnaryOp(ast.Not(), old.test)
    return made


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """What may be changed below a node."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        if isinstance(node, ast.Call) and name == "keywords":
            # dataclass(frozen=True) and the like in calls: equivalent for tests
            value = [word for word in value if word.arg not in ("frozen", "slots", "repr")]
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, ast.AST):
                yield item


def _walk(
    node: ast.AST, function: tuple[str, int], nested: str = ""
) -> Iterator[tuple[ast.AST, tuple[str, int]]]:
    yield node, function
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not function[0]:
        line = min([node.lineno, *(one.lineno for one in node.decorator_list)])
        # Defaults are computed where the function is made.
        for child in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            yield from _walk(child, function)
        for child in node.body:
            yield from _walk(child, (nested + node.name, line))
        return
    prefix = f"{nested}{node.name}." if isinstance(node, ast.ClassDef) else nested
    for child in _children(node):
        yield from _walk(child, function, prefix)


def candidates(text: str) -> list[Mutation]:
    """Return every mutation of this text."""
    found = []
    for index, (node, function) in enumerate(_walk(ast.parse(text), ("", 0))):
        for kind, change in changes(node):
            line = getattr(node, "lineno", 0)
            after = change(copy.deepcopy(node))
            if isinstance(node, (ast.If, ast.While)):
                what = f"if {_code(node.test)}  ->  if {_code(after.test)}"
            else:
                what = f"{_code(node)}  ->  {_code(after)}"
            found.append(
                Mutation(index, kind, line, getattr(node, "col_offset", 0), what, *function)
            )
    return found


def mutated(text: str, mutation: Mutation) -> ast.Module:
    """Return the tree of the text with this one change."""
    tree = ast.parse(text)
    nodes = [node for node, _function in _walk(tree, ("", 0))]
    target = nodes[mutation.index]
    change = dict(changes(target))[mutation.kind]
    new = ast.copy_location(change(target), target)
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is target:
                setattr(parent, name, new)
            elif isinstance(value, list) and any(item is target for item in value):
                setattr(parent, name, [new if item is target else item for item in value])
    return ast.fix_missing_locations(tree)
