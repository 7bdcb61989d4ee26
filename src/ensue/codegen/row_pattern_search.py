"""Writes the search kernel of a MATCH_RECOGNIZE clause.

It follows the choices of the pattern's automaton in their order of preference. If rows alone
decide, the entries that can lead to a match are known for every row, so that the first live choice
is the right one, and the text is the same for all such clauses. Otherwise predicates on the match
are written into the text, and the search backtracks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ensue.codegen.expressions import BOUNDS, collect_functions, write_imports
from ensue.codegen.names import find_names

# return codes of `search`
DONE, MATCHES_FULL, LABELS_FULL, UNMATCHED_FULL = range(4)
STACK_FULL, SEEN_FULL, STOPPED, TOO_LONG = range(4, 8)
NO_ROW_TO_SKIP_TO, SKIPS_TO_FIRST_ROW = -1, -2

# positions in `meta`
PARTITION, MATCHES, LABELS, UNMATCHED, STOP, ROW, SEARCHES, MOST_STEPS = range(8)

PARAMETERS = (
    "mask", "alive", "sets", "offsets", "variables", "entries", "flags", "bounds", "limits",
    "opened", "begun", "skip", "skip_to", "position", "number", "covered", "starts", "stops",
    "numbers", "partitions", "labels", "unmatched", "wants_unmatched", "meta",
)  # fmt: skip
# additional parameters of clauses with predicates on the match
FURTHER = (
    "stack", "stack_reals", "seen", "seen_reals", "now", "horizon", "times", "wholes", "reals",
    "W", "F", "V",
)  # fmt: skip

_TEXT = '''\
"""Generated: the search of MATCH_RECOGNIZE. {title}"""

{imports}
import numpy as np
from numba import njit
{bounds}
{helpers}

def search({parameters}):
{readings}
    p = meta[0]
    count = meta[1]
    used = meta[2]
    missed = meta[3]
    code = 0
    while p < len(bounds) - 1:
        r = position[p]
        last = limits[p]
        first_row = bounds[p]
        while r < last:
            if meta[4] != 0:
                code = 6
                break
            if sets[alive[r + p], 0] == 0:
                if wants_unmatched and r >= covered[p]:
                    if missed == len(unmatched):
                        code = 3
                        break
                    unmatched[missed] = r
                    missed += 1
                r += 1
                position[p] = r
                continue
            # the preferred match that begins with row r
            more = opened[p]
{prepare}
            i = r
            e = 0
            c = offsets[0]
            found = 0  # 1: a match, -1: none, -2: it depends on later rows
            while found == 0:
                if c == offsets[e + 1]:
{dead_end}
                v = variables[c]
                at = flags[c]
                if at & 2 and (i != first_row or begun[p]):
                    c += 1
                    continue
                if v < 0:
                    if at & 4 and (i != last or more):
                        c += 1
                        continue
                    found = 1
                    break
                if i == last:
                    if more:
                        found = -2
                        break
                    c += 1
                    continue
                if mask[i] >> v & 1 and sets[alive[i + 1 + p], entries[c]]:
{take}
                c += 1
            if code != 0:
                break
            if found == -2:
                break
            if found == -1:
                if wants_unmatched and r >= covered[p]:
                    if missed == len(unmatched):
                        code = 3
                        break
                    unmatched[missed] = r
                    missed += 1
                r += 1
                position[p] = r
                continue
            if count == len(starts):
                code = 1
                break
            on = i
            if i == r or skip == 1:
                on = r + 1
            elif skip > 1:
                on = -1
                for k in range(i - r):
                    if skip_to >> (labels[used + k] & 16383) & 1:
                        on = r + k
                        if skip == 2:
                            break
                if on < 0:
                    code = -1
                elif on == r:
                    code = -2
                if code != 0:
                    meta[5] = r
                    number[p] += 1
                    break
            number[p] += 1
            starts[count] = r
            stops[count] = i
            numbers[count] = number[p]
            partitions[count] = p
            count += 1
            used += i - r
            covered[p] = max(covered[p], i, r + 1)
            r = on
            position[p] = r
        if code != 0:
            break
        p += 1
    meta[0] = p
    meta[1] = count
    meta[2] = used
    meta[3] = missed
    return code
'''

_ALONE_DEAD_END = """\
found = -1
break"""

_ALONE_TAKE = """\
if used + i - r == len(labels):
    code = 2
    break
