// An HTTP server of which every request is checked against an OpenAPI document before it is answered.
//
// `ajv` comes from the packages of Prism, whose path AGENT_MAGIC_TOOL_TEST_PRISM holds. Prints its port as one line.

import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";

const prism = createRequire(process.env.AGENT_MAGIC_TOOL_TEST_PRISM);

/** Reads a document of OpenAPI 3.0 or 3.1, and returns what checks requests against it. */
export function description(file, { base = "" } = {}) {
  const text = readFileSync(file, "utf8").replaceAll("application\\\\/json", "application/json");
  const document = JSON.parse(text);
  const Ajv = prism("ajv/dist/2020").default;
  const ajv = new Ajv({ strict: false, allErrors: true, validateFormats: false });
  ajv.addSchema(document, "document");
  const compiled = new Map();
  const check = (schema, value) => {
    const key = JSON.stringify(schema);
    if (!compiled.has(key)) {
      compiled.set(key, ajv.compile(JSON.parse(key.replaceAll('"$ref":"#', '"$ref":"document#'))));
    }
    const validate = compiled.get(key);
    return validate(value) ? [] : validate.errors.map((error) => `${error.instancePath}: ${error.message}`);
  };
  const templates = Object.keys(document.paths).map((path) => ({
    path,
    literals: path.split("/").filter((part) => !part.startsWith("{")).length,
    pattern: new RegExp(`^${path.replace(/[.*+?^$()|[\]\\]/g, "\\$&").replace(/\{(\w+)\}/g, "(?<$1>[^/]+)")}$`),
  }));
  // Of two that fit, the one with more literal parts is meant.
  templates.sort((one, other) => other.literals - one.literals);

  const resolved = (it) => (it.$ref ? it.$ref.slice(2).split("/").reduce((at, key) => at[key], document) : it);
  const typed = (schema, text) => {
    const type = (schema ?? {}).type;
    if (type === "integer" || type === "number") return text.trim() === "" ? text : Number(text);
    if (type === "boolean") return { true: true, false: false, 1: true, 0: false }[text] ?? text;
    return text;
  };

  /** Returns the path of the operation, its parameters, and what is wrong with the request. */
  function checked(method, url, body) {
    const path = url.pathname.slice(base.length);
    const found = templates.find((it) => it.pattern.test(path) && document.paths[it.path][method.toLowerCase()]);
    if (!found) return { problems: [`the document has no ${method} ${path}`] };
    const operation = document.paths[found.path][method.toLowerCase()];
    const inPath = Object.fromEntries(
      Object.entries(found.pattern.exec(path).groups ?? {}).map(([name, text]) => [name, decodeURIComponent(text)]),
    );
    const parameters = [...(document.paths[found.path].parameters ?? []), ...(operation.parameters ?? [])].map(resolved);
    const problems = [];
    for (const [name, text] of Object.entries(inPath)) {
      const parameter = parameters.find((it) => it.in === "path" && it.name === name);
      const schema = parameter?.schema;
      if (schema) problems.push(...check(schema, typed(schema, text)).map((it) => `path ${name}${it}`));
    }
    const declared = parameters.filter((it) => it.in === "query");
    for (const parameter of declared) {
      const text = url.searchParams.get(parameter.name);
      if (text === null) {
        if (parameter.required) problems.push(`query ${parameter.name} is missing`);
        continue;
      }
      const schema = parameter.schema;
      if (schema?.type && schema.type !== "array") {
        problems.push(...check(schema, typed(schema, text)).map((it) => `query ${parameter.name}${it}`));
      }
    }
    for (const name of url.searchParams.keys()) {
      if (!declared.some((it) => it.name === name)) problems.push(`query ${name} is not declared`);
    }
    const content = operation.requestBody && resolved(operation.requestBody).content["application/json"];
    const schema = content?.schema;
    if (body !== undefined && !schema) problems.push("a body is not declared");
    if (schema && body !== undefined) problems.push(...check(schema, body).map((it) => `body${it}`));
    if (body === undefined && operation.requestBody?.required) problems.push("the body is missing");
    return { path: found.path, inPath, problems };
  }
  return { document, checked };
}

/**
 * Serves `answer(request)`, which gets method, url, headers and body, and returns [status, data]. `/__requests` lists
 * what was asked, and `/__problems` what did not fit the document.
 */
export function serve(api, answer) {
  const requests = [];
  const problems = [];
  const server = createServer(async (incoming, outgoing) => {
    const chunks = [];
    for await (const chunk of incoming) chunks.push(chunk);
    const text = Buffer.concat(chunks).toString("utf8");
    const url = new URL(incoming.url, "http://localhost");
    const reply = (status, data) => {
      const body = data === undefined ? "" : JSON.stringify(data);
      outgoing.writeHead(status, { "content-type": "application/json" }).end(body);
    };
    try {
      if (url.pathname === "/__requests") return reply(200, requests);
      if (url.pathname === "/__problems") return reply(200, problems);
      const isJson = (incoming.headers["content-type"] ?? "").includes("json");
      const body = text === "" ? undefined : isJson ? JSON.parse(text) : Object.fromEntries(new URLSearchParams(text));
      const request = { method: incoming.method, url, path: url.pathname, headers: incoming.headers, body };
      request.check = (asked = url) => {
        const result = api.checked(request.method, asked, body);
        problems.push(...result.problems.map((problem) => `${request.method} ${url.pathname}: ${problem}`));
        return result;
      };
      requests.push({ method: request.method, path: url.pathname, query: url.search, body });
      const [status, data] = await answer(request);
      reply(status, data);
    } catch (error) {
      problems.push(`${incoming.method} ${incoming.url}: ${error.stack}`);
      reply(500, { message: String(error) });
    }
  });
  server.listen(0, "127.0.0.1", () => console.log(server.address().port));
}
