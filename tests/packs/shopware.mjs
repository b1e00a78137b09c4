// A small shop with Shopware's Admin API: entities in memory, searched, aggregated, written and deleted with what belongs
// to them. Requests must fit the real description, which npm's @shopware/api-client ships; fields of records must be those
// of its schemas. Associations and their flags are those that Shopware's definitions declare.

import { randomBytes } from "node:crypto";
import { description, serve } from "./openapi.mjs";

const file = `${process.env.AGENT_MAGIC_TOOL_TEST_SPECS}/@shopware/api-client/api-types/adminApiSchema.json`;
const api = description(file, { base: "/api" });

const many = (entity, referenceField, cascade = true) => ({
  type: "association", relation: "one_to_many", entity, referenceField, localField: "id",
  flags: cascade ? { cascade_delete: true } : {},
});
const one = (entity, localField) => ({
  type: "association", relation: "many_to_one", entity, localField, referenceField: "id", flags: {},
});
const ASSOCIATIONS = {
  product: {
    children: many("product", "parentId"), media: many("product_media", "productId"), prices: many("product_price", "productId"),
    visibilities: many("product_visibility", "productId"), productReviews: many("product_review", "productId"),
    cover: one("product_media", "coverId"), manufacturer: one("product_manufacturer", "manufacturerId"), tax: one("tax", "taxId"),
  },
  product_media: { media: one("media", "mediaId"), product: one("product", "productId") },
  product_price: {}, product_visibility: {}, product_review: {}, product_manufacturer: {},
  tax: { products: many("product", "taxId", false), rules: many("tax_rule", "taxId") },
  tax_rule: {}, media: { productMedia: many("product_media", "mediaId") }, category: { children: many("category", "parentId") },
  customer: { addresses: many("customer_address", "customerId") }, customer_address: {},
  order: {
    lineItems: many("order_line_item", "orderId"), transactions: many("order_transaction", "orderId"),
    deliveries: many("order_delivery", "orderId"), orderCustomer: many("order_customer", "orderId"),
  },
  order_line_item: {}, order_transaction: {}, order_delivery: {}, order_customer: {},
};
const TRANSITIONS = {
  order: { open: { process: "in_progress", cancel: "cancelled" }, in_progress: { complete: "completed", cancel: "cancelled" }, cancelled: { reopen: "open" } },
  order_transaction: { open: { paid: "paid", remind: "reminded", cancel: "cancelled" }, paid: { refund: "refunded" } },
  order_delivery: { open: { ship: "shipped", cancel: "cancelled" }, shipped: { retour: "returned" } },
};
const PRIVILEGES = { SWIAADMIN: ["*"], SWIALIMITED: ["product:read"] };

const tables = Object.fromEntries(Object.keys(ASSOCIATIONS).map((entity) => [entity, new Map()]));
const settings = new Map();
const tokens = new Map();

const pascal = (entity) => entity.replace(/(?:^|_)(\w)/g, (_, letter) => letter.toUpperCase());
const fieldsOf = (entity) => api.document.components.schemas[pascal(entity)]?.properties ?? {};
const newId = () => randomBytes(16).toString("hex");

class Refusal extends Error {
  constructor(status, code, detail) {
    super(detail);
    Object.assign(this, { status, code, detail });
  }
}

function known(entity) {
  if (!(entity in tables)) {
    throw new Refusal(404, "FRAMEWORK__DEFINITION_NOT_FOUND", `Definition for entity "${entity}" does not exist.`);
  }
}

function allowed(client, privilege) {
  const granted = PRIVILEGES[client];
  if (!granted.includes("*") && !granted.includes(privilege)) {
    const detail = JSON.stringify({ message: "Missing privilege", missingPrivileges: [privilege] });
    throw new Refusal(403, "FRAMEWORK__MISSING_PRIVILEGE_ERROR", detail);
  }
}

function valueAt(entity, record, field) {
  const [first, ...rest] = field.replace(new RegExp(`^${entity}\\.`), "").split(".");
  if (rest.length === 0) return record[first];
  const association = ASSOCIATIONS[entity][first];
  if (!association) return rest.reduce((value, key) => value?.[key], record[first]);
  const other = tables[association.entity].get(record[association.localField]);
  return other && valueAt(association.entity, other, rest.join("."));
}

