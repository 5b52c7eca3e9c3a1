"""The configuration of servers: entries are read from files, checked, expanded and trusted.

- `config_files`: the files that are read, their paths and their contents.
- `server_config`: the keys of one entry and their types; `placement` has the keys of ``"placement"``.
- `entry_errors`: how a wrong value or an unknown key is reported to people.
- `config_variables`: how ``${VAR}`` is expanded for a start and kept in a save.
- `trust`: which project files the user trusts, and how they are shown before that.

Invariants: a value is checked before anything is started. An unknown key that probably limits a server is an error,
because ignoring it would permit what it forbids. Variables are expanded only for a start, never in a saved file. A file
that other users can change counts only if the user trusts its content.
"""
