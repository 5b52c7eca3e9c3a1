"""Sphinx configuration."""

from importlib.metadata import version as installed_version

project = "gaia-mcp"
version = release = installed_version("gaia-mcp")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"gaia-mcp {release}"

# Docstrings put names of code in single backticks.
default_role = "literal"
# A member without a docstring is public too. tests/repository/test_documented_api.py finds those without a text.
autodoc_default_options = {"members": True, "undoc-members": True}
autoclass_content = "both"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_maximum_signature_line_length = 88

# Headings can be linked to from other pages.
myst_heading_anchors = 3
