"""`gymdata convert`: every record becomes a valid row or a finding, and nothing is damaged on the way."""

import json

import pytest

from gymdata.cli.main import main

CHAT = {
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "2+2?"}]},
        {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "4"},
        {"role": "assistant", "content": "It is 4."},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "max_tokens": 9,
    "tool_choice": None,
    "id": "007",
}
SHAREGPT = {
    "conversations": [
        {"from": "human", "value": "2+2?"},
        {"from": "function_call", "value": '{"name": "f", "arguments": {"x": 1.10}}'},
        {"from": "observation", "value": "4"},
        {"from": "gpt", "value": "It is 4."},
    ],
    "tools": '[{"name": "f", "description": "d", "parameters": {"type": "object"}}]',
    "system": "Be brief.",
}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def lines(path: str) -> list[dict]:
    with open(path, encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def write(path: str, *records: object) -> str:
    with open(path, "w", encoding="utf-8") as stream:
        stream.writelines(json.dumps(record) + "\n" for record in records)
    return path


def test_chat(capsys):
    assert main(["convert", write("in.jsonl", CHAT), "out.jsonl", "--from", "chat", "--answer-field", "expected_answer"]) == 0
    assert lines("out.jsonl") == [
        {
            "responses_create_params": {
                "input": [
                    {"role": "user", "content": [{"type": "input_text", "text": "2+2?"}]},
                    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
                    {"type": "function_call_output", "call_id": "c1", "output": "4"},
                ],
                "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": None}],
                "max_output_tokens": 9,
            },
            "expected_answer": "It is 4.",
            "id": "007",
        }
    ]
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "1 of 1 record converted, written to out.jsonl" in captured.err


def test_an_answer_that_stays_in_the_prompt_is_told(capsys):
    assert main(["convert", write("in.jsonl", CHAT), "out.jsonl", "--from", "chat", "--system", "Be brief."]) == 0
    assert "1 record: ends with an answer" in capsys.readouterr().err
    items = lines("out.jsonl")[0]["responses_create_params"]["input"]
    assert items[0] == {"role": "system", "content": "Be brief."}
    assert items[-1] == {"role": "assistant", "content": "It is 4."}


def test_sharegpt():
    with open("in.json", "w", encoding="utf-8") as stream:
        json.dump([SHAREGPT], stream, indent=2)
    assert main(["convert", "in.json", "out.jsonl", "--from", "sharegpt", "--answer-field", "expected_answer"]) == 0
    assert lines("out.jsonl") == [
        {
            "responses_create_params": {
                "input": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": "2+2?"},
                    {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": '{"x": 1.10}'},
                    {"type": "function_call_output", "call_id": "call_1", "output": "4"},
                ],
                "tools": [
                    {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": None}
                ],
            },
            "expected_answer": "It is 4.",
        }
    ]


def test_columns_of_csv_stay_strings():
    with open("in.csv", "w", encoding="utf-8") as stream:
        stream.write("question,answer,id,day,n\n2+2?,007,1e-12,2024-01-02,12345678901234567890\n")
    command = ["convert", "in.csv", "out.jsonl", "--from", "columns", "--prompt-column", "question", "--answer-column", "answer"]
    assert main([*command, "--map", "source_id=id", "--system", "Be brief."]) == 0
    assert lines("out.jsonl") == [
        {
            "responses_create_params": {
                "input": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]
            },
            "expected_answer": "007",
            "source_id": "1e-12",
            "day": "2024-01-02",
            "n": "12345678901234567890",
        }
    ]


def test_columns_of_json_lines_keep_their_spelling():
    with open("in.jsonl", "w", encoding="utf-8") as stream:
        stream.write('{"q": "2+2?", "a": 4.0, "big": 1234567890123456789, "tiny": 1E-12, "no": null, "s": "\\u00e9"}\n')
    assert main(["convert", "in.jsonl", "out.jsonl", "--from", "columns", "--prompt-column", "q", "--answer-column", "a"]) == 0
    with open("out.jsonl", encoding="utf-8") as stream:
        tail = '"expected_answer": 4.0, "big": 1234567890123456789, "tiny": 1E-12, "no": null, "s": "\\u00e9"}\n'
        assert stream.read().endswith(tail)


def test_a_prompt_format_makes_the_input_and_columns_stay():
    with open("prompt.yaml", "w", encoding="utf-8") as stream:
        stream.write("system: Be brief.\nuser: 'Say {q}.'\n")
    write("in.jsonl", {"q": "2+2", "expected_answer": "4"})
    assert main(["convert", "in.jsonl", "out.jsonl", "--from", "columns", "--prompt-config", "prompt.yaml"]) == 0
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say 2+2."}]
    assert lines("out.jsonl") == [{"responses_create_params": {"input": messages}, "q": "2+2", "expected_answer": "4"}]


