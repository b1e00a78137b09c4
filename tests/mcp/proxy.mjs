// Adds the key to every request, since the conformance suite sends none. Requests that name this proxy as their host or
// origin name the server instead; foreign ones stay as they are. Arguments: the server's URL, the key.

import { createServer, request } from "node:http";

const [url, key] = process.argv.slice(2);
const server = new URL(url);

const proxy = createServer((incoming, outgoing) => {
  const own = `:${proxy.address().port}`;
  const headers = { ...incoming.headers, authorization: `Bearer ${key}` };
  for (const name of ["host", "origin"]) {
    if (headers[name]?.endsWith(own)) {
      headers[name] = headers[name].slice(0, -own.length) + `:${server.port}`;
    }
  }
  const options = { host: server.hostname, port: server.port, method: incoming.method, path: incoming.url, headers };
  const forwarded = request(options, (answer) => {
    outgoing.writeHead(answer.statusCode, answer.headers);
    outgoing.flushHeaders();
    answer.pipe(outgoing);
  });
  forwarded.on("error", () => outgoing.destroy());
  outgoing.on("close", () => forwarded.destroy());
  incoming.pipe(forwarded);
});
proxy.listen(0, "127.0.0.1", () => process.stdout.write(`http://localhost:${proxy.address().port}/mcp\n`));
process.stdin.on("end", () => process.exit(0)).resume();
