"""The C entry of a bundle: a header, and the code behind it, which is linked with the kernels.

Each spec has a struct of what a call passes, and functions that pick the tiling, size its scratch and launch it. What
is decided is decided by the tables and functions of the plan (families/c_entry.py, build/c_translation.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from cutegen.build.c_translation import Translation
from cutegen.build.entry_code import COMMON, DECLARATIONS, HEAD, RESERVED
from cutegen.families.c_entry import CEntry
from cutegen.runtime.arguments import Argument, Extent, ScalarArg, TensorArg, divided, elements_in, slack
from cutegen.runtime.header import MARK

ABI = 1  # of headers: a change of what they declare raises it
MOST_EXTENT = 2**31 - 1
# DLPack's code and bits of dtypes, as torch names them.
DTYPES = {
    "bfloat16": (4, 16), "float16": (2, 16), "float32": (2, 32), "float8_e4m3fn": (10, 8), "float8_e5m2": (12, 8),
    "float8_e8m0fnu": (14, 8), "float4_e2m1fn_x2": (17, 4), "int8": (0, 8), "int32": (0, 32), "int64": (0, 64),
    "uint8": (1, 8),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """A spec's. said: what it computes. symbols: of its kernels in the library, by tiling."""

    name: str
    arch: str
    said: str
    entry: CEntry | str
    symbols: Mapping[str, str]


def write_entries(bundle: str, entries: Sequence[Entry], translation: Translation, command: str) -> tuple[str, str]:
    """(header, code) of a bundle of that name. command: what adds a kernel."""
    reasons = {e.name: _obstacle(e.entry) for e in entries}
    made = [_Spec(bundle, e, e.entry, command) for e in entries if isinstance(e.entry, CEntry) and not reasons[e.name]]
    lacking = [f"/* {name} has no entry: {reason}. */\n" for name, reason in reasons.items() if reason]
    declared = DECLARATIONS.replace("BUNDLE_ABI", f"{bundle.upper()}_ABI").replace("BUNDLE", bundle)
    guard = f"CUTEGEN_{bundle.upper()}_H"
    header = "\n".join(
        [
            f"/* {MARK.removeprefix('# ')} */",
            f"/* Kernels of the bundle {bundle}; link {bundle}/kernels.so and TVM FFI's library. */\n",
            f"#ifndef {guard}\n#define {guard}\n",
            "#include <stdint.h>\n",
            f"#define {bundle.upper()}_ABI {ABI}\n",
            '#ifdef __cplusplus\nextern "C" {\n#endif\n',
            declared,
            *(spec.declarations() for spec in made),
            *lacking,
            "#ifdef __cplusplus\n}\n#endif\n",
            "#endif\n",
        ]
    )
    helpers = dict.fromkeys(text for spec in made for text in spec.entry.helpers)
    most = max((len(spec.entry.order) + len(spec.entry.scratch) for spec in made), default=1)
    parts = [HEAD, translation.source(), COMMON, *helpers, *(spec.code() for spec in made)]
    code = "\n".join(parts).replace("MOST_VALUES", str(most))
    code = code.replace("BUNDLE_ABI", f"{bundle.upper()}_ABI").replace("BUNDLE", bundle)
    return header, f'#include "{bundle}.h"\n\n{code}'


