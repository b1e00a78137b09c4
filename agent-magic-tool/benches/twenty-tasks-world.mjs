// The world of twenty-tasks.mjs: a home with about two thousand subtools, a folder to work in, and a stand-in for the APIs.

import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { homedir, tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";

/** The folder for downloads, the same as in `tests/run`. */
export const CACHE = join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "agent-magic-tool-tests");
const GITHUB = join(CACHE, "specs-1/node_modules/@octokit/openapi/generated/api.github.com.json");
const MAGENTO = join(CACHE, "specs-1/node_modules/@graphcommerce/magento-graphql-rest/scripts/m2rest-admin.json");
const GOOGLE = ["gmail.v1", "calendar.v3", "drive.v3", "sheets.v4", "docs.v1", "tasks.v1", "people.v1"];
/** Servers of npm and PyPI, which the world calls by their names alone: a path would count. */
const SERVERS = ["mcp-servers-1/node_modules/.bin/mcp-server-everything", "mcp-python-1/bin/mcp-server-time", "mcp-python-1/bin/mcp-server-git"];
const LEAST_SUBTOOLS = 2000;

/** A home, a mailbox and a folder to work in. */
export class World {
  root = mkdtempSync(join(tmpdir(), "twenty-tasks-"));
  home = join(this.root, "home");
  folder = join(this.root, "work");
  bin = join(this.root, "bin");

  constructor(program) {
    [this.home, this.folder, this.bin].forEach((path) => mkdirSync(path, { recursive: true }));
    this.install("agent-magic-tool", resolve(program));
    for (const server of SERVERS) this.install(basename(server), join(CACHE, server));
  }

  /** Makes a program one of the commands of this world. */
  install(name, path) {
    symlinkSync(path, join(this.bin, name));
  }

  /** What a shell prints for a line. A session of its own learns nothing from the searches of others. */
  shell(line, session = "set-up", input = "") {
    const env = {
      HOME: this.home,
      AGENT_MAGIC_TOOL_DIR: join(this.root, "box"),
      AGENT_MAGIC_TOOL_SESSION: session.replaceAll(" ", "-"),
      PATH: `${this.bin}:${process.env.PATH}`,
      MCP2CLI_TELEMETRY: "off",
    };
    return new Promise((done) => {
      const child = spawn("bash", ["-c", line], { env, cwd: this.folder });
      let [stdout, stderr] = ["", ""];
      child.stdout.on("data", (data) => (stdout += data));
      child.stderr.on("data", (data) => (stderr += data));
      child.on("close", (exit) => done({ exit, stdout, stderr, text: stdout + stderr }));
      // A program that reads no input may have ended before.
      child.stdin.on("error", () => {});
      child.stdin.end(input);
    });
  }

  async must(line, input) {
    const printed = await this.shell(line, undefined, input);
    if (printed.exit !== 0) throw new Error(`${line}: ${printed.stderr}`);
    return printed.stdout;
  }

  /** Makes the catalog and what lies in the folder; returns the number of subtools. */
  async setUp(url) {
    const config = join(this.home, ".config/agent-magic-tool");
    mkdirSync(join(config, "subtools"), { recursive: true });
    writeFileSync(join(config, "config.toml"), configuration(url));
    writeFileSync(join(config, "subtools/weather.json"), JSON.stringify(weather(url)));
    await this.importAll(url);
    await this.fillFolder();
    const names = JSON.parse(await this.must("agent-magic-tool list tools --format=names --limit=100000"));
    if (names.length < LEAST_SUBTOOLS) throw new Error(`only ${names.length} subtools were imported`);
    return names.length;
  }

