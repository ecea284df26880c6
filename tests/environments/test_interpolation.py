"""`${…}` is resolved as OmegaConf resolves it."""

from itertools import pairwise
from pathlib import Path

import pytest

from gymdata.environments import yaml
from gymdata.environments.interpolation import InterpolationError, Interpolator


def resolve(folder: Path, text: str):
    (folder / "a.yaml").write_text(text)
    root = yaml.load(folder / "a.yaml")
    return Interpolator(root).resolve(root, ()).plain()["a"]


# Measured: OmegaConf.to_container(OmegaConf.create(text), resolve=True)["a"] of omegaconf 2.3.1, with XX=5 in the environment.
AS_OMEGACONF = [
    ("a: ${oc.env:XX}", "5"), ("a: ${oc.env:NOPE,7}", "7"), ("a: ${oc.env:NOPE,null}", None), ("a: ${oc.env:NOPE,a b}", "a b"),
    ("a: '${oc.env:NOPE, x/y.z:w }'", "x/y.z:w"), ("a: ${oc.env:NOPE,'q,r'}", "q,r"), ("a: '${oc.env:NOPE,}'", ""), ("a: ${oc.env:NOPE,${b}}\nb: 3", "3"),
    ("a: x${oc.env:NOPE,${b}}y\nb: 3", "x3y"), ("a: x${b}y\nb: true", "xTruey"), ("a: x${b}y\nb: null", "xNoney"), ("a: x${b}y\nb: 1.0", "x1.0y"),
    ("a: x${b}y\nb: [1, 'a']", "x[1, 'a']y"), ("a: ${b}\nb: [1, 'a', '${c}']\nc: 7", [1, "a", 7]),
    ("a: {b: '${.c}', c: 3, d: '${..e}', e: 4}\ne: 5", {"b": 3, "c": 3, "d": 5, "e": 4}), ("a: {l: ['${.1}', 3, '${..c}'], c: 9}", {"l": [3, 3, 9], "c": 9}),
    ("a: ${l[1]}\nl: [1, 2]", 2), ("a: ${l.0}\nl: [1, 2]", 1), ("a: '${m[k]}'\nm: {k: 2}", 2), ("a: '\\${b}'\nb: 1", "${b}"), ("a: '\\\\${b}'\nb: 1", "\\1"),
    ("a: '$b ${ b } {x}'\nb: 1", "$b 1 {x}"), ("a: '${${n}}'\nb: 1\nn: b", 1), ("a: '${oc.select:nope,5}'", 5), ("a: '${oc.decode:\"5\"}'", 5),
    ("a: '${oc.decode:${oc.env:XX}}'", 5), ("a: '${b-c}'\nb-c: 1", 1), ("a: '}${b}{'\nb: 2", "}2{"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), AS_OMEGACONF)
def test_values_are_what_omegaconf_makes_of_them(tmp_path, monkeypatch, text, value):
    monkeypatch.setenv("XX", "5")
    monkeypatch.delenv("NOPE", raising=False)
    assert resolve(tmp_path, text) == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: ${oc.env:NOPE}", "NOPE is not set"),
        ("a: ${nope}", "has no `nope`"),
        ("a: '${b.c}'\nb: 1", "has no `b.c`"),
        ("a: '${b}'\nb: '${a}'", "refers to itself"),
        ("a: {b: '${a}'}", "refers to itself"),
        ("a: '${b}'\nb: ???", "no value yet"),
        ("a: '${b'", "closing brace"),
        ("a: '${}'", "names no key"),
        ("a: '${....b}'", "names no key"),
        ("a: '${oc.create:{}}'", "not a resolver"),
        ("a: '${1}'\n1: 2", "has no `1`"),
    ],
)
def test_what_leads_nowhere_is_an_error(tmp_path, monkeypatch, text, says):
    monkeypatch.delenv("NOPE", raising=False)
    with pytest.raises(InterpolationError, match=says):
        resolve(tmp_path, text)


def test_interpolations_that_multiply_are_stopped(tmp_path):
    names = "bcdefghijklmnopqrst"
    text = "a: ${b}${b}\n" + "".join(f"{name}: ${{{after}}}${{{after}}}\n" for name, after in pairwise(names)) + "t: xxxxxxxx"
    with pytest.raises(InterpolationError, match=r"too many steps|longer than"):
        resolve(tmp_path, text)
