// A server of an older release of the official SDK: `node versions.mjs FOLDER stdio|sse|http`. Over HTTP it prints its URL.

import { randomUUID } from "node:crypto";
import { existsSync } from "node:fs";
import { createServer } from "node:http";

const [folder, kind] = process.argv.slice(2);
const base = existsSync(`${folder}/dist/esm`) ? `${folder}/dist/esm` : `${folder}/dist`;
const { Server } = await import(`${base}/server/index.js`);
const { ListToolsRequestSchema, CallToolRequestSchema } = await import(`${base}/types.js`);

function server() {
    const made = new Server({ name: "old", version: "1" }, { capabilities: { tools: {} } });
    const number = { type: "number" };
    made.setRequestHandler(ListToolsRequestSchema, async () => ({
        tools: [{
            name: "add", description: "Adds two numbers.",
            inputSchema: { type: "object", properties: { a: number, b: number }, required: ["a", "b"] },
        }],
    }));
    made.setRequestHandler(CallToolRequestSchema, async ({ params }) => ({
        content: [{ type: "text", text: `sum: ${params.arguments.a + params.arguments.b}` }],
    }));
    return made;
}

if (kind === "stdio") {
    const { StdioServerTransport } = await import(`${base}/server/stdio.js`);
    await server().connect(new StdioServerTransport());
} else {
    const open = new Map();
    const handle = kind === "sse" ? sse : http;
    const listener = createServer((request, response) => {
        handle(request, response).catch((error) => response.writeHead(500).end(String(error)));
    });
    listener.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${listener.address().port}/mcp`));
    process.stdin.resume().on("end", () => process.exit(0));

    async function sse(request, response) {
        const url = new URL(request.url, "http://localhost");
        if (request.method === "GET") {
            const { SSEServerTransport } = await import(`${base}/server/sse.js`);
            const transport = new SSEServerTransport("/messages", response);
            open.set(transport.sessionId, transport);
            await server().connect(transport);
        } else if (url.pathname === "/messages") {
            await open.get(url.searchParams.get("sessionId")).handlePostMessage(request, response);
        } else {
            response.writeHead(405).end();
        }
    }

    async function http(request, response) {
        let transport = open.get(request.headers["mcp-session-id"]);
        if (!transport) {
            const { StreamableHTTPServerTransport } = await import(`${base}/server/streamableHttp.js`);
            transport = new StreamableHTTPServerTransport({
                sessionIdGenerator: () => randomUUID(),
                onsessioninitialized: (session) => open.set(session, transport),
            });
            await server().connect(transport);
        }
        await transport.handleRequest(request, response);
    }
}
