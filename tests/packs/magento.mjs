// A small shop with Magento's REST Admin API: orders, products, customers and pages in memory. Requests must fit the real
// description of Magento 2.4.7, which npm's @graphcommerce/magento-graphql-rest ships. It declares only the first filter of
// a search, so further ones are checked as if they were the first.

import { description, serve } from "./openapi.mjs";

const file = `${process.env.AGENT_MAGIC_TOOL_TEST_SPECS}/@graphcommerce/magento-graphql-rest/scripts/m2rest-admin.json`;
const api = description(file, { base: "/rest/all" });

const TOKENS = { "all-of-magento": ["orders", "order", "products", "customers", "categories", "salesRules", "coupons", "cmsPage", "cmsBlock", "inventory"], "only-products": ["products", "inventory"] };

const orders = [1, 2, 3].map((id) => ({
  entity_id: id, increment_id: `00000000${id}`, status: id === 3 ? "complete" : "pending", state: id === 3 ? "complete" : "new",
  created_at: `2026-11-0${id} 10:00:00`, customer_email: `c${id}@example.com`, customer_firstname: "Ann", customer_lastname: "Lee",
  order_currency_code: "EUR", grand_total: 10 * id, subtotal: 9 * id, payment: { method: "checkmo" }, shipping_description: "Flat Rate",
  billing_address: { firstname: "Ann", lastname: "Lee", street: ["Road 1"], postcode: "10115", city: "Berlin", country_id: "DE" },
  items: [{ item_id: 10 + id, sku: "24-MB01", name: "Bag", qty_ordered: 2, price: 5, row_total: 10 }, { item_id: 20 + id, parent_item_id: 10 + id, sku: "24-MB01-B", name: "Bag, blue" }],
  status_histories: [],
}));
const products = [
  { id: 1, sku: "24-MB01", name: "Joust Bag", price: 34, status: 1, type_id: "simple", visibility: 4, custom_attributes: [{ attribute_code: "color", value: "7" }], extension_attributes: { category_links: [{ position: 0, category_id: "3" }] } },
  { id: 2, sku: "MH_1", name: "100% Wool Shirt", price: 52, status: 2, type_id: "simple", visibility: 4 },
  { id: 3, sku: "a/b 3", name: "Shirt", price: 20, status: 1, type_id: "simple", visibility: 4 },
];
const sources = [{ sku: "24-MB01", source_code: "default", quantity: 7, status: 1 }];
const customers = [1, 2, 3].map((id) => ({ id, email: `c${id}@example.com`, firstname: "Ann", lastname: `Lee${id}`, group_id: 1, created_at: `2026-1${id - 1}-01 00:00:00`, addresses: [] }));
const rules = [{ rule_id: 3, name: "Summer", is_active: true, simple_action: "by_percent", discount_amount: 10, coupon_type: "SPECIFIC_COUPON" }, { rule_id: 4, name: "Old", is_active: false }];
const coupons = [];
const pages = [{ id: 2, identifier: "home", title: "Home", content_heading: "Hi", content: "<p>Old text</p>", active: true }];
const blocks = [{ id: 1, identifier: "footer_links_block", title: "Footer", content: "<a>Imprint</a>", active: true }];

class Refusal extends Error {
  constructor(status, message, parameters) {
    super(message);
    Object.assign(this, { status, body: { message, parameters } });
  }
}

const missing = () => new Refusal(404, "The entity that was requested doesn't exist. Verify the entity and try again.");
const one = (list, key, value) => list.find((item) => String(item[key]) === String(value)) ?? (() => { throw missing(); })();

/** What MySQL's LIKE finds. */
function isLike(value, pattern) {
  const parts = [...pattern.matchAll(/\\(.)|(%)|(_)|(.)/gs)].map(([, escaped, any, single, plain]) => (any ? ".*" : single ? "." : (escaped ?? plain).replace(/[.*+?^${}()|[\]\\]/g, "\\$&")));
  return new RegExp(`^${parts.join("")}$`, "is").test(String(value));
}

const CONDITIONS = {
  eq: (value, wanted) => String(Number(value === true) || value) === wanted || String(value) === wanted || (value === false && wanted === "0"),
  like: isLike,
  gteq: (value, wanted) => (typeof value === "number" ? value >= Number(wanted) : value >= wanted),
  lteq: (value, wanted) => (typeof value === "number" ? value <= Number(wanted) : value <= wanted),
};

