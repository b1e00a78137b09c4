// The world of scripts.mjs: a shop with state, its 25 subtools as definitions, and a session of the one tool.

import { spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { createInterface } from "node:readline";

import { World } from "./twenty-tasks-world.mjs";

// --- The goods ---

const CITIES = ["Basel", "Graz", "Lisbon", "Leeds", "Oslo"];
const CARRIERS = ["DHL", "UPS", "Post"];
const STATUSES = ["open", "paid", "shipped", "cancelled"];
const day = (number) => new Date(Date.UTC(2026, 7, 1) + number * 86_400_000).toISOString().slice(0, 10);
const cents = (number) => Math.round(number * 100) / 100;
const range = (length, make) => Array.from({ length }, (_, index) => make(index));

function goods() {
  const customers = range(40, (i) => ({
    id: i + 1,
    name: `Customer ${i + 1}`,
    mail: `c${i + 1}@example.com`,
    city: CITIES[i % 5],
    phone: `+41 61 000 00 ${String(i + 10)}`,
    vip: i % 7 === 0,
    tags: [],
  }));
  const orders = range(480, (i) => ({
    id: 1000 + i,
    customer_id: 1 + ((i * 7 + Math.floor(i / 4)) % 40),
    status: STATUSES[i % 4],
    total: cents(((i * 37) % 500) + 0.5),
    currency: "EUR",
    created: day(Math.floor(i / 8)),
    items: range(1 + (i % 3), (n) => ({ sku: `SKU-${(i + n * 5) % 23}`, qty: 1 + ((i + n) % 3) })),
    address: { street: `Rheingasse ${1 + (i % 90)}`, postcode: String(4000 + (i % 60)), city: CITIES[(i * 7) % 5] },
    notes: [],
  }));
  const products = range(23, (i) => ({
    sku: `SKU-${i}`,
    name: `Product ${i}`,
    price: 5 + i,
    stock: (i * 13) % 17,
    supplier_id: 1 + (i % 4),
    weight: cents(0.2 + i / 10),
  }));
  const suppliers = range(4, (i) => ({ id: i + 1, name: `Supplier ${i + 1}`, mail: `sales@supplier${i + 1}.example`, days: 3 + i }));
  const tickets = range(44, (i) => ({
    id: i + 1,
    customer_id: 1 + ((i * 3) % 40),
    state: i % 2 ? "closed" : "open",
    subject: `Question about order ${1000 + i * 4}`,
    messages: range(1 + (i % 3), (n) => ({
      from: n % 2 ? "us" : "customer",
      date: day(50 + ((i + n) % 10)),
      text: `Where is my parcel? This is message ${n + 1}.`,
    })),
  }));
  const shipments = orders
    .filter(({ status }) => status === "shipped" || status === "paid")
    .map(({ id }) => ({
      order_id: id,
      carrier: CARRIERS[id % 3],
      tracking: `TR${id * 31}`,
      state: id % 5 ? "delivered" : "on the way",
      days: (id * 11) % 9,
    }));
  const invoices = orders.map(({ id, customer_id, total }, i) => ({
    id: id + 4000,
    order_id: id,
    customer_id,
    amount: total,
    due: day(60 + (id % 9)),
    paid: i % 7 !== 0,
  }));
  return { customers, orders, products, suppliers, tickets, shipments, invoices, rates: { USD: 1.08, CHF: 0.95, GBP: 0.86 } };
}

// --- The subtools ---

const int = (description) => ({ type: "integer", description });
const text = (description) => ({ type: "string", description });
const money = (description) => ({ type: "number", description });
const PAGE = { page: { type: "integer", minimum: 1, default: 1, description: "The page, from 1." } };
const ORDER = int("The order's number.");
const CUSTOMER = int("The customer's number.");
const SKU = text("The product's number, like SKU-3.");

class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function one(list, key, value) {
  const found = list.find((item) => item[key] === value);
  if (!found) throw new Refusal(404, `there is no ${key} ${value}`);
  return found;
}

function paged(key, list, page = 1, limit = 20) {
  const size = Math.min(limit, 50);
  return { [key]: list.slice((page - 1) * size, page * size), total: list.length, page, pages: Math.ceil(list.length / size) };
}

/** A subtool: what it is for, the properties of its input (those that end with `?` are optional), and what the shop does. */
const read = (description, properties, answer) => ({ description, properties, answer, reads: true });
const write = (description, properties, answer) => ({ description, properties, answer, reads: false });

const TOOLS = {
  shop_search_orders: read(
    "Searches orders page by page: {orders: [{id, customer_id, status, total, created, items: [{sku, qty}]}], pages}.",
    {
      "status?": { type: "string", enum: STATUSES, description: "Only orders with this status." },
      "customer_id?": CUSTOMER,
      "since?": text("Only orders created on this day, like 2026-08-01, or later."),
      "page?": PAGE.page,
      "limit?": { type: "integer", minimum: 1, maximum: 50, default: 20, description: "Orders of a page." },
    },
    ({ orders }, { status, customer_id, since, page, limit }) =>
      paged(
        "orders",
        orders.filter((o) => (!status || o.status === status) && (!customer_id || o.customer_id === customer_id) && (!since || o.created >= since)),
        page,
        limit,
      ),
  ),
  shop_get_order: read("Returns one order: {id, customer_id, status, total, created, items: [{sku, qty}]}.", { id: ORDER }, ({ orders }, { id }) =>
    one(orders, "id", id),
  ),
  shop_set_order_status: write(
    "Sets the status of an order.",
    { id: ORDER, status: { type: "string", enum: STATUSES, description: "The new status." } },
    ({ orders }, { id, status }) => Object.assign(one(orders, "id", id), { status }),
  ),
  shop_note_order: write(
    "Writes a note on an order, which only the staff sees.",
    { id: ORDER, text: text("The note.") },
    ({ orders }, { id, text }) => ({ ok: true, notes: one(orders, "id", id).notes.push(text) }),
  ),
  shop_remind_customer: write(
    "Reminds the customer of an order to pay, by mail.",
    { id: ORDER, "text?": text("A sentence of your own for the mail.") },
    ({ orders }, { id }) => ({ ok: true, order: one(orders, "id", id).id }),
  ),
  shop_refund_order: write(
    "Pays money of an order back to its customer.",
    { id: ORDER, amount: money("How much, in euros."), "reason?": text("Why.") },
    ({ orders }, { id, amount }) => ({ ok: true, order: one(orders, "id", id).id, amount }),
  ),
  shop_search_customers: read(
    "Searches customers page by page: {customers: [{id, name, mail, city, vip}], pages}.",
    {
      "city?": text("Only customers of this city."),
      "vip?": { type: "boolean", description: "Only important customers, or only the others." },
      "page?": PAGE.page,
    },
    ({ customers }, { city, vip, page }) =>
      paged(
        "customers",
        customers.filter((c) => (!city || c.city === city) && (vip === undefined || c.vip === vip)),
        page,
      ),
  ),
  shop_get_customer: read("Returns one customer: {id, name, mail, city, vip}.", { id: CUSTOMER }, ({ customers, tries }, { id }) => {
    // The first answer about every fifth customer is a failure that passes.
    tries[id] = (tries[id] ?? 0) + 1;
    if (id % 5 === 0 && tries[id] === 1) throw new Refusal(503, "try again");
    return one(customers, "id", id);
  }),
  shop_tag_customer: write(
    "Gives a customer a tag, to group customers by.",
    { id: CUSTOMER, tag: text("The tag.") },
    ({ customers }, { id, tag }) => ({ ok: true, tags: one(customers, "id", id).tags.push(tag) }),
  ),
  shop_list_products: read("Lists all products: [{sku, name, price, stock, supplier_id}].", {}, ({ products }) => products),
  shop_get_product: read("Returns one product: {sku, name, price, stock, supplier_id}.", { sku: SKU }, ({ products }, { sku }) =>
    one(products, "sku", sku),
  ),
  shop_set_stock: write("Sets the stock of a product.", { sku: SKU, stock: int("How many are there.") }, ({ products }, { sku, stock }) =>
    Object.assign(one(products, "sku", sku), { stock }),
  ),
  shop_set_price: write("Sets the price of a product.", { sku: SKU, price: money("The price in euros.") }, ({ products }, { sku, price }) =>
    Object.assign(one(products, "sku", sku), { price }),
  ),
  shop_list_suppliers: read("Lists all suppliers: [{id, name, mail, days}].", {}, ({ suppliers }) => suppliers),
  shop_get_supplier: read(
    "Returns one supplier: {id, name, mail, days}, with the days of a delivery.",
    { id: int("The supplier's number.") },
    ({ suppliers }, { id }) => one(suppliers, "id", id),
  ),
  shop_order_supply: write(
    "Orders goods from a supplier.",
    { supplier_id: int("The supplier's number."), sku: SKU, qty: int("How many.") },
    ({ suppliers }, { supplier_id, sku, qty }) => ({ ok: true, supplier: one(suppliers, "id", supplier_id).name, sku, qty }),
  ),
  shop_search_tickets: read(
    "Searches tickets of support page by page: {tickets: [{id, customer_id, state, subject}], pages}.",
    { "state?": { type: "string", enum: ["open", "closed"], description: "Only tickets in this state." }, "page?": PAGE.page },
    ({ tickets }, { state, page }) =>
      paged(
        "tickets",
        tickets.filter((t) => !state || t.state === state).map(({ messages, ...ticket }) => ticket),
        page,
        10,
      ),
  ),
  shop_get_ticket: read(
    "Returns one ticket: {id, customer_id, state, subject, messages: [{from, date, text}]}, oldest first.",
    { id: int("The ticket's number.") },
    ({ tickets }, { id }) => one(tickets, "id", id),
  ),
  shop_answer_ticket: write(
    "Answers a ticket of support.",
    { id: int("The ticket's number."), text: text("The answer.") },
    ({ tickets }, { id }) => ({ ok: true, ticket: one(tickets, "id", id).id }),
  ),
  shop_close_ticket: write("Closes a ticket of support.", { id: int("The ticket's number.") }, ({ tickets }, { id }) => ({
    ok: true,
    ticket: Object.assign(one(tickets, "id", id), { state: "closed" }).id,
  })),
  shop_get_shipment: read(
    "Returns the shipment of an order: {order_id, carrier, tracking, state, days}, days with the carrier.",
    { order_id: ORDER },
    ({ shipments }, { order_id }) => one(shipments, "order_id", order_id),
  ),
  shop_create_shipment: write(
    "Hands the parcel of an order to a carrier.",
    { order_id: ORDER, carrier: { type: "string", enum: CARRIERS, description: "The carrier." } },
    ({ orders }, { order_id, carrier }) => ({ ok: true, order: one(orders, "id", order_id).id, carrier }),
  ),
  shop_list_invoices: read(
    "Lists the invoices of a customer: [{id, order_id, amount, due, paid}].",
    { customer_id: CUSTOMER },
    ({ invoices }, { customer_id }) => invoices.filter((invoice) => invoice.customer_id === customer_id),
  ),
  shop_send_mail: write(
    "Sends a mail of the shop.",
    { to: text("The address."), subject: text("The subject."), body: text("The text.") },
    (_, { to }) => ({ ok: true, to }),
  ),
  shop_exchange_rate: read(
    "Returns the exchange rate of a currency to the euro: {currency, rate}.",
    { currency: text("The currency, like USD.") },
    ({ rates }, { currency }) => ({ currency, rate: rates[currency] }),
  ),
};

const bare = (key) => key.replace("?", "");

/** The definitions of the subtools, as their file has them. */
export function definitions(url) {
  const define = ([name, { description, properties, reads }]) => {
    const keys = Object.keys(properties).map(bare);
    const input = {
      type: "object",
      properties: Object.fromEntries(Object.entries(properties).map(([key, schema]) => [bare(key), schema])),
      required: Object.keys(properties).filter((key) => !key.endsWith("?")),
      additionalProperties: false,
    };
    const templates = Object.fromEntries(keys.map((key) => [key, `{{ ${key} }}`]));
    const http = {
      method: reads ? "GET" : "POST",
      base_url: url,
      path: `/${name}`,
      ...(reads ? { query: templates } : { body: { json: templates } }),
    };
    return [name, { description, input, annotations: reads ? { readOnlyHint: true } : { destructiveHint: false }, run: { http } }];
  };
  return Object.fromEntries(Object.entries(TOOLS).map(define));
}

/** The names of a subtool's parameters, and those of what it returns, which its description has in braces. */
export const parametersOf = (name) => Object.keys(TOOLS[name].properties).map(bare);
export const fieldsOf = (name) => /: ([[{].*[\]}])/.exec(TOOLS[name].description)?.[1].match(/\w+/g) ?? [];
export const NAMES = Object.keys(TOOLS);

/** The shop. It remembers what was changed. */
export class Shop {
  reset() {
    this.state = { ...goods(), tries: {} };
    this.effects = [];
    this.calls = 0;
  }

  /** Does what a subtool is for; returns an HTTP status and the answer. */
  call(name, input) {
    this.calls += 1;
    const { answer, reads } = TOOLS[name];
    try {
      const data = JSON.parse(JSON.stringify(answer(this.state, input)));
      if (!reads) this.effects.push([name, input]);
      return { status: 200, data };
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      return { status: error.status, data: { message: error.message } };
    }
  }

  async listen() {
    this.reset();
    this.server = createServer(async (request, response) => {
      let body = "";
      for await (const part of request) body += part;
      const url = new URL(request.url, "http://127.0.0.1");
      const name = url.pathname.slice(1);
      const { status, data } = this.call(name, request.method === "GET" ? typed(name, url.searchParams) : JSON.parse(body));
      response.writeHead(status, { "content-type": "application/json" });
      response.end(JSON.stringify(data));
    });
    await new Promise((done) => this.server.listen(0, "127.0.0.1", done));
    return `http://127.0.0.1:${this.server.address().port}`;
  }

  close() {
    this.server.close();
    this.server.closeAllConnections();
  }
}

/** The parameters of a query with the types of their schemas. */
function typed(name, query) {
  const schemas = Object.fromEntries(Object.entries(TOOLS[name].properties).map(([key, schema]) => [bare(key), schema]));
  return Object.fromEntries([...query].map(([key, value]) => [key, schemas[key].type === "string" ? value : JSON.parse(value)]));
}

// --- The program ---

/** A home with the shop's subtools. */
export class ShopWorld extends World {
  async setUp(url) {
    const config = join(this.home, ".config/agent-magic-tool");
    mkdirSync(join(config, "subtools"), { recursive: true });
    writeFileSync(join(config, "config.toml"), '[[confirm.rules]]\ntools = ["*"]\nthen = "allow"\n');
    writeFileSync(join(config, "subtools/shop.json"), JSON.stringify(definitions(url), null, 1));
    writeFileSync(join(this.folder, "note.txt"), "The meeting is on Friday.\n");
    await this.must("agent-magic-tool executor start");
    const names = JSON.parse(await this.must("agent-magic-tool list tools --format=names --limit=1000"));
    const missing = NAMES.filter((name) => !names.includes(name));
    if (missing.length) throw new Error(`not loaded: ${missing.join(", ")}`);
    return names.length;
  }

  /** A session of the one tool: it carries out command lines as a model writes them. */
  session(name) {
    const env = {
      HOME: this.home,
      AGENT_MAGIC_TOOL_DIR: join(this.root, "box"),
      AGENT_MAGIC_TOOL_SESSION: name.replaceAll(/\W/g, "-"),
      PATH: `${this.bin}:${process.env.PATH}`,
    };
    const child = spawn("agent-magic-tool", ["command-executor"], { env, cwd: this.folder, stdio: ["pipe", "pipe", "inherit"] });
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    return {
      async say(command) {
        child.stdin.write(`${JSON.stringify({ command })}\n`);
        const { value, done } = await lines.next();
        if (done) throw new Error("the one tool has ended");
        const { output, exit, error } = JSON.parse(value);
        if (error) throw new Error(`${command}: ${JSON.stringify(error)}`);
        return { output, exit };
      },
      end: () => child.stdin.end(),
    };
  }
}
