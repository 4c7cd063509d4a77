"""Messages of CuTe DSL, libNVVM and ptxas that users meet: what causes each, and what helps; shown in place of pages of
IR. docs/compiler-messages.md has the table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from cutegen.build.contract import WARNINGS
from cutegen.diagnostics import CutegenError

MOST_LINES = 6  # of an unknown message
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_SHOWN = re.compile(r"\\\d")
_PLACES = (
    re.compile(r"-->\s*(\S+\.py):(\d+)"),  # the DSL's own diagnostics
    re.compile(r'"(\S+\.py)":(\d+):\d+\)'),  # locations of IR
    re.compile(r'File "([^"]+\.py)", line (\d+)'),
)
_INSIDE = "nvidia_cutlass_dsl"  # frames of the DSL itself tell nobody anything


@dataclass(frozen=True, slots=True)
class Known:
    """pattern: finds the message in what the compiler says. said: the message in short, a template of the pattern's.
    sample: a message as the compiler writes it. seen: where it is from: a version that says so, or an issue."""

    pattern: str
    said: str
    cause: str
    remedy: str
    sample: str
    seen: str


# The first one that is found counts, so causes come before what they lead to.
KNOWN: tuple[Known, ...] = (
    Known(
        r"(?:Entry function '([^']+)' )?uses too much shared data \((0x[0-9a-f]+) bytes, (0x[0-9a-f]+) max\)",
        r"the kernel has \2 bytes of static shared memory, \3 are allowed",
        "Shared memory that is not allocated by SmemAllocator, or is declared static, counts against the limit of 48 "
        "KiB or of the architecture.",
        "allocate it dynamically, or make it smaller: fewer stages, a smaller tile",
        "ptxas error   : Entry function 'kernel' uses too much shared data (0x1c000 bytes, 0xc000 max)",
        "ptxas 13.0.88",
    ),
    Known(
        r"Value '(sm_\w+)' is not defined for option 'gpu-name'",
        r"this ptxas does not know \1",
        "The toolkit that came with the DSL, or that CUDA_TOOLKIT_PATH names, is older than the architecture.",
        "install the DSL with a newer toolkit (`pip install 'nvidia-cutlass-dsl[cu13]'`), or build for an architecture "
        "that `cutegen doctor` lists",
        "ptxas fatal   : Value 'sm_103a' is not defined for option 'gpu-name'",
        "ptxas 13.0.88",
    ),
    Known(
        r"Unsupported \.version (\S+); current version is '([^']+)'",
        r"the PTX is of version \1, this ptxas reads up to \2",
        "The compiler that wrote the PTX is newer than the ptxas that assembles it: two toolkits are mixed.",
        "unset CUDA_TOOLKIT_PATH, and reinstall nvidia-cutlass-dsl with all of its libraries of one version",
        "ptxas application ptx input, line 9; fatal   : Unsupported .version 9.1; current version is '8.8'",
        "ptxas 13.0.88",
    ),
    Known(
        r"(Not a name of any known instruction: '[^']+'|Unknown modifier '[^']+'"
        r"|(?:Instruction|Feature) '[^']+' (?:not supported|requires)[^\n]*)",
        r"ptxas refuses an instruction: \1",
        "Inline PTX is misspelt, or is of another architecture or of a newer version of PTX.",
        "look the instruction up in the PTX manual, with the architecture and version that it needs; "
        "`cutegen build --keep DIR` keeps the PTX of kernels that do compile",
        "ptxas application ptx input, line 24; error   : Unknown modifier '.instr'",
        "DSL 4.8.1",
    ),
    Known(
        r"Unresolved extern function '([^']+)'",
        r"the kernel calls \1, which no library has",
        "A call of a device function was left in the PTX, and nothing is linked that defines it.",
        "replace the call by an operation of the DSL, or give its library with `--link-libraries`",
        "ptxas fatal   : Unresolved extern function 'helper'",
        "ptxas 13.0.88",
    ),
    Known(
        r"constraint 'n' expects an integer constant expression",
        "libNVVM refuses inline assembly whose constant is none",
        "Previews of the DSL 4.8 pass some immediates as values.",
        "install a released version: `pip install 'nvidia-cutlass-dsl>=4.8.0'`",
        "NVVM_ERROR_COMPILATION: constraint 'n' expects an integer constant expression",
        "NVIDIA/cutlass#3594",
    ),
    Known(
        r"NVVM_ERROR_COMPILATION[\s\S]*?unsupported operation",
        "libNVVM cannot make PTX of an operation",
        "The architecture does not have the instruction, as WGMMA below sm_90a or tcgen05 below sm_100a; or its name "
        "lacks the `a`.",
        "build for the architecture that the kernel is written for, such as `--gpu-arch sm_90a`",
        "(error 9: NVVM_ERROR_COMPILATION), libNVVM extra log:  Error: unsupported operation",
        "DSL 4.8.1",
    ),
    Known(
        r"'nvvm\.setmaxregister' op ([^\n]*)",
        r"setmaxnreg is refused: \1",
        "Registers of a warpgroup are a multiple of 8, from 24 to 256.",
        "round the number in the spec, or in the kernel, to a multiple of 8",
        "error: unknown: 'nvvm.setmaxregister' op new register size must be multiple of 8",
        "DSL 4.8.1",
    ),
    Known(
        r"'scf\.for' op failed to verify that all of \{[^}]*\} have same type",
        "bounds of a loop have different types",
        "Start, end and step of `cutlass.range` are of one type; a plain number becomes an Int32.",
        "convert all of them, as in `cutlass.range(Int64(0), end, Int64(1))`, or the end to Int32",
        "error: unknown: 'scf.for' op failed to verify that all of {lowerBound, upperBound, step} have same type",
        "NVIDIA/cutlass#2630",
    ),
    Known(
        r"operand #\d+ does not dominate this use",
        "a value is used where it need not have been computed",
        "A variable that is set inside a dynamic `if` or loop is used behind it, or one of a `cute.jit` function in "
        "another; some versions of the DSL make such IR of legal code.",
        "give the variable a value before the branch; if it has one, try another version of the DSL",
        'error: "f"("a.py":80:0): operand #0 does not dominate this use',
        "NVIDIA/cutlass#2532, Dao-AILab/flash-attention#1918",
    ),
    Known(
        r"TYPE_UNSTABLE_JOIN\]: `(\w+)` has type `([^`]+)` on one path and `([^`]+)` on another",
        r"`\1` is \2 on one path and \3 on another",
        "A dynamic `if` or loop gives a variable one type, whichever way it goes; lists keep their length.",
        "convert in the branch, as in `x = Int32(x)`; use a tensor in registers where a list grows",
        "error[TYPE_UNSTABLE_JOIN]: `y` has type `Int32` on one path and `Float32` on another. Where",
        "DSL 4.8.1",
    ),
    Known(
        r"UNSUP_EARLY_EXIT\]: Early exit \((\w+)\)",
        r"`\1` stands in a dynamic `if` or loop",
        "Such a block runs as a whole.",
        "set a flag that the rest is under, or make the condition one of compile time (`const_expr`, "
        "`range_constexpr`)",
        "error[UNSUP_EARLY_EXIT]: Early exit (break) is not allowed in `kernel`.",
        "DSL 4.8.1",
    ),
    Known(
        r"PHASE_REQUIRES_CONSTANT|Unable to convert dynamic `?\w+`? value to \w+ at compile time",
        "a value of run time stands where one of compile time has to",
        "`const_expr`, shapes of tensors in registers and Python's own `bool`, `int` and `range_constexpr` take "
        "constants.",
        "compute it of the tiling's numbers, or use the dynamic form (`if`, `cutlass.range`, `cutlass.min`)",
        "DSLRuntimeError: Unable to convert dynamic `Boolean` value to bool at compile time.",
        "DSL 4.8.1, NVIDIA/cutlass#2676",
    ),
    Known(
        r"NameError[^\n]*name '(\w+)' is not defined",
        r"`\1` has no value there",
        "It is misspelt, or is set only inside a dynamic `if` or loop.",
        "give it a value before the branch",
        "error: NameError in `launch`: name 'y' is not defined",
        "DSL 4.8.1",
    ),
    Known(
        r"CALL_KERNEL_TARGET|CALL_MISSING_JIT_DECORATOR",
        "what is compiled is not a `cute.jit` function",
        "`cute.compile` makes a host function, which launches kernels.",
        "compile the `cute.jit` function that launches the kernel",
        "error[CALL_KERNEL_TARGET]: `k` is decorated with @cute.kernel.",
        "DSL 4.8.1, NVIDIA/cutlass#3429",
    ),
    Known(
        r"CONFIG_MALFORMED_COMPILE_OPTIONS\]: Compiler options string is malformed: '([^']*)'",
        r"this version of the DSL does not take the options \1",
        "An option is misspelt, or of another version.",
        "compare with the options of `cute.compile` in the installed version",
        "error[CONFIG_MALFORMED_COMPILE_OPTIONS]: Compiler options string is malformed: '--bogus'. Check",
        "DSL 4.8.1",
    ),
    Known(
        r"^KeyError: '(sm_\w+)'$",
        r"this DSL knows no architecture \1",
        "It is misspelt, or newer than the installed version.",
        "use an architecture that `cutegen doctor` lists, or upgrade nvidia-cutlass-dsl",
        "KeyError: 'sm_9x'",
        "DSL 4.8.1",
    ),
    Known(
        r"(lib(?:cuda|nvrtc|cudart|nvvm)\S*\.so\S*): cannot open shared object file",
        r"\1 is not found",
        "The library is part of the driver or of the CUDA toolkit; neither the loader nor LD_LIBRARY_PATH finds it.",
        "install the driver, or run where there is one; `cutegen doctor` says what each step needs",
        "OSError: libcuda.so.1: cannot open shared object file: No such file or directory",
        "the loader",
    ),
)


def describe(error: BaseException) -> str:
    """An exception of the compiler in a few plain lines: a known message in short, with its place in the source, cause
    and remedy; of others the first lines."""
    if isinstance(error, CutegenError):
        return str(error)
    text = f"{type(error).__name__}: {str(error).strip()}"
    if known := explain(text):
        return known
    lines = [line.rstrip() for line in _COLOUR.sub("", text).splitlines() if line.strip()][:MOST_LINES]
    return "\n  ".join(lines)


def explain(text: str) -> str:
    """What a known message means, in lines; "" for others. text: all that the compiler says."""
    text = _COLOUR.sub("", text)
    for known in KNOWN:
        if found := re.search(known.pattern, text, re.MULTILINE):
            said = found.expand(known.said)
            place = next(_places(text), "")
            return f"{said}{place}\n  cause: {known.cause}\n  = help: {known.remedy}"
    return ""


def _places(text: str) -> Iterator[str]:
    """Where in the source of a kernel it is, as ` (kernel.py:73)`."""
    for pattern in _PLACES:
        for file, line in pattern.findall(text):
            if _INSIDE not in file:
                yield f" ({file.rpartition('/')[2]}:{line})"


def page() -> str:
    """docs/compiler-messages.md."""
    lines = [
        "<!-- Generated by `cutegen docs`; do not edit. -->",
        "",
        "# Messages of the compiler",
        "",
        "What CuTe DSL, libNVVM and ptxas say, and what it means. `build` and `check` show the short form,",
        "with the line of the kernel, in place of pages of IR. `cutegen render --origin` tells which line of a",
        "template and which key of the spec a line of a kernel comes from.",
        "",
        "| message | is | cause | remedy | seen in |",
        "| --- | --- | --- | --- | --- |",
    ]
    for known in KNOWN:
        cells = (
            f"`{known.sample.replace('`', chr(39))}`",
            _SHOWN.sub("...", known.said),
            known.cause,
            known.remedy,
            known.seen,
        )
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    lines += ["", "Remarks of ptxas, which the build contract refuses:", "", "| code | means |", "| --- | --- |"]
    lines += [f"| {code} | {text} |" for code, text in WARNINGS.items()]
    return "\n".join(lines) + "\n"