  async importAll(url) {
    const tool = "agent-magic-tool import";
    await this.must(`${tool} '${GITHUB}' --name github-api --server ${url}/github`);
    await this.must(`${tool} '${MAGENTO}' --name magento --server ${url}/magento`);
    for (const name of GOOGLE) await this.must(`${tool} '${join(CACHE, "discovery-2.202.0", name)}.json' --server ${url}`);
    await this.must(`${tool} mcp time -- "$(which mcp-server-time)"`);
    await this.must(`${tool} mcp everything -- "$(which mcp-server-everything)" stdio`);
    await this.must(`python3 -c 'import sqlite3, sys; sqlite3.connect("../library.db").executescript(sys.stdin.read())'`, LIBRARY);
    await this.must(`${tool} sql library 'sqlite://${join(this.root, "library.db")}'`);
    // After the imports: one that would send a stored secret to a new host is refused.
    const secrets = ["github", "google", ...GOOGLE.map((name) => name.split(".")[0])];
    for (const secret of secrets) await this.must(`agent-magic-tool secret set ${secret} --weak`, "token");
  }

  /** Two files, and a repository with an old commit and two new ones. */
  async fillFolder() {
    writeFileSync(join(this.folder, "note.txt"), "The meeting is on Friday.\n");
    writeFileSync(join(this.folder, "plan.txt"), "one\nthe needle is here\nthree\n");
    await this.must("git init -q && git config user.name Ann && git config user.email ann@example.com && git add .");
    const commits = { 30: "First draft", 3: "Mend the login page", 1: "Say when the meeting is" };
    for (const days of [30, 3, 1]) {
      const date = new Date(Date.now() - days * 86_400_000).toISOString();
      await this.must(`GIT_COMMITTER_DATE=${date} git commit -q --allow-empty --date=${date} -m '${commits[days]}'`);
    }
  }

  async end() {
    await this.shell("agent-magic-tool executor stop");
    rmSync(this.root, { recursive: true, force: true });
  }
}

/** Nothing needs a human, and the packs that ship talk to the stand-in, too. */
const configuration = (url) => `
[http.endpoints]
"https://api.github.com" = "${url}/github"
"https://gmail.googleapis.com" = "${url}"

[[confirm.rules]]
tools = ["*"]
then = "allow"
`;

const weather = (url) => ({
  weather_now: {
    description: "Tells the current weather of a place: temperature, wind, rain.",
    input: {
      type: "object",
      properties: { place: { type: "string", description: "A city." } },
      required: ["place"],
      additionalProperties: false,
    },
    annotations: { readOnlyHint: true },
    run: { http: { base_url: url, path: "/weather/{{ place }}" } },
  },
});

const LIBRARY = `
CREATE TABLE reader (id INTEGER PRIMARY KEY, name TEXT, town TEXT);
CREATE TABLE book (id INTEGER PRIMARY KEY, title TEXT, author TEXT);
CREATE TABLE loan (id INTEGER PRIMARY KEY, reader_id INTEGER REFERENCES reader(id), book_id INTEGER REFERENCES book(id), lent_on TEXT);
INSERT INTO reader VALUES (1, 'Anna', 'Basel'), (2, 'Ben', 'Bern'), (3, 'Cem', 'Basel');
INSERT INTO book VALUES (1, 'Emma', 'Austen'), (2, 'Dubliners', 'Joyce');
INSERT INTO loan VALUES (1, 1, 1, '2027-01-02'), (2, 3, 2, '2027-01-09'), (3, 2, 1, '2027-02-01'), (4, 1, 2, '2027-02-03');
`;

// --- The stand-in for the APIs ---

/** GitHub's own examples, which its description has, with other values. */
const examples = JSON.parse(readFileSync(GITHUB, "utf8")).components.examples;
const example = (name, values) => {
  const text = JSON.stringify(examples[name].value).replaceAll("octocat/Hello-World", "acme/shop").replaceAll("1347", values.number);
  return { ...[JSON.parse(text)].flat()[0], ...values };
};

const issue = (number, title) => example("issue", { number, title, state: "open", pull_request: undefined });
const pull = (number, title, merged_at) => example("pull-request-simple-items", { number, title, state: "closed", merged_at });
const mergedPull = (number) => {
  const found = example("pull-request", { number, state: "closed", merged: true });
  return { ...found, merged_by: { ...found.user, login: "mira" } };
};

