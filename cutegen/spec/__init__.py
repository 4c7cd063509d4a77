"""The spec language: text to SpecDocument (`load_document`), SpecDocument to typed spec (`parse_spec`)."""

from cutegen.spec.base import KernelSpec
from cutegen.spec.dims import Dim
from cutegen.spec.document import KeyPath, SpecDocument
from cutegen.spec.load import Kind, load_document, load_text
from cutegen.spec.parse import SchemaError, parse_section, parse_spec, word_findings
from cutegen.spec.tensors import TensorDecl, parse_tensor

__all__ = [
    "Dim",
    "KernelSpec",
    "KeyPath",
    "Kind",
    "SchemaError",
    "SpecDocument",
    "TensorDecl",
    "load_document",
    "load_text",
    "parse_section",
    "parse_spec",
    "parse_tensor",
    "word_findings",
]