function search(list, url) {
  const parameters = [...url.searchParams];
  const groups = {};
  for (const [name, value] of parameters) {
    const found = /^searchCriteria\[filterGroups\]\[(\d+)\]\[filters\]\[(\d+)\]\[(\w+)\]$/.exec(name);
    if (found) ((groups[found[1]] ??= {})[found[2]] ??= {})[found[3]] = value;
  }
  const fits = (item) => Object.values(groups).every((filters) => Object.values(filters).some(({ field, value, conditionType }) => {
    if (field === undefined || value === undefined) throw new Refusal(400, "a filter needs a field and a value");
    if (field === "category_id") return (item.extension_attributes?.category_links ?? []).some((link) => link.category_id === value);
    return CONDITIONS[conditionType ?? "eq"](item[field], value);
  }));
  const found = list.filter(fits);
  const size = Number(url.searchParams.get("searchCriteria[pageSize]"));
  const page = Number(url.searchParams.get("searchCriteria[currentPage]"));
  if (url.searchParams.get("searchCriteria[sortOrders][0][direction]") === "DESC") found.reverse();
  return [200, { items: found.slice(size * (page - 1), size * page), search_criteria: {}, total_count: found.length }];
}

/** Checks the address with every index as 0, which is all that the description declares. */
function checked(request) {
  const asked = new URL(request.url);
  asked.search = "";
  for (const [name, value] of request.url.searchParams) {
    const first = name.replace(/\[\d+\]/g, "[0]");
    if (!asked.searchParams.has(first)) asked.searchParams.set(first, value);
  }
  return request.check(asked);
}

let created = 100;

function answer(request) {
  const granted = TOKENS[(request.headers.authorization ?? "").replace("Bearer ", "")];
  if (!granted) throw new Refusal(401, "The consumer isn't authorized to access %resources.", { resources: "self" });
  const { path, inPath = {} } = checked(request);
  const area = request.path.split("/")[4];
  if (!granted.includes(area)) throw new Refusal(401, "The consumer isn't authorized to access %resources.", { resources: `Magento_${area}` });
  const { url, body } = request;
  const order = () => one(orders, "entity_id", inPath.id ?? inPath.orderId);
  switch (`${request.method} ${path}`) {
    case "GET /V1/orders": return search(orders, url);
    case "GET /V1/orders/{id}": return [200, order()];
    case "POST /V1/orders/{id}/comments": order().status_histories.push({ created_at: "2026-11-09 10:00:00", status: order().status, ...body.statusHistory }); return [200, true];
    case "POST /V1/orders/{id}/cancel": Object.assign(order(), { status: "canceled", state: "canceled" }); return [200, true];
    case "POST /V1/order/{orderId}/invoice": Object.assign(order(), { status: "processing", total_paid: order().grand_total }); return [200, String(++created)];
    case "POST /V1/order/{orderId}/ship": Object.assign(order(), { tracks: body.tracks ?? [] }); return [200, String(++created)];
    case "POST /V1/order/{orderId}/refund": Object.assign(order(), { total_refunded: order().grand_total }); return [200, String(++created)];
    case "GET /V1/products": return search(products, url);
    case "GET /V1/products/{sku}": return [200, one(products, "sku", inPath.sku)];
    case "POST /V1/products/base-prices": {
      const unknown = body.prices.filter(({ sku }) => !products.some((product) => product.sku === sku));
      for (const { sku, price } of body.prices) Object.assign(products.find((product) => product.sku === sku) ?? {}, { price });
      return [200, unknown.map(({ sku }) => ({ message: "The product that was requested doesn't exist. Verify the product and try again. %SKU", parameters: [sku] }))];
    }
    case "GET /V1/inventory/source-items": return search(sources, url);
    case "POST /V1/inventory/source-items": for (const item of body.sourceItems) Object.assign(one(sources, "sku", item.sku), item); return [200, []];
    case "GET /V1/customers/search": return search(customers, url);
    case "GET /V1/customers/{customerId}": return [200, one(customers, "id", inPath.customerId)];
    case "GET /V1/categories": return [200, { id: 1, name: "Root", is_active: true, product_count: 0, children_data: [{ id: 3, parent_id: 1, name: "Gear", is_active: true, product_count: 2, position: 1, level: 1, children_data: [] }] }];
    case "GET /V1/salesRules/search": return search(rules, url);
    case "POST /V1/coupons": coupons.push(body.coupon); return [200, { coupon_id: coupons.length, ...body.coupon }];
    case "GET /V1/cmsPage/search": return search(pages, url);
    case "GET /V1/cmsPage/{pageId}": return [200, one(pages, "id", inPath.pageId)];
    case "PUT /V1/cmsPage/{id}": return [200, Object.assign(one(pages, "id", inPath.id), body.page)];
    case "GET /V1/cmsBlock/search": return search(blocks, url);
    default: throw new Refusal(404, "Request does not match any route.");
  }
}

serve(api, (request) => {
  try {
    return answer(request);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    return [error.status, error.body];
  }
});
