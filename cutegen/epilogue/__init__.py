"""Epilogues: expressions of a spec as a typed tree, from which device code, reference and cost come."""

from cutegen.epilogue.blocks import Passes, check_blocks, find_passes
from cutegen.epilogue.columns import check_columns, find_pairing, name_roles, pair_names, split_pairs
from cutegen.epilogue.cost import Cost, Traffic, cost
from cutegen.epilogue.expression import parse_expression
from cutegen.epilogue.in_place import drop_added, find_added, find_in_place, old_name, separate_in_place
from cutegen.epilogue.installed import Unusable, clashes, find_installed, load_op
from cutegen.epilogue.ops import OPS, EpilogueOp
from cutegen.epilogue.optional import omit
from cutegen.epilogue.program import (
    Assign,
    BlockOutput,
    EpilogueProgram,
    Operand,
    OperandKind,
    Output,
    Reduction,
    Report,
)
from cutegen.epilogue.scaling import find_scaled
from cutegen.epilogue.source import (
    after_lines,
    before_lines,
    device_imports,
    device_lines,
    installed_ops,
    once_lines,
    torch_imports,
    torch_lines,
    torch_operand_lines,
)
from cutegen.epilogue.statements import parse_epilogue
from cutegen.epilogue.syntax import CALLS
from cutegen.epilogue.tree import Expr

__all__ = [
    "CALLS", "OPS", "Assign", "BlockOutput", "Cost", "EpilogueOp", "EpilogueProgram", "Expr", "Operand", "OperandKind",
    "Output", "Passes", "Reduction", "Report", "Traffic", "Unusable", "after_lines", "before_lines", "check_blocks",
    "check_columns", "clashes", "cost", "device_imports", "device_lines", "drop_added", "find_added", "find_in_place",
    "find_installed", "find_pairing", "find_passes", "find_scaled", "installed_ops", "load_op", "name_roles",
    "old_name", "omit", "once_lines", "pair_names", "parse_epilogue", "parse_expression", "separate_in_place",
    "split_pairs", "torch_imports", "torch_lines", "torch_operand_lines",
]  # fmt: skip
