"""URI templates (RFC 6570), as far as it takes to guess which server has a URI, and what may be seen of a template."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

from gaia.runtime.untrusted_text import consists_of

_EXPRESSION = re.compile(r"\{[^{}]*\}")
_OPERATORS = "+#./;?&"
_RESERVED = ":/?#[]@!$&'()*+,;="


def matches(template: str, uri: str) -> bool:
    """Whether the fixed parts of a template stand in a URI in their order. In linear time: servers write templates."""
    parts = _EXPRESSION.split(template)
    return template == uri or (len(parts) > 1 and consists_of(uri, parts))


def expanded(template: str, values: Mapping[str, str]) -> str:
    """The URI of a template with these values, and nothing for the other variables."""

    def expand(expression: re.Match[str]) -> str:
        text = expression[0][1:-1]
        operator = text[:1] if text[:1] in _OPERATORS else ""
        names = [name.partition(":")[0].rstrip("*") for name in text[len(operator) :].split(",")]
        found = [(name, quote(values[name], safe=_RESERVED)) for name in names if values.get(name)]
        if operator and operator in ";?&":
            return "".join(f"{operator}{name}={value}" for name, value in found)
        separator = operator if operator and operator in "#./" else ""
        return "".join(separator + value for _, value in found)

    return _EXPRESSION.sub(expand, template)
