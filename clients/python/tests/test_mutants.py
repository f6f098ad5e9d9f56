"""Each row of `clients/vectors` is there for something: a small change of the rules turns it red.

The rules are changed in one place at a time: a comparison, a condition, a number, a word, a member of a set. A change
that turns most rows of a file red says nothing about any of them, and does not count; in a file with few rows, one
that turns all of them red.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import json
import os
import sys
import types
import unittest
from typing import Any, Callable, Dict, Iterator, List, Set, Tuple

import firstwrite
from tests.test_vectors import NOW, VECTORS, cases

SOURCE = os.path.dirname(firstwrite.__file__)
MODULES = ("answer", "rules", "life", "keys")
PACKAGE = "firstwrite_changed"

MANY = 30
FEW = 3

Rules = Dict[str, types.ModuleType]


def source_of(module: str) -> str:
    with open(os.path.join(SOURCE, f"{module}.py"), encoding="utf-8") as stream:
        return stream.read()


def load(codes: Dict[str, types.CodeType]) -> Rules:
    """Runs modules as a package of their own."""
    package = types.ModuleType(PACKAGE)
    package.__path__ = []
    sys.modules[PACKAGE] = package
    loaded: Rules = {}
    try:
        for name in MODULES:
            module = types.ModuleType(f"{PACKAGE}.{name}")
            module.__package__ = PACKAGE
            sys.modules[module.__name__] = module
            loaded[name] = module
            exec(codes[name], module.__dict__)
    finally:
        for name in (PACKAGE, *(f"{PACKAGE}.{name}" for name in MODULES)):
            sys.modules.pop(name, None)
    return loaded


# Changes

_SWAPS: Dict[type, Any] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
}


def changes(source: str) -> Iterator[ast.Module]:
    """Returns a module with one change each."""
    tree = ast.parse(source)
    idle = {id(part) for node in ast.walk(tree) for whole in _without_meaning(node) for part in ast.walk(whole)}
    for number, node in enumerate(ast.walk(tree)):
        for change in [] if id(node) in idle else _changes_of(node):
            changed = ast.parse(source)
            change(next(itertools.islice(ast.walk(changed), number, None)))
            yield changed


def _without_meaning(node: ast.AST) -> List[ast.AST]:
    """Returns the parts of a node that say nothing about the rules: types, decorators and texts for readers."""
    parts = [getattr(node, "annotation", None), getattr(node, "returns", None)]
    parts += getattr(node, "decorator_list", [])
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        parts.append(node)
    return [part for part in parts if part is not None]


def _changes_of(node: ast.AST) -> List[Callable[[Any], None]]:
    found: List[Callable[[Any], None]] = []
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPS:
        found += [_swap_comparison(at) for at in range(len(node.ops))]
    elif isinstance(node, (ast.BoolOp, ast.BinOp)) and type(node.op) in _SWAPS:
        found.append(lambda place: setattr(place, "op", _SWAPS[type(place.op)]()))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        found.append(_twice)
    if isinstance(node, (ast.If, ast.IfExp)):
        found.append(lambda place: setattr(place, "test", ast.Constant(True, **_at(place.test))))
        found.append(lambda place: setattr(place, "test", ast.Constant(False, **_at(place.test))))
    if isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load) and len(node.elts) > 1:
        found += [_without(at) for at in range(len(node.elts))]
    if isinstance(node, ast.Constant):
        value = node.value
        if isinstance(value, bool):
            found.append(lambda place: setattr(place, "value", not place.value))
        elif isinstance(value, int):
            found += [_to(value + 1), _to(value - 1)]
        elif isinstance(value, str):
            found.append(_to(value + "x"))
    return found


def _swap_comparison(at: int) -> Callable[[Any], None]:
    def change(place: Any) -> None:
        place.ops[at] = _SWAPS[type(place.ops[at])]()

    return change


def _without(at: int) -> Callable[[Any], None]:
    def change(place: Any) -> None:
        del place.elts[at]

    return change


def _twice(place: Any) -> None:
    place.operand = ast.UnaryOp(ast.Not(), place.operand, **_at(place))


def _to(value: object) -> Callable[[Any], None]:
    return lambda place: setattr(place, "value", value)


def _at(place: Any) -> Dict[str, Any]:
    return {"lineno": place.lineno, "col_offset": place.col_offset}


# Rows by changed rules


def _result(rules: Rules, row: Dict[str, Any]) -> Any:
    answer = rules["answer"]
    given = row["answer"]
    if "failure" in given:
        return answer.Failure(given["failure"])
    body = json.dumps(given["json"]).encode() if "json" in given else b""
    lines = [
        (name, line)
        for name, value in given["headers"].items()
        for line in ([value] if isinstance(value, str) else value)
    ]
    return answer.Answer(given["status"], answer.joined(lines), body, hidden=given.get("hidden", False))


def _decide(rules: Rules, row: Dict[str, Any]) -> object:
    return rules["rules"].decide(row["dialect"], _result(rules, row), row["doubt"], row["refreshed"], NOW)


def _ask(rules: Rules, row: Dict[str, Any]) -> object:
    decision = rules["rules"].decide_status(_result(rules, row), row["refreshed"], NOW)
    if "asked" not in row:
        return decision
    return decision, rules["rules"].wait_ms(decision.wait * 1000, row["asked"], row["random"])


def _shows(rules: Rules, row: Dict[str, Any]) -> object:
    return rules["rules"].shows_status(_result(rules, row))


def _wait(rules: Rules, row: Dict[str, Any]) -> object:
    answer = rules["answer"]
    time = answer.server_time(row.get("date_header"), answer.http_date(row["now"]))
    asked = answer.retry_after(row["retry_after_header"], answer.number(row["retry_after_member"]), time)
    return rules["rules"].wait_ms((asked or 0) * 1000, row["attempt"], row["random"])


def _crash(rules: Rules, row: Dict[str, Any]) -> object:
    # The marks of a process that dies: each waits for the back-off of the one before it.
    return [rules["rules"].wait_ms(0, attempt, row["random"]) for attempt in range(1, len(row["expect_ms"]))]


def _left(rules: Rules, row: Dict[str, Any]) -> object:
    return rules["rules"].wait_left_ms(row["not_before"], row["waits_for_ms"], row["now"])


def _expires(rules: Rules, row: Dict[str, Any]) -> object:
    answer = rules["answer"]
    headers = {"idempotency-expires": row["expires_header"], "date": row["date_header"]}
    given = answer.Answer(201, {name: value for name, value in headers.items() if value is not None})
    return given.expires_at(answer.http_date(row["now"]))


def _life(rules: Rules, row: Dict[str, Any]) -> object:
    life = rules["life"]
    times = life.Times(row["first_attempt_at"], row["resumed_at"], row["latest_at"], row["expires_at"])
    return life.end_of_life(life.Life(3_600_000, 86_400_000), row["now"], times, row["doubt"])


def _key(rules: Rules, row: Dict[str, Any]) -> object:
    return rules["keys"].derived_key(bytes.fromhex(row["secret_hex"]), row["intent"])


FILES: Dict[str, Tuple[Tuple[str, ...], Callable[[Rules, Dict[str, Any]], object]]] = {
    "ask.json": (("answer", "rules"), _ask),
    "crash.json": (("rules",), _crash),
    "decide.json": (("answer", "rules"), _decide),
    "expires.json": (("answer",), _expires),
    "key.json": (("keys",), _key),
    "left.json": (("rules",), _left),
    "life.json": (("life",), _life),
    "shows.json": (("answer", "rules"), _shows),
    "wait.json": (("answer", "rules"), _wait),
}


def _seen(rules: Rules, run: Callable[[Rules, Dict[str, Any]], object], row: Dict[str, Any]) -> str:
    # As text, since classes of another load are never equal.
    try:
        return repr(run(rules, row))
    except Exception as error:
        return f"failed: {type(error).__name__}"


@unittest.skipUnless(os.path.isdir(VECTORS), "the vectors are not beside this folder")
class Rows(unittest.TestCase):
    def test_each_row_is_turned_red_by_a_small_change_of_the_rules(self) -> None:
        for file, (modules, run) in FILES.items():
            with self.subTest(file):
                rows = cases(file)
                idle = self.idle(rows, modules, run)
                self.assertEqual([rows[at]["name"] for at in sorted(idle)], [])

    def idle(
        self,
        rows: List[Dict[str, Any]],
        modules: Tuple[str, ...],
        run: Callable[[Rules, Dict[str, Any]], object],
    ) -> Set[int]:
        """Returns the numbers of the rows that no change turns red."""
        good = [_seen(self.unchanged, run, row) for row in rows]
        idle = set(range(len(rows)))
        most = len(rows) // 2 if len(rows) >= MANY else max(FEW, len(rows) - 1)
        for rules in (rules for module in modules for rules in self.changed(module)):
            if not idle:
                break
            turned = {at for at, row in enumerate(rows) if _seen(rules, run, row) != good[at]}
            if len(turned) <= most:
                idle -= turned
        return idle

    codes = {name: compile(source_of(name), f"{name}.py", "exec") for name in MODULES}
    unchanged = load(codes)
    loaded: Dict[str, List[Rules]] = {}

    def changed(self, module: str) -> List[Rules]:
        """Returns the rules with each change of a module that leaves a program."""
        if module not in self.loaded:
            self.loaded[module] = []
            for tree in changes(source_of(module)):
                # What is no program any more turns every row red.
                with contextlib.suppress(Exception):
                    self.loaded[module].append(load({**self.codes, module: compile(tree, "changed.py", "exec")}))
        return self.loaded[module]