BAD = [
    ("chat", {"prompt": "x"}, "$.messages"),
    ("chat", {"messages": "x"}, "$.messages"),
    ("chat", {"messages": [{"role": {}, "content": "x"}]}, "$.responses_create_params.input[0].role"),
    ("chat", {"messages": [{"role": "alien", "content": "x"}]}, "$.responses_create_params.input[0].role"),
    ("chat", {"messages": [], "responses_create_params": {}}, "$.responses_create_params"),
    ("sharegpt", {"messages": []}, "$.conversations"),
    ("sharegpt", {"conversations": [{"role": "user", "content": "x"}]}, "$.conversations[0]"),
    ("sharegpt", {"conversations": [{"from": "alien", "value": "x"}]}, "$.conversations[0].from"),
    ("sharegpt", {"conversations": [{"from": "tool", "value": "x"}]}, "$.conversations[0]"),
    ("sharegpt", {"conversations": [{"from": "function_call", "value": "f()"}]}, "$.conversations[0]"),
    ("sharegpt", {"conversations": [{"from": "human", "value": 7}]}, "$.conversations[0]"),
    ("columns", {"q": 7}, "$.q"),
    ("columns", {"question": "x"}, "$.q"),
    ("columns", {"q": "x", "responses_create_params": {}}, "$.responses_create_params"),
]


@pytest.mark.parametrize(("form", "record", "path"), BAD)
def test_a_record_that_does_not_fit_is_named_and_nothing_written(capsys, form, record, path):
    column = ["--prompt-column", "q"] if form == "columns" else []
    write("in.jsonl", record)
    assert main(["convert", "in.jsonl", "out.jsonl", "--from", form, *column, "--format", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["records"], document["rows"], document["target"]) == (1, 0, None)
    assert [(finding["line"], finding["path"]) for finding in document["findings"]] == [(1, path)]
    with pytest.raises(FileNotFoundError):
        open("out.jsonl")  # noqa: SIM115


def test_the_others_are_written_when_asked(capsys):
    write("in.jsonl", {"q": "x"}, {"q": 7}, {"q": "y"})
    assert main(["convert", "in.jsonl", "out.jsonl", "--from", "columns", "--prompt-column", "q", "--skip-invalid"]) == 1
    assert len(lines("out.jsonl")) == 2
    assert "in.jsonl:2  GD202 error  $.q" in capsys.readouterr().out


def test_a_preview_shows_rows_and_writes_nothing(tmp_path, capsys):
    write("in.jsonl", *({"q": f"question {at}"} for at in range(9)))
    assert main(["convert", "in.jsonl", "--from", "columns", "--prompt-column", "q", "--preview", "2"]) == 0
    assert capsys.readouterr().out.count("responses_create_params") == 2
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_turn_keys_without_a_place_are_told(capsys):
    write("in.jsonl", {"conversations": [{"from": "human", "value": "x", "weight": 1}]})
    assert main(["convert", "in.jsonl", "out.jsonl", "--from", "sharegpt"]) == 0
    assert "turn key `weight` was left out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["in.csv", "out.jsonl", "--from", "columns", "--prompt-column", "questoin"], "did you mean `question`?"),
        (["in.csv", "out.jsonl", "--from", "columns"], "--prompt-column"),
        (["in.csv", "out.jsonl", "--from", "chat", "--prompt-column", "question"], "takes no columns"),
        (["in.csv", "--from", "columns", "--prompt-column", "question"], "where should the rows go?"),
        (["in.csv", "in.csv", "--from", "columns", "--prompt-column", "question"], "plain JSON Lines"),
        (["in.csv", "there.jsonl", "--from", "columns", "--prompt-column", "question"], "there.jsonl exists"),
        (["in.csv", "out.jsonl", "--from", "columns", "--prompt-column", "question", "--map", "x"], "FIELD=COLUMN"),
        (["no.csv", "out.jsonl", "--from", "chat"], "there is no file"),
        (["in.xls", "out.jsonl", "--from", "chat"], "cannot be told"),
        (["in.csv", "--from", "chat", "--preview", "0"], "at least 1"),
    ],
)
def test_a_wrong_call_says_what_to_do(capsys, arguments, words):
    for name in ("in.csv", "in.xls", "there.jsonl"):
        with open(name, "w", encoding="utf-8") as stream:
            stream.write("question\nx\n")
    assert main(["convert", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_parquet_columns(tmp_path):
    pa = pytest.importorskip("pyarrow", reason="needs pyarrow (the extra `hub`)")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"q": ["x"], "n": [2**62], "f": [1e-12], "s": ["007"], "no": pa.nulls(1)}), "in.parquet")
    assert main(["convert", "in.parquet", "out.jsonl", "--from", "columns", "--prompt-column", "q"]) == 0
    row = {
        "responses_create_params": {"input": [{"role": "user", "content": "x"}]},
        "n": 2**62,
        "f": 1e-12,
        "s": "007",
        "no": None,
    }
    assert lines("out.jsonl") == [row]
