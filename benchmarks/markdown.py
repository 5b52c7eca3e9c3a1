"""Tables in Markdown, aligned, so that they read well as text too."""

from __future__ import annotations

__all__ = ["table"]


def table(lines: list[list[str]]) -> list[str]:
    """The first line is the head; all have the same number of cells."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    padded = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    ]
    return [padded[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *padded[1:]]
