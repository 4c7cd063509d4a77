"""Epilogues: expressions of a spec as a typed tree, from which device code, reference and cost come."""

from cutegen.epilogue.cost import Cost, Traffic, cost
from cutegen.epilogue.expression import Expr, parse_expression
from cutegen.epilogue.ops import OPS, EpilogueOp
from cutegen.epilogue.program import Assign, EpilogueProgram, Operand, OperandKind, Output, Report, parse_epilogue
from cutegen.epilogue.source import device_imports, device_lines, torch_lines, torch_operand_lines

__all__ = [
    "OPS", "Assign", "Cost", "EpilogueOp", "EpilogueProgram", "Expr", "Operand", "OperandKind", "Output", "Report",
    "Traffic", "cost", "device_imports", "device_lines", "parse_epilogue", "parse_expression", "torch_lines",
    "torch_operand_lines",
]  # fmt: skip