const MAIL = {
  id: "18c1f0a2b3d4e5f6",
  threadId: "18c1f0a2b3d4e5f6",
  labelIds: ["INBOX", "IMPORTANT"],
  historyId: "1204533",
  internalDate: "1804060800000",
  sizeEstimate: 4210,
  snippet: "Dear Anna, here is the invoice of March.",
  payload: {
    partId: "",
    mimeType: "multipart/mixed",
    filename: "",
    headers: Object.entries({
      From: "Berta <berta@example.com>",
      To: "anna@example.com",
      Subject: "Invoice of March",
      Date: "Mon, 1 Mar 2027 09:00:00 +0100",
      "Message-ID": "<42@example.com>",
    }).map(([name, value]) => ({ name, value })),
    parts: [
      {
        partId: "0",
        mimeType: "text/plain",
        filename: "",
        body: {
          size: 96,
          data: Buffer.from("Dear Anna,\r\n\r\nhere is the invoice of March: 1,240 euros, due in two weeks.\r\n\r\nBerta\r\n").toString("base64url"),
        },
      },
      { partId: "1", mimeType: "application/pdf", filename: "invoice-03.pdf", body: { attachmentId: "ANGjdJ8w", size: 48211 } },
    ],
  },
};

const person = { email: "anna@example.com", self: true };
const event = (id, summary, start, end) => ({
  kind: "calendar#event",
  etag: '"3391845"',
  id,
  status: "confirmed",
  htmlLink: `https://www.google.com/calendar/event?eid=${id}`,
  created: "2027-02-20T08:00:00.000Z",
  updated: "2027-02-20T08:00:00.000Z",
  summary,
  creator: person,
  organizer: person,
  start,
  end,
  iCalUID: `${id}@google.com`,
  sequence: 0,
  reminders: { useDefault: true },
  eventType: "default",
});
const at = (time) => ({ dateTime: `2027-03-03T${time}:00+01:00`, timeZone: "Europe/Berlin" });
const events = {
  kind: "calendar#events",
  etag: '"p33"',
  summary: "anna@example.com",
  updated: "2027-02-20T08:00:00.000Z",
  timeZone: "Europe/Berlin",
  accessRole: "owner",
  items: [
    event("e1", "Stand-up", at("09:00"), at("09:15")),
    event("e2", "Budget review", at("11:00"), at("12:00")),
    event("e3", "Dentist", at("16:30"), at("17:00")),
  ],
};

const item = (id, sku, price) => ({
  amount_refunded: 0,
  base_discount_amount: 0,
  base_original_price: price,
  base_price: price,
  base_row_total: price,
  base_tax_amount: 0,
  created_at: "2027-02-01 10:00:00",
  item_id: id,
  name: sku,
  order_id: id,
  original_price: price,
  price,
  product_id: 7,
  product_type: "simple",
  qty_invoiced: 1,
  qty_ordered: 1,
  qty_refunded: 0,
  qty_shipped: 1,
  quote_item_id: id,
  row_total: price,
  sku,
  store_id: 1,
  tax_amount: 0,
  weight: 0.4,
});
const address = (id, email) => ({
  address_type: "billing",
  city: "Basel",
  country_id: "CH",
  email,
  entity_id: id,
  firstname: "Anna",
  lastname: "Meier",
  parent_id: id,
  postcode: "4051",
  street: ["Rheingasse 1"],
  telephone: "0610000000",
});
const order = (id, customer_email) => ({
  base_currency_code: "EUR",
  base_grand_total: 23,
  base_subtotal: 20,
  base_total_due: 0,
  billing_address: address(id, customer_email),
  created_at: "2027-02-01 10:00:00",
  customer_email,
  customer_firstname: "Anna",
  customer_group_id: 1,
  customer_id: id,
  customer_is_guest: 0,
  customer_lastname: "Meier",
  entity_id: id,
  grand_total: 23,
  increment_id: String(id).padStart(9, "0"),
  is_virtual: 0,
  items: [item(id, "MUG-01", 12), item(id + 1000, "PEN-02", 8)],
  order_currency_code: "EUR",
  payment: {
    account_status: null,
    additional_information: ["Check / Money order"],
    amount_ordered: 23,
    entity_id: id,
    method: "checkmo",
    parent_id: id,
  },
  protect_code: "a1b2",
  quote_id: id,
  shipping_amount: 3,
  shipping_description: "Flat Rate - Fixed",
  state: "complete",
  status: "complete",
  status_histories: [],
  store_id: 1,
  store_name: "Main",
  subtotal: 20,
  total_item_count: 2,
  total_paid: 23,
  total_qty_ordered: 2,
  updated_at: "2027-02-03 10:00:00",
  weight: 0.8,
});

