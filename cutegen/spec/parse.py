"""SpecDocument to KernelSpec: schema findings of a file, as many at once as can be told, in our words."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from cutegen import elsewhere
from cutegen.diagnostics import MAX_KEPT, MAX_QUOTED, CutegenError, Diagnostic, Rule, SpecError, cut, register, suggest
from cutegen.epilogue.rules import MAX_EXPRESSION, SPLIT
from cutegen.spec import schema as schemas
from cutegen.spec.base import KernelSpec, Section
from cutegen.spec.dims import BAD_NAME, MAX_EXTENT, Dim
from cutegen.spec.document import Data, KeyPath, SpecDocument
from cutegen.spec.finding import FieldError, Finding, Unworded
from cutegen.spec.keys import key_places
from cutegen.spec.load import SPEC, Kind
from cutegen.spec.names import IDENTIFIER, name_problem, reserved_problem
from cutegen.spec.tensors import parse_tensor
from cutegen.spec.text_rules import QUOTE_EXPRESSION

UNKNOWN_KEY = register(Rule(
    "unknown-key", "every key is known where it stands",
    "An unknown key is a typo or a knob of another family; ignored, it would change nothing silently.",
    "pipeline: {stage: 4}",
))  # fmt: skip
MISSING_KEY = register(Rule(
    "missing-key", "required keys are there",
    "Every spec has `cutegen`, `kernel` and `arch`; what else a family requires is marked in the spec reference.",
))  # fmt: skip
WRONG_TYPE = register(Rule(
    "wrong-type", "values have the type that the key asks for",
    'Values are never converted: `4` is a number, `"4"` is text, `yes` is text and `true` is a truth value.',
    "pipeline: {stages: four}",
))  # fmt: skip
BAD_VALUE = register(Rule(
    "bad-value", "values are among those that the key allows",
    "The value has the right type, but not one of the allowed values, or it is out of range.",
    "scheduler: persistent",
))  # fmt: skip
UNKNOWN_FAMILY = register(Rule(
    "unknown-family", "`kernel` names a kernel family",
    "`cutegen list` shows the families.",
    "kernel: gem",
))  # fmt: skip
FAMILY_PACKAGE = register(Rule(
    "family-package", "a kernel family of another package can be used",
    "A family that an installed distribution adds is loaded when a spec names it. It must be the only one of its name, "
    "and have what cutegen asks a family for; docs/adding-a-kernel-family.md has an example.",
))  # fmt: skip
RESERVED_NAME = register(Rule(
    "reserved-name", "names with a meaning elsewhere are not given to dims, tensors or locals",
    "`acc` and `stored` mean something in expressions, and the names of epilogue operations are functions there. Some "
    "are names of generated source where the dim, tensor or local would stand, such as `stream`, or where something is "
    "made of it: `s_ticket` of `ticket`.",
    "tensors: {acc: f32[m, n]}",
))  # fmt: skip
NAME_COLLISION = register(Rule(
    "name-collision", "dims, tensors and locals share one namespace",
    "One name means one thing in the whole spec, and in generated source, which makes names of others: `tma_atom_D` of "
    "a tensor `d`, `k_over_128` of a dim `k`.",
    "tensors: {m: bf16[m, k]}",
))  # fmt: skip


FUNCTION_NAME = register(Rule(
    "function-name", "the function of a package has a name that nothing else in it has",
    "A generated package offers a function named as its spec, or as `function` says. Next to it stand PLAN, kernel_fn, "
    "launch_fn, reference_fn, get_inputs and the modules of the package.",
    "function: kernel_fn",
))  # fmt: skip


Model = TypeVar("Model", bound=Section)


class SchemaError(SpecError):
    """Findings about keys, types, values and names. partial: the spec without the sections that are wrong, when what
    is computed can be read nevertheless, so that its expressions can be checked in the same run."""

    def __init__(self, diagnostics: Iterable[Diagnostic], more: int = 0, partial: KernelSpec | None = None) -> None:
        super().__init__(diagnostics, more)
        self.partial = partial


_YAML_1_1 = ("yes", "Yes", "YES", "no", "No", "NO", "on", "On", "ON", "off", "Off", "OFF", "y", "Y", "n", "N")


def parse_spec(doc: SpecDocument) -> KernelSpec:
    """The typed spec of doc's family. Raises SchemaError with every finding about keys, types, values and names."""
    # The registry only names modules; the family's model is imported when a spec asks for it.
    from cutegen.families import registry

    family = doc.data.get("kernel")
    if not registry.has_family(family):
        if doc.data.keys().isdisjoint(SPEC.keys):
            raise SchemaError([SPEC.finding(doc.path)])
        known = registry.list_families()
        if "kernel" not in doc.data:
            raise SchemaError([doc.diagnostic(MISSING_KEY.id, (), "`kernel` is missing", known)])
        message, remedy = f"`kernel` must name a family, not {_describe(family)}", known
        if isinstance(family, str):
            message = f"unknown kernel family `{cut(family)}`"
            remedy = elsewhere.answer_family(family, registry.family_names(), known)
        raise SchemaError([doc.diagnostic(UNKNOWN_FAMILY.id, ("kernel",), message, remedy)])
    assert isinstance(family, str)
    try:
        model: type[KernelSpec] = registry.load_spec_model(family)
    except CutegenError as error:
        raise SchemaError([doc.diagnostic(FAMILY_PACKAGE.id, ("kernel",), error.message, error.remedy)]) from error
    findings: list[Finding | Unworded] = [*_check_function(doc, family), *_check_names(doc.data)]
    try:
        spec = model.model_validate(doc.data)
        findings += spec.cross_check()
    except ValidationError as error:
        findings += _translate(error, schemas.json_schema(model), doc.data)
        if (rest := _validate_rest(model, doc.data, findings)) is not None:
            findings += rest.cross_check()
    if findings:
        rest = _validate_rest(model, doc.data, findings)
        raise SchemaError(*word_findings(findings, doc), rest)
    return spec


