"""The generated pages of docs/: every family's spec reference and JSON schema, and every rule."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Iterator

import cutegen
from cutegen.build.messages import page
from cutegen.diagnostics import RULES, Rule
from cutegen.epilogue import CALLS, OPS
from cutegen.families.registry import FAMILIES, load_spec_model
from cutegen.spec.keys import key_sections
from cutegen.spec.reference import families_page, rules_page
from cutegen.spec.schema import schema_text

# Packages whose import needs a compiler or starts a command; rules stand in none of them.
_WITHOUT_RULES = ("cutegen.device", "cutegen.runtime", "cutegen.cli")


def all_rules() -> dict[str, Rule]:
    """RULES after importing every module that may register one."""
    for module in pkgutil.walk_packages(cutegen.__path__, "cutegen.", onerror=_fail):
        if not module.name.startswith(_WITHOUT_RULES) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    return dict(sorted(RULES.items()))


def pages() -> dict[str, str]:
    """Name within docs/ -> text."""
    models = {family: load_spec_model(family) for family in FAMILIES}
    schemas = {f"schema/{family}.json": schema_text(m) for family, m in models.items()}
    operations = [*((name, op.arity_text(), op.doc) for name, op in OPS.items()), *CALLS.values()]
    return {
        "spec-reference.md": families_page(models, operations),
        "compiler-messages.md": page(),
        "rules.md": rules_page(all_rules().values()),
        **schemas,
    }


def words() -> str:
    """The text of words.INDEX."""
    index = {
        "rules": sorted(all_rules()),
        "ops": sorted({*OPS, *CALLS}),
        "keys": {family: sorted(_key_names(family)) for family in FAMILIES},
    }
    return json.dumps(index, indent=1) + "\n"


def _key_names(family: str) -> Iterator[str]:
    """The family, its sections, and its keys by path and by last step."""
    sections = key_sections(load_spec_model(family))
    found = {family, *(s.name for s in sections if s.name)}
    for section in sections:
        for key in section.keys:
            found |= {key.name, f"{section.name}.{key.name}" if section.name else key.name}
    yield from found


def _fail(name: str) -> None:
    raise ImportError(name)
