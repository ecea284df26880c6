"""Makes Great Expectations' HTML readable as it is: its pages load style and scripts from ten hosts, and its index is a script."""

from __future__ import annotations

import html
import shutil
from collections.abc import Mapping
from pathlib import Path

# Nothing is loaded and nothing is run, not even what a value of a row might hold.
_HEAD = """<head>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<style>
  body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto !important; padding: 0 1rem; color: #222 }
  table { border-collapse: collapse; margin: .4rem 0 }
  td, th { border: 1px solid #ddd; padding: .3rem .7rem; text-align: left; vertical-align: top }
  h5 { font-size: 1.05rem; margin: 1.4rem 0 .2rem } h6 { margin: .6rem 0 .2rem }
  code { font-size: .85em } td .show-scrollbars { max-height: none !important }
  i.text-success::before { content: "met"; color: #17693a; font-style: normal }
  i.text-danger::before, i.text-warning::before { content: "not met"; color: #b3261e; font-style: normal; font-weight: 600 }
  footer, .collapse, a[data-toggle], .btn-group, .navbar-brand, .sticky, .lead, .container-fluid > .row > .col-lg-2 { display: none !important }
</style>"""


def make_readable(folder: Path, met: Mapping[str, tuple[int, int]]) -> None:
    """Rewrite the pages in `folder`, and its index: a list of the validations in `met`, with how many of how many were met."""
    for page in folder.rglob("*.html"):
        page.write_text(page.read_text("utf-8").replace("<head>", _HEAD, 1), "utf-8")
    shutil.rmtree(folder / "static", ignore_errors=True)
    rows = []
    for name, (good, total) in met.items():
        page = next((folder / "validations" / name).rglob("*.html"))
        link = html.escape(page.relative_to(folder).as_posix())
        mark = "success" if good == total else "danger"
        rows.append(
            f'<tr><td><i class="text-{mark}"></i></td><td><a href="{link}">{html.escape(name)}</a></td><td>{good} of {total}</td></tr>'
        )
    table = f"<table><tr><th>Status</th><th>Split and table</th><th>Expectations met</th></tr>{''.join(rows)}</table>"
    head = f'<!DOCTYPE html>\n<html lang="en">\n{_HEAD}\n<meta charset="utf-8"><title>Expectations</title></head>'
    text = f"{head}\n<body><h1>Expectations</h1>{table}</body></html>\n"
    (folder / "index.html").write_text(text, "utf-8")