def parse_section(doc: SpecDocument, model: type[Model], kind: Kind) -> Model:
    """A document that is no spec, but a map with the known keys of `model`. Raises SchemaError with every finding."""
    if doc.data and doc.data.keys().isdisjoint(kind.keys):
        raise SchemaError([kind.finding(doc.path)])
    try:
        return model.model_validate(doc.data)
    except ValidationError as error:
        findings = [*_translate(error, schemas.json_schema(model), doc.data)]
    raise SchemaError(*word_findings(findings, doc))


def word_findings(findings: Sequence[Finding | Unworded], doc: SpecDocument) -> tuple[list[Diagnostic], int]:
    """The first findings, in words, and how many more there are."""
    # Of their values nothing can be said.
    no_names = {f.path for f in findings if isinstance(f, Finding) and f.key and f.rule == BAD_NAME.id}
    first: list[Finding | Unworded] = []
    keys: set[KeyPath] = set()
    for finding in findings:
        # The first finding about a key tells the cause: a name that collides is not unknown as well.
        if finding.path not in (keys if finding.key else no_names):
            first.append(finding)
        if finding.key:
            keys.add(finding.path)
    first.sort(key=lambda f: doc.locate(f.path, key=f.key))
    worded = [w for f in first[:MAX_KEPT] for w in ([f] if isinstance(f, Finding) else f.word())]
    shown = [doc.diagnostic(f.rule, f.path, f.message, f.remedy, key=f.key, span=f.span) for f in worded]
    return shown, len(first[MAX_KEPT:])


def _validate_rest(
    model: type[KernelSpec], data: dict[str, Data], findings: Sequence[Finding | Unworded]
) -> KernelSpec | None:
    """The spec without the sections that findings are about; None where these say what is computed."""
    wrong = {f.path[0] for f in findings if f.path}
    if wrong & model.meaning:
        return None
    try:
        return model.model_validate({key: value for key, value in data.items() if key not in wrong})
    except ValidationError:
        return None


def _check_function(doc: SpecDocument, family: str) -> Iterator[Finding]:
    """The name of the package's function: what `function` says, else that of the spec."""
    from cutegen.families.generated_names import function_problem

    written = doc.data.get("function")
    if isinstance(written, str) and IDENTIFIER.fullmatch(written):
        if problem := name_problem(written) or function_problem(family, written):
            yield Finding(FUNCTION_NAME.id, f"`{cut(written)}` {problem}", "choose another name", ("function",))
    elif written is None and (problem := function_problem(family, doc.name)):
        message = f"the package's function would be named `{doc.name}`, which {problem}"
        yield Finding(FUNCTION_NAME.id, message, f"write `function: run_{doc.name}`, or rename the file")


