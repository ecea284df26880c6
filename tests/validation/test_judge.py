"""The exact path as a whole: the rules of text, shape and content together, each fault told once."""

from __future__ import annotations

import pytest

from gymdata.validation.judge import is_error, judge

PARAMS = "$.responses_create_params"


@pytest.mark.parametrize("kind", ["task", "rollout"])
@pytest.mark.parametrize(
    ("params", "path"),
    [
        ("1e999", ""),
        ('{"input": -1e999}', ".input"),
        ('{"input": [1e999]}', ".input[0]"),
        ('{"input": "x", "tools": 1e999}', ".tools"),
        ('{"input": "x", "tools": [1e999]}', ".tools[0]"),
        ('{"input": "x", "max_output_tokens": 1e999}', ".max_output_tokens"),
        ('{"input": "x", "top_logprobs": 1e999}', ".top_logprobs"),
    ],
)
def test_a_number_out_of_range_where_none_may_be_is_an_error_there(params, path, kind):
    judgement = judge(b'{"responses_create_params": %s, "reward": 1}' % params.encode(), kind)
    assert PARAMS + path in [finding.path for finding in judgement.findings if is_error(finding)]
    assert judgement.row is None


def test_a_number_out_of_range_where_one_may_be_is_a_warning():
    judgement = judge(b'{"responses_create_params": {"input": "x"}, "weight": 1e999}')
    assert [(finding.code, finding.path) for finding in judgement.findings] == [("GD110", "$.weight")]
    assert judgement.row is not None


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", '"\\ud800"'])
def test_what_is_no_json_is_told_once_though_no_shape_takes_it(value):
    judgement = judge(b'{"responses_create_params": {"input": "x", "max_output_tokens": %s}}' % value.encode())
    assert [finding.path for finding in judgement.findings] == [f"{PARAMS}.max_output_tokens"]