function fits(entity, record, filter) {
  const value = filter.field && valueAt(entity, record, filter.field);
  const text = String(value ?? "").toLowerCase();
  switch (filter.type) {
    case "equals": return (value ?? null) === filter.value;
    case "equalsAny": return filter.value.split("|").includes(String(value));
    case "contains": return text.includes(String(filter.value).toLowerCase());
    case "prefix": return text.startsWith(String(filter.value).toLowerCase());
    case "suffix": return text.endsWith(String(filter.value).toLowerCase());
    case "range": {
      const { gt, gte, lt, lte } = filter.parameters;
      return (gt === undefined || value > gt) && (gte === undefined || value >= gte) && (lt === undefined || value < lt) && (lte === undefined || value <= lte);
    }
    case "multi": case "not": {
      const each = filter.queries.map((query) => fits(entity, record, query));
      const all = /or/i.test(filter.operator) ? each.some(Boolean) : each.every(Boolean);
      return filter.type === "not" ? !all : all;
    }
    default: throw new Refusal(400, "FRAMEWORK__INVALID_FILTER_QUERY", `The filter type "${filter.type}" is not known.`);
  }
}

function matching(entity, criteria) {
  const filters = [...(criteria.filter ?? []), ...(criteria["post-filter"] ?? [])];
  let found = [...tables[entity].values()].filter((record) => filters.every((filter) => fits(entity, record, filter)));
  if (criteria.term) found = found.filter((record) => JSON.stringify(record).toLowerCase().includes(criteria.term.toLowerCase()));
  if (criteria.ids) found = found.filter((record) => criteria.ids.includes(record.id));
  for (const { field, order } of [...(criteria.sort ?? [])].reverse()) {
    const sign = /desc/i.test(order ?? "") ? -1 : 1;
    found.sort((one, other) => sign * (valueAt(entity, one, field) > valueAt(entity, other, field) ? 1 : -1));
  }
  return found;
}

/** A record as the API shows it: with every field, associations that were not asked for as null. */
function shown(entity, record, criteria) {
  const full = { _uniqueIdentifier: record.id, versionId: "0fa91ce3e96a4bc2be4bd9ce752c3425", translated: { name: record.name ?? null }, ...record, extensions: { search: {} }, apiAlias: entity };
  for (const [name, association] of Object.entries(ASSOCIATIONS[entity])) {
    const asked = criteria.associations?.[name];
    if (asked === undefined) full[name] = null;
    else if (association.relation === "many_to_one") {
      const other = tables[association.entity].get(record[association.localField]);
      full[name] = other ? shown(association.entity, other, asked) : null;
    } else {
      const others = [...tables[association.entity].values()].filter((other) => other[association.referenceField] === record.id);
      full[name] = others.slice(0, asked.limit ?? others.length).map((other) => shown(association.entity, other, asked));
    }
  }
  const included = criteria.includes?.[entity];
  return included ? { ...Object.fromEntries(Object.entries(full).filter(([key]) => included.includes(key))), apiAlias: entity } : full;
}

function search(entity, criteria) {
  const all = matching(entity, criteria);
  if (criteria.ids) return { total: all.length, data: all.map((record) => shown(entity, record, criteria)), aggregations: [] };
  const limit = criteria.limit ?? 100;
  const start = limit * ((criteria.page ?? 1) - 1);
  const page = all.slice(start, start + limit);
  const mode = criteria["total-count-mode"] ?? "none";
  const total = mode === "exact" ? all.length : mode === "next-pages" ? all.slice(start, start + limit * 6 + 1).length : page.length;
  return { total, data: page.map((record) => shown(entity, record, criteria)), aggregations: [] };
}

