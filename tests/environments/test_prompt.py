"""A prompt makes a row's input from the row's fields, and reaches no further than the fields."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymdata.environments.prompt import Prompt, apply, load
from gymdata.errors import ConfigError, DataError


def test_the_input_is_made_of_the_fields_and_everything_else_stays():
    row = {"question": "1+1?", "answer": "2", "responses_create_params": {"temperature": 0.5}}
    made = apply(row, Prompt(system="Think.", user="Q: {question} {{box}}"))
    assert made["responses_create_params"] == {
        "temperature": 0.5,
        "input": [{"role": "system", "content": "Think."}, {"role": "user", "content": "Q: 1+1? {box}"}],
    }
    assert made["answer"] == "2"
    assert "input" not in row["responses_create_params"]


def test_a_row_without_parameters_gets_them():
    assert apply({"q": "x"}, Prompt(user="{q}"))["responses_create_params"]["input"][0]["content"] == "x"


def test_missing_fields_are_named_all_at_once():
    with pytest.raises(DataError, match="'a', 'b'") as caught:
        apply({"c": 1}, Prompt(system="{a}", user="{b} {c}"))
    assert "'c'" in caught.value.hint


def test_a_row_that_has_an_input_is_refused():
    with pytest.raises(DataError, match="has an input"):
        apply({"q": "x", "responses_create_params": {"input": "hi"}}, Prompt(user="{q}"))


def test_an_empty_input_is_no_input():
    assert apply({"q": "x", "responses_create_params": {"input": []}}, Prompt(user="{q}"))["responses_create_params"]["input"]


@pytest.mark.parametrize("template", ["{q.__class__}", "{q[0]}", "{}", "{0}", "{q:{w}}", "{q:>99999999}", "{q", "q}", "{q!x}"])
def test_a_template_that_reaches_into_values_is_refused_at_its_line(tmp_path, template):
    (tmp_path / "p.yaml").write_text(f"# a prompt\nuser: '{template}'\n")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "p.yaml", "p.yaml")
    assert (caught.value.path, caught.value.line) == ("p.yaml", 2)


def test_unknown_and_missing_keys_of_a_prompt_file_are_reported_together(tmp_path):
    (tmp_path / "p.yaml").write_text("sytem: hi\n")
    with pytest.raises(ConfigError, match="did you mean `system`") as caught:
        load(tmp_path / "p.yaml", "p.yaml")
    assert "user: is required" in str(caught.value)


def test_a_field_that_does_not_fit_its_format_is_a_data_error():
    with pytest.raises(DataError, match="'n'"):
        apply({"n": "text"}, Prompt(user="{n:.2f}"))


@given(
    st.dictionaries(
        st.from_regex(r"[a-z_]{1,6}", fullmatch=True),
        st.text() | st.integers() | st.booleans() | st.lists(st.integers()),
        min_size=1,
    )
)
def test_filling_is_str_format_map(row):
    template = "{{}} " + " ".join(f"{{{name}}} {{{name}!r}}" for name in row)
    assert Prompt(user=template).messages(row)[0]["content"] == template.format_map(row)