/** A page of 230 orders, or those of one customer. A page has at most 100. */
function orders(query) {
  const email = query.get("searchCriteria[filterGroups][0][filters][0][value]");
  const found = email
    ? [7, 19].map((id) => order(id, email))
    : Array.from({ length: 230 }, (_, index) => order(index + 1, `customer${index}@example.com`));
  const [size, page] = ["pageSize", "currentPage"].map((key) => Number(query.get(`searchCriteria[${key}]`) ?? 0));
  const limit = Math.min(size || 100, 100);
  const start = (Math.max(page, 1) - 1) * limit;
  return {
    items: found.slice(start, start + limit),
    search_criteria: { filter_groups: [], page_size: limit, current_page: Math.max(page, 1) },
    total_count: found.length,
  };
}

const stockItem = {
  item_id: 7,
  product_id: 7,
  stock_id: 1,
  qty: 42,
  is_in_stock: true,
  is_qty_decimal: false,
  min_qty: 0,
  min_sale_qty: 1,
  max_sale_qty: 10000,
  backorders: 0,
  low_stock_date: null,
  manage_stock: true,
};
const budget = { kind: "drive#file", id: "1BxiMVs0XRA5nFMdKvBdBZjgm", name: "budget-2027", mimeType: "application/vnd.google-apps.spreadsheet" };

const ROUTES = {
  "GET /weather/Lisbon": () => ({ place: "Lisbon", temperature: 18.4, wind: 12, rain: 0 }),
  "GET /github/repos/acme/shop/issues": () => [
    issue(56, "Checkout fails with two coupons"),
    issue(54, "Typo in the footer"),
    issue(51, "Search ignores umlauts"),
  ],
  "POST /github/repos/acme/shop/issues": (_, body) => issue(57, body.title),
  "GET /github/repos/acme/shop/pulls": () => [
    pull(41, "Cache the cart", "2027-03-01T10:00:00Z"),
    pull(40, "New footer", null),
    pull(38, "Faster search", "2027-02-20T10:00:00Z"),
  ],
  "GET /github/repos/acme/shop/pulls/41": () => mergedPull(41),
  "GET /gmail/v1/users/me/messages": () => ({ messages: [{ id: MAIL.id, threadId: MAIL.threadId }], resultSizeEstimate: 1 }),
  [`GET /gmail/v1/users/me/messages/${MAIL.id}`]: () => MAIL,
  "GET /calendar/v3/calendars/primary/events": () => events,
  "POST /calendar/v3/calendars/primary/events": (_, body) => event("e4", body.summary, body.start, body.end),
  "GET /drive/v3/files": () => ({ kind: "drive#fileList", incompleteSearch: false, files: [budget] }),
  [`POST /drive/v3/files/${budget.id}/permissions`]: (_, body) => ({ kind: "drive#permission", id: "0412", type: body.type, role: body.role }),
  "GET /magento/V1/orders": (query) => orders(query),
  "GET /magento/V1/stockItems/MUG-01": () => stockItem,
  "GET /magento/V1/stockStatuses/MUG-01": () => ({ product_id: 7, stock_id: 1, qty: 42, stock_status: 1, stock_item: stockItem }),
};

/** Answers what the tasks call, and refuses everything else. */
export async function standIn() {
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const part of request) body += part;
    const url = new URL(request.url, "http://127.0.0.1");
    const route = ROUTES[`${request.method} ${url.pathname}`];
    response.writeHead(route ? 200 : 404, { "content-type": "application/json" });
    response.end(JSON.stringify(route ? route(url.searchParams, body && JSON.parse(body)) : { message: "Not Found" }));
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return { url: `http://127.0.0.1:${server.address().port}`, close: () => server.close() };
}