def _check_names(data: dict[str, Data]) -> Iterator[Finding]:
    """Dims, tensors and locals: well-formed, not reserved, one meaning each. Works on sections that do not validate."""
    sections = [(s, section) for s in ("tensors", "dims", "epilogue") if isinstance(section := data.get(s), dict)]
    meaning: dict[str, str] = {}
    for section, content in sections:
        what = {"tensors": "a tensor", "dims": "a dim", "epilogue": "a local"}[section]
        for name in content:
            path = (section, name)
            if section == "epilogue" and meaning.get(name) == "a tensor":
                continue  # an assigned tensor is an output
            if problem := name_problem(name):
                torn = section == "epilogue" and content[name] is None  # what follows a comma inside { }
                remedy = QUOTE_EXPRESSION if torn else ""
                yield Finding(BAD_NAME.id, f"`{cut(name)}` {problem}", remedy, path, key=True)
            elif problem := reserved_problem(name):
                yield Finding(RESERVED_NAME.id, f"`{cut(name)}` {problem}", "choose another name", path, key=True)
            elif meaning.setdefault(name, what) != what:
                message = f"`{cut(name)}` is {meaning[name]} already and cannot be {what}, too"
                yield Finding(NAME_COLLISION.id, message, "choose another name", path, key=True)
        if section == "tensors":
            yield from _check_shape_names(content, meaning)


def _check_shape_names(tensors: dict[str, Data], meaning: dict[str, str]) -> Iterator[Finding]:
    """The dims that shapes introduce; adds them to `meaning`."""
    for tensor, text in tensors.items():
        try:
            dims = parse_tensor(text).dims if isinstance(text, str) else None
        except FieldError:
            continue  # reported with the field
        for dim in dims or ():
            if dim.name is None:
                continue
            assert isinstance(text, str)
            if problem := reserved_problem(dim.name):
                yield _dim_finding(RESERVED_NAME, f"`{cut(dim.name)}` {problem}", tensor, text, dim)
            elif meaning.setdefault(dim.name, "a dim") != "a dim":
                message = f"`{cut(dim.name)}` is {meaning[dim.name]} already and cannot be a dim, too"
                yield _dim_finding(NAME_COLLISION, message, tensor, text, dim)


def _dim_finding(rule: Rule, message: str, tensor: str, text: str, dim: Dim) -> Finding:
    start = text.index(str(dim.name), text.index("["))
    span = (start, start + len(str(dim.name)))
    return Finding(rule.id, message, "choose another name", ("tensors", tensor), span)


def _translate(error: ValidationError, root: schemas.Schema, data: Data) -> Iterator[Unworded]:
    """Pydantic's errors as findings. Alternatives of one value give one finding; a finding inside a value replaces
    those about the value as a whole, because then the other alternatives were not meant."""
    by_path: dict[KeyPath, list[ErrorDetails]] = {}
    for detail in error.errors(include_url=False):
        by_path.setdefault(_real_path(detail, data), []).append(detail)
    inner = {path[:length] for path in by_path for length in range(len(path))}
    places = functools.cache(lambda: key_places(root))
    for path, details in by_path.items():
        if path in inner:
            continue
        errors = [e for d in details if isinstance(e := d.get("ctx", {}).get("error"), FieldError)]
        about_key = not errors and (details[0]["type"] == "extra_forbidden" or _lacks_key(details[0]))
        word = functools.partial(_word, details[0], errors, about_key, path, root, data, places)
        missing = details[0]["type"] == "missing" and about_key
        yield Unworded(path[:-1] if missing else path, about_key and not missing, word)


def _word(
    detail: ErrorDetails,
    errors: Sequence[FieldError],
    about_key: bool,
    path: KeyPath,
    root: schemas.Schema,
    data: Data,
    places: Callable[[], Mapping[str, Sequence[str]]],
) -> list[Finding]:
    if errors:
        return [Finding(f.rule, f.message, f.remedy, path + f.path, f.span) for f in errors[0].findings]
    if about_key:
        return [_key_finding(detail["type"], path, root, places)]
    return [_value_finding(path, root, _walk(data, path))]


def _real_path(detail: ErrorDetails, data: Data) -> KeyPath:
    """Pydantic's location without the names of union members that it puts between the keys."""
    path: list[str | int] = []
    for step in detail["loc"]:
        if isinstance(data, dict) and step in data:
            path, data = [*path, step], data[str(step)]
        elif isinstance(data, list) and isinstance(step, int) and step < len(data):
            path, data = [*path, step], data[step]
    return (*path, detail["loc"][-1]) if _lacks_key(detail) else tuple(path)


def _lacks_key(detail: ErrorDetails) -> bool:
    """A map without a required key; pydantic also says "missing" of a list that is too short."""
    return detail["type"] == "missing" and isinstance(detail["loc"][-1], str)


def _walk(data: Any, path: KeyPath) -> Data:
    for step in path:
        data = data[step]
    return data  # type: ignore[no-any-return]


