"""Rules of images: whether what an image part points to can be an image at all. Nothing is fetched."""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from gymdata.validation.findings import Finding

_DATA = re.compile(r"data:([\w.+-]+/[\w.+-]+)?((?:;[\w.+=-]+)*?)(;base64)?,", re.IGNORECASE)
_MAGIC = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/jpg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
    "image/bmp": (b"BM",),
}
_LOCAL = re.compile(r"(?:[~.]{0,2}/|[A-Za-z]:[\\/])\S|[^\s:]+\.(?:png|jpe?g|gif|webp|bmp|tiff?)$", re.IGNORECASE)


def check_image(part: Mapping[str, Any], at: str) -> Iterator[Finding]:
    """Findings about an `input_image` part at path `at`."""
    url, path = part.get("image_url"), f"{at}.image_url"
    if url is None or url == "":
        if not part.get("file_id"):
            yield Finding(
                "GD320", path, "the image part has neither `image_url` nor `file_id`", "give one of them, or remove the part"
            )
        return
    if not isinstance(url, str):
        return
    if match := _DATA.match(url):
        yield from _check_data(url, match, path)
        return
    if url[:5].lower() == "data:":
        yield Finding("GD320", path, "the data: URL cannot be read", "write data:image/png;base64,…")
        return
    try:
        parts = urlsplit(url)
        scheme, host = parts.scheme.lower(), parts.hostname
    except ValueError:
        scheme, host = "", None
    if scheme in ("http", "https"):
        if not host:
            yield Finding("GD320", path, f"{url[:60]!r} names no host", "write the whole URL")
        elif re.search(r"\s", url):
            yield Finding("GD321", path, f"{url[:60]!r} has white space in it", "escape it: a space is %20")
    elif scheme == "file":
        yield Finding(
            "GD320", path, f"{url[:60]!r} is a file: URL, which no server may read", "embed the image as data:image/…;base64,…"
        )
    elif _LOCAL.match(url):
        message = f"{url[:60]!r} is a path on somebody's machine"
        yield Finding("GD321", path, message, "embed the image as data:image/…;base64,…, or give its https URL")
    elif scheme and host:
        yield Finding("GD321", path, f"servers do not fetch {scheme}: URLs", "give an https URL, or embed the image")
    else:
        yield Finding("GD320", path, f"{url[:60]!r} is no URL", "give an https URL, or embed the image as data:image/…;base64,…")


def _check_data(url: str, match: re.Match[str], path: str) -> Iterator[Finding]:
    kind, encoded = (match[1] or "").lower(), url[match.end() :]
    if not match[3]:
        yield Finding("GD320", path, "the data: URL is not base64", "write data:image/png;base64,…")
        return
    try:
        data = binascii.a2b_base64(encoded, strict_mode=True)
    except (binascii.Error, ValueError) as error:
        yield Finding("GD320", path, f"the image is no valid base64: {error}", "encode the bytes again")
        return
    if not data:
        yield Finding("GD320", path, "the image is empty", "embed the image's bytes")
    elif not kind.startswith("image/"):
        yield Finding(
            "GD321", path, f"the data: URL is of type {kind or 'nothing'}, not an image", "write data:image/png;base64,…"
        )
    elif kind in _MAGIC and not data.startswith(_MAGIC[kind]):
        really = next((name for name, magic in _MAGIC.items() if data.startswith(magic)), "something else")
        yield Finding("GD321", path, f"the image is declared {kind}, but its bytes are {really}", "declare what it is")
