"""YAML is read as OmegaConf reads it, with places, and never beyond plain data."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymdata.environments import yaml
from gymdata.errors import ConfigError


def read(folder: Path, text: str) -> yaml.Node:
    (folder / "a.yaml").write_text(text)
    return yaml.load(folder / "a.yaml", "a.yaml")


# Measured: OmegaConf.create(text) of omegaconf 2.3.1.
AS_OMEGACONF = [
    ("a: no", False), ("a: on", True), ("a: Yes", True), ("a: OFF", False), ("a: TruE", "TruE"), ("a: y", "y"), ("a: 1e3", 1000.0), ("a: 1e-3", 0.001),
    ("a: 1.e5", 100000.0), ("a: 12e03", 12000.0), ("a: 1.", 1.0), ("a: 2020-01-01", "2020-01-01"), ("a: 017", 15), ("a: 09", "09"), ("a: 0o17", "0o17"),
    ("a: 0x1F", 31), ("a: 0b11", 3), ("a: 1:30", 90), ("a: 1_000", 1000), ("a: 1__0", 10), ("a: +1", 1), ("a: 1.2.3", "1.2.3"), ("a: .inf", float("inf")),
    ("a: .e", ".e"), ("a: NULL", None), ("a: ~", None), ("a: ''", ""), ("a: ==", "=="), ("a: !!str 5", "5"), ("a: !!int '5'", 5),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), AS_OMEGACONF)
def test_scalars_are_what_omegaconf_makes_of_them(tmp_path, text, value):
    found = read(tmp_path, text).plain()["a"]
    assert found == value
    assert type(found) is type(value)


def test_every_value_knows_its_line_and_its_spelling(tmp_path):
    root = read(tmp_path, "a:\n  b:\n  - no\n  - {c: 017}\n")
    places = {path: (str(node.place), node.text) for path, node in root.walk() if node.text}
    assert places == {("a", "b", 0): ("a.yaml:3", "no"), ("a", "b", 1, "c"): ("a.yaml:4", "017")}


def test_an_empty_file_is_an_empty_mapping(tmp_path):
    assert read(tmp_path, "").plain() == {}


def test_merge_keys_are_merged_and_own_keys_win(tmp_path):
    text = "x: &x {a: 1, b: 2}\nz: &z {a: 9, c: 1}\ny: {<<: [*x, *z], b: 3}"
    assert read(tmp_path, text).plain()["y"] == {"a": 1, "b": 3, "c": 1}


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n" for before, name in zip("abcdefg", "bcdefgh", strict=True)
)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("a: 1\nb: 2\na: 3", 3, "written twice"),
        ("a: 1\nb: [1,", 2, "not YAML"),
        ("a: 1\n---\nb: 2", 2, "not YAML"),
        ("a: 1\nb: !!python/object/apply:os.system [true]", 2, "plain data"),
        ("a: 1\nb: !!python/name:os.system", 2, "plain data"),
        ("b: !!binary aGk=", 1, "plain data"),
        ("b: =", 1, "plain data"),
        ("~: 1", 1, "key must be text"),
        ("? [a]\n: 1", 1, "key must be text"),
        ("a: &x [*x]", 1, "nests deeper"),
        (BOMB, 6, "aliases"),
        ("[" * 5000, 1, ""),
        ("a: " + "[" * 200 + "]" * 200, 1, "nests deeper"),
        ("a: 1\nb: " + "9" * 5000, 2, "not a number"),
        ("a: \x00", 1, "not YAML"),
    ],
)
def test_what_is_not_plain_yaml_is_refused_at_its_line(tmp_path, text, line, says):
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert caught.value.path == "a.yaml"
    assert says in caught.value.message
    assert caught.value.line == line


def test_a_file_that_is_too_large_is_refused_unread(tmp_path):
    with pytest.raises(ConfigError, match="bytes"):
        read(tmp_path, "a: " + "x" * yaml.MAX_BYTES)


def test_a_file_that_is_not_utf8_is_refused_at_its_line(tmp_path):
    (tmp_path / "a.yaml").write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(ConfigError, match=r"a.yaml:2: is not UTF-8"):
        yaml.load(tmp_path / "a.yaml", "a.yaml")


@given(st.binary(max_size=200))
def test_no_bytes_crash_the_reader(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    path.write_bytes(data)
    try:
        assert isinstance(yaml.load(path), yaml.Node)
    except ConfigError as error:
        assert error.message
