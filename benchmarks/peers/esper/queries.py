"""The questions, each in Esper's EPL and in Ensue's language; a match is its start and its end.

Esper's `timer:within` leaves out an event at its very end, Ensue's WITHIN takes it in; times are
whole milliseconds, so 120 seconds there are 119999 ms here. Esper does not give out a run that may
still grow, so the V shape has a last event `e` on both sides.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pair:
    """One question, asked of both."""

    name: str
    meaning: str
    esper: str
    ensue: str
    target: float | None  # times Esper's events a second of processor time
    typed: bool = False  # whether the pattern's types are those of the `type` column


_V = """
    SEQ(Stock s, Stock+ d[], Stock+ u[], Stock e)
    WHERE partition_contiguity(s, d[], u[], e) { [symbol]
        and d[1].price < s.price and d[i].price < d[i-1].price
        and u[1].price > d[d.LEN].price and u[i].price > u[i-1].price
        and e.price <= u[u.LEN].price }
    {after} RETURN s.ts AS s, e.ts AS e"""

_ESPER_V = """
    select * from STOCK match_recognize (
        partition by symbol measures s.ts as s, e.ts as e after match skip {after}
        pattern (s d+ u+ e)
        define d as d.price < prev(d.price), u as u.price > prev(u.price),
               e as e.price <= prev(e.price))"""

PAIRS = (
    Pair(
        name="V shape, skip past last",
        meaning="s d+ u+ e: prices fall, then rise, until they do not; none shares an event",
        esper=_ESPER_V.replace("{after}", "past last row"),
        ensue=_V.replace("{after}", "AFTER MATCH SKIP PAST LAST EVENT"),
        target=10,
    ),
    Pair(
        name="V shape, all",
        meaning="the same from every first event",
        esper=_ESPER_V.replace("{after}", "to next row"),
        ensue=_V.replace("{after}", ""),
        target=None,
    ),
    Pair(
        name="Kleene until",
        meaning="an A, then every B of its symbol until the first C, within two minutes",
        esper="""
            select a.ts as s, c.ts as e, b.countOf() as n, b.average(x => x.price) as mean
            from pattern [every a=A -> ([1:] b=B(symbol=a.symbol) until c=C(symbol=a.symbol))
                          where timer:within(120 seconds)]""",
        ensue="""
            SEQ(A a, !C n, B+ b[], C c) WHERE skip_till_next_match(a, b[], c) { [symbol] }
            WITHIN 119999 ms AFTER MATCH SKIP TO NEXT EVENT
            RETURN a.ts AS s, c.ts AS e, b.LEN AS n, avg(b.price) AS mean""",
        target=5,
        typed=True,
    ),
    Pair(
        name="surge",
        meaning="volumes at or above their running average, then one below, within two minutes",
        esper="""
            select * from STOCK match_recognize (
                partition by symbol measures a[0].ts as s, b.ts as e after match skip to next row
                pattern (a+ b)
                define a as a.volume >= a.average(v => v.volume),
                       b as b.volume < a.average(v => v.volume)
                            and b.ts - a.firstOf().ts < 120000)""",
        ensue="""
            SEQ(Stock+ a[], Stock b) WHERE partition_contiguity(a[], b) { [symbol]
                and a[i].volume >= avg(a[..i].volume) and b.volume < avg(a.volume) }
            WITHIN 119999 ms AFTER MATCH SKIP TO NEXT EVENT
            RETURN a[1].ts AS s, b.ts AS e""",
        target=5,
    ),
)


def sequence(length: int, *, negated: bool) -> Pair:
    """The next event of each type, A, B, C, D and again A, of one symbol; `negated`: no E before the last."""
    types = ["ABCD"[k % 4] for k in range(length)]
    steps = [f"x{k}={type}(symbol=x1.symbol)" for k, type in enumerate(types[1:], 2)]
    events = [f"{type} x{k}" for k, type in enumerate(types, 1)]
    if negated:
        steps[-1] = f"({steps[-1]} and not E(symbol=x1.symbol))"
        events.insert(-1, "!E n")
    bound = ", ".join(f"x{k}" for k in range(1, length + 1))
    return Pair(
        name=f"{length} events" + (", negated" if negated else ""),
        meaning=f"{' -> '.join(types)} of one symbol within ten minutes"
        + (", no E before the last" if negated else ""),
        esper=f"""
            select x1.ts as s, x{length}.ts as e
            from pattern [every x1=A -> ({" -> ".join(steps)}) where timer:within(600 seconds)]""",
        ensue=f"""
            SEQ({", ".join(events)}) WHERE skip_till_next_match({bound}) {{ [symbol] }}
            WITHIN 599999 ms RETURN x1.ts AS s, x{length}.ts AS e""",
        target=10,
        typed=True,
    )