labels[used + i - r] = v | (at & 1) << 14
i += 1
e = entries[c]
c = offsets[e]
continue"""


@dataclass(frozen=True, slots=True)
class SearchRegisters:
    """The values that a search stores about the rows it has mapped."""

    wholes: tuple[str, ...] = ()  # names of integers
    reals: tuple[str, ...] = ()  # and of floats
    fresh: Mapping[str, str] = field(default_factory=dict)  # their initial values


def write_row_search() -> str:
    """The kernel of clauses whose rows alone decide."""
    return _text("Rows alone decide.", "", "", _ALONE_DEAD_END, _ALONE_TAKE, PARAMETERS)


@dataclass(frozen=True, slots=True)
class VariableTexts:
    """The texts of one variable: the predicate of a row, and the register updates."""

    variable: int
    condition: str  # an expression over i, r and registers
    remembered: Sequence[str]  # statements
    prepared: Sequence[str] = ()  # statements before the condition; one may have several lines


def write_match_search(
    title: str, takings: Sequence[VariableTexts], registers: SearchRegisters, readings: Sequence[str]
) -> str:
    """The kernel of a clause with predicates on the match."""
    names = (*registers.wholes, *registers.reals)
    prepare = [f"{name} = {registers.fresh[name]}" for name in names]
    prepare += [
        "top = 0",
        "steps = 0",
        # later rows are outside its window, and so are the waiting ones here
        "if horizon >= 0:",
        "    if last == bounds[p + 1]:",
        "        if times[r] + horizon <= now[0]:",
        "            more = False",
        "    elif times[last] - times[r] >= horizon:",
        "        more = False",
    ]
    save = [
        "if top == len(stack):", "    code = 4", "    break",
        "stack[top, 0] = i", "stack[top, 1] = e", "stack[top, 2] = c + 1",
        *(f"stack[top, {3 + k}] = {name}" for k, name in enumerate(registers.wholes)),
        *(f"stack_reals[top, {k}] = {name}" for k, name in enumerate(registers.reals)),
        "top += 1",
    ]  # fmt: skip
    back = [
        "if top == 0:", "    found = -1", "    break",
        "top -= 1", "i = stack[top, 0]", "e = stack[top, 1]", "c = stack[top, 2]",
        *(f"{name} = stack[top, {3 + k}]" for k, name in enumerate(registers.wholes)),
        *(f"{name} = stack_reals[top, {k}]" for k, name in enumerate(registers.reals)),
        "continue",
    ]  # fmt: skip
    take = ["fits = False"]
    for number, taking in enumerate(takings):
        take.append(f"{'el' if number else ''}if v == {taking.variable}:")
        before = [line for text in taking.prepared for line in text.splitlines()]
        take += [f"    {line}" for line in (*before, f"fits = {taking.condition}")]
    take += ["if fits:"]
    inner = [
        "if used + i - r >= len(labels):", "    code = 2", "    break",
        "if c + 1 < offsets[e + 1]:",
        *(f"    {line}" for line in save),
        "labels[used + i - r] = v | (at & 1) << 14",
    ]  # fmt: skip
    updating = [taking for taking in takings if taking.remembered]
    for number, taking in enumerate(updating):
        inner += [f"{'el' if number else ''}if v == {taking.variable}:"]
        inner += [f"    {line}" for line in taking.remembered]
    inner += [
        "i += 1", "e = entries[c]", "c = offsets[e]",
        # a state that failed before is not searched again
        "steps += 1",
        "if steps > meta[7]:", "    code = 7", "    meta[5] = r", "    break",
        "if steps > 64 + 4 * (i - r):",
        "    key = i * 2654435761 + e * 40503",
        *(f"    key += {name} * {3 + 2 * k}" for k, name in enumerate(registers.wholes)),
        *(f"    key = key * 31 + hash({name})" for name in registers.reals),
        "    at_seen = (key ^ key >> 17) & (len(seen) - 1)",
        "    known = False",
        "    while seen[at_seen, 0] == mark:",
        "        if seen[at_seen, 1] == i and seen[at_seen, 2] == e"
        + "".join(f" and seen[at_seen, {3 + k}] == {n}" for k, n in enumerate(registers.wholes))
        + "".join(
            f" and seen_reals[at_seen, {k}] == {n}" for k, n in enumerate(registers.reals)
        )
        + ":",
        "            known = True",
        "            break",
        "        at_seen = (at_seen + 1) & (len(seen) - 1)",
        "    if known:",
        "        c = offsets[e + 1]",
        "    else:",
        "        if 2 * held > len(seen):",
        "            code = 5",
        "            meta[5] = r",
        "            break",
        "        held += 1",
        "        seen[at_seen, 0] = mark",
        "        seen[at_seen, 1] = i",
        "        seen[at_seen, 2] = e",
        *(f"        seen[at_seen, {3 + k}] = {n}" for k, n in enumerate(registers.wholes)),
        *(f"        seen_reals[at_seen, {k}] = {n}" for k, n in enumerate(registers.reals)),
        "if steps & 65535 == 0 and meta[4] != 0:", "    code = 6", "    break",
        "continue",
    ]  # fmt: skip
    take += [f"    {line}" for line in inner]
    prepare = ["meta[6] += 1", "mark = meta[6]", "held = 0", *prepare]
    parameters = (*PARAMETERS, *FURTHER)
    return _text(title, "\n".join(readings), "\n".join(prepare), "\n".join(back),
                 "\n".join(take), parameters)  # fmt: skip


def _text(title: str, readings: str, prepare: str, dead_end: str, take: str, parameters: Sequence[str]) -> str:
    used = find_names(readings) | find_names(prepare) | find_names(dead_end) | find_names(take)
    texts = list(collect_functions(used, {}))
    for text in texts:
        used |= find_names(text)
    return _TEXT.format(
        title=title,
        imports="\n".join(["import math"] * ("math" in used) + list(write_imports(used))),
        bounds="\n".join(f"{name} = {value}" for name, value in BOUNDS.items() if name in used),
        helpers="".join(f"\n\n{text}" for text in texts),
        parameters=", ".join(parameters),
        readings=_indent(readings, 4),
        prepare=_indent(prepare, 12),
        dead_end=_indent(dead_end, 20),
        take=_indent(take, 20),
    )


def _indent(text: str, depth: int) -> str:
    return "\n".join(" " * depth + line for line in text.splitlines())
