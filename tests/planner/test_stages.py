"""Where the key of a hierarchy changes."""

from ensue.analyzer.hierarchy_layers import build_layers
from ensue.parser.definitions import parse_pattern_text
from ensue.planner.hierarchy_stages import build_stages


def stages(text):
    return [
        (stage.key, [layer.name for layer in stage.layers], stage.takes, stage.gives, stage.raw)
        for stage in build_stages(build_layers(parse_pattern_text(text)))
    ]


def test_layers_of_one_key_are_one_stage():
    found = stages("""
        EVENT Low AS SEQ(A a, B b) WHERE [k] WITHIN 5;
        EVENT Mid AS SEQ(Low x, Low y) WHERE [k] WITHIN 9;
        SEQ(Mid m, C c) WHERE [k] WITHIN 20
    """)
    assert found == [(("k",), ["Low", "Mid", ""], (), (), {"A", "B", "C"})]


def test_a_cut_lies_where_the_key_changes():
    found = stages("""
        EVENT Incident AS SEQ(A a, B b) WHERE [sensor] WITHIN 5 RETURN a.machine AS machine;
        EVENT Outage AS SEQ(Incident x, C y) WHERE [machine] WITHIN 9 RETURN y.site AS site;
        SEQ(Outage m, Outage n) WHERE [site] WITHIN 20
    """)
    assert found == [
        (("sensor",), ["Incident"], (), ("Incident",), {"A", "B"}),
        (("machine",), ["Outage"], ("Incident",), ("Outage",), {"C"}),
        (("site",), [""], ("Outage",), (), set()),
    ]


def test_a_field_of_the_key_s_name_with_another_meaning_is_another_key():
    found = stages("""
        EVENT Low AS SEQ(A a, B b) WHERE [k] WITHIN 5 RETURN a.other AS k;
        SEQ(Low x, Low y) WHERE [k] WITHIN 9
    """)
    assert [s[:2] for s in found] == [(("k",), ["Low"]), (("k",), [""])]


def test_a_finer_key_runs_in_the_key_groups_of_a_coarser_one():
    found = stages("""
        EVENT Low AS SEQ(A a, B b) WHERE [user] and [device] WITHIN 5;
        SEQ(Low x, Low y) WHERE [user] WITHIN 9
    """)
    assert [s[:2] for s in found] == [(("user",), ["Low", ""])]


def test_layers_of_two_keys_below_one_of_a_third():
    found = stages("""
        EVENT One AS SEQ(A a, B b) WHERE [k] WITHIN 5 RETURN a.s AS s;
        EVENT Two AS SEQ(A a, B b) WHERE [g] WITHIN 5 RETURN a.s AS s;
        SEQ(One x, Two y) WHERE [s] WITHIN 9
    """)
    assert [(s[0], s[2]) for s in found] == [
        (("k",), ()), (("g",), ()), (("s",), ("One", "Two")),
    ]  # fmt: skip


def test_strict_contiguity_looks_at_all_events():
    found = stages("""
        EVENT Low AS SEQ(A a, B b) WHERE strict_contiguity(a, b) { [k] } WITHIN 5;
        SEQ(Low x, C c) WHERE [k] WITHIN 9
    """)
    assert [(s[0], s[4]) for s in found] == [((), None), (("k",), {"C"})]
