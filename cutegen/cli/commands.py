"""The commands by group: where each lies, what it does in a sentence, and how it is called.

Written down here, so that `cutegen --help` imports no command; a test compares the sentences with the commands' own.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """place: module:function. sentence: the first of the command's help. examples: calls, shown below its help."""

    place: str
    sentence: str
    examples: tuple[str, ...] = ()


GROUPS: dict[str, dict[str, Entry]] = {
    "The whole way": {
        "run": Entry(
            "cutegen.cli.run:run",
            "Validate, render and build each spec; check and bench it if a matching GPU is present.",
            ("cutegen run specs/my_gemm.yaml", "cutegen run specs/my_gemm.yaml -o kernels"),
        ),
    },
    "Write": {
        "new": Entry(
            "cutegen.cli.start:new",
            "Write a commented spec NAME.yaml to start from.",
            ("cutegen new gemm my_gemm", "cutegen new my_mlp --from gemm_bf16_swiglu_sm90a"),
        ),
        "validate": Entry(
            "cutegen.cli.author:validate",
            "Report every problem of specs that can be found in one pass: text, then keys and expressions, then rules.",
            (
                "cutegen validate specs",
                "cutegen validate - --stdin-filename specs/my_gemm.yaml < buffer",
                "cutegen validate specs --output-format github",
            ),
        ),
        "explain": Entry(
            "cutegen.cli.decide:explain",
            "Explain a spec's kernel, a rule, an epilogue op, or a key of specs.",
            (
                "cutegen explain specs/my_gemm.yaml --shape m=64,n=4096,k=4096",
                'cutegen explain specs/my_gemm.yaml --why-not "tile=256x256"',
                "cutegen explain smem-capacity",
            ),
        ),
    },
    "Make": {
        "render": Entry(
            "cutegen.cli.render:render",
            "Render each spec to OUTPUT/NAME, and write its lock when there is none or a decision had to change.",
            (
                "cutegen render specs",
                "cutegen render --check specs",
                "cutegen render --diff specs/my_gemm.yaml",
                "cutegen render --origin specs/my_gemm.yaml --file kernel.py:120",
            ),
        ),
        "build": Entry(
            "cutegen.cli.build:build",
            "Compile the kernels of specs and compare the code with the plan.",
            ("cutegen build specs/my_gemm.yaml", "cutegen build specs/my_gemm.yaml --keep build-output"),
        ),
        "diff": Entry(
            "cutegen.cli.difference:diff",
            "Show what differs between two specs, or between git revisions A and B of specs.",
            (
                "cutegen diff old.yaml new.yaml",
                "cutegen diff main.. specs/my_gemm.yaml",
                "cutegen diff v1.0..v1.1 specs --markdown",
                "cutegen diff nvidia-cutlass-dsl==4.7.1..4.8.1 specs",
            ),
        ),
        "bundle": Entry(
            "cutegen.cli.bundle:bundle",
            "Compile all kernels of specs into one library, with plans that need torch and apache-tvm-ffi alone.",
            ("cutegen bundle specs -o kernels",),
        ),
    },
    "Prove": {
        "check": Entry(
            "cutegen.cli.run:check",
            "Prove kernels on problems made to break them: edge shapes, guard bands, odd strides, streams, graphs, "
            "repeats.",
            ("cutegen check specs/my_gemm.yaml", "cutegen check my_kernel.py --shape m=100,n=264,k=512"),
        ),
        "bench": Entry(
            "cutegen.cli.bench:bench",
            "Benchmark kernels against other libraries, interleaved in one process.",
            ("cutegen bench specs/my_gemm.yaml -o new.json", "cutegen bench specs/my_gemm.yaml --compare old.json"),
        ),
        "profile": Entry(
            "cutegen.cli.profile:profile",
            "Profile one launch with Nsight Compute: what is planned and what is measured, and what warps wait for.",
            (
                "cutegen profile specs/my_gemm.yaml --shape m=4096,n=4096,k=4096",
                "cutegen profile old.yaml new.yaml --shape m=64,n=4096,k=4096",
            ),
        ),
        "tune": Entry(
            "cutegen.cli.tune:tune",
            "Measure candidates on the current GPU, and write what beats the default beyond the noise into the lock.",
            (
                "cutegen tune specs/my_gemm.yaml --budget 5m",
                "cutegen tune specs/my_gemm.yaml --shape m=64,n=4096,k=4096 --dry-run",
            ),
        ),
        "report": Entry(
            "cutegen.cli.report:report_",
            "Show a result that `bench -o` wrote: as a table, a page or a chart, or compared with an older one.",
            ("cutegen report new.json --html new.html", "cutegen report new.json --compare old.json"),
        ),
    },
    "Keep": {
        "lock": Entry(
            "cutegen.cli.decide:lock",
            "Write the lock of each spec: the decisions it leaves open, with their reasons.",
            ("cutegen lock specs", "cutegen lock --check specs"),
        ),
        "pin": Entry(
            "cutegen.cli.decide:pin",
            "Write decisions into the spec, where people review them; its comments and layout stay.",
            ("cutegen pin specs/my_gemm.yaml --key tiling.tile",),
        ),
        "migrate": Entry(
            "cutegen.cli.decide:migrate",
            "Bring specs and their locks to the version of today: keys that have another name, or are gone.",
            ("cutegen migrate specs", "cutegen migrate --check specs"),
        ),
        "resolve": Entry(
            "cutegen.cli.decide:resolve",
            "Print every decision and derived number with its reason; write nothing.",
            ("cutegen resolve specs/my_gemm.yaml",),
        ),
    },
    "About": {
        "list": Entry(
            "cutegen.cli.author:list_",
            "Show the kernel families, the shipped specs and suites, and the epilogue operations.",
            ("cutegen list",),
        ),
        "schema": Entry(
            "cutegen.cli.author:schema",
            "Print the JSON schema of a family's specs, for editors.",
            ("cutegen schema gemm -o specs/schema/gemm.json",),
        ),
        "doctor": Entry(
            "cutegen.cli.build:doctor",
            "Report which steps this machine can run, and what the others need.",
            ("cutegen doctor", "cutegen doctor --upgrade nvidia-cutlass-dsl==4.8.1 specs"),
        ),
        "cache": Entry(
            "cutegen.cli.cache:cache",
            "Show what the cache holds, by kind, and its limit.",
            ("cutegen cache", "cutegen cache prune --older-than 30d", "cutegen cache prune --max-size 5GB"),
        ),
    },
}
HIDDEN = {
    "names": Entry(
        "cutegen.cli.author:names",
        "Print the names that packages of SPECS add to those of the specs: a family's generated_names.json.",
        ("cutegen names specs/*.yaml -o acme_norms/generated_names.json",),
    ),
    "docs": Entry(
        "cutegen.cli.author:docs",
        "Regenerate the reference pages from models, rules and ops, and the tables and the chart from stored results.",
    ),
}
COMMANDS: dict[str, Entry] = {name: entry for group in (*GROUPS.values(), HIDDEN) for name, entry in group.items()}


def describe_examples(entry: Entry) -> str:
    """What stands below a command's help."""
    title = "Examples" if len(entry.examples) > 1 else "Example"
    return "\b\n" + "\n".join([f"{title}:", *(f"  {call}" for call in entry.examples)]) if entry.examples else ""
