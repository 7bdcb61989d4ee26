"""Our `dataclass` does what that of the standard library does."""

import copy
import dataclasses
import math
import pickle

import pytest

from ensue.decorators import dataclass, field, replace

OPTIONS = [{}, {"frozen": True}, {"slots": True}, {"frozen": True, "slots": True}, {"frozen": True, "eq": False}]


def build(decorator, options):
    @decorator(**options)
    class Base:
        a: int
        b: str = "x"

    @decorator(**options)
    class Derived(Base):
        c: list[int] = field(default_factory=list, compare=False)
        d: float = field(default=0.5, repr=False, kw_only=True)
        e: int = field(default=7, init=False)

        def __post_init__(self):
            if self.a < 0:
                raise ValueError("negative")

    return Base, Derived


def outcome(act):
    try:
        return act()
    except (TypeError, ValueError, AttributeError) as error:
        return type(error)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_classes_behave_as_those_of_the_standard_library(options):
    (base, derived), (plain_base, plain) = build(dataclass, options), build(dataclasses.dataclass, options)
    for own, other in ((base, plain_base), (derived, plain)):
        assert own.__match_args__ == other.__match_args__
        assert [f.name for f in dataclasses.fields(own)] == [f.name for f in dataclasses.fields(other)]
        assert (own.__hash__ is None) == (other.__hash__ is None)
        for args, named in (
            ((1,), {}),
            ((1, "y"), {"d": 2}),
            ((), {}),
            ((-1,), {}),
            ((1, "x", [2]), {}),
            ((1,) * 9, {}),
        ):
            values = [outcome(lambda kind=kind: kind(*args, **named)) for kind in (own, other)]  # noqa: B023
            shown = [value if isinstance(value, type) else (repr(value), dataclasses.asdict(value)) for value in values]
            assert shown[0] == shown[1]
    for kind in (derived, plain):
        one, same, another = kind(1), kind(1, c=[3]), kind(1, d=math.nan)
        assert (one == same) is options.get("eq", True)
        assert (another == copy.copy(another)) is options.get("eq", True)
        assert one != 1
        assert replace(one, a=2).a == 2
        if options.get("frozen"):
            assert (hash(one) == hash(same)) is options.get("eq", True)
            for act in (lambda value: setattr(value, "a", 3), lambda value: delattr(value, "a")):
                with pytest.raises(dataclasses.FrozenInstanceError, match="field 'a'"):
                    act(one)


@dataclass(frozen=True, slots=True)
class Pickled:
    a: int
    b: tuple["Pickled", ...] = ()


def test_frozen_classes_with_slots_are_pickled():
    value = Pickled(1, (Pickled(2),))
    assert pickle.loads(pickle.dumps(value)) == value == copy.deepcopy(value)
    assert repr(value) == "Pickled(a=1, b=(Pickled(a=2, b=()),))"
