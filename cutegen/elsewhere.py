"""What others have, by another name or at all, and cutegen has not: what to do instead, word by word.

Each table is asked after the real names of its kind; a test holds that none of its words is one. Messages end with what
stands here, so that nobody is sent to a name that is merely spelled alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cutegen.diagnostics import suggest


def _each(words: str, instead: str) -> dict[str, str]:
    return dict.fromkeys(words.split(), instead)


COMMANDS: Mapping[str, str] = {
    **_each(
        "ncu nsys",
        "`cutegen profile SPEC --shape m=..` runs a launch under Nsight Compute and reads its report",
    ),
    **_each(
        "trace",
        "`cutegen profile SPEC --shape m=.. --trace FILE.svg` draws what each warp waits for",
    ),
    **_each(
        "export package",
        "`cutegen render SPEC --standalone` writes a package that needs CuTe DSL but not cutegen, and `cutegen bundle` "
        "one of compiled kernels",
    ),
    **_each(
        "deploy publish aot ship wheel header link cpp",
        "`cutegen bundle SPEC -o DIR` compiles kernels for processes without a compiler, in Python or, by DIR/DIR.h, "
        "C; `--wheel NAME==VERSION` makes a wheel of them",
    ),
    **_each("init create add start template", "`cutegen new gemm NAME` starts a spec"),
    **_each(
        "clean clear purge prune gc",
        "`cutegen cache prune` deletes compiled kernels and what else can be made again; packages are folders below "
        "`generated`, and yours to delete",
    ),
    **_each(
        "config configure settings set",
        "what a kernel is like is in its spec: `cutegen explain KEY`, `cutegen schema`",
    ),
    **_each(
        "completion completions shell-completion autocomplete",
        'write `eval "$(_CUTEGEN_COMPLETE=bash_source cutegen)"` in ~/.bashrc; for others, zsh_source or fish_source',
    ),
    **_each("compile make jit", "`cutegen build SPEC` compiles its kernels"),
    **_each("test verify prove", "`cutegen check SPEC` runs kernels on problems made to break them"),
    **_each("benchmark perf time measure", "`cutegen bench SPEC` measures against other libraries"),
    **_each("autotune optimize optimise search", "`cutegen tune SPEC` measures and keeps winners"),
    **_each("generate gen codegen emit", "`cutegen render SPEC` writes the generated package"),
    **_each("lint format fmt parse", "`cutegen validate SPEC` reports what is wrong with a spec"),
    **_each("show describe why inspect print", "`cutegen explain SPEC` shows the kernel's plan"),
    **_each("ls specs ops", "`cutegen list` shows families, specs, suites and ops"),
    **_each("compare plot chart html", "`cutegen report NEW.json --compare OLD.json`, `--html`, `--svg`"),
    **_each("upgrade update", "`cutegen lock --upgrade SPEC` decides again with this release's rules"),
    **_each("info env collect-env status devices", "`cutegen doctor` shows what this machine can do"),
    **_each(
        "load import serve call",
        'in Python: `cutegen.load("SPEC")` is its plan; a package is imported: `from generated.NAME import kernel_fn`',
    ),
    "version": "write `cutegen --version`",
    "help": "write `cutegen --help`, or `cutegen COMMAND --help`",
}

_ROWS = "write `kernel: rowwise`, as in the shipped spec"
_ATTENTION = (
    "there is no attention family yet, but `mla_decode`: multi-head latent attention of new tokens over a paged cache"
)
_GROUPED = "write `kernel: gemm` with `groups`, as in the shipped spec grouped_gemm_bf16_sm90a"
FAMILIES: Mapping[str, str] = {
    **_each("rmsnorm rms_norm norm", f"{_ROWS} rmsnorm_bf16_sm90a"),
    **_each("layernorm layer_norm", f"{_ROWS} layernorm_bf16_sm90a"),
    **_each("elementwise pointwise activation swiglu silu_mul reduce reduction", f"{_ROWS} silu_mul_bf16_sm90a"),
    **_each("groupnorm group_norm batchnorm", "there are norms of rows alone: `kernel: rowwise`"),
    "softmax": f"{_ROWS} softmax_bf16_sm90a",
    **_each(
        "attention fmha mha mqa gqa sdpa flash_attention flash_attn fa3 prefill decode",
        _ATTENTION,
    ),
    **_each("mla mla_prefill flash_mla", "there is `mla_decode`, for new tokens over a paged cache"),
    **_each("conv conv2d conv3d convolution", "there is no convolution family yet"),
    **_each(
        "transpose topk scan",
        "there is no such family; rows are computed one by one by `kernel: rowwise`",
    ),
    **_each("matmul mm linear gemv sgemm hgemm dense", "write `kernel: gemm`"),
    **_each("bmm batched_gemm", "write `kernel: gemm` and tensors with a dim `batch`"),
    **_each("grouped_gemm group_gemm moe moe_gemm fused_moe", _GROUPED),
    **_each("split_k splitk streamk stream_k", "write `kernel: gemm` and `tiling: {split_k: 4}`"),
}

GENERATED_FOR = (
    "cutegen generates for sm_90a: H100, H200; GEMM and MLA decode for sm_100a: B200, and sm_103a: B300; and GEMMs for "
    "sm_120a: GeForce RTX 50 and RTX PRO, and sm_121a: DGX Spark"
)
_BLACKWELL = (
    "of Blackwell's architectures there are sm_100a and sm_103a, and for `kernel: gemm` sm_120a and sm_121a; "
    f"{GENERATED_FOR}"
)
_HOPPER = "write sm_90a: WGMMA and setmaxnreg are in that target only"
_OLDER = f"there is no WGMMA and no TMA before Hopper; {GENERATED_FOR}"
ARCHS: Mapping[str, str] = {
    "": GENERATED_FOR,  # any other
    **_each(
        "sm_100 sm_100f sm_101 sm_101a sm_103 sm_110 sm_110a sm_120 sm_120f sm_121 sm_121f "
        "sm100 sm100a sm103 sm103a sm120 sm120a blackwell b200 b300 gb200 gb300 "
        "rtx5090 rtx_5090 5090 gb10 dgx_spark",
        _BLACKWELL,
    ),
    **_each("sm_90 sm90 sm90a sm_9.0a 90 90a 9.0 hopper h100 h200 gh200 h20", _HOPPER),
    **_each(
        "sm_70 sm_75 sm_80 sm_86 sm_87 sm_89 sm70 sm75 sm80 sm86 sm89 volta turing ampere ada a100 l40 l40s",
        _OLDER,
    ),
}

TF32 = "Hopper has TF32 WGMMA, and cutegen does not have it yet: store the operands as bf16 or f16"
MIXED = (
    "mixed input would have to be dequantised in the mainloop, which cutegen cannot do yet: dequantise it in a kernel "
    "before, or quantise both operands"
)
_FOUR_BITS = (
    "operands below 8 bits would have to be dequantised in the mainloop, which cutegen cannot do yet: both operands "
    "can be e4m3 or e5m2, or both i8"
)
DTYPES: Mapping[str, str] = {
    **_each(
        "i4 int4 s4 u4 uint4 w4 nf4 int2 i2 i1 b1 fp6 f6 e3m2 e2m3 mxfp6",
        _FOUR_BITS,
    ),
    **_each("tf32 tfloat32", TF32),
    "nvfp4": "on sm_100a and sm_120a e2m1 operands have scales e4m3[m, k/16] (docs/blackwell.md)",
    "mxfp4": "on sm_100a and sm_120a e2m1 operands have scales e8m0[m, k/32] (docs/blackwell.md)",
    "mxfp8": "on sm_100a and sm_120a e4m3 operands can have scales e8m0[m, k/32] (docs/blackwell.md); Hopper has no "
    "block-scaled MMA, but e4m3 operands can have an f32 scale for 128 elements (docs/eight-bit.md)",
    **_each("f64 fp64 double float64", "there is no f64; accumulators and epilogues are f32"),
    **_each("i16 int16 short u32 uint32 int", "indices and counts are i32"),
    **_each("u8 uint8", "unsigned operands are not supported; i8 is"),
    **_each("bool b8", "masks are not supported as such: store 0 and 1 as f32 or bf16 and multiply"),
    **_each("c64 complex64 c32 complex", "complex operands are not supported"),
}

_ONE_DTYPE = "queries, cache and output have one dtype, bf16 or f16; fp8 caches are not supported yet"
# What is not a key of a spec, by its dotted path, or by its last step wherever it stands.
KEYS: Mapping[str, str] = {
    "sms": "a budget of SMs is a call's: `sms=` of launch_fn, kernel_fn, plan and Plan, or `--sms` of `cutegen bench`",
    "kv_cache.dtype": f"leave it out: the cache has the `dtype` of the top level, as {_ONE_DTYPE}",
}
# Values of keys that have a fixed set of them, by the dotted path of the key.
VALUES: Mapping[str, Mapping[str, str]] = {
    "arch": ARCHS,
    "dtype": {
        **_each("e4m3 e5m2 fp8 float8_e4m3fn float8_e5m2 i8 int8", _ONE_DTYPE),
        **_each("bfloat16 bf16_t", "write bf16"),
        **_each("float16 fp16 half", "write f16"),
        **_each("f32 float32 tf32", _ONE_DTYPE),
    },
}

_PRODUCT = "the product is written a @ b, under `mainloop`, and is acc in `epilogue`"
_GATED = "write it out, into an output with n/2 columns: {}(acc[:, :n/2]) * acc[:, n/2:]"
_CAST = "values are f32, and outputs are rounded when they are stored; round_bf16(x) and round_f16(x) round in between"
_WHOLE_ROW = "no tile has a whole row: store what the next kernel needs of it, such as "
# Ops of epilogues.
OPS: Mapping[str, str] = {
    **_each("matmul mm bmm dot linear einsum", _PRODUCT),
    **_each("swiglu silu_and_mul", _GATED.format("silu")),
    **_each("geglu gelu_and_mul gelu_tanh_and_mul", _GATED.format("gelu_tanh")),
    "reglu": _GATED.format("relu"),
    "glu": "write it out, into an output with n/2 columns: acc[:, :n/2] * sigmoid(acc[:, n/2:])",
    **_each("to type cast float half bfloat16", _CAST),
    **_each("rms_norm rmsnorm", _WHOLE_ROW + "s: sum(square(d), n)"),
    **_each("layer_norm layernorm", _WHOLE_ROW + "s: sum(d, n) and q: sum(square(d), n)"),
    **_each(
        "softmax log_softmax logsumexp cross_entropy",
        _WHOLE_ROW + "its largest value, r: max(d, n), so that it can sum exp(d - r)",
    ),
    "mean": "sum it in the epilogue, and divide in the next kernel: r: sum(d, n); `kernel: rowwise` has mean(x, n)",
    "pow": "write square(x) or x * x * x",
    "quick_gelu": "write x * sigmoid(1.702 * x)",
    "relu6": "write clamp(x, 0, 6)",
    **{
        name: f"did you mean `{op}`?"
        for name, op in (
            ("swish", "silu"),
            ("clip", "clamp"),
            ("logistic", "sigmoid"),
            ("gelu_new", "gelu_tanh"),
            ("amax", "max_abs"),
            ("absmax", "max_abs"),
        )
    },
}


def answer_family(name: str, families: Iterable[str], known: str) -> str:
    """The remedy for a kernel family that there is not. known: what lists those that there are."""
    if instead := FAMILIES.get(name.lower()):
        return f"{instead}; {known}"
    return f"{suggest(name, families)} {known}".lstrip()


def say_instead(word: str) -> str:
    """What to do instead, whatever kind of word it is; "" where it is in no table."""
    return next(
        (table[word.lower()] for table in (OPS, FAMILIES, ARCHS, DTYPES, COMMANDS) if word.lower() in table), ""
    )
