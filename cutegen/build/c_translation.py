"""Integer functions of Python in C, so that what is decided by them is stated once.

A function takes and returns integers, truth values, texts and NamedTuples of them, and has of Python: assignments,
also of tuples; `if`, `return`, `continue`; `for` over a tuple that is written out, over `enumerate` of one, and over
the rows of a field; arithmetic, `//` and `%` as Python has them, comparisons, `and`, `or`, `not`, conditional
expressions, `min`, `max`, `abs`, `divmod`; and calls of other such functions. Annotations say what is not an integer. A
text is only compared: in C it is a number, and "" is 0. Integers have 128 bits in C.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from cutegen.build.entry_code import NUMBERS

_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
_DIVISIONS = {ast.FloorDiv: "floor_div", ast.Mod: "floor_mod"}
_COMPARISONS = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_CALLS = {"min": "num_min", "max": "num_max", "abs": "num_abs"}


class TranslationError(Exception):
    """A function leaves the subset."""


class Translation:
    """Functions and NamedTuples in C, each after what it uses. texts: the number of each text that occurred."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {"": 0}
        self._parts: list[str] = []
        self._functions: dict[str, Callable[..., Any]] = {}
        self._translated: set[str] = set()
        self._structs: dict[str, type[Any]] = {}

    def source(self) -> str:
        """All that was added so far."""
        return NUMBERS + "\n".join(self._parts)

    def text(self, value: str) -> int:
        return self.texts.setdefault(value, len(self.texts))

    # -- types and data --

    def struct(self, kind: type[Any]) -> str:
        """The name in C of a NamedTuple: fields of other types than the subset has are left out."""
        name = kind.__name__
        if self._structs.setdefault(name, kind) is not kind:
            raise TranslationError(f"two types are called {name}")
        if f"struct {name};" not in self._parts:
            fields = "".join(f"  {_declare(field, shape)};\n" for field, shape in _fields(kind).items())
            self._parts += [f"struct {name};", f"typedef struct {name} {{\n{fields}}} {name};\n"]
        return name

    def data(self, value: Any) -> str:
        """The initialiser of a NamedTuple, and of what is in one."""
        if isinstance(value, str):
            return str(self.text(value))
        if isinstance(value, int):
            return str(int(value))
        if hasattr(value, "_fields"):
            shapes = _fields(type(value))
            found = (self._field(getattr(value, name), shape) for name, shape in shapes.items())
            return "{" + ", ".join(found) + "}"
        return "{" + ", ".join(map(self.data, value)) + "}"

    def _field(self, value: Any, shape: int | tuple[int]) -> str:
        if isinstance(shape, int):
            return self.data(value)
        rows = ", ".join(map(self.data, value))
        return f"(const num[][{shape[0]}]){{{rows}}}, {len(value)}" if value else "0, 0"

    # -- functions --

    def function(self, function: Callable[..., Any], name: str = "") -> str:
        """The name in C of a function, by default made of its own; it is translated when it is asked for first, and
        those that it calls come with it. A method must not read `self`. TranslationError: it leaves the subset."""
        name = f"do_{name or function.__name__.strip('_')}"
        if (known := self._functions.setdefault(name, function)) is not function:
            raise TranslationError(f"two functions are called {name}: of {known.__module__} and {function.__module__}")
        if name not in self._translated:
            self._translated.add(name)
            tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
            assert isinstance(tree, ast.FunctionDef)
            hints = typing.get_type_hints(function)
            self._parts.append(_Function(self, name, tree, hints, function.__globals__).source())
        return name

    def result(self, hint: Any) -> str:
        """The type in C of what a function returns."""
        if length := _length(hint):
            name = f"tuple{length}"
            declared = f"typedef struct {name} {{ num v[{length}]; }} {name};\n"
            if declared not in self._parts:
                self._parts.append(declared)
            return name
        return self.struct(hint) if _is_struct(hint) else "num"


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and hasattr(hint, "_fields")


