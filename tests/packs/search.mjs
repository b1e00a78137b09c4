// Three search engines on one port, each with the requests and answers that its documentation shows: SearXNG's search API,
// Brave's web and news search, and Tavily's search and extract. What a documentation does not have is a problem.

import { serve } from "./openapi.mjs";

const PAGES = [
  { title: "Rust", url: "https://www.rust-lang.org/", text: "A language." },
  { title: "年度报告", url: "https://example.com/report", text: "Revenue grew." },
  { title: "Cargo", url: "https://doc.rust-lang.org/cargo/", text: "The package manager." },
];

const problems = [];
const api = { checked: () => ({ problems: problems.splice(0) }) };

function onlyKeys(given, allowed, what) {
  for (const key of Object.keys(given)) if (!(key in allowed)) problems.push(`${what} has no parameter ${key}`);
  for (const [key, fits] of Object.entries(allowed)) {
    if (key in given && !fits(given[key])) problems.push(`${what}: ${key} cannot be ${JSON.stringify(given[key])}`);
  }
}

const isText = (value) => typeof value === "string" && value !== "";
const isOneOf = (...values) => (value) => values.includes(value);

function searxng(query) {
  onlyKeys(query, { q: isText, format: isOneOf("json"), categories: isOneOf("general", "news"), time_range: isOneOf("day", "week", "month", "year") }, "SearXNG");
  const results = PAGES.map(({ title, url, text }) => ({ url, title, content: text, engine: "mock", score: 1, category: query.categories, publishedDate: query.categories === "news" ? "2026-11-20T00:00:00" : null }));
  return [200, { query: query.q, number_of_results: 0, results, answers: [], suggestions: [] }];
}

function brave(path, query, headers) {
  if (headers["x-subscription-token"] !== "brave-key-of-the-tests") return [422, { type: "ErrorResponse", error: { code: "SUBSCRIPTION_TOKEN_INVALID", detail: "The provided subscription token is invalid." } }];
  const isCount = (value) => /^\d+$/.test(value) && Number(value) >= 1 && Number(value) <= 20;
  onlyKeys(query, { q: isText, count: isCount, freshness: isOneOf("pd", "pw", "pm", "py") }, "Brave");
  const results = PAGES.slice(0, Number(query.count)).map(({ title, url, text }) => ({ title, url, description: text, age: "2 days ago" }));
  return [200, path.startsWith("/res/v1/web") ? { type: "search", web: { type: "search", results } } : { type: "news", results }];
}

function tavily(path, body, headers) {
  if (headers.authorization !== "Bearer tvly-key-of-the-tests") return [401, { detail: { error: "Unauthorized: missing or invalid API key." } }];
  if (path === "/extract") {
    onlyKeys(body, { urls: (urls) => Array.isArray(urls) && urls.every(isText) }, "Tavily");
    const found = PAGES.filter((page) => body.urls.includes(page.url));
    const failed = body.urls.filter((url) => !found.some((page) => page.url === url));
    return [200, { results: found.map((page) => ({ url: page.url, raw_content: page.text })), failed_results: failed.map((url) => ({ url, error: "Failed to fetch url" })), response_time: 0.1 }];
  }
  const isCount = (value) => Number.isInteger(value) && value >= 0 && value <= 20;
  onlyKeys(body, { query: isText, topic: isOneOf("general", "news", "finance"), max_results: isCount, time_range: isOneOf("day", "week", "month", "year") }, "Tavily");
  const results = PAGES.slice(0, body.max_results).map(({ title, url, text }) => ({ title, url, content: text, score: 0.9, raw_content: null, ...(body.topic === "news" ? { published_date: "Fri, 20 Nov 2026 00:00:00 GMT" } : {}) }));
  return [200, { query: body.query, results, response_time: 0.1 }];
}

serve(api, (request) => {
  const query = Object.fromEntries(request.url.searchParams);
  const { path, headers, body = {} } = request;
  let answer = [404, { detail: "Not Found" }];
  if (path === "/page") answer = [200, "The page."];
  else if (path === "/searx/search") answer = searxng(query);
  else if (path === "/res/v1/web/search" || path === "/res/v1/news/search") answer = brave(path, query, headers);
  else if (request.method === "POST" && (path === "/tavily/search" || path === "/tavily/extract")) answer = tavily(path.slice("/tavily".length), body, headers);
  else problems.push(`no engine has ${request.method} ${path}`);
  request.check();
  return answer;
});
