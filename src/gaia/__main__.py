"""``python -m gaia``: the `gaia` command, for the Python that runs it."""

from gaia.cli.main import main

if __name__ == "__main__":
    main()