def _key_finding(
    kind: str, path: KeyPath, root: schemas.Schema, places: Callable[[], Mapping[str, Sequence[str]]]
) -> Finding:
    parent = schemas.find_schema(root, path[:-1]) or {}
    key, known = str(path[-1]), schemas.keys(parent, root)
    where = f" in `{_dotted(path[:-1])}`" if len(path) > 1 else ""
    if kind == "missing":
        expected = schemas.words(schemas.find_schema(root, path) or {}, root)
        return Finding(MISSING_KEY.id, f"`{key}` is missing{where}", f"it is {expected}", path[:-1])
    instead = elsewhere.KEYS.get(_dotted(path)) or elsewhere.KEYS.get(key)
    if instead:
        remedy = instead
    elif path[0] != "tune" and (known_in := places().get(key)):  # it has names of its own for knobs
        named = (f"under `{place}`" if place else "at the top level" for place in known_in)
        remedy = f"write it {' or '.join(named)}"
    else:
        remedy = _join(suggest(key, known), f"keys here: {', '.join(known)}")
    return Finding(UNKNOWN_KEY.id, f"unknown key `{cut(key)}`{where}", remedy, path, key=True)


# Integers of Python and of YAML 1.1, which specs have in decimal only.
_NOT_DECIMAL = re.compile(r"0[xX][0-9a-fA-F]{1,8}|0[oO][0-7]{1,10}|0[bB][01]{1,31}|[1-9]\d{0,8}(_\d{1,9}){1,3}")
# A number of YAML in quotes.
_DECIMAL = re.compile(r"[-+]?\d{1,9}(\.\d{0,20})?([eE][-+]?\d{1,3})?")


def _value_finding(path: KeyPath, root: schemas.Schema, value: Data) -> Finding:
    schema = schemas.find_schema(root, path) or {}
    expected = schemas.words(schema, root)
    kinds = schemas.kinds(schema, root)
    kind = "number" if "number" in kinds and "integer" not in kinds and _kind(value) == "integer" else _kind(value)
    rule = BAD_VALUE if kind in kinds else WRONG_TYPE
    remedy = suggest(value, schemas.choices(schema, root)) if isinstance(value, str) else ""
    if (table := elsewhere.VALUES.get(_dotted(path))) is not None:
        remedy = table.get(str(value).lower()) or table.get("") or remedy
    if value in _YAML_1_1 and "boolean" in kinds:
        remedy = "YAML 1.2 knows true and false only"
    if isinstance(value, str) and _NOT_DECIMAL.fullmatch(value) and "integer" in kinds:
        remedy = f"write it in decimal: {int(value, 0)}"
    elif isinstance(value, str) and rule is WRONG_TYPE and (numbers := re.fullmatch(r"\d{1,9}(x\d{1,9})*", value)):
        if numbers[1] and "array" in kinds:
            remedy = f"write [{value.replace('x', ', ')}]"
        elif not numbers[1] and "integer" in kinds:
            remedy = f"write {value} without quotes"
    if isinstance(value, str) and "number" in kinds and _DECIMAL.fullmatch(value):
        remedy = f"write {value} without quotes"
    if isinstance(value, str) and rule is WRONG_TYPE and value.isidentifier():
        item = schemas.find_schema(root, (*path, 0)) or {}
        if "string" in schemas.kinds(item, root) and value in (schemas.choices(item, root) or [value]):
            remedy = f"write [{value}]"
    if isinstance(value, float) and 0 <= value <= MAX_EXTENT and value.is_integer():
        remedy = f"write {int(value)}" if "integer" in kinds else ""
    if rule is WRONG_TYPE and (known := schemas.keys(schema, root)):
        remedy = remedy or f"its keys are {', '.join(known)}"
    if isinstance(value, str) and len(value) > MAX_EXPRESSION and schema.get("$comment") == "expression":
        remedy = SPLIT
    if rule is BAD_VALUE and isinstance(value, int) and value > MAX_EXTENT:
        remedy = f"an integer is at most {MAX_EXTENT}"
    found = "but is empty" if value is None else f"not {_describe(value, as_text=rule is WRONG_TYPE)}"
    return Finding(rule.id, f"`{_dotted(path)}` must be {expected}, {found}", remedy, path)


def _kind(value: Data) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _describe(value: Data, as_text: bool = True) -> str:
    """A value in a message. as_text: that it is text is what matters."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str):
        if len(value) > MAX_QUOTED:
            return f"a text of {len(value)} characters"
        return "the text " * as_text + f"`{value}`"
    if isinstance(value, (list, dict)):
        kind = "list" if isinstance(value, list) else "map"
        return f"a {kind} of {len(value)}" if value else f"an empty {kind}"
    return f"{value}"


def _join(*parts: str) -> str:
    return " ".join(filter(None, parts))


def _dotted(path: KeyPath) -> str:
    return "".join(f"[{s}]" if isinstance(s, int) else f".{cut(s)}" for s in path).lstrip(".")
