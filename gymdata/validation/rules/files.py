"""Rules of whole files: what a file is, if it is not JSON Lines at all."""

from __future__ import annotations

import csv
import re

import msgspec

from gymdata.rows.lines import COMPRESSED_SUFFIXES
from gymdata.validation.findings import Finding, Rule

HEAD_BYTES = 64 * 1024
"""How much of a file's beginning `sniff` wants to see."""

_MAGIC: list[tuple[bytes, str, str]] = [
    (b"\x1f\x8b", "gzip", "rename it to end in .gz, or decompress it"),
    (b"\x28\xb5\x2f\xfd", "zstd", "rename it to end in .zst, or decompress it"),
    (b"BZh", "bzip2", "decompress it (bunzip2)"),
    (b"\xfd7zXZ\x00", "xz", "decompress it (unxz)"),
    (b"\x04\x22\x4d\x18", "LZ4", "decompress it (unlz4)"),
    (b"\x1f\x9d", "compressed (compress)", "decompress it (uncompress)"),
    (b"\x5d\x00\x00", "lzma", "decompress it (unlzma)"),
    (b"\xff\x06\x00\x00sNaPpY", "snappy", "decompress it"),
    (b"PK\x03\x04", "a zip archive, as Excel and PyTorch files are", "unpack it, or write rows from it"),
    (b"PK\x05\x06", "an empty zip archive", "name the JSONL file"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "unpack it and name the JSONL file inside"),
    (b"Rar!", "a RAR archive", "unpack it and name the JSONL file inside"),
    (b"PAR1", "Parquet", "turn it into rows: gymdata convert FILE.parquet rows.jsonl --from columns"),
    (b"ARROW1", "Arrow IPC", "write it as JSON Lines with the library that made it"),
    (b"\xff\xff\xff\xff", "an Arrow stream", "write it as JSON Lines with the library that made it"),
    (b"ORC", "ORC", "write it as JSON Lines with the library that made it"),
    (b"Obj\x01", "Avro", "write it as JSON Lines with the library that made it"),
    (b"SQLite format 3\x00", "an SQLite database", "export the table as JSON Lines"),
    (b"\x89HDF", "HDF5", "write it as JSON Lines with the library that made it"),
    (b"\x93NUMPY", "a NumPy array", "write it as JSON Lines"),
    (b"%PDF", "PDF", "name the JSONL file"),
    (b"\x89PNG", "a PNG image", "name the JSONL file"),
    (b"\xff\xd8\xff", "a JPEG image", "name the JSONL file"),
    (b"GIF8", "a GIF image", "name the JSONL file"),
    (b"RIFF", "a sound, image or video", "name the JSONL file"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a Microsoft Office file", "save the sheet as CSV, then: gymdata convert"),
    (b"GGUF", "a GGUF model", "name the JSONL file"),
    (b"\x7fELF", "a program", "name the JSONL file"),
    (b"HTTP/1.", "an HTTP response with its header", "fetch the data again, without the header"),
    (b"(lp", "a Python pickle", "write it as JSON Lines; a pickle is never loaded, since it can run code"),
    (b"(dp", "a Python pickle", "write it as JSON Lines; a pickle is never loaded, since it can run code"),
    (b"ccopy_reg", "a Python pickle", "write it as JSON Lines; a pickle is never loaded, since it can run code"),
    (b"\xff\xfe\x00\x00", "UTF-32 text", "convert it: iconv -f UTF-32 -t UTF-8"),
    (b"\x00\x00\xfe\xff", "UTF-32 text", "convert it: iconv -f UTF-32 -t UTF-8"),
    (b"\xff\xfe", "UTF-16 text", "convert it: iconv -f UTF-16 -t UTF-8"),
    (b"\xfe\xff", "UTF-16 text", "convert it: iconv -f UTF-16 -t UTF-8"),
    (b"version https://git-lfs.github.com/spec/", "a Git LFS pointer, not the data", "fetch the data: git lfs pull"),
    (b"version https://hawser.github.com/spec/", "a Git LFS pointer, not the data", "fetch the data: git lfs pull"),
]  # fmt: skip

_HTML = re.compile(rb"<(!doctype html|html|head|body|title|meta|script|style|div|h1|p|pre|center)[\s>]", re.IGNORECASE)
_XML = re.compile(rb"<(!doctype|\?xml|!--|[A-Za-z][\w:.-]*(\s[^<>]*)?/?>[\s\S]*</)", re.IGNORECASE)
_CONTROLS = bytes({*range(32)} - set(b"\t\n\r\f\x1b\x1e"))
_YAML = re.compile(rb"(---\s*$|%YAML|- \w|[A-Za-z_][\w-]*:(\s|$))")


def sniff(head: bytes, name: str) -> Finding | None:
    """The one finding for a file that is no JSON Lines, from its first HEAD_BYTES as they lie on the disk; None if it may be."""
    compressed = name.endswith(COMPRESSED_SUFFIXES)
    for magic, what, remedy in _MAGIC:
        if head.startswith(magic):
            if compressed and what == ("gzip" if name.endswith(".gz") else "zstd"):
                return None
            return _file(f"the file is {what}", remedy)
    if compressed and head:
        return _file(f"the file is not compressed as its name says ({name.rsplit('.', 1)[1]})", "rename it, or compress it")
    if head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05":
        return _file("the file is a Python pickle", "write it as JSON Lines; a pickle is never loaded, since it can run code")
    if head[257:262] == b"ustar":
        return _file("the file is a tar archive", "unpack it and name the JSONL file inside")
    return sniff_text(head)


def sniff_text(head: bytes) -> Finding | None:
    """The same for text, after any decompression."""
    if encoding := _wide_encoding(head):
        return _file(f"the file is {encoding} text", f"convert it: iconv -f {encoding} -t UTF-8")
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    lines = [line for line in text.split(b"\n") if line.strip()]
    if not lines:
        return None
    rows = sum(map(_is_object, lines[:100]))
    if lines[0].startswith(b"[") and _is_array(lines, rows):
        return _file("the file is one JSON array, not JSON Lines", "write one object a line: jq -c '.[]' FILE")
    if rows:
        return None
    if not text.startswith(b"{"):
        sample = head[:4096]
        if len(sample) - len(sample.translate(None, _CONTROLS)) > len(sample) // 50:
            return _file("the file is binary, not text", "name a JSONL file")
    if _HTML.match(text):
        what = "an HTML page, perhaps an error page that was saved as the data"
        return _file(f"the file is {what}", "fetch the data again, and look at what the server answered")
    if _XML.match(text):
        return _file("the file is XML", "fetch the data again, and look at what the server answered")
    if len(lines) == 1 and b"}\r{" in text:
        return _file("the lines of the file end in carriage returns alone", "convert it: tr '\\r' '\\n' < FILE")
    if len(lines) > 1 and _is_table(lines):
        return _file(
            "the file is a table (CSV or TSV), not JSON Lines",
            "turn it into rows: gymdata convert FILE rows.jsonl --from columns",
        )
    if len(lines) > 1 and all(_YAML.match(line) or line[:1] in b" #-" for line in lines) and not text.startswith(b"{"):
        return _file("the file is YAML", "write it as JSON Lines: one JSON object a line")
    return None


def _wide_encoding(head: bytes) -> str:
    """UTF-16 or UTF-32 without a byte-order mark, seen from the first bracket or from where the NULs are; "" for neither."""
    for size, name in ((4, "UTF-32"), (2, "UTF-16")):
        for bracket in (b"{", b"[", b'"'):
            if head.startswith(bracket + b"\0" * (size - 1)):
                return name + "LE"
            if head.startswith(b"\0" * (size - 1) + bracket):
                return name + "BE"
    sample = head[:4096]
    nuls = sample.count(0)
    even = sample[::2].count(0)
    if len(sample) // 8 < nuls < len(sample) * 0.6 and (even < nuls * 0.1 or even > nuls * 0.9):
        return "UTF-16BE" if even > nuls / 2 else "UTF-16LE"
    return ""


def _is_object(line: bytes) -> bool:
    return line.lstrip().startswith(b"{") and _is_json(line)


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    return True


def _is_array(lines: list[bytes], rows: int) -> bool:
    """Whether lines, the first of which begins with a bracket and `rows` of which are objects, are the text of one array."""
    first = lines[0].strip()
    if len(lines) == 1:
        return first == b"[]" or re.match(rb"\[\s*\{", first) is not None
    if not re.match(rb"\[\s*(\{|$)", first) or _is_json(first):
        return False
    commas = sum(line.rstrip().endswith(b",") or line.lstrip().startswith(b",") for line in lines[:100])
    return commas >= rows or lines[-1].strip() == b"]"


def _is_table(lines: list[bytes]) -> bool:
    """Whether a header of plain names is followed by records of as many fields."""
    header = lines[0].strip().decode("utf-8", "replace")
    for separator in ",\t;|":
        try:
            names = next(csv.reader([header], delimiter=separator), [])
            # pandas gives its index an empty name.
            if len(names) < 2 or not all(re.fullmatch(r"\w[\w .:/()-]{0,63}", name.strip()) for name in names[not names[0] :]):
                continue
            rows = [line.decode("utf-8", "replace").rstrip("\r") for line in lines[1:6]]
            if any(len(record) == len(names) for record in csv.reader(rows, delimiter=separator)):
                return True
        except csv.Error:
            continue
    return False


def _file(message: str, hint: str) -> Finding:
    return Finding("GD100", "$", message, hint)


FILE_RULES = [
    Rule(
        "GD100", "not-json-lines", "error", "The file is something else than JSON Lines.",
        "A compressed or binary file under a .jsonl name, another encoding, an error page, a table or a JSON array cannot be"
        " read row by row; of a compressed file that was cut, only the beginning can.",
        "Do what the message says; then each line holds one JSON object.",
        '[{"responses_create_params": {"input": "What is 2+2?"}}]', '{"responses_create_params": {"input": "What is 2+2?"}}',
    ),
    Rule(
        "GD109", "line-too-long", "error", "A line longer than any row.",
        "Lines are decoded whole; the limit keeps one of them from taking all memory.",
        "Put large values into files of their own, and name these in the row.", "", "",
    ),
    Rule(
        "GD111", "no-rows", "error", "Blank lines, and no row in the whole file.",
        "There is nothing to train on, and NeMo Gym stops at the first blank line.", "Write the rows again.", "\n\n",
        '{"responses_create_params": {"input": "What is 2+2?"}}',
    ),
    Rule(
        "GD112", "prompt-does-not-fit", "error", "The dataset's prompt format cannot be filled from the row.",
        "The row lacks a field that the format names, or has an input already.",
        "Add the field, or use a prompt format of fields that all rows have.", "", "",
    ),
    Rule(
        "GD113", "stale-metrics", "error", "The metrics file beside the rows does not fit them.",
        "Somebody changed the rows and not their metrics, so the numbers that people read are of other rows.",
        "Prepare again with --overwrite-metrics, and commit the rows and the metrics together.", "", "",
    ),
]  # fmt: skip
