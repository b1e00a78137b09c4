// Some of what browsers and Node add to the language: copies, bytes of texts, and addresses.
(function (bridge, parts) {
  "use strict";

  const { define, mistake: NativeTypeError } = parts;
  const { apply } = Reflect;

  // --- structuredClone ---

  const clone = (value, seen) => {
    if (typeof value === "function" || typeof value === "symbol") {
      throw new DOMException(`${String(value)} could not be cloned.`, "DataCloneError");
    }
    if (typeof value !== "object" || value === null) return value;
    if (seen.has(value)) return seen.get(value);
    const remember = (copy) => { seen.set(value, copy); return copy; };
    if (value instanceof Date) return remember(new Date(value.getTime()));
    if (value instanceof RegExp) return remember(new RegExp(value.source, value.flags));
    if (value instanceof Boolean || value instanceof Number || value instanceof String) return remember(Object(value.valueOf()));
    if (value instanceof ArrayBuffer) return remember(value.slice(0));
    if (ArrayBuffer.isView(value)) {
      return remember(value instanceof DataView
        ? new DataView(clone(value.buffer, seen), value.byteOffset, value.byteLength)
        : new value.constructor(clone(value.buffer, seen), value.byteOffset, value.length));
    }
    if (value instanceof Map) {
      const copy = remember(new Map());
      for (const [key, item] of [...value]) copy.set(clone(key, seen), clone(item, seen));
      return copy;
    }
    if (value instanceof Set) {
      const copy = remember(new Set());
      for (const item of [...value]) copy.add(clone(item, seen));
      return copy;
    }
    if (value instanceof Error) {
      const kinds = { EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };
      const copy = remember(new (Object.hasOwn(kinds, value.name) ? kinds[value.name] : Error)(value.message));
      if (Object.hasOwn(value, "cause")) define(copy, "cause", clone(value.cause, seen));
      return copy;
    }
    if (value instanceof Promise || value instanceof WeakMap || value instanceof WeakSet) {
      throw new DOMException("#<Object> could not be cloned.", "DataCloneError");
    }
    const copy = remember(Array.isArray(value) ? new Array(value.length) : {});
    for (const key of Object.keys(value)) {
      Object.defineProperty(copy, key, { value: clone(value[key], seen), writable: true, enumerable: true, configurable: true });
    }
    return copy;
  };
  define(globalThis, "structuredClone", { structuredClone(value) {
    if (arguments.length === 0) throw new NativeTypeError("structuredClone takes a value");
    return clone(value, new Map());
  } }.structuredClone);

  // --- Bytes of texts ---

  const encode = (value) => {
    const bytes = [];
    for (const letter of String(value).toWellFormed()) {
      const code = letter.codePointAt(0);
      if (code < 0x80) bytes.push(code);
      else if (code < 0x800) bytes.push(0xc0 | (code >> 6), 0x80 | (code & 63));
      else if (code < 0x10000) bytes.push(0xe0 | (code >> 12), 0x80 | ((code >> 6) & 63), 0x80 | (code & 63));
      else bytes.push(0xf0 | (code >> 18), 0x80 | ((code >> 12) & 63), 0x80 | ((code >> 6) & 63), 0x80 | (code & 63));
    }
    return bytes;
  };
  class TextEncoder {
    get encoding() { return "utf-8"; }
    encode(value = "") { return Uint8Array.from(encode(value)); }
  }
  class TextDecoder {
    #isFatal;
    #keepsMark;
    constructor(label = "utf-8", options = {}) {
      if (!/^\s*utf-?8\s*$/i.test(label)) throw new RangeError(`only utf-8 can be decoded in a script, not ${label}`);
      this.#isFatal = Boolean(options?.fatal);
      this.#keepsMark = Boolean(options?.ignoreBOM);
    }
    get encoding() { return "utf-8"; }
    get fatal() { return this.#isFatal; }
    decode(input = new Uint8Array(), options = {}) {
      if (options?.stream) throw new Error("TextDecoder decodes only whole texts in a script; join the bytes first");
      const bytes = ArrayBuffer.isView(input) ? new Uint8Array(input.buffer, input.byteOffset, input.byteLength) : new Uint8Array(input);
      let result = "";
      for (let at = 0; at < bytes.length;) {
        const first = bytes[at];
        at += 1;
        const length = first < 0x80 ? 0 : first >= 0xc2 && first <= 0xdf ? 1 : (first & 0xf0) === 0xe0 ? 2 : first >= 0xf0 && first <= 0xf4 ? 3 : -1;
        let code = length === 0 ? first : first & (63 >> length);
        let count = 0;
        // The second byte excludes what is too long, a surrogate, or no Unicode.
        let low = first === 0xe0 ? 0xa0 : first === 0xf0 ? 0x90 : 0x80;
        let high = first === 0xed ? 0x9f : first === 0xf4 ? 0x8f : 0xbf;
        while (count < length && bytes[at] >= low && bytes[at] <= high) {
          code = (code << 6) | (bytes[at] & 63);
          at += 1;
          count += 1;
          low = 0x80;
          high = 0xbf;
        }
        if (length < 0 || count < length) {
          if (this.#isFatal) throw new NativeTypeError("The encoded data was not valid for encoding utf-8");
          result += "\ufffd";
        } else result += String.fromCodePoint(code);
      }
      return !this.#keepsMark && result.startsWith("\ufeff") ? result.slice(1) : result;
    }
  }
  define(globalThis, "TextEncoder", TextEncoder);
  define(globalThis, "TextDecoder", TextDecoder);

  // --- Addresses ---

  // What a form encodes, and what it leaves.
  const formEncode = (value) => encode(value).map((byte) => {
    const letter = String.fromCharCode(byte);
    return /[A-Za-z0-9*\-._]/.test(letter) ? letter : byte === 32 ? "+" : percent(byte);
  }).join("");
  const percent = (byte) => `%${byte < 16 ? "0" : ""}${byte.toString(16).toUpperCase()}`;
  const formDecode = (value) => {
    const bytes = encode(value.replaceAll("+", " "));
    const decoded = [];
    for (let at = 0; at < bytes.length; at += 1) {
      const digits = String.fromCharCode(bytes[at + 1], bytes[at + 2]);
      if (bytes[at] === 37 && /^[0-9a-fA-F]{2}$/.test(digits)) {
        decoded.push(Number.parseInt(digits, 16));
        at += 2;
      } else decoded.push(bytes[at]);
    }
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(decoded));
  };
  // Replaces what the parameters of an address are.
  let reload;
  class URLSearchParams {
    static { reload = (params, query) => { params.#pairs = []; params.#read(query); }; }
    #pairs = [];
    #changed;
    constructor(init = "", changed = undefined) {
      if (typeof init === "object" && init !== null) {
        const pairs = typeof init[Symbol.iterator] === "function" ? [...init] : Object.entries(init);
        for (const pair of pairs) {
          const [key, value, ...more] = pair;
          if (more.length > 0 || [...pair].length !== 2) throw new NativeTypeError("Each query pair must be an iterable [name, value] tuple");
          this.#pairs.push([String(key).toWellFormed(), String(value).toWellFormed()]);
        }
      } else this.#read(String(init));
      this.#changed = typeof changed === "function" ? changed : undefined;
    }
    #read(query) {
      for (const part of query.replace(/^\?/, "").split("&")) {
        if (part === "") continue;
        const at = part.indexOf("=");
        this.#pairs.push(at < 0 ? [formDecode(part), ""] : [formDecode(part.slice(0, at)), formDecode(part.slice(at + 1))]);
      }
    }
    #notify() { this.#changed?.(this.toString()); }
    get size() { return this.#pairs.length; }
    append(key, value) { this.#pairs.push([String(key), String(value)]); this.#notify(); }
    delete(key, value) {
      this.#pairs = this.#pairs.filter(([own, item]) => own !== String(key) || (value !== undefined && item !== String(value)));
      this.#notify();
    }
    get(key) { return this.#pairs.find(([own]) => own === String(key))?.[1] ?? null; }
    getAll(key) { return this.#pairs.filter(([own]) => own === String(key)).map(([, value]) => value); }
    has(key, value) { return this.#pairs.some(([own, item]) => own === String(key) && (value === undefined || item === String(value))); }
    set(key, value) {
      const index = this.#pairs.findIndex(([own]) => own === String(key));
      if (index < 0) this.#pairs.push([String(key), String(value)]);
      else {
        this.#pairs = this.#pairs.filter(([own], at) => at <= index || own !== String(key));
        this.#pairs[index][1] = String(value);
      }
      this.#notify();
    }
    sort() { this.#pairs.sort(([left], [right]) => (left < right ? -1 : left > right ? 1 : 0)); this.#notify(); }
    forEach(action, self) { for (const [key, value] of this) apply(action, self, [value, key, this]); }
    *entries() { for (const [key, value] of this.#pairs) yield [key, value]; }
    *keys() { for (const [key] of this.#pairs) yield key; }
    *values() { for (const [, value] of this.#pairs) yield value; }
    [Symbol.iterator]() { return this.entries(); }
    toString() { return this.#pairs.map(([key, value]) => `${formEncode(key)}=${formEncode(value)}`).join("&"); }
  }
  define(globalThis, "URLSearchParams", URLSearchParams);

  const PORTS = { __proto__: null, "http:": "80", "https:": "443", "ftp:": "21", "ws:": "80", "wss:": "443" };
  const PIECES = /^([a-z][a-z0-9+.-]*:)\/\/(?:([^/?#@]*)@)?(\[[0-9a-f:.]+\]|[^/?#:@[\]]*)(?::(\d*))?([^?#]*)(\?[^#]*)?(#.*)?$/is;
  // Percent-encodes what may not stand in a part of an address, and keeps what is encoded already.
  const escapePart = (value, pattern) => value.replace(pattern, (letters) => encode(letters).map(percent).join(""));
  const IN_PATH = /[\u0000-\u0020"#<>?^`{}\u007f-\u{10ffff}]+/gu;
  const IN_QUERY = /[\u0000-\u0020"#<>'\u007f-\u{10ffff}]+/gu;
  const IN_FRAGMENT = /[\u0000-\u0020"<>`\u007f-\u{10ffff}]+/gu;
  const normalPath = (path) => {
    const kept = [];
    const segments = path.replaceAll("\\", "/").split("/").slice(1);
    segments.forEach((segment, index) => {
      const plain = segment.replace(/%2e/gi, ".");
      const isLast = index === segments.length - 1;
      if (plain === "..") { kept.pop(); if (isLast) kept.push(""); }
      else if (plain === ".") { if (isLast) kept.push(""); }
      else kept.push(escapePart(segment, IN_PATH));
    });
    return `/${kept.join("/")}`;
  };
  class URL {
    #protocol; #user; #host; #port; #path; #query; #fragment; #params;
    constructor(address, base = undefined) {
      let whole = String(address).trim().replace(/[\t\n\r]/g, "");
      const fail = () => {
        const error = new NativeTypeError("Invalid URL");
        define(error, "code", "ERR_INVALID_URL");
        throw error;
      };
      if (!/^[a-z][a-z0-9+.-]*:/i.test(whole)) {
        if (base === undefined) fail();
        whole = URL.#join(whole, new URL(base));
      }
      const pieces = PIECES.exec(whole.replace(/^(https?:|wss?:|ftp:)[\\/]*/i, "$1//"));
      if (pieces === null || PORTS[pieces[1].toLowerCase()] === undefined) {
        if (pieces === null && /^(?:https?|wss?|ftp):/i.test(whole)) fail();
        throw new Error(`an address of this kind cannot be parsed in a script: ${whole.slice(0, 100)}; take it apart with split or a regular expression`);
      }
      const host = pieces[3].toLowerCase();
      if (host === "" || /[\s<>^|%]/.test(host)) fail();
      if (/[^\x21-\x7e]/.test(host)) throw new Error(`a host name with other letters than ASCII cannot be parsed in a script: ${host}`);
      if (/^[\d.]+$/.test(host) && !/^(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?!$)|$)){4}$/.test(host)) fail();
      if (Number(pieces[4] ?? 0) > 65535) fail();
      this.#protocol = pieces[1].toLowerCase();
      this.#user = pieces[2] ?? "";
      this.#host = host;
      this.#port = this.#plainPort(pieces[4] ?? "");
      this.#path = normalPath(pieces[5] === "" ? "/" : pieces[5]);
      this.#query = escapePart(pieces[6] ?? "", IN_QUERY);
      this.#fragment = escapePart(pieces[7] ?? "", IN_FRAGMENT);
      this.#params = new URLSearchParams(this.#query, (query) => { this.#query = query === "" ? "" : `?${query}`; });
    }
    static #join(relative, base) {
      if (relative.startsWith("//")) return base.protocol + relative;
      const origin = `${base.protocol}//${base.#user === "" ? "" : `${base.#user}@`}${base.host}`;
      if (relative.startsWith("/")) return origin + relative;
      if (relative === "") return origin + base.pathname + base.search;
      if (relative.startsWith("?")) return origin + base.pathname + relative;
      if (relative.startsWith("#")) return origin + base.pathname + base.search + relative;
      return origin + base.pathname.replace(/[^/]*$/, "") + relative;
    }
    static canParse(address, base) { try { new URL(address, base); return true; } catch { return false; } }
    static parse(address, base) { try { return new URL(address, base); } catch { return null; } }
    #plainPort(port) { return port === "" || String(Number(port)) === PORTS[this.#protocol] ? "" : String(Number(port)); }
    get protocol() { return this.#protocol; }
    get username() { return this.#user.split(":")[0]; }
    get password() { return this.#user.includes(":") ? this.#user.slice(this.#user.indexOf(":") + 1) : ""; }
    get hostname() { return this.#host; }
    get port() { return this.#port; }
    get host() { return this.#host + (this.#port === "" ? "" : `:${this.#port}`); }
    get origin() { return `${this.#protocol}//${this.host}`; }
    get pathname() { return this.#path; }
    set pathname(path) { this.#path = normalPath(String(path).startsWith("/") ? String(path) : `/${path}`); }
    get search() { return this.#query === "?" ? "" : this.#query; }
    set search(query) {
      const text = String(query).replace(/^\?/, "");
      this.#query = text === "" ? "" : `?${escapePart(text, IN_QUERY)}`;
      reload(this.#params, this.#query);
    }
    get searchParams() { return this.#params; }
    get hash() { return this.#fragment === "#" ? "" : this.#fragment; }
    set hash(fragment) {
      const text = String(fragment).replace(/^#/, "");
      this.#fragment = text === "" ? "" : `#${escapePart(text, IN_FRAGMENT)}`;
    }
    get href() { return `${this.#protocol}//${this.#user === "" ? "" : `${this.#user}@`}${this.host}${this.#path}${this.#query}${this.#fragment}`; }
    set href(address) { throw new Error(`href cannot be set in a script; write new URL("${String(address).slice(0, 100)}")`); }
    toString() { return this.href; }
    toJSON() { return this.href; }
  }
  for (const name of ["protocol", "username", "password", "hostname", "port", "host"]) {
    const { get } = Object.getOwnPropertyDescriptor(URL.prototype, name);
    Object.defineProperty(URL.prototype, name, {
      get, configurable: true, enumerable: true,
      set() { throw new Error(`${name} of an URL cannot be set in a script; write a new URL from its parts`); },
    });
  }
  define(globalThis, "URL", URL);
})