def _length(hint: Any) -> int:
    """Of a tuple of integers; 0: it is none."""
    values = typing.get_args(hint)
    return len(values) if typing.get_origin(hint) is tuple and all(v in (int, bool, str) for v in values) else 0


def _fields(kind: type[Any]) -> dict[str, int | tuple[int]]:
    """Of the fields that C has: 0 for a number, the length of a tuple, or (columns,) of rows."""
    found: dict[str, int | tuple[int]] = {}
    for name, hint in typing.get_type_hints(kind).items():
        values = typing.get_args(hint)
        if hint in (int, bool, str):
            found[name] = 0
        elif length := _length(hint):
            found[name] = length
        elif len(values) == 2 and values[1] is ... and (columns := _length(values[0])) and columns > 2:
            found[name] = (columns,)
    return found


def _declare(name: str, shape: int | tuple[int]) -> str:
    if isinstance(shape, tuple):
        return f"const num (*{name})[{shape[0]}]; int {name}_count"
    return f"num {name}[{shape}]" if shape else f"num {name}"


def _rounded_up(node: ast.UnaryOp) -> tuple[ast.expr, ast.expr] | None:
    """a and b of -(-a // b)."""
    inner = node.operand
    if not (isinstance(node.op, ast.USub) and isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.FloorDiv)):
        return None
    left = inner.left
    return (left.operand, inner.right) if isinstance(left, ast.UnaryOp) and isinstance(left.op, ast.USub) else None


