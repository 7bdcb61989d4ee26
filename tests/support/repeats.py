"""Random conditions on each element of a Kleene variable, compared with anything else."""

from collections.abc import Callable
from random import Random


def random_of_each(random: Random, name: str, other: Callable[[], str], compare: Callable[[], str]) -> str:
    """A condition between each element of a Kleene variable and a value of other events.

    What `other` names may be known before the element comes, with it, or later.

    >>> random_of_each(Random(1), "a", lambda: "b[1].x", lambda: "<")
    'b[1].x < a[i].x'
    """
    number = random.choice("xy")
    moving = (
        *[f"{name}[i].{number}"] * 6,
        *[f"{name}[i-1].{number}"] * 2,
        f"{name}[i].{number} - {name}[i-1].{number}",
        f"{random.choice(('sum', 'max', 'count'))}({name}[..i-1].{number})",
        f"{random.choice(('avg', 'min', 'first'))}({name}[..i].{number})",
    )
    sides = [random.choice(moving), other()]
    random.shuffle(sides)
    left, right = sides
    operator = compare()
    if random.random() < 0.5:
        return f"{left} {operator} {right}"
    shapes = (
        f"({left} {operator} {right} or {right} {compare()} {left} + 1)",
        f"({left} {operator} {right} and {other()} >= 1)",
        f"not ({left} {operator} {right})",
        f"({left} {operator} {right}) is null",
        f"coalesce({left}, 1) {operator} coalesce({right}, 2)",
        f"{left} + {right} {operator} 4",
        f"{left} between {right} and 3",
        f"{right} in ({left}, 2)",
    )
    return random.choice(shapes)
