"""`gymdata convert`: turn chat rows, ShareGPT, CSV or Parquet into rows."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gymdata.errors import UsageError

if TYPE_CHECKING:
    from gymdata.sources.convert import Converted, Mapping
    from gymdata.validation.findings import Finding


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("source", type=Path, metavar="SRC", help="a .jsonl, .json, .csv, .tsv or .parquet file")
    parser.add_argument("target", type=Path, nargs="?", metavar="DST", help="the JSONL file to write; not needed with --preview")
    parser.add_argument(
        "--from", dest="form", required=True, choices=["chat", "sharegpt", "columns"], help="what the records are"
    )
    parser.add_argument("--prompt-column", default="", metavar="COLUMN", help="columns: what the user says")
    parser.add_argument("--answer-column", default="", metavar="COLUMN", help="columns: goes into the field expected_answer")
    parser.add_argument(
        "--prompt-config", type=Path, metavar="YAML", help="columns: a prompt format that makes the input of columns"
    )
    parser.add_argument("--map", action="append", default=[], metavar="FIELD=COLUMN", help="name a column's field; repeatable")
    parser.add_argument(
        "--answer-field", default="", metavar="FIELD", help="chat, sharegpt: move the last answer into this field"
    )
    parser.add_argument("--system", default="", metavar="TEXT", help="a system message put first where there is none")
    parser.add_argument("--preview", type=int, metavar="N", help="show the first N rows and write nothing")
    parser.add_argument("--skip-invalid", action="store_true", help="write the rows that can be converted, leave the others out")
    parser.add_argument("--overwrite", action="store_true", help="replace DST")
    parser.add_argument("--max-findings", type=int, metavar="N", help="show at most N findings in full")
    parser.add_argument("--format", choices=["text", "json"], default="text")


def run(args: argparse.Namespace) -> int:
    """Convert; 0 all records were, 1 some could not be."""
    from gymdata.atomic import disk_errors, writing
    from gymdata.sources.convert import convert

    source, target = args.source, args.target
    if not source.is_file():
        raise UsageError(f"there is no file {source}")
    if args.preview is not None and args.preview < 1:
        raise UsageError(f"--preview {args.preview}: must be at least 1")
    mapping = _mapping(args)
    if args.preview is not None:
        with disk_errors(source):
            return _finish(args, _Conversion(itertools.islice(convert(source, mapping), args.preview)), None)
    if target is None:
        raise UsageError("where should the rows go?", "name a file, such as rows.jsonl, or use --preview N")
    if target.suffix != ".jsonl":
        raise UsageError(f"{target}: rows are written as plain JSON Lines", "name a file that ends in .jsonl")
    if target.exists() and (not args.overwrite or target.samefile(source)):
        raise UsageError(
            f"{target} exists", "name another file" if target.samefile(source) else "name another file, or use --overwrite"
        )
    conversion = _Conversion(convert(source, mapping))
    try:
        with disk_errors(source), writing(target) as temporary, open(temporary, "wb") as stream:
            for row in conversion.rows():
                stream.write(row + b"\n")
            if not conversion.converted or (conversion.converted < conversion.records and not args.skip_invalid):
                raise _NotWritten
    except _NotWritten:
        target = None
    return _finish(args, conversion, target)


class _NotWritten(Exception):
    """Leaves the target as it was."""


class _Conversion:
    """Counts what becomes of the records, and judges the rows that they give."""

    def __init__(self, converted: Iterator[Converted]) -> None:
        self._source = converted
        self.records = self.converted = 0
        self.findings: list[Finding] = []
        self.notes: Counter[str] = Counter()

    def rows(self) -> Iterator[bytes]:
        from gymdata.validation.findings import Finding
        from gymdata.validation.judge import judge

        for line, row, misfit, notes in self._source:
            self.records += 1
            if row is None:
                self.findings += [Finding(*misfit, line=line)] if misfit else []
                continue
            judgement = judge(row)
            self.findings += [finding.at(line) for finding in judgement.findings]
            if judgement.row is not None:
                self.converted += 1
                self.notes.update(notes)
                yield row


def _finish(args: argparse.Namespace, conversion: _Conversion, target: Path | None) -> int:
    """Say what became of the records; the rows themselves too, for a preview."""
    from gymdata.validation.report import FileReport, Report
    from gymdata.validation.reporters import json as json_report
    from gymdata.validation.reporters import text

    rows = [json.loads(row) for row in conversion.rows()] if args.preview is not None else []
    report = Report((FileReport(str(args.source), conversion.records, conversion.converted, conversion.findings),))
    failed = conversion.converted < conversion.records
    if args.format == "json":
        document = {
            "source": str(args.source),
            "target": None if target is None else str(target),
            "records": conversion.records,
            "rows": conversion.converted,
            "notes": dict(conversion.notes),
            "findings": json_report.document(report, args.max_findings)["files"][0]["findings"],
        }
        print(json.dumps(document | ({"preview": rows} if args.preview is not None else {}), indent=2))
        return 1 if failed else 0
    for row in rows:
        print(json.dumps(row, indent=2, ensure_ascii=False).encode("utf-8", "backslashreplace").decode())
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    sys.stdout.write(text.render(report, max_findings=args.max_findings, color=color))
    for note, number in conversion.notes.items():
        print(f"note: {text.count(number, 'record')}: {note}", file=sys.stderr)
    done = f"{args.source}: {conversion.converted:,} of {text.count(conversion.records, 'record')} converted"
    if target is not None:
        print(f"{done}, written to {target}", file=sys.stderr)
    elif args.preview is not None:
        print(f"{done} (preview, nothing was written)", file=sys.stderr)
    else:
        why = "it has no records" if not conversion.records else "--skip-invalid would write those that can be converted"
        print(f"{done}; nothing was written: {why}", file=sys.stderr)
    return 1 if failed else 0


def _mapping(args: argparse.Namespace) -> Mapping:
    from gymdata.environments import prompt
    from gymdata.sources.convert import Mapping

    fields: dict[str, str] = {}
    for pair in args.map:
        name, equals, column = pair.partition("=")
        if not (name and equals and column) or name in fields:
            raise UsageError(f"--map {pair}: must be FIELD=COLUMN, each field once")
        fields[name] = column
    return Mapping(
        form=args.form,
        prompt_column=args.prompt_column,
        answer_column=args.answer_column,
        answer_field=args.answer_field,
        system=args.system,
        fields=fields,
        prompt=prompt.load(args.prompt_config) if args.prompt_config else None,
    )
