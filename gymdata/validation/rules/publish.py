"""The rules of publishing (GD7xx): why a dataset may not leave. `gymdata.publish.dataset` applies them."""

from __future__ import annotations

from gymdata.validation.findings import Rule

_ROW = '{"responses_create_params": {"input": "What is 2+2?"}, "question": "What is 2+2?", "expected_answer": "4"}'
_TOKEN = "hf_" + "x" * 34

PUBLISH_RULES: list[Rule] = [
    Rule(
        "GD701", "not-validated", "error", "The files are not the ones that `gymdata prepare` validated, or their rows have errors.",
        "The manifest holds the digest of every file; a file with another digest was changed after its rows were judged. They are judged"
        " once more before they leave, whatever the manifest says.",
        "Run `gymdata prepare` again.", "", "",
    ),
    Rule(
        "GD702", "stale-statistics", "error", "The source changed after it was prepared, or statistics are not those of the rows.",
        "What would be published is older than the rows that its owner has now, or cannot be compared by anyone.",
        "Run `gymdata prepare` again.", "", "",
    ),
    Rule(
        "GD703", "license-forbids", "error", "The license is missing, still to be decided, or forbids publishing.",
        "What has been published cannot be taken back.",
        "Settle the license and give the dataset's entry a `license`; what is for internal use stays inside.", "", "",
    ),
    Rule(
        "GD704", "credential", "error", "A row holds what looks like a credential: an access token, an API key, a private key.",
        "Published credentials are found and used within minutes.",
        "Remove it from the row and revoke it. If it is no credential, publish with --accept-secrets.",
        _ROW.replace("What is 2+2?", f"My token is {_TOKEN}."), _ROW,
    ),
    Rule(
        "GD705", "unverifiable-train-row", "error", "A train row lacks a field that the environment's verifier reads.",
        "Whoever trains on it gets no reward from it, or a wrong one.", "Add the field, or remove the row.",
        _ROW.replace(', "expected_answer": "4"', ""), _ROW,
    ),
    Rule(
        "GD707", "empty-split", "error", "A split that is to be published has no rows.",
        "Nobody can load an empty split.", "Leave it out: name the others with --split.", "", "",
    ),
]  # fmt: skip