class _Function:
    """One function. types: of names that stand for NamedTuples; passed: those that a pointer stands for."""

    def __init__(
        self,
        whole: Translation,
        name: str,
        tree: ast.FunctionDef,
        hints: Mapping[str, Any],
        namespace: Mapping[str, Any],
    ) -> None:
        self.whole, self.name, self.tree, self.hints, self.namespace = whole, name, tree, hints, namespace
        self.parameters = [a.arg for a in tree.args.args if a.arg != "self"]
        self.types = {p: hints[p] for p in self.parameters if _is_struct(hints[p])}
        self.passed = set(self.types)
        self.locals: dict[str, str] = {}
        self.temporaries = 0
        self.lines: list[str] = []

    def source(self) -> str:
        result = self.whole.result(self.hints["return"])
        arguments = [
            f"const {self.whole.struct(self.types[p])} *{p}" if p in self.types else f"num {p}" for p in self.parameters
        ]
        body = self.tree.body[1:] if ast.get_docstring(self.tree) else self.tree.body
        self._block(body)
        declared = "".join(f"  {kind} {name};\n" for name, kind in self.locals.items() if name not in self.parameters)
        text = "".join(f"  {line}\n" for line in self.lines)
        return f"static {result} {self.name}({', '.join(arguments)}) {{\n{declared}{text}}}\n"

    def _fail(self, node: ast.AST) -> TranslationError:
        return TranslationError(f"{self.name}: {ast.unparse(node)}")

    # -- statements --

    def _block(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Return) and node.value:
            self.lines.append(f"return {self._returned(node.value)};")
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            self._assign(node.targets[0], node.value)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            self._assign(node.target, ast.BinOp(node.target, node.op, node.value))
        elif isinstance(node, ast.If):
            self.lines.append(f"if ({self._truth(node.test)}) {{")
            self._block(node.body)
            if node.orelse:
                self.lines.append("} else {")
                self._block(node.orelse)
            self.lines.append("}")
        elif isinstance(node, ast.For) and not node.orelse:
            self._loop(node)
        elif isinstance(node, ast.Continue):
            self.lines.append("continue;")
        else:
            raise self._fail(node)

    def _loop(self, node: ast.For) -> None:
        """Over what is written out, a body for each; else over the rows of a field."""
        values = node.iter
        if isinstance(values, ast.Call) and ast.unparse(values.func) == "enumerate":
            (inner,) = values.args
            assert isinstance(inner, ast.Tuple)
            pairs = [ast.Tuple([ast.Constant(i), e], ast.Load()) for i, e in enumerate(inner.elts)]
            values = ast.Tuple(list(pairs), ast.Load())
        if isinstance(values, ast.Tuple):
            for value in [self._held(e) for e in values.elts]:
                self.lines.append("do {")
                self._assign(node.target, value)
                self._block(node.body)
                self.lines.append("} while (0);")
            return
        if not (isinstance(values, ast.Attribute) and isinstance(node.target, ast.Tuple)):
            raise self._fail(node)
        rows, index = self._expression(values), self._temporary("int")
        self.lines.append(f"for ({index} = 0; {index} < {rows}_count; {index}++) {{")
        for column, target in enumerate(node.target.elts):
            self.lines.append(f"{self._local(target)} = {rows}[{index}][{column}];")
        self._block(node.body)
        self.lines.append("}")

    def _held(self, value: ast.expr) -> ast.expr:
        """What has the value that an expression has here, whatever is assigned later."""
        if isinstance(value, ast.Tuple):
            return ast.Tuple([self._held(e) for e in value.elts], ast.Load())
        if isinstance(value, ast.Constant):
            return value
        temporary = self._temporary("num")
        self.lines.append(f"{temporary} = {self._expression(value)};")
        return ast.Name(temporary)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        """Of a tuple, all values are there before the first is assigned."""
        if isinstance(target, ast.Name) and (kind := self._struct_of(value)):
            self.types[target.id] = kind
            self.lines.append(f"{self._local(target, self.whole.struct(kind))} = {self._expression(value)};")
            return
        pairs = list(self._pairs(target, value))
        if len(pairs) > 1:
            held = [(name, self._temporary("num"), text) for name, text in pairs]
            self.lines += [f"{temporary} = {text};" for _, temporary, text in held]
            pairs = [(name, temporary) for name, temporary, _ in held]
        self.lines += [f"{self._local(name)} = {text};" for name, text in pairs]

    def _pairs(self, target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, str]]:
        """(name, its value in C) of an assignment."""
        if not isinstance(target, ast.Tuple):
            yield target, self._expression(value)
            return
        for name, element in zip(target.elts, self._elements(value), strict=True):
            if isinstance(element, str):
                yield name, element
            else:
                yield from self._pairs(name, element)

    def _elements(self, value: ast.expr) -> list[ast.expr | str]:
        """Of a tuple: expressions, or text in C."""
        if isinstance(value, ast.Tuple):
            return list(value.elts)
        if isinstance(value, ast.IfExp) and isinstance(value.body, ast.Tuple) and isinstance(value.orelse, ast.Tuple):
            test = self._truth(value.test)
            both = zip(value.body.elts, value.orelse.elts, strict=True)
            return [f"({test} ? {self._expression(a)} : {self._expression(b)})" for a, b in both]
        if isinstance(value, ast.Attribute):
            kind = self.types[ast.unparse(value.value)]
            length = _fields(kind)[value.attr]
            assert isinstance(length, int)
            return [f"{self._expression(value)}[{i}]" for i in range(length)]
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "divmod":
            a, b = map(self._expression, value.args)
            return [f"floor_div({a}, {b})", f"floor_mod({a}, {b})"]
        if isinstance(value, ast.Call) and (length := _length(self._hint(value))):
            temporary = self._temporary(f"tuple{length}")
            self.lines.append(f"{temporary} = {self._expression(value)};")
            return [f"{temporary}.v[{i}]" for i in range(length)]
        raise self._fail(value)

    def _element(self, value: ast.expr | str) -> str:
        return value if isinstance(value, str) else self._expression(value)

    def _returned(self, value: ast.expr) -> str:
        kind = self.hints["return"]
        if length := _length(kind):
            if isinstance(value, ast.Call) and _length(self._hint(value)):
                return self._expression(value)
            return f"(tuple{length}){{{{{', '.join(map(self._element, self._elements(value)))}}}}}"
        return self._expression(value)

    def _local(self, name: ast.expr, kind: str = "num") -> str:
        if not isinstance(name, ast.Name) or self.locals.setdefault(name.id, kind) != kind:
            raise self._fail(name)
        return name.id

    def _temporary(self, kind: str) -> str:
        self.temporaries += 1
        return self._local(ast.Name(f"t{self.temporaries}_"), kind)

    # -- expressions --

    def _called(self, call: ast.Call) -> Any:
        return self.namespace.get(ast.unparse(call.func))

    def _hint(self, call: ast.Call) -> Any:
        """The annotation of what it returns."""
        called = self._called(call)
        return typing.get_type_hints(called).get("return") if inspect.isfunction(called) else called

    def _struct_of(self, value: ast.expr) -> Any:
        hint = self._hint(value) if isinstance(value, ast.Call) else None
        return hint if _is_struct(hint) else None

    def _truth(self, node: ast.expr) -> str:
        if isinstance(node, ast.BoolOp):
            word = " && " if isinstance(node.op, ast.And) else " || "
            return "(" + word.join(map(self._truth, node.values)) + ")"
        return self._expression(node)

    def _expression(self, node: ast.expr) -> str:
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, str)):
            return self.whole.data(node.value)
        if isinstance(node, ast.Name):
            return self._name(node)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in self.types:
            return f"{node.value.id}{'->' if node.value.id in self.passed else '.'}{node.attr}"
        if isinstance(node, ast.Subscript):
            value = self._expression(node.value)
            call = isinstance(node.value, ast.Call)
            return f"{value}{'.v' if call else ''}[{self._expression(node.slice)}]"
        if isinstance(node, ast.BinOp):
            a, b = self._expression(node.left), self._expression(node.right)
            if name := _DIVISIONS.get(type(node.op)):  # type: ignore[call-overload]
                return f"{name}({a}, {b})"
            if type(node.op) in _OPERATORS:
                return f"({a} {_OPERATORS[type(node.op)]} {b})"  # type: ignore[index]
        if isinstance(node, ast.UnaryOp):
            if quotient := _rounded_up(node):
                return f"ceil_div({', '.join(map(self._expression, quotient))})"
            sign = "!" if isinstance(node.op, ast.Not) else "-"
            return f"({sign}{self._truth(node.operand)})"
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            word = _COMPARISONS[type(node.ops[0])]  # type: ignore[index]
            return f"({self._expression(node.left)} {word} {self._expression(node.comparators[0])})"
        if isinstance(node, ast.BoolOp):
            return self._chosen(node)
        if isinstance(node, ast.IfExp):
            test, a, b = self._truth(node.test), self._expression(node.body), self._expression(node.orelse)
            return f"({test} ? {a} : {b})"
        if isinstance(node, ast.Call) and not node.keywords:
            return self._call(node)
        raise self._fail(node)

    def _name(self, node: ast.Name) -> str:
        if node.id in self.parameters or node.id in self.locals:
            return node.id
        value = self.namespace.get(node.id)
        if isinstance(value, (int, str)):
            return self.whole.data(value)
        raise self._fail(node)

    def _chosen(self, node: ast.BoolOp) -> str:
        """`and`, `or` of values."""
        text = self._expression(node.values[0])
        for other in node.values[1:]:
            value = self._expression(other)
            a, b = (value, text) if isinstance(node.op, ast.And) else (text, value)
            text = f"({text} ? {a} : {b})"
        return text

    def _call(self, node: ast.Call) -> str:
        name, called = ast.unparse(node.func), self._called(node)
        if name in _CALLS:
            text, *others = map(self._expression, node.args)
            for other in others:
                text = f"{_CALLS[name]}({text}, {other})"
            return f"{_CALLS[name]}({text})" if not others else text
        if _is_struct(called):
            kept = _fields(called)
            values = [self._expression(v) for field, v in zip(called._fields, node.args) if field in kept]
            return f"({self.whole.struct(called)}){{{', '.join(values)}}}"
        if not inspect.isfunction(called):
            raise self._fail(node)
        return f"{self.whole.function(called)}({', '.join(map(self._argument, node.args))})"

    def _argument(self, node: ast.expr) -> str:
        if isinstance(node, ast.Name) and node.id in self.types:
            return node.id if node.id in self.passed else f"&{node.id}"
        return self._expression(node)