function aggregated(entity, records, wanted) {
  const values = records.map((record) => valueAt(entity, record, wanted.field ?? "id")).filter((value) => value !== undefined && value !== null);
  const sum = values.reduce((total, value) => total + value, 0);
  const numbers = { sum, avg: sum / values.length, min: values.reduce((a, b) => (a < b ? a : b), values[0]), max: values.reduce((a, b) => (a > b ? a : b), values[0]) };
  switch (wanted.type) {
    case "count": return { count: values.length };
    case "sum": case "avg": case "min": case "max": return { [wanted.type]: numbers[wanted.type] };
    case "stats": return numbers;
    case "terms": {
      const keys = [...new Set(values.map(String))];
      const of = (key) => records.filter((record) => String(valueAt(entity, record, wanted.field)) === key);
      return { buckets: keys.map((key) => ({ key, count: of(key).length, ...(wanted.aggregation ? { [wanted.aggregation.name]: aggregated(entity, of(key), wanted.aggregation) } : {}), extensions: [] })) };
    }
    default: throw new Refusal(400, "FRAMEWORK__INVALID_AGGREGATION_QUERY", `The aggregation type "${wanted.type}" is not known here.`);
  }
}

function upsert(entity, payload, written) {
  known(entity);
  const fields = fieldsOf(entity);
  const id = payload.id ?? newId();
  const record = { ...(tables[entity].get(id) ?? { id, createdAt: "2026-11-01T10:00:00.000+00:00" }) };
  tables[entity].set(id, record);
  (written[entity] ??= []).push(id);
  for (const [name, value] of Object.entries(payload)) {
    const association = ASSOCIATIONS[entity][name];
    if (association?.relation === "one_to_many") {
      for (const item of value) upsert(association.entity, { ...item, [association.referenceField]: id }, written);
    } else if (association) {
      const back = name === "cover" ? { productId: id } : {};
      record[association.localField] = upsert(association.entity, { ...value, ...back }, written);
    } else if (!(name in fields)) {
      throw new Refusal(400, "FRAMEWORK__WRITE_UNEXPECTED_FIELD_ERROR", `Unexpected field: ${name}`);
    } else {
      const type = fields[name].type;
      const fine = value === null || type === undefined || { integer: Number.isInteger(value), number: typeof value === "number", string: typeof value === "string", boolean: typeof value === "boolean", array: Array.isArray(value), object: typeof value === "object" }[type] !== false;
      if (!fine) throw new Refusal(400, "FRAMEWORK__WRITE_TYPE_INTEND_ERROR", `${name}: this value should be of type ${type}`);
      record[name] = value;
    }
  }
  return id;
}

function remove(entity, id, deleted) {
  if (!tables[entity].delete(id)) return false;
  (deleted[entity] ??= []).push(id);
  for (const association of Object.values(ASSOCIATIONS[entity])) {
    if (!association.flags.cascade_delete) continue;
    for (const other of [...tables[association.entity].values()]) {
      if (other[association.referenceField] === id) remove(association.entity, other.id, deleted);
    }
  }
  return true;
}

function sync(client, operations) {
  const [data, notFound, deleted] = [{}, {}, {}];
  for (const { action, entity, payload } of operations) {
    known(entity);
    for (const item of payload) {
      if (action === "upsert") {
        allowed(client, `${entity}:${tables[entity].has(item.id) ? "update" : "create"}`);
        upsert(entity, item, data);
      } else {
        allowed(client, `${entity}:delete`);
        if (!remove(entity, item.id, deleted)) (notFound[entity] ??= []).push(item.id);
      }
    }
  }
  return { extensions: [], data, notFound, deleted };
}

function schema() {
  const entities = Object.entries(ASSOCIATIONS).map(([entity, associations]) => {
    const plain = Object.entries(fieldsOf(entity)).filter(([name, field]) => !(name in associations) && field.type !== "array" && !field.$ref);
    const fields = plain.map(([name, field]) => [name, { type: field.pattern === "^[0-9a-f]{32}$" ? "uuid" : field.type, flags: name === "id" ? { primary_key: true, required: true } : field.readOnly ? { write_protected: [[]] } : {} }]);
    return [entity, { entity, properties: { ...Object.fromEntries(fields), ...associations }, "write-protected": false, "read-protected": false }];
  });
  return Object.fromEntries(entities);
}

function state(entity, id) {
  const record = tables[entity]?.get(id);
  if (!record) throw new Refusal(404, "FRAMEWORK__RESOURCE_NOT_FOUND", `The ${entity} resource with the following primary key was not found: id(${id})`);
  record.customFields ??= {};
  return record.customFields.state ?? "open";
}

