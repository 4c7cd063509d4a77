"""The C entry of a GEMM: the dispatch of its plan, with the cost model translated, and its tables as data."""

from __future__ import annotations

from typing import Any

from cutegen.families.c_entry import NO_CHECK, SMS, WINNERS, CEntry, CopiedRows, Translator, in_c, winner_rows
from cutegen.runtime.device_rates import RATES, VARIANTS, memory_rate, part_of, scale_rates
from cutegen.runtime.gemm.cost_model import MODELS, Constants, Form, Instance, describe_work, order, spend
from cutegen.runtime.gemm.product_scratch import count_arrivals, count_partials
from cutegen.runtime.gemm.row_copy import ROWS, copied_extents
from cutegen.runtime.gemm.tiling import SCRATCH, count_scratch

# `dispatched.py` and `device_rates.py` say what this does: the rules are their functions, as NAME in capitals.
DISPATCH = """\
typedef struct { const char *name; num arch; Rates rates; } known_device;
static const known_device known_devices[] = {KNOWN};
static const char *const variants[] = {VARIANTS};

/* A word of a name, whose words spaces separate; in lower case. */
static int has_word(const char *name, const char *word) {
  size_t length = strlen(word);
  while (*name) {
    size_t own = strcspn(name, " ");
    if (own == length && !strncasecmp(name, word, length)) return 1;
    name += own;
    name += strspn(name, " ");
  }
  return 0;
}

/* 0, or -1: no device of the architecture is known. */
static int find_rates(const BUNDLE_device *device, num arch, Rates *rates) {
  const known_device *base = 0;
  num moved = MEMORY_RATE(device->memory_clock_khz, device->memory_bus_bits), distance = 0;
  int variant = 0;
  for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) variant |= has_word(device->name, variants[i]);
  for (size_t i = 0; i < sizeof known_devices / sizeof *known_devices; i++) {
    const known_device *known = &known_devices[i];
    if (known->arch != arch) continue;
    if (!variant && has_word(device->name, known->name) && device->sms == known->rates.sms) {
      *rates = known->rates;
      return 0;
    }
    num apart = num_abs(known->rates.hbm_bytes_per_s - moved);
    if (!base || apart < distance) {
      base = known;
      distance = apart;
    }
  }
  if (!base) return fail("the cost model knows no device of this architecture");
  *rates = SCALE_RATES(&base->rates, device->sms, device->clock_khz, moved, device->l2_bytes);
  return 0;
}

typedef struct {
  num arch;
  int keys, picks, winners;
  const num *least_sms;
  const int *pick;
  const Instance *instances;
  const Form *form;
  const Constants *constants;
  const winner *winner;
} product;

static int rank_tilings(const product *p, const BUNDLE_device *device, num sms, num m, num n, num k, num batch) {
  Rates rates;
  if (find_rates(device, p->arch, &rates)) return -1;
  num fewest = p->least_sms[p->pick[0]];
  for (int i = 0; i < p->picks; i++) fewest = num_min(fewest, p->least_sms[p->pick[i]]);
  if (sms) rates = PART_OF(&rates, sms);
  Work work = DESCRIBE_WORK(p->form, &rates, m, n, k, batch);
  int best = -1;
  tuple3 first;
  for (int i = 0; i < p->picks; i++) {
    int key = p->pick[i];
    if (sms && p->least_sms[key] > num_max(sms, fewest)) continue;
    Spent spent = SPEND(&p->instances[key], p->form, &work, &rates, p->constants);
    tuple3 found = ORDER(&spent);
    int place = 0;
    while (place < 3 && found.v[place] == first.v[place]) place++;
    if (best >= 0 && (place == 3 || found.v[place] > first.v[place])) continue;
    best = key;
    first = found;
  }
  return best;
}

static int choose_tiling(
    const product *p, const BUNDLE_device *device, num sms, const num *point, num m, num n, num k, num batch) {
  if (!p->picks) return 0;
  int key = find_winner(p->winner, p->winners, device->name, point, m);
  if (key >= 0 && (!sms || p->least_sms[key] <= sms)) return key;
  return p->picks == 1 ? p->pick[0] : rank_tilings(p, device, sms, m, n, k, batch);
}

/* Picks of this thread for one device, which take a formula for each tiling: a call of a server has come before. */
typedef struct { const product *p; num sms, m, n, k, batch; int key; } remembered;

static int pick_product(
    const product *p, const BUNDLE_device *device, num sms, const num *point, num m, num n, num k, num batch) {
  static _Thread_local BUNDLE_device last;
  static _Thread_local remembered seen[PICKS];
  if (memcmp(&last, device, sizeof last)) {
    memset(seen, 0, sizeof seen);
    last = *device;
  }
  uint64_t hash = (uint64_t)(uintptr_t)p ^ (uint64_t)sms;
  const num extents[4] = {m, n, k, batch};
  for (int i = 0; i < 4; i++) hash = (hash ^ (uint64_t)extents[i]) * 0x9e3779b97f4a7c15u, hash ^= hash >> 29;
  remembered *r = &seen[hash % PICKS];
  if (r->p != p || r->sms != sms || r->m != m || r->n != n || r->k != k || r->batch != batch) {
    int key = choose_tiling(p, device, sms, point, m, n, k, batch);
    if (key < 0) return key;
    *r = (remembered){p, sms, m, n, k, batch, key};
  }
  return r->key;
}
"""
PICKS = 64  # that a thread remembers