class _Spec:
    """One entry. fields: of each argument and dim, what its field in the struct is called."""

    def __init__(self, bundle: str, of: Entry, entry: CEntry, command: str) -> None:
        self.bundle, self.of, self.entry, self.command = bundle, of, entry, command
        self.name = of.name
        taken: set[str] = set()
        self.extents = {dim: _unique(dim, taken) for dim in entry.free}
        self.fields = {arg.name: _unique(arg.name, taken) for arg in entry.args}
        ranked = (a for a in entry.args if isinstance(a, TensorArg) and a.dims)
        self.strides = {a.name: _unique(f"{a.name}_strides", taken) for a in ranked}

    # -- the header --

    def declarations(self) -> str:
        b, name = self.bundle, self.name
        fields = [f"  int64_t {field}; /* {_said_range(self.entry.extents[d])} */" for d, field in self.extents.items()]
        for arg in self.entry.args:
            fields += self._declare(arg)
        body = "\n".join(fields)
        number = f"/* Number of the tiling that runs a call on at most `sms` SMs; 0: all. */\nint32_t {b}_pick_{name}"
        return f"""\
/* {name}, {self.of.arch}. {_comment(self.of.said)} */
typedef struct {b}_args_{name} {{
{body}
}} {b}_args_{name};

{number}(const {b}_device *device, int32_t sms, const {b}_args_{name} *args);

/* The name of a tiling; NULL: there is none of that number. */
const char *{b}_tiling_{name}(int32_t number);

/* Bytes of scratch of a call; pointers of `args` may be NULL, but for optional ones that the call passes. */
int32_t {b}_scratch_{name}(
    const {b}_device *device, int32_t sms, const {b}_args_{name} *args, int64_t *workspace, int64_t *zeroed);

/* Launches a call; no memory is allocated, and nothing waits for the device. */
int32_t {b}_run_{name}(const {b}_call *call, const {b}_args_{name} *args);
"""

    def _declare(self, arg: Argument) -> Iterable[str]:
        optional = "; NULL: left out" if arg.optional else ""
        if isinstance(arg, ScalarArg):
            yield (
                f"  const double *{self.fields[arg.name]}; /* on the host{optional} */"
                if arg.optional
                else (f"  double {self.fields[arg.name]};")
            )
            return
        const = "" if arg.name in self.entry.outputs else "const "
        yield f"  {const}void *{self.fields[arg.name]}; /* {arg.text()}, aligned to {arg.align} bytes{optional} */"
        if arg.dims:
            inner = f"; that of {arg.dims[arg.contiguous]} is 1" if arg.contiguous is not None else ""
            yield f"  int64_t {self.strides[arg.name]}[{len(arg.dims)}]; /* in elements{inner} */"

    # -- the code --

    def code(self) -> str:
        entry, b, name = self.entry, self.bundle, self.name
        keys = ", ".join(f'"{key}"' for key in entry.keys)
        least = ", ".join(map(str, entry.least_sms))
        own = entry.code.replace("ENTRY", name)
        major, minor = re.findall(r"\d+", self.of.arch)[0][:-1], re.findall(r"\d+", self.of.arch)[0][-1:]
        return f"""\
/* -- {name} -- */
{own}
static const char *const keys_{name}[] = {{{keys}}};
static const int fewest_{name}[] = {{{least}}};
{self._kernels()}
/* 1: there is nothing to compute. */
static int read_{name}(const {b}_args_{name} *args, num *e) {{
{self._read()}}}

EXPORT int32_t {b}_pick_{name}(const {b}_device *device, int32_t sms, const {b}_args_{name} *args) {{
  num e[{max(1, len(self.extents))}];
  int state = check_device(device, {major}, {minor});
  if (!state) state = read_{name}(args, e);
  if (state) return state < 0 ? -1 : fail("{name}: an extent is 0, and no tiling runs the call");
  int key = pick_{name}(device, sms, e);
  return key < 0 || count_sms(device, sms, fewest_{name}[key]) < 0 ? -1 : key;
}}

EXPORT const char *{b}_tiling_{name}(int32_t number) {{
  return number < 0 || number >= {len(entry.keys)} ? 0 : keys_{name}[number];
}}

EXPORT int32_t {b}_scratch_{name}(
    const {b}_device *device, int32_t sms, const {b}_args_{name} *args, int64_t *workspace, int64_t *zeroed) {{
  num e[{max(1, len(self.extents))}], sizes[{max(1, len(entry.scratch))}] = {{0}};
  *workspace = *zeroed = 0;
  int state = check_device(device, {major}, {minor});
  if (!state) state = read_{name}(args, e);
  if (state) return state < 0 ? -1 : 0;
  int key = pick_{name}(device, sms, e);
  int count = key < 0 ? -1 : count_sms(device, sms, fewest_{name}[key]);
  if (count < 0 || size_{name}(key, count, e, sizes)) return -1;
{self._add()}  return 0;
}}

EXPORT int32_t {b}_run_{name}(const {b}_call *call, const {b}_args_{name} *args) {{
  num e[{max(1, len(self.extents))}], sizes[{max(1, len(entry.scratch))}] = {{0}};
  int state = check_device(call->device, {major}, {minor});
  if (!state) state = read_{name}(args, e);
  if (state) return state < 0 ? -1 : {self._empty()};
  if (check_{name}(args, e)) return -1;
  int key = pick_{name}(call->device, call->sms, e);
  int count = key < 0 ? -1 : count_sms(call->device, call->sms, fewest_{name}[key]);
  if (count < 0 || size_{name}(key, count, e, sizes)) return -1;
  int omitted = 0;
{self._omit()}  TVMFFISafeCallType kernel = kernels_{name}[omitted][key];
  if (!kernel) return fail("{name}: the kernel of tiling %s is not in the bundle; %s adds it", keys_{name}[key],
                           {_quoted(f"`{self.command}`")});
  frame f;
  f.call = call;
  f.values = f.tensors = 0;
  f.workspace = f.zeroed = 0;
{self._put()}  return run_kernel(&f, kernel);
}}
"""

    def _kernels(self) -> str:
        """By the optional arguments that a call leaves out, and the tiling."""
        declared, rows = [], []
        for gone in product((False, True), repeat=len(self.entry.endings)):
            endings = "".join(ending for (_, ending), out in zip(self.entry.endings, reversed(gone)) if out)
            row = []
            for key in self.entry.keys:
                symbol = self.of.symbols.get(key + endings)
                row.append(f"__tvm_ffi_{symbol}" if symbol else "0")
            declared += [s for s in row if s != "0"]
            rows.append(f"  {{{', '.join(row)}}}")
        if self.entry.copied and (symbol := self.of.symbols.get(self.entry.copied.key)):
            declared.append(f"__tvm_ffi_{symbol}")
        arguments = "(void *, const TVMFFIAny *, int32_t, TVMFFIAny *)"
        text = "".join(f"int {symbol}{arguments};\n" for symbol in dict.fromkeys(declared))
        table = ",\n".join(rows)
        return f"{text}static const TVMFFISafeCallType kernels_{self.name}[][{len(self.entry.keys)}] = {{\n{table}\n}};"

    def _read(self) -> str:
        """Extents of a call; refuses those that are not promised."""
        lines, entry = [], self.entry
        lines.append(f'if (!args) return fail("{self.name}: args is NULL");')
        for i, (dim, field) in enumerate(self.extents.items()):
            low, high = entry.extents[dim]  # type: ignore[misc]
            most = MOST_EXTENT if high is None else high
            lines.append(f"e[{i}] = args->{field};")
            said = f"{self.name}: {dim} is %lld, and it is from {low} to {most}"
            lines.append(
                f"if (e[{i}] < 0 || e[{i}] > {most} || (e[{i}] && e[{i}] < {low})) "
                f'return fail("{said}", (long long)e[{i}]);'
            )
        for dim in entry.needed:
            said = f"{self.name}: {dim} is 0, and such a call is not computed: fill the outputs"
            lines.append(f'if (!{self._extent(dim)}) return fail("{said}");')
        for dim, divisor in sorted({part for arg in entry.args if isinstance(arg, TensorArg) for part in _parts(arg)}):
            if dim in self.extents:
                said = f"{self.name}: {dim} is %lld, and it is a multiple of {divisor}"
                at = self._extent(dim)
                lines.append(f'if ({at} % {divisor}) return fail("{said}", (long long){at});')
        zero = " || ".join(f"!e[{i}]" for i in range(len(self.extents))) or "0"
        lines.append(f"return {zero} ? 1 : 0;")
        return "".join(f"  {line}\n" for line in lines)

    def _extent(self, dim: str) -> str:
        """Of a dim, or of a part of one."""
        if dim.isdigit():
            return dim
        name, divisor = divided(dim)
        extent = self.entry.extents[name]
        if isinstance(extent, int):
            return str(-(-extent // divisor))
        at = f"e[{self.entry.free.index(name)}]"
        return at if divisor == 1 else f"ceil_div({at}, {divisor})"

    def _empty(self) -> str:
        return f'fail("{self.name}: an extent is 0: fill the outputs")' if self.entry.fills else "0"

    def _add(self) -> str:
        lines = (
            f"  *{'zeroed' if s.zeroed else 'workspace'} += align(sizes[{i}] * {DTYPES[s.dtype][1] // 8});\n"
            for i, s in enumerate(self.entry.scratch)
        )
        return "".join(lines)

    def _omit(self) -> str:
        fields = (self.fields[self.entry.args[i].name] for i, _ in self.entry.endings)
        return "".join(f"  if (!args->{field}) omitted |= {1 << bit};\n" for bit, field in enumerate(fields))

    def _put(self) -> str:
        """Shapes are variables of the function: the kernel reads them when all arguments are put."""
        held = {arg.name: (i, arg) for i, arg in enumerate(self.entry.args)}
        lines = list(self._copy()) if self.entry.copied else []
        copies = {name for name, _, _ in self.entry.copied.copies.values()} if self.entry.copied else ()
        for what in self.entry.order:
            if what in held:
                lines += self._put_argument(*held[what])
            elif what == "scratch":
                for i, arg in enumerate(self.entry.scratch):
                    lines += self._put_scratch(i, arg) if arg.name not in copies else ()
            else:
                lines.append(f"put_int(&f, {what.replace('ENTRY', self.name)});")
        return "".join(f"  {line}\n" for line in lines)

    def _put_argument(self, i: int, arg: Argument) -> Iterator[str]:
        field = f"args->{self.fields[arg.name]}"
        if isinstance(arg, ScalarArg):
            skip = f"if ({field}) " if arg.optional else ""
            yield f"{skip}put_float(&f, {'*' if arg.optional else ''}{field});"
            return
        if arg.dims:
            yield f"int64_t shape{i}[] = {{{', '.join(self._shape(arg))}}};"
        call = self._put_tensor("f", i, arg)
        copied = self.entry.copied
        if copied and arg.name == copied.index:
            yield f"if (!copied && {call}) return -1;"
        elif copied and arg.name in copied.copies:
            yield f"if (copied ? {self._put_copy('f', arg.name)} : {call}) return -1;"
        else:
            yield f"if ({field + ' && ' if arg.optional else ''}{call}) return -1;"

    def _put_tensor(self, frame: str, i: int, arg: TensorArg) -> str:
        field = f"args->{self.fields[arg.name]}"
        shape, strides = (f"shape{i}", f"(int64_t *)args->{self.strides[arg.name]}") if arg.dims else ("0", "0")
        said = f'"{self.name}: {arg.name}"'
        return f"put_tensor(&{frame}, {said}, {field}, {_dtype(arg)}, {len(arg.dims)}, {shape}, {strides})"

    def _copy(self) -> Iterator[str]:
        """Copies lie at the beginning of the workspace. A frame of its own launches the copy."""
        copied = self.entry.copied
        assert copied
        held = {arg.name: (i, arg) for i, arg in enumerate(self.entry.args)}
        yield f"int copied = {copied.when.replace('ENTRY', self.name)};"
        for place, (scratch, shape, strides) in enumerate(copied.copies.values()):
            own, arg = self._scratch(scratch)
            yield f"int64_t begin_{place} = f.workspace;"
            yield f"f.workspace += align(sizes[{own}] * {DTYPES[arg.dtype][1] // 8});"
            for what, values in (("shape", shape), ("strides", strides)):
                yield f"int64_t {what}_of_{place}[] = {{{', '.join(f'(int64_t)({v})' for v in values)}}};"
        symbol = self.of.symbols.get(copied.key)
        yield "if (copied) {"
        yield f"  TVMFFISafeCallType copy = {f'__tvm_ffi_{symbol}' if symbol else '0'};"
        yield f'  if (!copy) return fail("{self.name}: the copy of rows is not in the bundle");'
        yield "  frame g;"
        yield "  g.call = call;"
        yield "  g.values = g.tensors = 0;"
        for name in (*copied.copies, copied.index):
            i, tensor = held[name]
            assert isinstance(tensor, TensorArg)
            yield f"  int64_t shape{i}[] = {{{', '.join(self._shape(tensor))}}};"
            yield f"  if ({self._put_tensor('g', i, tensor)}) return -1;"
        for name in copied.copies:
            yield f"  if ({self._put_copy('g', name)}) return -1;"
        yield f"  num ctas = {copied.ctas};"
        yield "  put_int(&g, call->sms ? num_min(ctas, count) : ctas);"
        yield "  if (run_kernel(&g, copy)) return -1;"
        yield "}"

    def _put_copy(self, frame: str, name: str) -> str:
        assert self.entry.copied
        place = list(self.entry.copied.copies).index(name)
        scratch, shape, _ = self.entry.copied.copies[name]
        own, arg = self._scratch(scratch)
        lies = f"begin_{place}, {_dtype(arg)}, sizes[{own}], {len(shape)}, shape_of_{place}, strides_of_{place}"
        return f'put_copy(&{frame}, "{scratch}", {lies})'

    def _scratch(self, name: str) -> tuple[int, TensorArg]:
        return next((i, arg) for i, arg in enumerate(self.entry.scratch) if arg.name == name)

    def _shape(self, arg: TensorArg) -> Iterator[str]:
        for axis, dim in enumerate(arg.dims):
            packed = f" / {arg.packing(axis)}" if arg.packing(axis) > 1 else ""
            yield f"(int64_t)({self._extent(dim)}{packed})"

    def _put_scratch(self, i: int, arg: TensorArg) -> Iterator[str]:
        yield f"int64_t size{i}, step{i};"
        call = f'put_scratch(&f, "{arg.name}", {int(arg.zeroed)}, {_dtype(arg)}, sizes[{i}], &size{i}, &step{i})'
        yield f"if (sizes[{i}] && {call}) return -1;"


def _dtype(arg: TensorArg) -> str:
    code, bits = DTYPES[arg.dtype]
    return f"(DLDataType){{{code}, {bits}, {elements_in(arg.dtype)}}}"


def _parts(arg: TensorArg) -> Iterator[tuple[str, int]]:
    """(dim, what its extent has to be a multiple of)."""
    for axis, text in enumerate(arg.dims):
        if not text.isdigit() and not slack(text):
            dim, divisor = divided(text)
            if divisor * arg.packing(axis) > 1:
                yield dim, divisor * arg.packing(axis)


def _obstacle(entry: CEntry | str) -> str:
    """Why there is no entry; "" where there is one."""
    if isinstance(entry, str):
        return entry
    tensors = (*entry.args, *entry.scratch)
    unknown = (a for a in tensors if isinstance(a, TensorArg) and a.dtype not in DTYPES)
    return next((f"{a.name} is of {a.dtype}, which C has no name for here" for a in unknown), "")


def _unique(name: str, taken: set[str]) -> str:
    while name in taken or name in RESERVED:
        name += "_"
    taken.add(name)
    return name


def _said_range(extent: Extent) -> str:
    assert isinstance(extent, tuple)
    low, high = extent
    return f"{low} or more" if high is None else f"{low} to {high}"


def _comment(text: str) -> str:
    return text.replace("*/", "* /")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ").replace("%", "%%")
    return f'"{escaped}"'
