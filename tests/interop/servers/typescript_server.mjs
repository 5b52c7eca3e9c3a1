// A server on the newest official TypeScript SDK, over stdio.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

// The packages are where the tests installed them, not next to this file.
const require = createRequire(pathToFileURL(`${process.argv[2]}/package.json`));
const load = (name) => import(pathToFileURL(require.resolve(name)));

const { McpServer } = await load("@modelcontextprotocol/server");
const { serveStdio } = await load("@modelcontextprotocol/server/stdio");
const z = await load("zod");

serveStdio(() => {
  const server = new McpServer({ name: "typescript-sdk", version: "1" });
  server.registerTool(
    "echo",
    { description: "Return the text.", inputSchema: z.object({ text: z.string() }) },
    async ({ text }) => ({ content: [{ type: "text", text }] }),
  );
  return server;
});
