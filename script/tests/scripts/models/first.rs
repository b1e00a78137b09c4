//! Scripts of models: orders, mails, retries and texts.

use super::Sample;

pub(super) const SCRIPTS: &[Sample] = &[
    (
        "sums the totals by customer over all pages",
        r"
// Step 1: page through all orders
const totals = {};
let page = 1;
while (true) {
  const res = await shop_search_orders({ page, page_size: 3 });
  for (const order of res.orders) {
    const name = order.customer.name;
    totals[name] = (totals[name] || 0) + order.total;
  }
  if (!res.next_page) break;
  page = res.next_page;
}
// Step 2: sort descending
return Object.entries(totals)
  .sort((a, b) => b[1] - a[1])
  .map(([customer, total]) => ({ customer, total: Number(total.toFixed(2)) }));
",
        r#"[{"customer":"Dee","total":1234.5},{"customer":"Bob","total":120.19},{"customer":"Ann","total":40.5},{"customer":"Cy","total":5}]"#,
    ),
    (
        "pages with do and while and a reduce",
        r"
let cursor = 1, orders = [];
do {
  const { orders: batch, next_page } = await shop_search_orders({ page: cursor });
  orders = orders.concat(batch);
  cursor = next_page;
} while (cursor);
const byStatus = orders.reduce((acc, o) => {
  (acc[o.status] ??= []).push(o.id);
  return acc;
}, {});
console.log(`Fetched ${orders.length} orders`);
return { count: orders.length, byStatus };
",
        r#"{"count":7,"byStatus":{"paid":[1,3,4,6,7],"open":[2,5]}}"#,
    ),
    (
        "reads twenty mails at once and drafts replies",
        r"
const { messages } = await mail_list({ limit: 20 });
const full = await Promise.all(messages.map(m => mail_read({ id: m.id })));
const invoices = full.filter(m => /^Invoice #\d+/.test(m.subject));
const drafts = await Promise.all(invoices.map(async (m) => {
  const [, name, email] = m.from.match(/^(.*?)\s*<(.+)>$/) ?? [];
  const draft = await mail_draft({
    to: email,
    subject: `Re: ${m.subject}`,
    body: `Hi ${name?.split(' ')[0] ?? 'there'},\n\nThanks, we received it.\n`,
  });
  return { email, draft: draft.id };
}));
return drafts;
",
        r#"[{"email":"p1@example.com","draft":"d1"},{"email":"p2@example.com","draft":"d2"},{"email":"p3@example.com","draft":"d3"},{"email":"p0@example.com","draft":"d4"}]"#,
    ),
    (
        "extracts amounts and dates by regular expressions",
        r"
const list = await mail_list({});
const results = [];
for (const { id } of list.messages.slice(0, 5)) {
  const mail = await mail_read({ id });
  const amount = parseFloat(mail.body.match(/\$(\d+(?:\.\d{2})?)/)[1]);
  const { groups: { y, m, d } } = /due (?<y>\d{4})-(?<m>\d{2})-(?<d>\d{2})/.exec(mail.body);
  const phone = mail.body.match(/\+\d[\d ]+/)?.[0].trim();
  results.push({ id, amount, due: new Date(Date.UTC(+y, +m - 1, +d)).toISOString().slice(0, 10), phone });
}
return results;
",
        r#"[{"id":"m1","amount":10.5,"due":"2026-03-01","phone":"+1 555 0101"},{"id":"m2","amount":20.5,"due":"2026-03-02","phone":"+1 555 0102"},{"id":"m3","amount":30.5,"due":"2026-03-03","phone":"+1 555 0103"},{"id":"m4","amount":40.5,"due":"2026-03-04","phone":"+1 555 0104"},{"id":"m5","amount":50.5,"due":"2026-03-05","phone":"+1 555 0105"}]"#,
    ),
    (
        "retries by code with a growing pause",
        r"
async function withRetry(fn, { retries = 5, baseDelay = 100 } = {}) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await fn();
    } catch (err) {
      if (err.code !== 'rate_limited' || attempt >= retries) throw err;
      const delay = err.details?.retry_after_ms ?? baseDelay * 2 ** attempt;
      console.warn(`attempt ${attempt} failed (${err.message}), waiting ${delay}ms`);
      await sleep(delay);
    }
  }
}
const result = await withRetry(() => flaky({ x: 1 }));
return result.value;
",
        "42",
    ),
    (
        "retries with a promise around a timer",
        r"
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
let lastError = null;
for (let i = 0; i < 5; i++) {
  try {
    const r = await flaky({});
    return { ok: true, value: r.value, attempts: i + 1, lastError: lastError && lastError.code };
  } catch (e) {
    lastError = e;
    await wait(50 * (i + 1));
  }
}
return { ok: false };
",
        r#"{"ok":true,"value":42,"attempts":3,"lastError":"rate_limited"}"#,
    ),
    (
        "asks the user and goes on by the answer",
        r#"
const found = await shop_search_orders({ page: 1 });
const open = found.orders.filter((o) => o.status === "open");
const reply = await ask_user({ question: `Send a reminder for ${open.length} open orders?`, choices: ["yes", "no"] });
if (reply.answer.toLowerCase().startsWith("y")) {
  for (const o of open) {
    await mail_send({ to: `${o.customer.id}@example.com`, subject: "Reminder", body: `Order ${o.id}` });
  }
  return `sent ${open.length}`;
}
return "nothing sent";
"#,
        r#""sent 1""#,
    ),
    (
        "stops if the user says no",
        r#"
const { answer } = await ask_user({ question: "Delete everything?" });
if (answer !== "yes") return { status: "cancelled" };
await files_delete({ path: "/" });
"#,
        r#"{"status":"cancelled"}"#,
    ),
    (
        "builds a csv text with quotes",
        r#"
const { orders } = await shop_search_orders({ page: 1, page_size: 10 });
const esc = (v) => {
  const s = String(v ?? "");
  return /[",\n]/.test(s) ? `"${s.replace(/"/g, '""')}"` : s;
};
const header = ["id", "customer", "total", "note"];
const rows = orders.slice(0, 3).map((o) => [o.id, o.customer.name, o.total.toFixed(2), `status "${o.status}", paid`]);
return [header, ...rows].map((r) => r.map(esc).join(",")).join("\n");
"#,
        r#""id,customer,total,note\n1,Ann,10.10,\"status \"\"paid\"\", paid\"\n2,Bob,20.20,\"status \"\"open\"\", paid\"\n3,Ann,30.30,\"status \"\"paid\"\", paid\"""#,
    ),
    (
        "builds a markdown table",
        r#"
const customersList = await customers({});
const lines = ["| Name | City | Tags |", "|---|---|---|"];
for (const c of customersList) {
  lines.push(`| ${c.name.padEnd(6)} | ${c.address?.city ?? "-"} | ${c.tags.join(", ") || "none"} |`);
}
return lines.join("\n");
"#,
        r#""| Name | City | Tags |\n|---|---|---|\n| Zoë    | Paris | vip, eu |\n| adam   | - | none |\n| Émile  | - | eu |\n| Bob    | - | vip |""#,
    ),
    (
        "removes duplicates with a map",
        r"
const list = await customers({});
const seen = new Map();
for (const c of list) {
  const key = c.email.trim().toLowerCase();
  if (!seen.has(key)) seen.set(key, c);
}
const duplicates = list.length - seen.size;
return { unique: [...seen.values()].map(c => c.id), duplicates };
",
        r#"{"unique":[1,2,4],"duplicates":1}"#,
    ),
    (
        "groups with Object.groupBy",
        r#"
const list = await customers({});
const groups = Object.groupBy(list, ({ tags }) => (tags.includes("vip") ? "vip" : "regular"));
return Object.fromEntries(Object.entries(groups).map(([k, v]) => [k, v.map((c) => c.name)]));
"#,
        r#"{"vip":["Zoë","Bob"],"regular":["adam","Émile"]}"#,
    ),
    (
        "groups by month with a map and sorts the keys",
        r"
const res = await shop_search_orders({ page: 1, page_size: 100 });
const months = new Map();
res.orders.forEach((o) => {
  const key = o.created_at.slice(0, 7);
  months.set(key, [...(months.get(key) ?? []), o.total]);
});
return [...months.entries()]
  .sort(([a], [b]) => a.localeCompare(b))
  .map(([month, totals]) => ({ month, sum: Math.round(totals.reduce((a, b) => a + b, 0) * 100) / 100 }));
",
        r#"[{"month":"2026-01","sum":1249.6},{"month":"2026-02","sum":120.19},{"month":"2026-03","sum":30.4}]"#,
    ),
    (
        "calculates with dates",
        r"
const today = new Date();
const in30Days = new Date(today);
in30Days.setDate(today.getDate() + 30);
const startOfMonth = new Date(today.getFullYear(), today.getMonth(), 1);
const diffDays = Math.round((in30Days - startOfMonth) / (1000 * 60 * 60 * 24));
const fmt = (d) => `${d.getFullYear()}-${String(d.getMonth() + 1).padStart(2, '0')}-${String(d.getDate()).padStart(2, '0')}`;
return { today: fmt(today), later: fmt(in30Days), first: fmt(startOfMonth), diffDays, weekday: today.toLocaleDateString('en-US', { weekday: 'long' }), long: in30Days.toDateString() };
",
        r#"{"today":"2026-03-05","later":"2026-04-04","first":"2026-03-01","diffDays":34,"weekday":"Thursday","long":"Sat Apr 04 2026"}"#,
    ),
    (
        "filters by a date of last month",
        r"
const res = await shop_search_orders({ page_size: 50 });
const now = Date.now();
const cutoff = now - 30 * 24 * 3600 * 1000;
const recent = res.orders.filter(o => Date.parse(o.created_at) >= cutoff);
const newest = recent.sort((a, b) => new Date(b.created_at) - new Date(a.created_at))[0];
return { cutoff: new Date(cutoff).toISOString(), recent: recent.map(o => o.id).sort((a, b) => a - b), newest: newest?.id ?? null };
",
        r#"{"cutoff":"2026-02-03T06:07:09.009Z","recent":[2,3,5,6],"newest":6}"#,
    ),
    (
        "formats money with Intl",
        r"
const { orders } = await shop_search_orders({ page_size: 10 });
const usd = new Intl.NumberFormat('en-US', { style: 'currency', currency: 'USD' });
const total = orders.reduce((sum, { total }) => sum + total, 0);
return {
  total: usd.format(total),
  plain: total.toLocaleString(),
  average: (total / orders.length).toLocaleString('en-US', { maximumFractionDigits: 1 }),
  share: new Intl.NumberFormat('en-US', { style: 'percent', minimumFractionDigits: 1 }).format(orders[6].total / total),
  compact: Intl.NumberFormat('en', { notation: 'compact' }).format(1234567),
};
",
        r#"{"total":"$1,400.19","plain":"1,400.19","average":"200","share":"88.2%","compact":"1.2M"}"#,
    ),
    (
        "sorts names with localeCompare",
        r#"
const list = await customers({});
return {
  byName: list.map(c => c.name).sort((a, b) => a.localeCompare(b)),
  files: ["file10", "file2", "File1"].sort((a, b) => a.localeCompare(b, undefined, { numeric: true, sensitivity: 'base' })),
  collator: ["z", "a", "Z", "ä"].sort(new Intl.Collator('en').compare),
};
"#,
        r#"{"byName":["adam","Bob","Émile","Zoë"],"files":["File1","file2","file10"],"collator":["a","ä","z","Z"]}"#,
    ),
    (
        "works in chunks",
        r"
const ids = Array.from({ length: 7 }, (_, i) => i + 1);
const chunk = (arr, size) => arr.length ? [arr.slice(0, size), ...chunk(arr.slice(size), size)] : [];
const out = [];
for (const group of chunk(ids, 3)) {
  const part = await Promise.all(group.map((id) => shop_get_order({ id })));
  out.push(...part.map((o) => o.items[0].sku));
  await sleep(10);
}
return out;
",
        r#"["sku-1","sku-2","sku-3","sku-4","sku-5","sku-6","sku-7"]"#,
    ),
    (
        "limits how many run at once",
        r"
async function mapLimit(items, limit, fn) {
  const results = new Array(items.length);
  let next = 0;
  const worker = async () => {
    while (next < items.length) {
      const i = next++;
      results[i] = await fn(items[i], i);
    }
  };
  await Promise.all(Array.from({ length: Math.min(limit, items.length) }, worker));
  return results;
}
const orders = await mapLimit([1, 2, 3, 4, 5], 2, (id) => shop_get_order({ id }));
return orders.map(o => o.shipped);
",
        "[false,true,false,true,false]",
    ),
    (
        "settles all and counts what failed",
        r#"
const results = await Promise.allSettled([1, 99, 3, 100].map(id => shop_get_order({ id })));
const ok = results.filter(r => r.status === "fulfilled").map(r => r.value.id);
const failed = results.filter(r => r.status === "rejected").map(r => ({ code: r.reason.code, message: r.reason.message }));
return { ok, failed };
"#,
        r#"{"ok":[1,3],"failed":[{"code":"not_found","message":"no order 99"},{"code":"not_found","message":"no order 100"}]}"#,
    ),
    (
        "tells errors apart by their classes",
        r#"
const log = [];
for (const [name, fn] of [["delete", () => files_delete({ path: "a" })], ["pay", () => pay({ amount: 5 })], ["get", () => shop_get_order({ id: 99 })]]) {
  try {
    await fn();
  } catch (error) {
    if (error instanceof Denied) log.push(`${name}: denied`);
    else if (error instanceof OutcomeUnknown) log.push(`${name}: unknown, ${error.code}`);
    else if (error instanceof SubtoolError) log.push(`${name}: ${error.name} ${error.code}`);
    else throw error;
  }
}
return log;
"#,
        r#"["delete: denied","pay: unknown, timeout","get: SubtoolError not_found"]"#,
    ),
    (
        "runs a main function",
        r"
async function main() {
  const res = await shop_search_orders({ status: 'paid' });
  const paid = res.orders.filter(order => order.status === 'paid');
  return paid.map(order => order.id);
}

return await main();
",
        "[1,3]",
    ),
    (
        "runs an async function expression at once",
        r"
return (async () => {
  const data = await raw_json({});
  const parsed = JSON.parse(data);
  return parsed.items.map(({ n }) => n * 10);
})();
",
        "[10,20]",
    ),
    (
        "goes through pages with an async generator",
        r"
async function* allOrders(filter = {}) {
  let page = 1;
  for (;;) {
    const { orders, next_page: next } = await shop_search_orders({ ...filter, page });
    yield* orders;
    if (next == null) return;
    page = next;
  }
}
let count = 0;
const big = [];
for await (const order of allOrders({ page_size: 2 })) {
  count++;
  if (order.total > 50) big.push(order.id);
}
return { count, big };
",
        r#"{"count":7,"big":[5,7]}"#,
    ),
    (
        "waits in a for await over promises",
        r"
const calls = [1, 2, 3].map(id => shop_get_order({ id }));
const quantities = [];
for await (const { items: [{ qty, price }] } of calls) {
  quantities.push(qty * price);
}
return quantities;
",
        "[2.5,5,7.5]",
    ),
    (
        "keeps state in a class with private fields",
        r"
class Ledger {
  #entries = [];
  static currency = 'USD';
  add(name, amount) {
    this.#entries.push({ name, amount });
    return this;
  }
  get total() {
    return this.#entries.reduce((t, e) => t + e.amount, 0);
  }
  toJSON() {
    return { currency: Ledger.currency, total: Math.round(this.total * 100) / 100, entries: this.#entries.length };
  }
}
const ledger = new Ledger();
const { orders } = await shop_search_orders({ page: 1 });
for (const o of orders) ledger.add(o.customer.name, o.total);
return ledger;
",
        r#"{"currency":"USD","total":60.6,"entries":3}"#,
    ),
];
