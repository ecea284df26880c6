"""Parquet is read back as it was: numbers, spellings in JSON columns, absent keys, nulls."""

import datetime
import decimal
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow", reason="needs pyarrow (the extra `hub`)")
pq = pytest.importorskip("pyarrow.parquet")

from gymdata.errors import DataError  # noqa: E402
from gymdata.publish.parquet import columns, write_parquet  # noqa: E402
from gymdata.sources.parquet import parquet_to_jsonl  # noqa: E402

UTC = datetime.UTC


def rows_of(tmp_path, table, **options):
    pq.write_table(table, tmp_path / "a.parquet", **options)
    report = parquet_to_jsonl(tmp_path / "a.parquet", tmp_path / "a.jsonl")
    lines = (tmp_path / "a.jsonl").read_bytes().splitlines()
    assert report.rows == len(lines)
    return [json.loads(line, parse_float=decimal.Decimal) for line in lines], report


@pytest.mark.parametrize(
    ("array", "values"),
    [
        (pa.array(["007", "", None, "é\n\u2028"]), ["007", "", None, "é\n\u2028"]),
        (pa.array([1, None, 2**63 - 1]), [1, None, 2**63 - 1]),
        (pa.array([2**64 - 1], pa.uint64()), [2**64 - 1]),
        (pa.array([True, None]), [True, None]),
        (pa.array([None, None]), [None, None]),
        (pa.array([decimal.Decimal("1.10"), None]), ["1.10", None]),
        (pa.array([datetime.date(2024, 1, 2)]), ["2024-01-02"]),
        (pa.array([datetime.datetime(2024, 1, 2, tzinfo=UTC)], pa.timestamp("ms", "UTC")), ["2024-01-02T00:00:00.000Z"]),
        (pa.array([1], pa.timestamp("ns")), ["1970-01-01T00:00:00.000000001"]),
        (pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
        (pa.array([[1, None], None, []]), [[1, None], None, []]),
        (pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2)), [[1, 2], None, [3, 4]]),
        (pa.array([[["a"], []], [None]]), [[["a"], []], [None]]),
        (pa.array([[("k", 1), ("l", None)], None, []], pa.map_(pa.string(), pa.int64())), [{"k": 1, "l": None}, None, {}]),
        (pa.array([[{"a": 1}, None], None]), [[{"a": 1}, None], None]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_values_of_every_type(tmp_path, array, values):
    rows, _ = rows_of(tmp_path, pa.table({"x": array}))
    assert [row["x"] for row in rows] == values


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
@settings(max_examples=50, deadline=None)
def test_floats_are_exact(tmp_path_factory, numbers):
    tmp_path = tmp_path_factory.mktemp("floats")
    rows_of(tmp_path, pa.table({"x": numbers}))
    assert [json.loads(line)["x"] for line in (tmp_path / "a.jsonl").read_bytes().splitlines()] == numbers


@pytest.mark.parametrize(
    "array", [pa.array([float("nan")]), pa.array([b"x"]), pa.array([datetime.timedelta(1)])], ids=["NaN", "bytes", "duration"]
)
def test_what_json_cannot_hold_is_refused_by_name(tmp_path, array):
    with pytest.raises(DataError, match="the column 'x' holds"):
        rows_of(tmp_path, pa.table({"x": array}))
    assert not (tmp_path / "a.jsonl").exists()


def test_a_json_column_tells_absent_keys_from_nulls(tmp_path):
    texts = ['{"a": 1.10, "b": null}', None, "null"]
    rows, report = rows_of(tmp_path, pa.table({"x": pa.ExtensionArray.from_storage(pa.json_(), pa.array(texts))}))
    assert rows == [{"x": {"a": decimal.Decimal("1.10"), "b": None}}, {}, {"x": None}]
    assert b"1.10" in (tmp_path / "a.jsonl").read_bytes()
    assert report.nulls == 0


def test_nulls_that_fill_a_struct_are_left_out_and_counted(tmp_path):
    requests = [
        {"input": [{"role": "user", "content": "x"}], "parallel_tool_calls": True},
        {
            "input": [{"type": "function_call_output", "call_id": "c", "output": "x"}],
            "tools": [{"type": "function", "name": "f", "strict": None, "parameters": None}],
        },
    ]
    rows, report = rows_of(tmp_path, pa.table({"responses_create_params": requests}))
    assert [row["responses_create_params"] for row in rows] == requests
    assert report.nulls == 7


def test_rows_cross_row_groups_and_batches(tmp_path):
    rows, _ = rows_of(tmp_path, pa.table({"x": list(range(10_000))}), row_group_size=777)
    assert [row["x"] for row in rows] == list(range(10_000))


def test_what_we_publish_is_read_back(tmp_path):
    lines = [
        b'{"responses_create_params": {"input": "a", "temperature": 1.10, "metadata": null}, "id": "007", "x": null}',
        b'{"responses_create_params": {"input": [{"role": "user", "content": "b"}]}, "id": "1e3", "y": [1, {"z": 1e-12}]}',
        b'{"responses_create_params": {"input": "c"}, "id": "2024-01-02", "x": 12345678901234567890}',
    ]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    write_parquet(tmp_path / "a.jsonl", [tmp_path / "a.parquet"], columns([tmp_path / "a.jsonl"]))
    parquet_to_jsonl(tmp_path / "a.parquet", tmp_path / "b.jsonl")
    read = [json.loads(line) for line in (tmp_path / "b.jsonl").read_bytes().splitlines()]
    assert read == [json.loads(line) for line in lines]


def test_what_datasets_writes_with_json_features_is_read_back(tmp_path):
    datasets = pytest.importorskip("datasets", reason="needs datasets (the extra `hub`)")
    if not hasattr(datasets, "Json"):
        pytest.skip("this version of datasets has no Json feature")
    requests = [{"input": "a", "tools": None}, {"input": [{"role": "user", "content": "b"}], "top_p": 0.5}]
    features = datasets.Features({"responses_create_params": datasets.Json(), "id": datasets.Value("string")})
    made = datasets.Dataset.from_dict({"responses_create_params": requests, "id": ["007", "1e3"]}, features=features)
    made.to_parquet(str(tmp_path / "a.parquet"))
    parquet_to_jsonl(tmp_path / "a.parquet", tmp_path / "a.jsonl")
    read = [json.loads(line) for line in (tmp_path / "a.jsonl").read_bytes().splitlines()]
    assert read == [
        {"responses_create_params": request, "id": name} for request, name in zip(requests, ["007", "1e3"], strict=True)
    ]


def test_a_text_column_that_its_features_call_json_is_json(tmp_path):
    features = {"info": {"features": {"x": {"_type": "Json"}, "y": {"_type": "Value", "dtype": "string"}}}}
    table = pa.table({"x": ['{"a": 1}', None], "y": ["{}", None]}).replace_schema_metadata({"huggingface": json.dumps(features)})
    rows, _ = rows_of(tmp_path, table)
    assert rows == [{"x": {"a": 1}, "y": "{}"}, {"y": None}]


def test_what_is_no_parquet_is_said(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match="not a Parquet file"):
        parquet_to_jsonl(tmp_path / "a.parquet", tmp_path / "a.jsonl")
