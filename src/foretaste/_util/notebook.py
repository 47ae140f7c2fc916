"""Tables for notebooks: what ``_repr_html_`` returns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def html_table(
    caption: str, headings: Sequence[str], rows: Iterable[Sequence[object]], note: str | None = None
) -> str:
    """A table as HTML, all text escaped; ``note`` stands below it."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows
    )
    below = f"<p>{escape(note)}</p>" if note else ""
    table = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f"<table><caption>{escape(caption)}</caption>{table}</table>{below}"
