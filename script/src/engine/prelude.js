// What a script finds besides the language: subtools, timers, notes and its errors.
//
// Runs before the script and keeps its own references to whatever it uses, so that nothing that a script does to the
// standard objects changes how calls are made. `bridge` has the native functions; returns the functions that the engine
// calls.
(function (bridge, identifiers) {
  "use strict";

  const { issue, clear, note, exceed } = bridge;
  const { apply, getPrototypeOf, defineProperty, ownKeys } = Reflect;
  const { freeze, create } = Object;
  const { stringify, parse } = JSON;
  const { isArray } = Array;
  const NativeError = Error;
  const NativeTypeError = TypeError;
  const NativeRangeError = RangeError;
  const NativePromise = Promise;
  const text = String;
  const number = Number;
  const { trunc } = Math;
  const isPrototypeOf = Object.prototype.isPrototypeOf;
  const toWellFormed = String.prototype.toWellFormed;
  const slice = String.prototype.slice;
  const isOf = (prototype, value) => apply(isPrototypeOf, prototype, [value]);

  // A stack trace must stay text, and long enough to have a line of the script.
  NativeError.stackTraceLimit = 30;
  for (const key of ["stackTraceLimit", "prepareStackTrace"]) {
    const value = key === "stackTraceLimit" ? 30 : undefined;
    defineProperty(NativeError, key, { get: () => value, set() {}, enumerable: false, configurable: false });
  }
  const { get: stackGetter, set: stackSetter } = Object.getOwnPropertyDescriptor(NativeError.prototype, "stack");
  const stackOf = (error) => apply(stackGetter, error, []);
  // Scripts expect the message above the places.
  defineProperty(NativeError.prototype, "stack", {
    get() {
      const places = stackOf(this);
      return typeof places === "string" ? `${this}\n${places}` : places;
    },
    set: stackSetter, enumerable: false, configurable: true,
  });

  const define = (target, key, value) =>
    defineProperty(target, key, { value, writable: true, enumerable: false, configurable: true });
  const isDefined = (name) => Object.hasOwn(globalThis, name);

  // --- Errors ---

  class SubtoolError extends NativeError {
    constructor(message, fields) {
      super(message);
      const given = typeof fields === "object" && fields !== null;
      define(this, "code", given ? fields.code : undefined);
      define(this, "hint", given ? fields.hint : undefined);
      define(this, "details", given ? fields.details : undefined);
    }
    // Otherwise, an error that is returned or noted would be `{}`.
    toJSON() {
      return { name: this.name, code: this.code, message: this.message, hint: this.hint, details: this.details };
    }
  }
  class Denied extends SubtoolError {}
  class OutcomeUnknown extends SubtoolError {}
  const classes = { __proto__: null, error: SubtoolError, denied: Denied, outcome_unknown: OutcomeUnknown };
  for (const kind of [SubtoolError, Denied, OutcomeUnknown]) {
    define(kind.prototype, "name", kind.name);
    freeze(kind);
  }

  // The call that an error is of, by the error.
  const calls = new WeakMap();
  const { get: getCall, set: setCall } = WeakMap.prototype;

  // --- Values that cross ---

  const prototypes = [
    [Promise.prototype, "a promise that was not awaited: write `await` before the call"],
    [Map.prototype, "a Map: write Object.fromEntries(map) or [...map]"],
    [Set.prototype, "a Set: write [...set]"],
    [Iterator.prototype, "an iterator: write [...iterator]"],
    [getPrototypeOf(getPrototypeOf(getPrototypeOf((async function* () {})()))), "an async iterator: collect its values in an array"],
  ];
  const oddity = (value) => {
    for (let index = 0; index < prototypes.length; index += 1) {
      if (isOf(prototypes[index][0], value)) return prototypes[index][1];
    }
    return undefined;
  };

  // What `JSON.stringify` gives; fails instead where that would lose a value. Stops the script if `value` has more
  // nodes or text than it may; what is too large only because of its escapes is found later.
  const encode = (value, what, maxNodes, maxBytes) => {
    if (typeof value === "function") throw new NativeTypeError(`${what} is a function; write what it returns`);
    if (typeof value === "symbol") throw new NativeTypeError(`${what} is a symbol; write String(symbol)`);
    let nodes = 0;
    let bytes = 0;
    const check = function (key, item) {
      nodes += 1;
      bytes += key.length + 2;
      const where = key === "" ? what : `\`${key}\` of ${what}`;
      if (typeof item === "string") bytes += item.length;
      else if (typeof item === "bigint") {
        throw new NativeTypeError(`${where} is a BigInt, which JSON cannot write; write Number(value) or String(value)`);
      } else if (typeof item === "object" && item !== null) {
        const odd = oddity(item);
        if (odd !== undefined) throw new NativeTypeError(`${where} is ${odd}`);
      }
      if (nodes > maxNodes || bytes > maxBytes) {
        exceed(nodes > maxNodes, what);
        throw new NativeError("the value is too large");
      }
      return item;
    };
    try {
      return stringify(value, check);
    } catch (error) {
      if (isOf(NativeTypeError.prototype, error) && error.message === "circular reference") {
        throw new NativeTypeError(`${what} contains itself, which JSON cannot write; pass only the fields that are needed`);
      }
      throw error;
    }
  };

  // --- Calls ---

  // What waits for each open call, by its number.
  const open = { __proto__: null };
  // Makes a call, unless the script was stopped or its input is nested too deeply.
  const send = (kind, name, what, input, waiting) => {
    const seq = issue(kind, name, input, what, stackOf(new NativeError()));
    if (typeof seq === "string") throw new NativeTypeError(seq);
    if (seq === 0) throw new NativeError("the script was stopped");
    open[seq] = waiting;
    return seq;
  };
  const promised = (kind, name, what, input, isSleep) => {
    const waiting = { __proto__: null, isSleep, resolve: undefined, reject: undefined };
    const promise = new NativePromise((resolve, reject) => { waiting.resolve = resolve; waiting.reject = reject; });
    send(kind, name, what, input, waiting);
    return promise;
  };
  // The promise of a call, which fails where it is used as if it were the data: without this, a forgotten `await` gives
  // an `undefined` that nothing complains about.
  const { then, catch: caught, finally: last } = NativePromise.prototype;
  const natives = { __proto__: null, then, catch: caught, finally: last };
  const methods = { __proto__: null, then: true, catch: true, finally: true, constructor: true, toJSON: true };
  const asData = { __proto__: null };
  for (const name of ["toPrimitive", "iterator", "asyncIterator"]) asData[Symbol[name]] = true;
  const unawaited = (label) => () => {
    throw new NativeTypeError(`${label}({…}) was not awaited; write await ${label}({ … })`);
  };
  const awaited = (label, promise) => new Proxy(promise, {
    __proto__: null,
    get(target, key) {
      if (typeof key === "string" ? methods[key] : !asData[key]) {
        const own = natives[key];
        return own === undefined ? target[key] : (...args) => apply(own, target, args);
      }
      const field = typeof key === "string" ? `.${apply(toWellFormed, key, [])}` : "";
      throw new NativeTypeError(`${label}({…}) was not awaited; write (await ${label}({ … }))${field}`);
    },
    set: unawaited(label),
    has: unawaited(label),
    ownKeys: unawaited(label),
    getOwnPropertyDescriptor: unawaited(label),
  });

  const kindOf = (value) => {
    if (value === null) return "null";
    if (isArray(value)) return "an array";
    if (typeof value === "object") return "an object";
    return typeof value === "undefined" ? "undefined" : `a ${typeof value}`;
  };
  // The JSON text of the one object that a function was called with; of an empty one if there is no argument.
  const onlyObject = (label, what, args) => {
    let count = args.length;
    while (count > 0 && args[count - 1] === undefined) count -= 1;
    const instead = `; write ${label}({ name: value })`;
    if (count > 1) throw new NativeTypeError(`${label} takes one object, not ${count} arguments${instead}`);
    const value = args[0];
    if (value === undefined) return "{}";
    if (typeof value !== "object" || value === null || isArray(value)) {
      throw new NativeTypeError(`${label} takes one object, not ${kindOf(value)}${instead}`);
    }
    const odd = oddity(value);
    if (odd !== undefined) throw new NativeTypeError(`${label} takes one object, but was given ${odd}`);
    const input = encode(value, what, bridge.maxNodes, bridge.maxBytes);
    if (input === undefined || input[0] !== "{") {
      throw new NativeTypeError(`${label} takes one object, and ${what} is not an object as JSON${instead}`);
    }
    return input;
  };
  const functionOf = (label, kind, name) => {
    const what = `the input of ${label}`;
    return { [label](...args) {
      return awaited(label, promised(kind, name, what, onlyObject(label, what, args), false));
    } }[label];
  };
  // A function of ours, whose only argument may be the text of its most important field.
  const functionOfText = (label, field) => {
    const what = `the input of ${label}`;
    return { [label](...args) {
      const isText = args.length === 1 && typeof args[0] === "string";
      const input = isText
        ? encode({ __proto__: null, [field]: args[0] }, what, bridge.maxNodes, bridge.maxBytes)
        : onlyObject(label, what, args);
      return awaited(label, promised(label, "", what, input, false));
    } }[label];
  };

  // --- Timers ---

  const MAX_DELAY = 2 ** 31 - 1;
  const delay = (label, ms) => {
    if (ms > MAX_DELAY) throw new NativeRangeError(`${label} waits for at most ${MAX_DELAY} milliseconds, not ${ms}`);
    return `{"ms":${ms > 0 ? trunc(ms) : 0}}`;
  };
  const sleep = { sleep(ms) {
    if (typeof ms !== "number" || !(ms >= 0)) {
      const given = typeof ms === "number" ? ms : kindOf(ms);
      throw new NativeTypeError(`sleep takes a number of milliseconds, not ${given}; write await sleep(1000)`);
    }
    return promised("sleep", "", "the input of sleep", delay("sleep", ms), true);
  } }.sleep;
  const setTimeout = { setTimeout(callback, ms, ...args) {
    if (typeof callback !== "function") {
      throw new NativeTypeError("setTimeout takes a function; write setTimeout(() => { … }, 1000)");
    }
    const input = delay("setTimeout", number(ms));
    return send("sleep", "", "the input of setTimeout", input, { __proto__: null, callback, args });
  } }.setTimeout;
  const clearTimeout = { clearTimeout(id) {
    const timer = typeof id === "number" ? open[id] : undefined;
    if (timer === undefined || timer.args === undefined) return;
    timer.callback = undefined;
    clear(id);
  } }.clearTimeout;

  // --- Notes ---

  const MAX_SHOWN_NODES = 5000;
  const entriesOf = (value) => Array.from(value);
  const show = (value) => {
    if (typeof value === "string") return value;
    if (typeof value === "bigint") return `${value}n`;
    if (typeof value === "function") return `[Function: ${text(value.name)}]`;
    if (typeof value !== "object" || value === null) return text(value);
    if (isOf(NativePromise.prototype, value)) return "[Promise: not awaited]";
    let nodes = 0;
    return stringify(value, function (key, item) {
      nodes += 1;
      if (nodes > MAX_SHOWN_NODES) throw new NativeError("too large");
      if (typeof item === "bigint") return `${item}n`;
      if (typeof item === "function") return `[Function: ${text(item.name)}]`;
      if (typeof item !== "object" || item === null) return item;
      if (isOf(NativeError.prototype, item)) return `${item.name}: ${item.message}`;
      if (isOf(Map.prototype, item) || isOf(Set.prototype, item)) return entriesOf(item);
      return isOf(NativePromise.prototype, item) ? "[Promise: not awaited]" : item;
    }) ?? text(value);
  };
  const shown = (value) => {
    try {
      if (isOf(NativeError.prototype, value)) return `${value.name}: ${value.message}`;
      return show(value);
    } catch {
      return "[a value that cannot be shown]";
    }
  };
  const directives = { __proto__: null, s: 1, d: 1, i: 1, f: 1, j: 1, o: 1, O: 1 };
  let isFull = false;
  let indent = "";
  const write = (args) => {
    if (isFull) return;
    let line = "";
    let index = 0;
    // `console.log("%s: %d", name, count)`
    if (typeof args[0] === "string" && args.length > 1) {
      const format = args[0];
      index = 1;
      for (let at = 0; at < format.length; at += 1) {
        const letter = format[at + 1];
        if (format[at] !== "%" || letter === undefined) line += format[at];
        else if (letter === "%") { line += "%"; at += 1; }
        else if (index < args.length && directives[letter] !== undefined) {
          line += letter === "d" || letter === "f" ? text(number(args[index]))
            : letter === "i" ? text(trunc(number(args[index]))) : shown(args[index]);
          index += 1;
          at += 1;
        } else line += "%";
      }
    }
    for (; index < args.length; index += 1) line += (index === 0 ? "" : " ") + shown(args[index]);
    isFull = !note(apply(toWellFormed, indent + line, []));
  };
  const safely = (action) => {
    // A note never fails, whatever was given to it.
    try { action(); } catch { note("[a note that cannot be shown]"); }
  };
  const counts = { __proto__: null };
  const console = {
    assert(condition, ...args) { if (!condition) safely(() => { define(args, args.length, "(assertion failed)"); write(args); }); },
    count(label = "default") { safely(() => { counts[label] = (counts[label] ?? 0) + 1; write([`${label}: ${counts[label]}`]); }); },
    group(...args) { safely(() => { if (args.length > 0) write(args); indent += indent.length < 20 ? "  " : ""; }); },
    groupEnd() { indent = apply(slice, indent, [2]); },
    dir(value) { safely(() => write([value])); },
    time() {}, timeEnd() {}, timeLog() {}, clear() {}, countReset(label = "default") { delete counts[label]; },
  };
  for (const name of ["log", "info", "warn", "error", "debug", "trace", "table"]) {
    console[name] = { [name](...args) { safely(() => write(args)); } }[name];
  }
  console.groupCollapsed = console.group;

  // --- Globals ---

  const refuse = (name, instead) => {
    const refused = { [name]: function () { throw new NativeError(`${name} is not available in a script; ${instead}`); } }[name];
    define(globalThis, name, refused);
    return refused;
  };
  const tools = create(null);
  const install = () => {
    const own = {
      SubtoolError, Denied, OutcomeUnknown, sleep, setTimeout, clearTimeout, console, clearInterval() {},
      list_tools: functionOfText("list_tools", "query"), ask_user: functionOfText("ask_user", "question"),
      read: functionOfText("read", "id"),
    };
    for (const name of ownKeys(own)) define(globalThis, name, own[name]);
    delete own.clearInterval;
    const code = "write the code itself; code that is made of text does not run";
    const call = "call a subtool instead: list_tools(\"what it should do\") finds one";
    refuse("fetch", call);
    refuse("XMLHttpRequest", call);
    refuse("WebSocket", call);
    refuse("require", "there are no modules: the language itself and the subtools are all there is");
    refuse("setInterval", "write a loop with await sleep(ms)");
    refuse("setImmediate", "write await sleep(0)");
    for (const name of ["WeakRef", "FinalizationRegistry", "SharedArrayBuffer", "Atomics"]) delete globalThis[name];
    return () => {
      refuse("eval", code);
      const blocked = refuse("Function", code);
      defineProperty(blocked, "prototype", { value: getPrototypeOf(blocked), writable: false });
      for (const sample of [function () {}, async function () {}, function* () {}, async function* () {}]) {
        define(getPrototypeOf(sample), "constructor", blocked);
      }
    };
  };
  const installTools = () => {
    for (const name of ownKeys(identifiers)) {
      const subtool = functionOf(name, "run", identifiers[name]);
      tools[name] = subtool;
      tools[identifiers[name]] = subtool;
      if (!isDefined(name)) define(globalThis, name, subtool);
    }
    for (const name of ["list_tools", "ask_user", "read"]) tools[name] ??= globalThis[name];
    define(globalThis, "tools", new Proxy(freeze(tools), {
      __proto__: null,
      get(target, key) {
        if (key in target || typeof key === "symbol" || key === "then" || key === "toJSON") return target[key];
        // A name that is only known now. The host says if there is no such subtool.
        return functionOf(`tools.${apply(toWellFormed, key, [])}`, "run", apply(toWellFormed, key, []));
      },
    }));
  };

  // --- What the engine calls ---

  // Ends a call: with `data`, or with an error.
  const settle = (seq, failure, data) => {
    const waiting = open[seq];
    delete open[seq];
    if (waiting.args !== undefined) {
      if (waiting.callback === undefined) return;
      try {
        apply(waiting.callback, undefined, waiting.args);
      } catch (error) {
        new NativePromise((_, reject) => reject(error));
      }
    } else if (failure === undefined) {
      waiting.resolve(waiting.isSleep ? undefined : data);
    } else {
      const body = parse(failure);
      const error = new classes[body.class](body.message, body);
      apply(setCall, calls, [error, seq]);
      waiting.reject(error);
    }
  };

  // What is known of a value that was thrown, as JSON. Reads it like a script would, so it may run code of the script.
  const describe = (error) => {
    const about = create(null);
    const isObject = (typeof error === "object" && error !== null) || typeof error === "function";
    const attempt = (key, read) => {
      try {
        const value = read();
        if (value !== undefined && value !== null) about[key] = typeof value === "number" ? value : apply(slice, text(value), [0, 4000]);
      } catch {}
    };
    if (!isObject || !isOf(NativeError.prototype, error)) {
      about.message = apply(slice, shown(error), [0, 4000]);
      return stringify(about);
    }
    const attempts = ["name", "message", "hint", "code"];
    for (let index = 0; index < attempts.length; index += 1) attempt(attempts[index], () => error[attempts[index]]);
    attempt("stack", () => stackOf(error));
    let inner = error;
    for (let level = 0; level < 5 && about.seq === undefined; level += 1) {
      attempt("seq", () => apply(getCall, calls, [inner]));
      if (about.seq === undefined) {
        try { inner = inner.cause; } catch { break; }
        if (!isOf(NativeError.prototype, inner)) break;
        attempt("cause", () => inner.message);
      }
    }
    if (about.seq !== undefined) {
      about.isCause = inner !== error;
      about.error = create(null);
      const body = about.error;
      body.class = isOf(Denied.prototype, inner) ? "denied" : isOf(OutcomeUnknown.prototype, inner) ? "outcome_unknown" : "error";
      const keys = ["code", "message", "hint"];
      for (let index = 0; index < keys.length; index += 1) {
        try { if (typeof inner[keys[index]] === "string") body[keys[index]] = inner[keys[index]]; } catch {}
      }
      try { about.details = inner.details === undefined ? undefined : stringify(inner.details); } catch {}
    }
    try {
      if (isArray(error.errors)) about.inner = apply(slice, shown(error.errors[0]), [0, 1000]);
    } catch {}
    return stringify(about);
  };

  const result = (value) => encode(value, "the result", bridge.maxNodes, bridge.maxBytes);
  return { define, install, installTools, settle, describe, result, mistake: NativeTypeError };
})
