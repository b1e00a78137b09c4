// The 25 tasks of scripts.mjs: what is asked, what a model does call by call, its script, and what is right.

export const cents = (number) => Math.round(number * 100) / 100;
export const range = (length) => Array.from({ length }, (_, index) => index);
const sum = (numbers) => cents(numbers.reduce((sum, number) => sum + number, 0));
const unique = (list) => [...new Set(list)];

const RETRY = `const again = async (call) => { for (let n = 1; ; n++) try { return await call(); } catch (e) { if (n > 3 || !/503/.test(e.message)) throw e; await sleep(200); } };`;

/** Each task: what the user asks, the words of the searches, what the model does call by call, its script, and what is right: the
 * answer, and the changes. */
export const TASKS = {
  "an exchange rate": {
    ask: "How many dollars is a euro, in the shop's books?",
    find: ["exchange rate"],
    plan: async (m) => (await m.one("shop_exchange_rate", { currency: "USD" })).rate,
    script: `return (await shop_exchange_rate({currency: "USD"})).rate;`,
    right: ({ rates }) => [rates.USD],
  },
  "status of an order": {
    ask: "What is the status of order 1042?",
    find: ["get order"],
    plan: async (m) => (await m.one("shop_get_order", { id: 1042 })).status,
    script: `return (await shop_get_order({id: 1042})).status;`,
    right: ({ orders }) => [orders[42].status],
  },
  "a customer's mail": {
    ask: "What is the mail address of the customer of order 1018?",
    find: ["get order", "get customer"],
    plan: async (m) => (await m.one("shop_get_customer", { id: (await m.one("shop_get_order", { id: 1018 })).customer_id })).mail,
    script: `const {customer_id} = await shop_get_order({id: 1018});\nreturn (await shop_get_customer({id: customer_id})).mail;`,
    right: ({ orders, customers }) => [customers[orders[18].customer_id - 1].mail],
  },
  "set a stock": {
    ask: "There are 12 of SKU-5 now.",
    find: ["set stock"],
    plan: async (m) => (await m.one("shop_set_stock", { sku: "SKU-5", stock: 12 })).stock,
    script: `return (await shop_set_stock({sku: "SKU-5", stock: 12})).stock;`,
    right: () => [12, ["shop_set_stock", { sku: "SKU-5", stock: 12 }]],
  },
  "refund an order": {
    ask: "Pay all of order 1020 back. It was broken.",
    find: ["get order", "refund order"],
    plan: async (m) => {
      const { total } = await m.one("shop_get_order", { id: 1020 });
      return (await m.one("shop_refund_order", { id: 1020, amount: total, reason: "broken" })).amount;
    },
    script: `const {total} = await shop_get_order({id: 1020});\nawait shop_refund_order({id: 1020, amount: total, reason: "broken"});\nreturn total;`,
    right: ({ orders }) => [orders[20].total, ["shop_refund_order", { id: 1020, amount: orders[20].total, reason: "broken" }]],
  },
  "two things at once": {
    ask: "Which carrier has order 1010, and what is the rate of the Swiss franc (CHF)?",
    find: ["shipment carrier", "exchange rate"],
    plan: async (m) => {
      const [{ carrier }, { rate }] = await m.turn([
        ["shop_get_shipment", { order_id: 1010 }],
        ["shop_exchange_rate", { currency: "CHF" }],
      ]);
      return [carrier, rate];
    },
    script: `const [s, r] = await Promise.all([shop_get_shipment({order_id: 1010}), shop_exchange_rate({currency: "CHF"})]);\nreturn [s.carrier, r.rate];`,
    right: ({ shipments, rates }) => [[shipments.find((s) => s.order_id === 1010).carrier, rates.CHF]],
  },
  "who delivers it": {
    ask: "Who delivers SKU-7 to us, and what is their mail address?",
    find: ["get product", "get supplier"],
    plan: async (m) => {
      const { name, mail } = await m.one("shop_get_supplier", { id: (await m.one("shop_get_product", { sku: "SKU-7" })).supplier_id });
      return [name, mail];
    },
    script: `const {supplier_id} = await shop_get_product({sku: "SKU-7"});\nconst s = await shop_get_supplier({id: supplier_id});\nreturn [s.name, s.mail];`,
    right: ({ suppliers }) => [[suppliers[3].name, suppliers[3].mail]],
  },
  "mail about a ticket": {
    ask: "Mail the customer of ticket 3 with the subject 'Your ticket': 'We are on it.'",
    find: ["get ticket", "get customer", "send mail"],
    plan: async (m) => {
      const { customer_id } = await m.one("shop_get_ticket", { id: 3 });
      const { mail } = await m.one("shop_get_customer", { id: customer_id });
      return (await m.one("shop_send_mail", { to: mail, subject: "Your ticket", body: "We are on it." })).to;
    },
    script: `const {customer_id} = await shop_get_ticket({id: 3});
const {mail} = await shop_get_customer({id: customer_id});
await shop_send_mail({to: mail, subject: "Your ticket", body: "We are on it."});
return mail;`,
    right: () => ["c7@example.com", ["shop_send_mail", { to: "c7@example.com", subject: "Your ticket", body: "We are on it." }]],
  },

  "least of five stocks": {
    ask: "Which of SKU-1, SKU-3, SKU-5, SKU-7 and SKU-9 do we have least of?",
    find: ["get product"],
    plan: async (m) => {
      const found = await m.turn([1, 3, 5, 7, 9].map((n) => ["shop_get_product", { sku: `SKU-${n}` }, "{sku, stock}"]));
      return found.sort((a, b) => a.stock - b.stock)[0].sku;
    },
    script: `const p = await Promise.all([1, 3, 5, 7, 9].map(n => shop_get_product({sku: "SKU-" + n})));\nreturn p.sort((a, b) => a.stock - b.stock)[0].sku;`,
    right: () => ["SKU-3"],
  },
  "sum of six orders": {
    ask: "What is the sum of the orders 1001 to 1006?",
    find: ["get order"],
    plan: async (m) => sum((await m.turn([1, 2, 3, 4, 5, 6].map((n) => ["shop_get_order", { id: 1000 + n }, "{total}"]))).map(({ total }) => total)),
    script: `const o = await Promise.all([1, 2, 3, 4, 5, 6].map(n => shop_get_order({id: 1000 + n})));\nreturn o.reduce((sum, {total}) => sum + total, 0);`,
    right: ({ orders }) => [sum(orders.slice(1, 7).map(({ total }) => total))],
  },
  "unpaid invoices": {
    ask: "How much is unpaid, in all, of the customers 3, 8, 13 and 18?",
    find: ["customer invoices"],
    plan: async (m) => {
      const lists = await m.turn(
        [3, 8, 13, 18].map((n) => ["shop_list_invoices", { customer_id: n }, "[.[] | select(.paid | not) | {amount, paid}]"]),
      );
      return sum(
        lists
          .flat()
          .filter(({ paid }) => !paid)
          .map(({ amount }) => amount),
      );
    },
    script: `const lists = await Promise.all([3, 8, 13, 18].map(n => shop_list_invoices({customer_id: n})));
return lists.flat().filter(i => !i.paid).reduce((sum, i) => sum + i.amount, 0);`,
    right: ({ invoices }) => [sum(invoices.filter((i) => [3, 8, 13, 18].includes(i.customer_id) && !i.paid).map(({ amount }) => amount))],
  },
  "what is in a parcel": {
    ask: "What are the names of the goods of order 1034, and who carries it?",
    find: ["get order", "get product", "shipment carrier"],
    plan: async (m) => {
      const [{ items }, { carrier }] = await m.turn([
        ["shop_get_order", { id: 1034 }, "{items}"],
        ["shop_get_shipment", { order_id: 1034 }, "{carrier}"],
      ]);
      const goods = await m.turn(items.map(({ sku }) => ["shop_get_product", { sku }, "{name}"]));
      return [carrier, ...goods.map(({ name }) => name)];
    },
    script: `const [o, s] = await Promise.all([shop_get_order({id: 1034}), shop_get_shipment({order_id: 1034})]);
const goods = await Promise.all(o.items.map(({sku}) => shop_get_product({sku})));
return [s.carrier, ...goods.map(g => g.name)];`,
    right: ({ orders, shipments }) => [
      [shipments.find((s) => s.order_id === 1034).carrier, ...orders[34].items.map(({ sku }) => sku.replace("SKU-", "Product "))],
    ],
  },
  "close five tickets": {
    ask: "Close the tickets 1, 5, 9, 13 and 17.",
    find: ["close ticket"],
    plan: async (m) => (await m.turn([1, 5, 9, 13, 17].map((id) => ["shop_close_ticket", { id }]))).length,
    script: `const done = await Promise.all([1, 5, 9, 13, 17].map(id => shop_close_ticket({id})));\nreturn done.length;`,
    right: () => [5, ...[1, 5, 9, 13, 17].map((id) => ["shop_close_ticket", { id }])],
  },
  "raise three prices": {
    ask: "Raise the prices of SKU-2, SKU-4 and SKU-6 by 10 %, and tell me the new ones.",
    find: ["get product", "set price"],
    plan: async (m) => {
      const found = await m.turn([2, 4, 6].map((n) => ["shop_get_product", { sku: `SKU-${n}` }, "{sku, price}"]));
      const raised = found.map(({ sku, price }) => ({ sku, price: cents(price * 1.1) }));
      await m.turn(raised.map((input) => ["shop_set_price", input]));
      return raised.map(({ price }) => price);
    },
    script: `return Promise.all(["SKU-2", "SKU-4", "SKU-6"].map(async sku => {
  const {price} = await shop_get_product({sku});
  const next = Math.round(price * 110) / 100;
  await shop_set_price({sku, price: next});
  return next;
}));`,
    right: () => [[7.7, 9.9, 12.1], ...[7.7, 9.9, 12.1].map((price, n) => ["shop_set_price", { sku: `SKU-${2 * n + 2}`, price }])],
  },
  "the slowest parcel": {
    ask: "Which of the orders 1006, 1010, 1014 and 1018 has been with its carrier longest? Write the note 'ask the carrier' on it.",
    find: ["shipment carrier", "order note"],
    plan: async (m) => {
      const found = await m.turn([1006, 1010, 1014, 1018].map((order_id) => ["shop_get_shipment", { order_id }, "{order_id, days}"]));
      const { order_id } = found.sort((a, b) => b.days - a.days)[0];
      await m.one("shop_note_order", { id: order_id, text: "ask the carrier" });
      return order_id;
    },
    script: `const s = await Promise.all([1006, 1010, 1014, 1018].map(order_id => shop_get_shipment({order_id})));
const id = s.sort((a, b) => b.days - a.days)[0].order_id;
await shop_note_order({id, text: "ask the carrier"});
return id;`,
    right: () => [1006, ["shop_note_order", { id: 1006, text: "ask the carrier" }]],
  },
  "open orders of a city": {
    ask: "How many open orders has each customer in Graz, by name?",
    find: ["search customers", "search orders"],
    plan: async (m) => {
      const { customers } = await m.one("shop_search_customers", { city: "Graz" }, "{customers: [.customers[] | {id, name}], pages}");
      const found = await m.turn(
        customers.map(({ id }) => ["shop_search_orders", { status: "open", customer_id: id }, "{orders: [.orders[] | {id}]}"]),
      );
      return Object.fromEntries(customers.map(({ name }, n) => [name, found[n].orders.length]));
    },
    script: `const {customers} = await shop_search_customers({city: "Graz"});
return Object.fromEntries(await Promise.all(customers.map(async c =>
  [c.name, (await shop_search_orders({status: "open", customer_id: c.id, limit: 50})).orders.length])));`,
    right: ({ customers, orders }) => [
      Object.fromEntries(
        customers.filter((c) => c.city === "Graz").map((c) => [c.name, orders.filter((o) => o.customer_id === c.id && o.status === "open").length]),
      ),
    ],
  },

  "revenue of all orders": {
    ask: "What is the sum of all orders of each status?",
    find: ["search orders"],
    plan: (m) =>
      m.pages(
        "orders",
        "shop_search_orders",
        { limit: 50 },
        ".orders | group_by(.status) | map({(.[0].status): (map(.total) | add)}) | add",
        (orders) =>
          Object.fromEntries(
            unique(orders.map(({ status }) => status)).map((status) => [
              status,
              sum(orders.filter((o) => o.status === status).map(({ total }) => total)),
            ]),
          ),
      ),
    script: `const sums = {};
for (let page = 1, pages = 1; page <= pages; page++) {
  const r = await shop_search_orders({page, limit: 50});
  pages = r.pages;
  for (const o of r.orders) sums[o.status] = (sums[o.status] ?? 0) + o.total;
}
return sums;`,
    right: ({ orders }) => [
      Object.fromEntries(
        ["open", "paid", "shipped", "cancelled"].map((status) => [status, sum(orders.filter((o) => o.status === status).map(({ total }) => total))]),
      ),
    ],
  },
  "remind old orders": {
    ask: "Remind the customers of all open orders from before 2026-08-11. How many are these?",
    find: ["search orders", "remind customer"],
    plan: async (m) => {
      const old = await m.pages(
        "orders",
        "shop_search_orders",
        { status: "open", limit: 50 },
        '[.orders[] | select(.created < "2026-08-11") | .id]',
        (orders) => orders.filter(({ created }) => created < "2026-08-11").map(({ id }) => id),
      );
      await m.turn(old.map((id) => ["shop_remind_customer", { id }]));
      return old.length;
    },
    script: `const old = [];
for (let page = 1, pages = 1; page <= pages; page++) {
  const r = await shop_search_orders({status: "open", page, limit: 50});
  pages = r.pages;
  old.push(...r.orders.filter(o => o.created < "2026-08-11"));
}
await Promise.all(old.map(({id}) => shop_remind_customer({id})));
return old.length;`,
    right: ({ orders }) => {
      const old = orders.filter((o) => o.status === "open" && o.created < "2026-08-11");
      return [old.length, ...old.map(({ id }) => ["shop_remind_customer", { id }])];
    },
  },
  "mail addresses of buyers": {
    ask: "List the mail addresses of those whose orders since 2026-09-20 are paid. The shop answers 503 at times: try again then.",
    find: ["search orders", "get customer"],
    plan: async (m) => {
      const ids = await m.pages(
        "orders",
        "shop_search_orders",
        { status: "paid", since: "2026-09-20", limit: 50 },
        "[.orders[].customer_id] | unique",
        (orders) => unique(orders.map((o) => o.customer_id)),
      );
      return (
        await m.steady(
          ids.map((id) => ["shop_get_customer", { id }, ".mail"]),
          ({ mail }) => mail,
        )
      ).sort();
    },
    script: `${RETRY}
const ids = new Set();
for (let page = 1, pages = 1; page <= pages; page++) {
  const r = await shop_search_orders({status: "paid", since: "2026-09-20", page, limit: 50});
  pages = r.pages;
  for (const o of r.orders) ids.add(o.customer_id);
}
return Promise.all([...ids].map(async id => (await again(() => shop_get_customer({id}))).mail));`,
    right: ({ orders, customers }) => [
      unique(orders.filter((o) => o.status === "paid" && o.created >= "2026-09-20").map((o) => customers[o.customer_id - 1].mail)).sort(),
    ],
    anyOrder: true,
  },
  "who waits for an answer": {
    ask: "In which of the tickets 1 to 30 was the last message the customer's?",
    find: ["get ticket"],
    plan: async (m) => {
      const found = await m.turn(range(30).map((n) => ["shop_get_ticket", { id: n + 1 }, "{id, messages: [.messages[-1] | {from}]}"]));
      return found.filter(({ messages }) => messages.at(-1).from === "customer").map(({ id }) => id);
    },
    script: `const t = await Promise.all(Array.from({length: 30}, (_, n) => shop_get_ticket({id: n + 1})));
return t.filter(t => t.messages.at(-1)?.from === "customer").map(t => t.id);`,
    right: ({ tickets }) => [
      tickets
        .slice(0, 30)
        .filter(({ messages }) => messages.at(-1).from === "customer")
        .map(({ id }) => id),
    ],
  },
  "order what runs out": {
    ask: "Order 20 of each product of which we have fewer than 7 from its supplier. Which are these?",
    find: ["list products", "order supply"],
    plan: async (m) => {
      const low = (await m.one("shop_list_products", {}, "[.[] | select(.stock < 7) | {sku, stock, supplier_id}]")).filter(({ stock }) => stock < 7);
      await m.turn(low.map(({ sku, supplier_id }) => ["shop_order_supply", { supplier_id, sku, qty: 20 }]));
      return low.map(({ sku }) => sku);
    },
    script: `const low = (await shop_list_products()).filter(p => p.stock < 7);
await Promise.all(low.map(({sku, supplier_id}) => shop_order_supply({supplier_id, sku, qty: 20})));
return low.map(p => p.sku);`,
    right: ({ products }) => {
      const low = products.filter(({ stock }) => stock < 7);
      return [low.map(({ sku }) => sku), ...low.map(({ sku, supplier_id }) => ["shop_order_supply", { supplier_id, sku, qty: 20 }])];
    },
  },
  "tickets of the important": {
    ask: "Answer the open tickets of all VIP customers with 'We call you today.', then close them. Which are these?",
    find: ["search tickets", "search customers", "answer ticket", "close ticket"],
    plan: async (m) => {
      const vips = (await m.one("shop_search_customers", { vip: true }, "{customers: [.customers[] | {id}], pages}")).customers.map(({ id }) => id);
      const open = await m.pages("tickets", "shop_search_tickets", { state: "open" }, "[.tickets[] | {id, customer_id}]", (tickets) => tickets);
      const theirs = open.filter(({ customer_id }) => vips.includes(customer_id)).map(({ id }) => id);
      await m.turn(theirs.map((id) => ["shop_answer_ticket", { id, text: "We call you today." }]));
      await m.turn(theirs.map((id) => ["shop_close_ticket", { id }]));
      return theirs;
    },
    script: `const pagesOf = async (call, key) => {
  const all = [];
  for (let page = 1, pages = 1; page <= pages; page++) { const r = await call(page); pages = r.pages; all.push(...r[key]); }
  return all;
};
const vips = (await pagesOf(page => shop_search_customers({vip: true, page}), "customers")).map(c => c.id);
const open = await pagesOf(page => shop_search_tickets({state: "open", page}), "tickets");
const theirs = open.filter(t => vips.includes(t.customer_id)).map(t => t.id);
for (const id of theirs) { await shop_answer_ticket({id, text: "We call you today."}); await shop_close_ticket({id}); }
return theirs;`,
    right: ({ tickets, customers }) => {
      const ids = tickets.filter((t) => t.state === "open" && customers[t.customer_id - 1].vip).map(({ id }) => id);
      return [
        ids,
        ...ids.flatMap((id) => [
          ["shop_answer_ticket", { id, text: "We call you today." }],
          ["shop_close_ticket", { id }],
        ]),
      ];
    },
  },
  "late parcels": {
    ask: "Which shipped orders since 2026-09-10 are still on the way, after more than 5 days with the carrier?",
    find: ["search orders", "shipment carrier"],
    plan: async (m) => {
      const ids = await m.pages("orders", "shop_search_orders", { status: "shipped", since: "2026-09-10", limit: 50 }, "[.orders[].id]", (orders) =>
        orders.map(({ id }) => id),
      );
      const found = await m.turn(ids.map((order_id) => ["shop_get_shipment", { order_id }, "{order_id, state, days}"]));
      return found.filter(({ state, days }) => state === "on the way" && days > 5).map(({ order_id }) => order_id);
    },
    script: `const ids = [];
for (let page = 1, pages = 1; page <= pages; page++) {
  const r = await shop_search_orders({status: "shipped", since: "2026-09-10", page, limit: 50});
  pages = r.pages;
  ids.push(...r.orders.map(o => o.id));
}
const s = await Promise.all(ids.map(order_id => shop_get_shipment({order_id})));
return s.filter(s => s.state !== "delivered" && s.days > 5).map(s => s.order_id);`,
    right: ({ orders, shipments }) => {
      const ids = orders.filter((o) => o.status === "shipped" && o.created >= "2026-09-10").map(({ id }) => id);
      return [shipments.filter((s) => ids.includes(s.order_id) && s.state === "on the way" && s.days > 5).map((s) => s.order_id)];
    },
  },
  "balances of the important": {
    ask: "Mail each VIP customer who has not paid everything, with the subject 'Your balance': 'You owe us N euros.' What is the sum?",
    find: ["search customers", "customer invoices", "send mail"],
    plan: async (m) => {
      const { customers } = await m.one("shop_search_customers", { vip: true }, "{customers: [.customers[] | {id, mail}], pages}");
      const lists = await m.turn(
        customers.map(({ id }) => ["shop_list_invoices", { customer_id: id }, "[.[] | select(.paid | not) | {amount, paid}]"]),
      );
      const owed = customers
        .map(({ mail }, n) => [mail, sum(lists[n].filter(({ paid }) => !paid).map(({ amount }) => amount))])
        .filter(([, owed]) => owed);
      await m.turn(owed.map(([to, owed]) => ["shop_send_mail", { to, subject: "Your balance", body: `You owe us ${owed} euros.` }]));
      return sum(owed.map(([, owed]) => owed));
    },
    script: `const {customers} = await shop_search_customers({vip: true});
let sum = 0;
await Promise.all(customers.map(async c => {
  const owed = (await shop_list_invoices({customer_id: c.id})).filter(i => !i.paid).reduce((n, i) => n + i.amount, 0);
  if (!owed) return;
  sum += owed;
  await shop_send_mail({to: c.mail, subject: "Your balance", body: \`You owe us \${owed} euros.\`});
}));
return sum;`,
    right: ({ customers, invoices }) => {
      const owed = customers
        .filter(({ vip }) => vip)
        .map((c) => [c.mail, sum(invoices.filter((i) => i.customer_id === c.id && !i.paid).map(({ amount }) => amount))]);
      return [
        sum(owed.map(([, owed]) => owed)),
        ...owed
          .filter(([, owed]) => owed)
          .map(([to, owed]) => ["shop_send_mail", { to, subject: "Your balance", body: `You owe us ${owed} euros.` }]),
      ];
    },
  },
  "raise all prices": {
    ask: "Raise all prices by 5 %. What is the sum of the new ones?",
    find: ["list products", "set price"],
    plan: async (m) => {
      const raised = (await m.one("shop_list_products", {}, "[.[] | {sku, price}]")).map(({ sku, price }) => ({ sku, price: cents(price * 1.05) }));
      await m.turn(raised.map((input) => ["shop_set_price", input]));
      return sum(raised.map(({ price }) => price));
    },
    script: `const set = (await shop_list_products()).map(({sku, price}) => ({sku, price: Math.round(price * 105) / 100}));
await Promise.all(set.map(p => shop_set_price(p)));
return set.reduce((sum, {price}) => sum + price, 0);`,
    right: ({ products }) => {
      const raised = products.map(({ sku, price }) => ({ sku, price: cents(price * 1.05) }));
      return [sum(raised.map(({ price }) => price)), ...raised.map((input) => ["shop_set_price", input])];
    },
  },
};
