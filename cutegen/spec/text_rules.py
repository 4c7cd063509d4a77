"""Rules about the text of a spec file, before anything in it has a meaning."""

from cutegen.diagnostics import Rule, register

MAX_BYTES = 256 * 1024
MAX_VALUES = 32 * 1024  # keys and values, brackets counted: reading them takes most of a second
MAX_DEPTH = 32
MAX_DIGITS = 18  # any such number fits 64 bits

SPEC_NAME = register(Rule(
    "spec-name", "the file name is an identifier, but for hyphens",
    "The stem of the file, with an underscore for each hyphen, is the name of the kernel and of the generated Python "
    "package.",
    "specs/gemm.v2.yaml",
))  # fmt: skip
FILE_SIZE = register(Rule(
    "file-size", f"a spec has at most {MAX_BYTES // 1024} KiB, and {MAX_VALUES} keys and values",
    "A spec is a page of text. The bound keeps a wrong file from occupying the parser.",
))  # fmt: skip
FILE_ENCODING = register(Rule(
    "file-encoding", "a spec is UTF-8 text",
    "NUL and other control characters, and bytes that are not UTF-8, are the mark of another kind of file.",
))  # fmt: skip
EMPTY_SPEC = register(Rule(
    "empty-spec", "a spec has content",
    "The file is empty or holds only comments. `cutegen new gemm NAME` writes a spec to start from.",
))  # fmt: skip
NOT_A_MAP = register(Rule(
    "not-a-map", "a spec is a map at its top level",
    "The top level of a spec is `key: value` lines; a list or a single value has no meaning there.",
    "- cutegen: 1\n- kernel: gemm",
))  # fmt: skip
NOT_A_SPEC = register(Rule(
    "not-a-spec", "a spec says that it is one",
    "A file in which no line begins with `cutegen:` or `kernel:` is something else, whatever its name is. None of it "
    "is printed: a spec is not the only file that a command may be pointed at.",
    "password: x",
))  # fmt: skip
YAML_SYNTAX = register(Rule(
    "yaml-syntax", "the file parses as YAML 1.2",
    "Reading stops at the first syntax error. The usual cause inside `{ }` is a declaration with brackets: in flow "
    'style it needs quotes, `{a: "bf16[m, k]"}`; on a line of its own it does not.',
    "tensors: {a: bf16[m, k]}",
))  # fmt: skip
YAML_TAB = register(Rule(
    "yaml-tab", "lines are indented and values separated by spaces",
    "YAML forbids tabs in indentation, because their width is not defined. A tab may stand in text and in comments.",
    "tiling:\n\ttile: [128, 256, 64]",
))  # fmt: skip
YAML_TAG = register(Rule(
    "yaml-tag", "no YAML tags",
    "A tag asks the reader to build some object. A spec is plain data and never runs code, so tags are refused.",
    "device: !!python/object/apply:os.system [ls]",
))  # fmt: skip
YAML_ANCHOR = register(Rule(
    "yaml-anchor", "no YAML anchors",
    "Anchors exist for aliases, and aliases are refused (see yaml-alias).",
    "tile: &t [128, 256, 64]",
))  # fmt: skip
YAML_ALIAS = register(Rule(
    "yaml-alias", "no YAML aliases",
    "An alias stands for text elsewhere: a reviewer cannot read the line alone, a change acts at a distance, and "
    "nested aliases grow a few lines into gigabytes. Write each value out.",
    "cluster: *c",
))  # fmt: skip
YAML_MERGE = register(Rule(
    "yaml-merge", "no merge keys",
    "`<<` is not part of YAML 1.2 and needs aliases. Write the keys out.",
    "<<: {stages: 4}",
))  # fmt: skip
YAML_DIRECTIVE = register(Rule(
    "yaml-directive", "no YAML directives",
    "`%YAML 1.1` would turn names such as `n`, `y` and `off` into booleans. Specs are YAML 1.2.",
    "%YAML 1.1\n---\ncutegen: 1",
))  # fmt: skip
YAML_DOCUMENT = register(Rule(
    "yaml-document", "one document in a file",
    "A file holds one spec, named like the file; what follows a second `---` would be ignored silently elsewhere.",
    "cutegen: 1\n---\ncutegen: 1",
))  # fmt: skip
YAML_DEPTH = register(Rule(
    "yaml-depth", f"at most {MAX_DEPTH} levels of nesting",
    "No section of a spec is deeper than five levels.",
))  # fmt: skip
YAML_NUMBER = register(Rule(
    "yaml-number", "numbers fit 64 bits",
    f"An integer has at most {MAX_DIGITS} digits, and a number with a point or an exponent must be finite.",
    "dims: {n: 100000000000000000000}",
))  # fmt: skip
# The remedy for what follows a comma inside { } without being a key.
QUOTE_EXPRESSION = 'inside { } quote an expression that has commas or brackets: {d: "max(acc, 0)"}'
KEY_TYPE = register(Rule(
    "key-type", "keys are names",
    "A number, a truth value, a list or nothing at all cannot be a key.",
    "dims: {1: 4096}",
))  # fmt: skip
DUPLICATE_KEY = register(Rule(
    "duplicate-key", "a key is written once in a map",
    "Many YAML readers keep the last of two equal keys and say nothing.",
    "pipeline: {stages: 4, stages: 5}",
))  # fmt: skip
# Rules whose findings quote nothing of the text.
QUOTE_NOTHING = frozenset(rule.id for rule in (FILE_SIZE, FILE_ENCODING, EMPTY_SPEC, NOT_A_MAP, YAML_DEPTH))
