"""What the API reference shows once Sphinx has built it: ``built_reference.py OUTPUT`` prints it as JSON.

Only `docs/api` is read, and nothing is written, which takes a small part of a whole build.
"""

from __future__ import annotations

import gc
import json
import logging
import sys
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

DOCS = Path(__file__).parents[1] / "docs"


def main() -> None:
    """Print ``{page: {full name: its own text}}``; names of entries that have no text are there too."""
    output = Path(sys.argv[1])
    app = Sphinx(DOCS / "api", DOCS, output, output / "doctrees", "dummy", status=None, warning=None)
    # Links to the pages that are not read.
    logging.getLogger("sphinx").setLevel(logging.CRITICAL)
    pages = {}

    def page_read(_app: Sphinx, page: nodes.document) -> None:
        pages[app.env.docname] = entries_of(page)

    app.connect("doctree-read", page_read)
    # It makes many objects that stay, and ends soon.
    gc.disable()
    app.builder.read()
    print(json.dumps(pages))


def entries_of(page: nodes.document) -> dict[str, str]:
    """The full name and the text of each documented object of a page."""
    found = {}
    for entry in page.findall(addnodes.desc):
        texts = [
            child.astext() for child in entry[-1].children if not isinstance(child, addnodes.desc | addnodes.index)
        ]
        for signature in entry.findall(addnodes.desc_signature):
            if signature.parent is entry:
                found[f"{signature['module']}.{signature['fullname']}"] = "\n".join(texts)
    return found


if __name__ == "__main__":
    main()
