//! Scripts of models: loops, classes, joins, dates and notes.

use super::Sample;

pub(super) const SCRIPTS: &[Sample] = &[
    (
        "breaks out of labelled loops",
        r#"
let found = null;
search: for (let page = 1; page <= 3; page++) {
  const { orders } = await shop_search_orders({ page });
  for (const order of orders) {
    if (order.customer.name === "Cy") {
      found = { page, id: order.id };
      break search;
    }
    if (order.total < 1) continue search;
  }
}
return found;
"#,
        r#"{"page":2,"id":4}"#,
    ),
    (
        "makes combinations with a generator",
        r#"
function* combinations(arr, k, start = 0, acc = []) {
  if (acc.length === k) { yield [...acc]; return; }
  for (let i = start; i < arr.length; i++) yield* combinations(arr, k, i + 1, [...acc, arr[i]]);
}
const pairs = [...combinations(["a", "b", "c"], 2)];
return pairs.map((p) => p.join("-"));
"#,
        r#"["a-b","a-c","b-c"]"#,
    ),
    (
        "parses a csv with quotes",
        r#"
const csv = await export_csv({});
const parseLine = (line) => {
  const cells = [];
  let cur = '', quoted = false;
  for (const ch of line) {
    if (ch === '"') quoted = !quoted;
    else if (ch === ',' && !quoted) { cells.push(cur); cur = ''; }
    else cur += ch;
  }
  cells.push(cur);
  return cells;
};
const [head, ...rows] = csv.trim().split(/\r?\n/).map(parseLine);
return rows.map(r => Object.fromEntries(head.map((h, i) => [h, isNaN(r[i]) ? r[i] : Number(r[i])])));
"#,
        r#"[{"id":1,"name":"Ann, A.","city":"Rome"},{"id":2,"name":"Bob","city":"Oslo"}]"#,
    ),
    (
        "finds a subtool by name and calls it",
        r#"
const { tools: matches } = await list_tools("search orders");
const name = matches.find((t) => t.name.includes("orders"))?.name;
const result = await tools[name]({ page: 1 });
return { name, first: result.orders[0].id, via: (await tools["mail-send"]({ to: "a@b.c", subject: "s", body: "b" })).ok };
"#,
        r#"{"name":"shop_search_orders","first":1,"via":true}"#,
    ),
    (
        "reads a file by lines and counts words",
        r#"
const doc = await read({ id: "notes.txt" });
const words = doc.text.split(/\s+/).filter(Boolean);
const counts = words.reduce((m, w) => m.set(w, (m.get(w) || 0) + 1), new Map());
return { words: words.length, letters: [...counts].map(([w, n]) => `${w}:${w.length * n}`), title: words.map(w => w[0].toUpperCase() + w.slice(1)).join(' ') };
"#,
        r#"{"words":3,"letters":["alpha:5","beta:4","gamma:5"],"title":"Alpha Beta Gamma"}"#,
    ),
    (
        "reshapes with optional chaining and defaults",
        r#"
const list = await customers({});
return list.map(({ id, name, address, tags: [firstTag = "none", ...others] = [], phone = null }) => ({
  id,
  label: `${name} (${firstTag})`,
  city: address?.city?.toUpperCase() ?? "unknown",
  more: others.length,
  phone,
}));
"#,
        r#"[{"id":1,"label":"Zoë (vip)","city":"PARIS","more":1,"phone":null},{"id":2,"label":"adam (none)","city":"unknown","more":0,"phone":null},{"id":3,"label":"Émile (eu)","city":"unknown","more":0,"phone":null},{"id":4,"label":"Bob (vip)","city":"unknown","more":0,"phone":null}]"#,
    ),
    (
        "joins two sources by id",
        r"
const [list, { orders }] = await Promise.all([
  customers({}),
  shop_search_orders({ page: 1, page_size: 100 }),
]);
const byName = new Map(list.map((c) => [c.name.toLowerCase(), c]));
const joined = orders.map((o) => ({ order: o.id, email: byName.get(o.customer.name.toLowerCase())?.email ?? null }));
return joined.filter((j) => j.email !== null);
",
        r#"[{"order":2,"email":"bob@example.org"},{"order":5,"email":"bob@example.org"}]"#,
    ),
    (
        "computes statistics",
        r"
const { orders } = await shop_search_orders({ page_size: 100 });
const totals = orders.map(o => o.total).toSorted((a, b) => a - b);
const sum = totals.reduce((a, b) => a + b);
const mean = sum / totals.length;
const median = totals.length % 2 ? totals[(totals.length - 1) / 2] : (totals[totals.length / 2 - 1] + totals[totals.length / 2]) / 2;
const stdev = Math.sqrt(totals.map(t => (t - mean) ** 2).reduce((a, b) => a + b) / totals.length);
return { min: Math.min(...totals), max: Math.max(...totals), mean: +mean.toFixed(2), median, stdev: +stdev.toFixed(3), last: totals.at(-1) };
",
        r#"{"min":0.1,"max":1234.5,"mean":200.03,"median":20.2,"stdev":423.483,"last":1234.5}"#,
    ),
    (
        "appends rows one after another with reduce",
        r#"
const rows = [["a", 1], ["b", 2], ["c", 3]];
const ids = await rows.reduce(async (promise, [k, v]) => {
  const acc = await promise;
  const res = await sheet_append({ sheet: "S", row: { k, v } });
  return [...acc, res.id];
}, Promise.resolve([]));
return ids;
"#,
        r#"["d1","d2","d3"]"#,
    ),
    (
        "races a call with a timeout",
        r"
const timeout = (ms) => new Promise((_, reject) => setTimeout(() => reject(new Error(`timed out after ${ms}ms`)), ms));
try {
  const order = await Promise.race([shop_get_order({ id: 2 }), timeout(5000)]);
  return { shipped: order.shipped };
} catch (e) {
  return { error: e.message };
}
",
        r#"{"shipped":true}"#,
    ),
    (
        "chains then and catch and finally",
        r#"
let steps = [];
return shop_get_order({ id: 99 })
  .then((o) => steps.push(`got ${o.id}`))
  .catch((e) => steps.push(`caught ${e.code}`))
  .finally(() => steps.push("finally"))
  .then(() => steps);
"#,
        r#"["caught not_found","finally"]"#,
    ),
    (
        "switches on a code and rethrows with a cause",
        r#"
function explain(e) {
  switch (e.code) {
    case "not_found":
    case "gone":
      return "missing";
    case "denied":
      return "forbidden";
    default:
      throw new Error("unexpected: " + e.code, { cause: e });
  }
}
const out = [];
for (const call of [() => shop_get_order({ id: 0 }), () => files_delete({}), () => pay({})]) {
  try { await call(); } catch (e) {
    try { out.push(explain(e)); } catch (inner) { out.push(`${inner.message} <- ${inner.cause.message}`); }
  }
}
return out;
"#,
        r#"["missing","forbidden","unexpected: timeout <- no reply"]"#,
    ),
    (
        "builds an address with parameters",
        r#"
const url = new URL("https://shop.example.com/orders");
const params = { status: "open & paid", page: 2, tags: ["a", "b"] };
for (const [k, v] of Object.entries(params)) {
  if (Array.isArray(v)) v.forEach((item) => url.searchParams.append(k, item));
  else url.searchParams.set(k, v);
}
const back = Object.fromEntries(new URL(url.href).searchParams);
return { url: url.toString(), host: url.host, back, encoded: encodeURIComponent("a/b c") };
"#,
        r#"{"url":"https://shop.example.com/orders?status=open+%26+paid&page=2&tags=a&tags=b","host":"shop.example.com","back":{"status":"open & paid","page":"2","tags":"b"},"encoded":"a%2Fb%20c"}"#,
    ),
    (
        "encodes and decodes base64 and clones",
        r#"
const original = { nested: { list: [1, 2] }, when: new Date("2026-01-02T03:04:05Z") };
const copy = structuredClone(original);
copy.nested.list.push(3);
const encoded = btoa(JSON.stringify({ user: "ann" }));
return { before: original.nested.list.length, after: copy.nested.list.length, isDate: copy.when instanceof Date, encoded, decoded: JSON.parse(atob(encoded)).user, bytes: new TextEncoder().encode("héllo").length };
"#,
        r#"{"before":2,"after":3,"isDate":true,"encoded":"eyJ1c2VyIjoiYW5uIn0=","decoded":"ann","bytes":6}"#,
    ),
    (
        "formats times for people",
        r#"
const { messages } = await mail_list({});
const m = await mail_read({ id: messages[2].id });
const d = new Date(m.date);
const opts = { year: "numeric", month: "short", day: "numeric" };
return {
  short: d.toLocaleDateString("en-US"),
  medium: d.toLocaleDateString("en-US", opts),
  time: d.toLocaleTimeString("en-US", { hour: "2-digit", minute: "2-digit" }),
  both: d.toLocaleString(),
  utc: d.toUTCString(),
  unix: Math.floor(d.getTime() / 1000),
  gb: d.toLocaleDateString("en-GB"),
};
"#,
        r#"{"short":"2/3/2026","medium":"Feb 3, 2026","time":"12:00 PM","both":"2/3/2026, 12:00:00 PM","utc":"Tue, 03 Feb 2026 12:00:00 GMT","unix":1770120000,"gb":"03/02/2026"}"#,
    ),
    (
        "uses nested helpers, sets and flatMap",
        r#"
const list = await customers({});
const allTags = [...new Set(list.flatMap(c => c.tags))].sort();
const index = Object.fromEntries(allTags.map(tag => [tag, list.filter(c => c.tags.includes(tag)).map(c => c.id)]));
const vip = new Set(index.vip), eu = new Set(index.eu);
const both = [...vip].filter(id => eu.has(id));
return { allTags, index, both, some: list.some(c => !c.address), every: list.every(c => c.email.includes("@")) };
"#,
        r#"{"allTags":["eu","vip"],"index":{"eu":[1,3],"vip":[1,4]},"both":[1],"some":true,"every":true}"#,
    ),
    (
        "uses a queue for a walk in breadth",
        r#"
const tree = { a: ["b", "c"], b: ["d"], c: ["d", "e"], d: [], e: [] };
const visited = new Set(["a"]);
const queue = ["a"];
const order = [];
while (queue.length) {
  const node = queue.shift();
  order.push(node);
  for (const next of tree[node]) {
    if (!visited.has(next)) { visited.add(next); queue.push(next); }
  }
}
return order.join(" > ");
"#,
        r#""a > b > c > d > e""#,
    ),
    (
        "declares with var and function like an old script",
        r"
var result = [];
var ids = [3, 1, 2];
for (var i = 0; i < ids.length; i++) {
  var order = await shop_get_order({ id: ids[i] });
  result.push(describe(order));
}
function describe(o) {
  return 'Order ' + o.id + ' has ' + o.items.length + ' item' + (o.items.length == 1 ? '' : 's');
}
return result;
",
        r#"["Order 3 has 1 item","Order 1 has 1 item","Order 2 has 1 item"]"#,
    ),
    (
        "notes progress and returns nothing",
        r#"
const { count } = await shop_search_orders({ page_size: 1 });
console.log("orders:", count);
console.table?.([{ count }]);
"#,
        "null",
    ),
    (
        "builds a report with a tagged template",
        r#"
const money = (strings, ...values) => strings.reduce((out, s, i) => out + s + (i < values.length ? (typeof values[i] === "number" ? `$${values[i].toFixed(2)}` : values[i]) : ""), "");
const { orders: [first, second] } = await shop_search_orders({});
return money`First ${first.total}, second ${second.total} by ${second.customer.name}`;
"#,
        r#""First $10.10, second $20.20 by Bob""#,
    ),
    (
        "memoizes calls in a cache of promises",
        r"
const cache = new Map();
const getOrder = (id) => {
  if (!cache.has(id)) cache.set(id, shop_get_order({ id }));
  return cache.get(id);
};
const orders = await Promise.all([1, 2, 1, 2, 3].map(getOrder));
return { sizes: orders.map((o) => o.items[0].qty), calls: cache.size };
",
        r#"{"sizes":[1,2,1,2,3],"calls":3}"#,
    ),
    (
        "uses input that it was given",
        r#"
const { words, n } = input;
const repeated = words.map((w) => w.repeat(n));
return { repeated, total: repeated.join("").length, copy: { ...input, extra: true } };
"#,
        r#"{"repeated":["aaa","bbb"],"total":6,"copy":{"n":3,"words":["a","b"],"extra":true}}"#,
    ),
];
