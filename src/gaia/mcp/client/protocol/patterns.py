"""How much work a regular expression of somebody else can be, before it is run.

Python's matcher tries alternatives one after the other, takes exponential time for some patterns, and cannot be
interrupted meanwhile. So patterns are judged by their form, and rather too strictly than not strictly enough.
"""

from __future__ import annotations

import re

__all__ = ["steps_to_match"]

_PIECE = (
    r"\\."  # an escape
    r"|\[\^?\]?(?:\\.|[^\]\\])*\]"  # a set
    r"|\((?:\?(?:P?<[=!]?|P=|P>|[:=!>]|#)?)?"  # the beginning of a group
    r"|\)|\|"
    r"|(?:[*+?]|\{\d*,?\d*\})[?+]?"  # a repetition
    r"|."
)
_REPETITION = r"[*+]|\{(\d*)(,?)(\d*)\}"
_MAX_CHOICES = 64


def steps_to_match(pattern: str, length: int) -> int | None:
    """Roughly how many steps a search in a text of `length` characters takes at worst; None if that has no bound.

    A text can be split between repetitions in as many ways as its length to the power of their number; each alternative
    doubles the ways; and the search begins anew at each character. What repeats something that can match in several
    ways has no bound.
    """
    repetitions, ways = 0, 1
    # For each open group, whether what is in it can match in several ways.
    varied = [False]
    # The same of the group that has just been closed, which the next piece may repeat.
    group: bool | None = None
    for piece in re.findall(_PIECE, pattern, re.DOTALL):
        if piece == ")":
            if len(varied) == 1:
                return None
            group = varied.pop()
            varied[-1] |= group
            continue
        if piece.startswith("("):
            varied.append(False)
        elif piece == "|" or piece.startswith("?"):
            ways *= 2
            varied[-1] = True
        elif _is_back_reference(piece):
            repetitions += 1
        elif repetition := re.match(_REPETITION, piece):
            least, comma, _ = repetition.groups(default="")
            if group:
                return None
            if group is not None:
                ways *= int(least[:9] or 1)
            if comma or not least:
                repetitions += 1
                varied[-1] = True
        group = None
    most = max(repetitions, ways.bit_length())
    return ways * (length + 1) ** (repetitions + 1) if most <= _MAX_CHOICES else None


def _is_back_reference(piece: str) -> bool:
    return piece == "(?P=" or (piece.startswith("\\") and piece[1:].isdigit())