def c_entry(plan: Any, translate: Translator) -> CEntry | str:
    """Of a plan of runtime/gemm/plan.py."""
    keys = tuple(plan.tilings)
    if any(tiling.clc for tiling in plan.tilings.values()):
        return "its launches have a cluster for each tile, and keep to no budget of SMs"
    args = (*plan.inputs, *plan.fresh_outputs)
    return CEntry(
        extents=plan.dims,
        args=args,
        outputs=tuple(o.name for o in plan.outputs),
        order=(*(a.name for a in args), "scratch", SMS),
        keys=keys,
        least_sms=tuple(plan.least_sms(key) for key in keys),
        code=_pick(plan, keys, translate) + _size(plan, keys, translate) + NO_CHECK,
        helpers=(WINNERS, dispatch_code(translate)),
        scratch=plan.scratch,
        endings=plan.optional_endings,
        needed=() if isinstance(plan.dims[plan.reduced], int) else (plan.reduced,),
        fills=bool(plan.reductions),
        copied=_copied(plan, translate) if plan.row_copy else None,
    )


def dispatch_code(translate: Translator) -> str:
    """C that ranks tilings."""
    for kind in (Form, Instance, Constants):
        translate.struct(kind)
    functions = (memory_rate, scale_rates, part_of, describe_work, spend, order)
    names = {f.__name__.upper(): translate.function(f) for f in functions}
    known = (f'{{"{name}", {translate.text(arch)}, {translate.data(rates)}}}' for name, (arch, rates) in RATES.items())
    text = DISPATCH.replace("{KNOWN}", "{" + ", ".join(known) + "}")
    text = text.replace("{VARIANTS}", "{" + ", ".join(f'"{word}"' for word in sorted(VARIANTS)) + "}")
    for name, function in names.items():
        text = text.replace(f"{name}(", f"{function}(")
    return text.replace("[PICKS]", f"[{PICKS}]").replace("% PICKS", f"% {PICKS}")


def _pick(plan: Any, keys: tuple[str, ...], translate: Translator) -> str:
    m, n, k, batch = plan.roles
    extent = {role: in_c(plan.dims, dim) for role, dim in zip("mnk", (m, n, k))}
    extent["batch"] = in_c(plan.dims, batch[0]) if batch else "1"
    point = ", ".join([extent["batch"]] * len(batch) + [extent["n"], extent["k"]])
    call = f"{extent['m']}, {extent['n']}, {extent['k']}, {extent['batch']}"
    return f"""\
{product_tables(plan, keys, translate)}
static int pick_ENTRY(const BUNDLE_device *device, num sms, const num *e) {{
  const num point[4] = {{{point}}};
  return pick_product(&product_ENTRY, device, sms, point, {call});
}}
"""


def product_tables(plan: Any, keys: tuple[str, ...], translate: Translator) -> str:
    """What the pick of a call reads of a plan."""
    least = f"static const num least_ENTRY[] = {{{', '.join(str(plan.least_sms(key)) for key in keys)}}};"
    if plan.portfolio is None:
        return f"{least}\nstatic const product product_ENTRY = {{.keys = {len(keys)}, .least_sms = least_ENTRY}};"
    portfolio = plan.portfolio
    instances = ",\n  ".join(translate.data(portfolio.instance(plan.tilings, key)) for key in keys)
    winners = winner_rows(plan.winners, keys)
    rows = ",\n  ".join(winners or ["{0}"])
    return f"""\
{least}
static const Instance instances_ENTRY[] = {{
  {instances}
}};
static const int picks_ENTRY[] = {{{", ".join(str(keys.index(key)) for key in portfolio.keys)}}};
static const Form form_ENTRY = {translate.data(portfolio.form)};
static const Constants constants_ENTRY = {translate.data(MODELS[portfolio.model])};
static const winner winners_ENTRY[] = {{
  {rows}
}};
static const product product_ENTRY = {{
  {translate.text(plan.arch)}, {len(keys)}, {len(portfolio.keys)}, {len(winners)},
  least_ENTRY, picks_ENTRY, instances_ENTRY, &form_ENTRY, &constants_ENTRY, winners_ENTRY
}};"""


