"""Rows as cards on a narrow screen: rules that put a column's name before each of its figures."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

CARDS_MAX = 16  # more figures than this in a row are scrolled sideways, not listed


class Cards:
    """Tables with the same columns share a class, so that a page of many tables stays small."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[str, ...], tuple[str, ...]], str] = {}

    def attribute(self, heads: Sequence[str], labels: Sequence[str]) -> Markup:
        """The class of a table with these row heads and columns; none for a wide one."""
        if len(labels) > CARDS_MAX:
            return Markup("")
        own = f"c{len(self._known)}"
        name = self._known.setdefault((tuple(heads), tuple(labels)), own)
        return Markup(f' class="cards {name}"')

    def rules(self) -> Markup:
        lines = []
        for (heads, labels), name in self._known.items():
            for kind, texts in (("tbody th", [f"{head} " for head in heads]), ("td", labels)):
                lines += [
                    f".{name} {kind}:nth-of-type({number})::before{{content:{css_text(text)}}}"
                    for number, text in enumerate(texts, 1)
                ]
        return Markup("\n".join(lines))


def css_text(text: str) -> str:
    """A text in a style sheet: only letters, digits and harmless marks stand as they are."""
    plain = "".join(c if c.isalnum() or c in " ,.:%/-" else f"\\{ord(c):x} " for c in text)
    return f'"{plain}"'
