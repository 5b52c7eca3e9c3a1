"""The `gaia` command: options, output and exit statuses over the public client.

The client makes all decisions about servers.

`main` finds and loads the module of a command. The modules of the commands are named after their subject: `listing`,
`calling`, `configuring`, `importing`, `doctor`, `watch`, `gateway`, `serving`, `demo`, …

The commands share the other modules. `options` has the options of several commands, `arguments` reads a tool's
arguments, `servers` connects to a server, `running_gateway` asks a gateway for its status, `time_limit` ends a command
whose ``--timeout`` has passed, `questions` asks the person at the terminal, `terminal` writes, and `rendering` and
`descriptions` lay out tables and texts.

Invariants: standard output has only the result, and standard error all else. With ``--json`` standard output has one
JSON document. Text from servers is cleaned before it is shown, and is never markup. A command imports its modules when
it runs.
"""