def _copied(plan: Any, translate: Translator) -> CopiedRows:
    """The copies lie as `RowCopy.run` has them."""
    m, k = in_c(plan.dims, plan.roles[0]), in_c(plan.dims, plan.reduced)
    copies = {}
    shapes: list[tuple[tuple[str, ...], tuple[str, ...]]] = [((m, k), (k, "1"))]
    for block, spare in plan.row_copy.scale_blocks:
        extents = f"{translate.function(copied_extents)}({m}, {k}, {block}, {spare})"
        shapes.append(((m, f"{extents}.v[1]"), ("1", f"{extents}.v[0]")) if block else ((m,), ("1",)))
    for name, arg, (shape, strides) in zip(plan.gathered.tensors, plan.row_copy.args, shapes):
        copies[name] = arg.name, shape, strides
    return CopiedRows("copy_rows", "copied_ENTRY[key]", plan.gathered.index, copies, f"ceil_div({m}, {ROWS})")


def _size(plan: Any, keys: tuple[str, ...], translate: Translator) -> str:
    """By the scratch of the plan: partial results and counters of reductions, then what tilings take."""
    m, n, _, _ = plan.roles
    batch = in_c(plan.dims, plan.product_batch[0]) if plan.product_batch else "1"
    of, lines = plan.scratch_of, []
    if of.kept:
        (least_m, least_n), spare = of.least_tile, of.spare_tiles
        lines += [f"num tiles_m = ceil_div(m, {least_m}) + {spare}, tiles_n = ceil_div(n, {least_n}) + {spare};"]
        for i, kept in enumerate(of.kept):
            call = f"{translate.function(count_partials)}({translate.text(kept)}, m, n, batch, tiles_m, tiles_n)"
            lines.append(f"sizes[{i}] = {call};")
        each = ", ".join(str(int(kept in of.kept)) for kept in ("m", "n", ""))
        call = f"{each}, {int(of.rows_anywhere)}, m, batch, tiles_m, tiles_n"
        lines.append(f"sizes[{len(of.kept)}] = {translate.function(count_arrivals)}({call});")
    own = {s.name for s in SCRATCH}
    tables, copies = "", {}
    if plan.row_copy:
        k = in_c(plan.dims, plan.reduced)
        rows = (f"{translate.function(copied_extents)}(m, {k}, {b}, {s})" for b, s in plan.row_copy.scale_blocks)
        sizes = (f"m * {k}", *(f"{extents}.v[0] * {extents}.v[1]" for extents in rows))
        copies = {arg.name: size for arg, size in zip(plan.row_copy.args, sizes)}
        copying = ", ".join(str(int(key in plan.copied_tilings)) for key in keys)
        tables += f"static const char copied_ENTRY[] = {{{copying}}};\n"
    for i, arg in enumerate(plan.scratch):
        if arg.name in own:
            rows = (f"{{{', '.join(map(str, (*getattr(t, arg.name), *t.covers)))}}}" for t in plan.tilings.values())
            tables += f"static const num {arg.name}_ENTRY[][4] = {{{', '.join(rows)}}};\n"
            row = f"{arg.name}_ENTRY[key]"
            values = ", ".join(f"{row}[{j}]" for j in range(4))
            call = f"{translate.function(count_scratch)}({values}, m, n, batch)"
            lines.append(f"sizes[{i}] = {row}[0] || {row}[1] ? {call} : 0;")
        elif arg.name in copies:
            lines.append(f"sizes[{i}] = copied_ENTRY[key] ? {copies[arg.name]} : 0;")
    body = "".join(f"  {line}\n" for line in lines)
    return f"""\
{tables}static int size_ENTRY(int key, num count, const num *e, num *sizes) {{
  num m = {in_c(plan.dims, m)}, n = {in_c(plan.dims, n)}, batch = {batch};
{body}  return 0;
}}
"""