function answer(request, client) {
  const [, , group, name] = request.path.split("/");
  const isOfEntity = group === "search" || group === "aggregate";
  if (isOfEntity) known(name.replaceAll("-", "_"));
  const { path, inPath = {} } = request.check();
  const body = request.body ?? {};
  if (isOfEntity) {
    const entity = name.replaceAll("-", "_");
    allowed(client, `${entity}:read`);
    if (group === "search") return [200, search(entity, body)];
    const records = matching(entity, body);
    const found = body.aggregations.map((wanted) => [wanted.name, { ...aggregated(entity, records, wanted), extensions: [], apiAlias: `${wanted.type}_aggregation` }]);
    return [200, { total: 0, data: [], aggregations: Object.fromEntries(found) }];
  }
  switch (`${request.method} ${path}`) {
    case "POST /_action/sync": return [200, sync(client, body)];
    case "GET /_info/config": return [200, { version: "6.7.10.1", settings: { enableUrlFeature: true, enableStagingMode: false }, bundles: { Administration: { type: "plugin" }, SwagPayPal: { type: "plugin" } } }];
    case "GET /_action/system-config": {
      allowed(client, "system_config:read");
      const prefix = `${request.url.searchParams.get("domain")}.`;
      const found = [...settings].filter(([key]) => key.startsWith(prefix));
      return [200, found.length ? Object.fromEntries(found) : []];
    }
    case "POST /_action/system-config":
      allowed(client, "system_config:update");
      for (const [key, value] of Object.entries(body)) value === null ? settings.delete(key) : settings.set(key, value);
      return [204];
    case "GET /_action/state-machine/{entityName}/{entityId}/state": {
      const from = state(inPath.entityName, inPath.entityId);
      const next = Object.entries(TRANSITIONS[inPath.entityName][from] ?? {});
      return [200, { transitions: next.map(([action, to]) => ({ name: to, technicalName: to, actionName: action, fromStateName: from, toStateName: to, url: "" })) }];
    }
    case "POST /_action/order/{orderId}/state/{transition}":
    case "POST /_action/order_transaction/{orderTransactionId}/state/{transition}":
    case "POST /_action/order_delivery/{orderDeliveryId}/state/{transition}": {
      const id = inPath.orderId ?? inPath.orderTransactionId ?? inPath.orderDeliveryId;
      const entity = path.split("/")[2];
      const to = TRANSITIONS[entity][state(entity, id)]?.[inPath.transition];
      if (!to) throw new Refusal(400, "SYSTEM__ILLEGAL_STATE_TRANSITION", `Illegal transition "${inPath.transition}".`);
      tables[entity].get(id).customFields.state = to;
      return [200, { name: to, technicalName: to, apiAlias: "state_machine_state" }];
    }
    case "POST /_action/media/upload_by_url": return upload(body);
    default: throw new Refusal(404, "0", `No route found for "${request.method} ${request.path}"`);
  }
}

async function upload({ url, id = newId(), fileName }) {
  const fetched = await fetch(url);
  if (!fetched.ok) throw new Refusal(400, "CONTENT__MEDIA_ILLEGAL_URL", `failed to read ${url}`);
  const record = { id, fileName: fileName ?? new URL(url).pathname.split("/").pop(), fileSize: (await fetched.arrayBuffer()).byteLength };
  tables.media.set(id, record);
  return [200, { id }];
}

serve(api, async (request) => {
  try {
    if (request.path === "/picture.png") return [200, "a picture"];
    if (request.path === "/api/oauth/token") {
      request.check();
      const { grant_type, client_id, client_secret } = request.body;
      if (grant_type !== "client_credentials" || client_secret !== "a-secret-of-an-integration" || !PRIVILEGES[client_id]) {
        return [401, { errors: [{ code: "4", status: "401", title: "Client authentication failed" }] }];
      }
      const token = newId();
      tokens.set(token, client_id);
      return [200, { token_type: "Bearer", expires_in: 600, access_token: token }];
    }
    if (request.path === "/api/_info/entity-schema.json") return [200, schema()];
    const client = tokens.get((request.headers.authorization ?? "").replace("Bearer ", ""));
    if (!client) return [401, { errors: [{ code: "9", status: "401", title: "The resource owner or authorization server denied the request." }] }];
    return await answer(request, client);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    return [error.status, { errors: [{ status: String(error.status), code: error.code, title: "", detail: error.detail }] }];
  }
});
