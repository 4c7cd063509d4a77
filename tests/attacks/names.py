"""Specs with adversarial names: what is accepted is rendered as with any other names, and its reference gives the same.

Names come from everything that a rendering of the spec binds or reads, from what it makes of names, from builtins and
keywords. Two renderings of one spec, with plain names and with these, have to be equal but for the names; in each scope
the names of one have to stand for those of the other, one for one.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import io
import random
import types
from collections.abc import Iterator
from typing import Any

import gemm_specs
import generated_names
import name_probes

from cutegen.diagnostics import CutegenError, SpecError
from cutegen.families.generated_names import tensor_stem
from cutegen.render import render_package
from cutegen.resolve import resolve_document
from cutegen.runtime.command import benchmark_kernel_argparse
from cutegen.spec import load_text

# Of one architecture each: a package for several is made of packages for one.
FORMS = tuple(
    form
    for form in dict.fromkeys((*gemm_specs.EDGES.values(), *gemm_specs.CONSTANTS.values(), *name_probes.GEMM))
    if "arch: [" not in form
)
EXTENTS = {"m": 48, "n": 256, "k": 256, "l": 2, "g": 3, "t": 40, "batch": 2}
# 0: a name of the spec, 1: its stem.
MADE = ("m{1}", "m{1}_mn", "s{1}", "s{1}_layout", "tma_atom_{1}", "tRS_r{1}", "r{1}", "p_{0}", "{0}_0", "{0}_old",
        "{0}_cvt", "copied_{0}", "{0}_over_2", "{0}_over_128_up", "max_abs_{0}", "{0}_layout", "kernel_without_{0}",
        "b_{0}", "inverse_{0}", "{0}_rows", "a_{0}", "box_{0}")  # fmt: skip


def attack(count: int, seed: int) -> Iterator[str]:
    rng = random.Random(seed)
    for case in range(count):
        form = rng.choice(FORMS)
        names = _choose(form, rng)
        said = judge(form, names)
        if said and not said.startswith("refused"):
            yield f"case {case}: {names}: {said}\n{generated_names.with_names(form, names)}"


def _choose(form: str, rng: random.Random) -> dict[str, str]:
    """Adversarial names for some of those of a spec."""
    own, pool = _plain(form)
    chosen: dict[str, str] = {}
    for name in rng.sample(own, k=min(len(own), rng.choice((1, 1, 2, 3)))):
        candidate = rng.choice(pool) if rng.random() < 0.7 else _make(rng.choice(MADE), rng.choice(own))
        if candidate not in own and candidate not in chosen.values():
            chosen[name] = candidate
    return chosen


def _make(form: str, name: str) -> str:
    return form.format(name, tensor_stem(name))


@functools.cache
def _plain(form: str) -> tuple[list[str], list[str]]:
    """The names of a spec, and those of what it renders to."""
    modules = _render(form, {}).values()
    pool = {word for tree in modules for node in ast.walk(tree) for word in _words(node)}
    pool |= {*dir(builtins), "self", "cls", "torch", "kernel", "plan", "loc", "ip", "seed", "device", "sms", "dims"}
    kinds = generated_names.spec_kinds(load_text(form, "probe"))
    return sorted(kinds), sorted(word for word in pool if word.isidentifier() and word[0].isalpha())


def judge(form: str, names: dict[str, str]) -> str:
    """What is wrong with a spec that has these names; "" for nothing, "refused..." where it is not accepted."""
    try:
        modules = _render(form, names)
    except SpecError as error:
        return f"refused: {error}"
    except CutegenError as error:
        return f"the table lacks a name: {error}"
    before = _render(form, {})
    if modules.keys() != {_renamed(name, names) for name in before}:
        return f"other modules: {sorted(modules)}"
    for name, tree in before.items():
        if said := next(_differences(tree, modules[_renamed(name, names)]), ""):
            return f"{name}: {said}"
    return _compare_plans(form, names)


def _renamed(module: str, names: dict[str, str]) -> str:
    head, *omitted = module.removesuffix(".py").split("_without_")
    return "_without_".join((head, *(names.get(name, name) for name in omitted))) + ".py"


def _render(form: str, names: dict[str, str]) -> dict[str, ast.Module]:
    return {name: ast.parse(text) for name, text in _files(form, tuple(names.items())).items()}


@functools.lru_cache(maxsize=256)
def _files(form: str, names: tuple[tuple[str, str], ...]) -> dict[str, str]:
    text = generated_names.with_names(form, dict(names) or {"acc": "acc"})
    if form not in name_probes.PORTFOLIOS and "\nportfolio:" not in form:  # few names more, and a second to decide
        text += generated_names.ONE_TILING
    files = render_package(resolve_document(load_text(text, "probe"), None).resolved).files
    for name, source in files.items():
        compile(source, name, "exec")
    return files


def _words(node: ast.AST) -> Iterator[str]:
    for field in ("id", "arg", "attr", "name", "asname"):
        if isinstance(word := getattr(node, field, None), str):
            yield word


def _differences(plain: ast.Module, other: ast.Module) -> Iterator[str]:
    """Where two modules differ by more than names, or one name stands for two."""
    scopes: list[tuple[str, ast.AST, ast.AST]] = [("the module", plain, other)]
    while scopes:
        where, first, second = scopes.pop()
        both: tuple[dict[str, str], dict[str, str]] = ({}, {})
        pending = [(first, second)]
        while pending:
            a, b = pending.pop()
            if type(a) is not type(b):
                yield f"{where}: {ast.dump(a)[:80]} is {ast.dump(b)[:80]}"
                return
            children = list(ast.iter_child_nodes(a)), list(ast.iter_child_nodes(b))
            if len(children[0]) != len(children[1]):
                yield f"{where}: {ast.dump(a)[:80]} has other parts than {ast.dump(b)[:80]}"
                return
            attribute = isinstance(a, ast.Attribute | ast.keyword)  # of which each object, or call, has its own
            for word, name in zip(_words(a), _words(b)) if not attribute and a is not first else ():
                if both[0].setdefault(word, name) != name or both[1].setdefault(name, word) != word:
                    yield f"{where}: `{word}` is `{name}`, which stands for `{both[1].get(name)}` as well"
                    return
            for pair in zip(*children):
                if isinstance(pair[0], ast.FunctionDef | ast.ClassDef):
                    scopes.append((pair[0].name, *pair))
                else:
                    pending.append(pair)


def _compare_plans(form: str, names: dict[str, str]) -> str:
    """How the plan with these names computes otherwise; "" where it does not."""
    import torch

    found = []
    for given in ({}, names):
        module = types.ModuleType("probe.plan")
        module.__dict__["__package__"] = "probe"
        exec(compile(_files(form, tuple(given.items()))["plan.py"], "plan.py", "exec"), module.__dict__)
        plan: Any = module.__dict__["PLAN"]
        plan.device = "cpu"
        own = {given.get(d, d): n for d, n in EXTENTS.items() if d in _plain(form)[0]}
        dims = {d: n for d, n in own.items() if not isinstance(plan.dims[d], int)}
        torch.manual_seed(5)
        inputs = plan.prepare_inputs(**dims)
        outputs = plan.reference_fn(*inputs)
        flops = plan._algorithmic_flops_bytes(**{**plan.dims, **dims})
        found.append(((outputs if isinstance(outputs, tuple) else (outputs,)), flops))
        parse_command(plan, dims)
    (first, work), (second, other) = found
    same = all(torch.equal(a.float().nan_to_num(), b.float().nan_to_num()) for a, b in zip(first, second))
    return "" if same and work == other else "the reference computes something else"


def parse_command(plan: Any, dims: dict[str, int]) -> None:
    """The command line of the plan takes its dims: it ends where there is no work to do."""
    flags = [part for dim, extent in dims.items() for part in (f"--{dim}", str(extent))]
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.suppress(SystemExit):
        benchmark_kernel_argparse(plan, [*flags, "--iterations", "0"])
    assert "--iterations is at least 1" in said.getvalue()
