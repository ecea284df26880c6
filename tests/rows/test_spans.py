"""Spans point at the bytes of every value, and edits change those and no others."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymdata.rows.spans import Edit, Node, append, apply, find, locate, parse, remove, rename

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=20,
)
SEPARATORS = st.sampled_from([(", ", ": "), (",", ":"), (" ,\t", " :  ")])


def walk(node: Node, value: object) -> None:
    assert node.value == value
    if isinstance(value, dict):
        assert [member.key for member in node.members or []] == list(value)
        for member in node.members or []:
            assert json.loads(node.text[member.start : member.stop]) == member.key
            walk(member.node, value[member.key])
    elif isinstance(value, list):
        assert len(node.items or []) == len(value)
        for item, part in zip(node.items or [], value, strict=True):
            walk(item, part)
    else:
        assert node.members is None and node.items is None


@given(VALUES, SEPARATORS, st.booleans())
@settings(deadline=None)
def test_every_value_is_where_the_tree_says(value, separators, ascii_only):
    walk(parse(json.dumps(value, separators=separators, ensure_ascii=ascii_only).encode()), value)


def test_nesting_takes_no_stack():
    depth = 100_000
    root = parse(b"[" * depth + b"]" * depth)
    assert (root.start, root.stop) == (0, 2 * depth)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("$", '{"a": [1, {"odd key": "x", "b": null}]}'),
        ("$.a", '"a": [1, {"odd key": "x", "b": null}]'),
        ("$.a[0]", "1"),
        ('$.a[1]["odd key"]', '"odd key": "x"'),
        ("$.a[1].b", '"b": null'),
    ],
)
def test_a_path_points_at_its_bytes(path, text):
    line = b'{"a": [1, {"odd key": "x", "b": null}]}'
    start, stop = locate(parse(line), path)
    assert line[start:stop].decode() == text


@pytest.mark.parametrize("path", ["$.a.b.c", "$.a[7]", "$.a[0].x"])
def test_a_missing_value_points_at_its_nearest_holder(path):
    line = b'{"a": [1]}'
    start, stop = locate(parse(line), path)
    assert line[start:stop] in (b'"a": [1]', b"1")
    assert find(parse(line), path) is None


@given(st.dictionaries(st.text(), VALUES, min_size=1, max_size=5), SEPARATORS, st.data())
@settings(deadline=None)
def test_a_member_is_removed_and_no_other_changed(row, separators, data):
    line = json.dumps(row, separators=separators).encode()
    root = parse(line)
    member = data.draw(st.sampled_from(root.members or []))
    new, _ = apply(line, [remove(root, member, "gone")])
    assert json.loads(new) == {key: value for key, value in row.items() if key != member.key}


@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=3), SEPARATORS)
@settings(deadline=None)
def test_a_member_is_put_at_the_end_in_the_spacing_of_the_object(row, separators):
    line = json.dumps(row, separators=separators).encode()
    new, _ = apply(line, [append(parse(line), "a new key", b"[1.10]", "put")])
    assert json.loads(new) == {**row, "a new key": [1.10]}
    assert new.startswith(line[:-1])
    if len(row) > 1:  # of one member, the comma can only be guessed
        assert new == json.dumps({**row, "a new key": [1]}, separators=separators).encode().replace(b"[1]", b"[1.10]")


def test_edits_that_touch_wait_for_the_next_round():
    line = b'{"a": 1, "b": 2}'
    root = parse(line)
    first, second = root.members or []
    assert apply(line, [remove(root, first, "one"), remove(root, second, "two")]) == (b'{"b": 2}', ["one"])
    assert apply(line, [rename(first, "c", "one"), Edit(second.node.start, second.node.stop, b"3", "two")]) == (
        b'{"c": 1, "b": 3}',
        ["one", "two"],
    )
