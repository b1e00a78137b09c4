// Time: what the host says, in UTC; and random numbers: from the seed.
//
// `Date` of the engine would look at the clock and at the time zone of the machine, so that a second run differed.
(function (bridge, parts) {
  "use strict";

  const { now, random } = bridge;
  const { apply, construct } = Reflect;
  const { define } = parts;
  const NativeDate = Date;
  const prototype = NativeDate.prototype;
  const NativeError = Error;
  const { UTC, parse: nativeParse } = NativeDate;
  const getOffset = prototype.getTimezoneOffset;
  const getTime = prototype.getTime;
  const test = RegExp.prototype.exec;
  const upper = String.prototype.toUpperCase;
  const text = String;
  const start = now();

  // The engine reads a text without a zone as local time of the machine. `NaN` if it is no time.
  const hasZone = /(?:Z|(?:GMT|UTC?|[ECMP][SD]T|:\d\d(?:\.\d+)?\s*)[+-]\d{1,2}:?\d{0,2}|GMT|UTC?|[ECMP][SD]T)\s*(?:\([^)]*\))?\s*$/i;
  const isDateOnly = /^\s*[+-]?\d{4,6}(?:-\d\d(?:-\d\d)?)?\s*$/;
  const isLowerIso = /^\d{4}-\d\d-\d\dt[\d:.]+z?$/;
  const parse = (written) => {
    const value = apply(test, isLowerIso, [written]) === null ? written : apply(upper, written, []);
    const parsed = nativeParse(value);
    const offset = apply(getOffset, new NativeDate(parsed), []);
    if (!offset || apply(test, hasZone, [value]) !== null || apply(test, isDateOnly, [value]) !== null) return parsed;
    return parsed - offset * 60000;
  };

  const timeOf = (args) => {
    if (args.length === 0) return now();
    if (args.length > 1) return apply(UTC, undefined, args);
    let value = args[0];
    try { return apply(getTime, value, []); } catch {}
    if (typeof value === "object" && value !== null) {
      const convert = value[Symbol.toPrimitive];
      value = convert === undefined || convert === null
        ? (typeof value.valueOf() !== "object" ? value.valueOf() : text(value)) : apply(convert, value, ["default"]);
    }
    return typeof value === "string" ? parse(value) : +value;
  };
  const UtcDate = function Date(...args) {
    if (new.target === undefined) return new NativeDate(now()).toString();
    return construct(NativeDate, [timeOf(args)], new.target);
  };
  Object.defineProperty(UtcDate, "prototype", { value: prototype, writable: false });
  Object.defineProperty(UtcDate, "length", { value: 7 });
  define(UtcDate, "now", { now() { return now(); } }.now);
  define(UtcDate, "parse", { parse(value) { return parse(text(value)); } }.parse);
  define(UtcDate, "UTC", UTC);
  define(prototype, "constructor", UtcDate);
  define(globalThis, "Date", UtcDate);

  for (const unit of ["FullYear", "Month", "Date", "Day", "Hours", "Minutes", "Seconds", "Milliseconds"]) {
    for (const verb of ["get", "set"]) {
      const utc = prototype[`${verb}UTC${unit}`];
      if (utc !== undefined) define(prototype, verb + unit, utc);
    }
  }
  const getYear = prototype.getUTCFullYear;
  const setYear = prototype.setUTCFullYear;
  define(prototype, "getYear", { getYear() { return apply(getYear, this, []) - 1900; } }.getYear);
  define(prototype, "setYear", { setYear(year) {
    return apply(setYear, this, [year >= 0 && year <= 99 ? 1900 + Math.trunc(year) : year]);
  } }.setYear);
  define(prototype, "getTimezoneOffset", { getTimezoneOffset() {
    return apply(getTime, this, []) * 0;
  } }.getTimezoneOffset);

  // `Thu, 05 Mar 2026 06:07:08 GMT`
  const toUtc = prototype.toUTCString;
  const slice = String.prototype.slice;
  const pieces = (date) => {
    const utc = apply(toUtc, date, []);
    if (utc === "Invalid Date") return undefined;
    const day = apply(slice, utc, [5, 7]), month = apply(slice, utc, [8, 11]), year = apply(slice, utc, [12, -13]);
    return [`${apply(slice, utc, [0, 3])} ${month} ${day} ${year}`, `${apply(slice, utc, [-12])}+0000 (Coordinated Universal Time)`];
  };
  define(prototype, "toString", { toString() {
    const known = pieces(this);
    return known === undefined ? "Invalid Date" : `${known[0]} ${known[1]}`;
  } }.toString);
  define(prototype, "toDateString", { toDateString() { return (pieces(this) ?? ["Invalid Date"])[0]; } }.toDateString);
  define(prototype, "toTimeString", { toTimeString() { return (pieces(this) ?? ["", "Invalid Date"])[1]; } }.toTimeString);

  define(globalThis, "performance", { now: () => now() - start, timeOrigin: start, mark() {}, measure() {} });
  define(Math, "random", { random() { return ((random() >>> 5) * 67108864 + (random() >>> 6)) / 9007199254740992; } }.random);

  const MAX_RANDOM_BYTES = 65536;
  const byteLengthOf = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(Uint8Array.prototype), "byteLength").get;
  const bufferOf = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(Uint8Array.prototype), "buffer").get;
  const offsetOf = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(Uint8Array.prototype), "byteOffset").get;
  const NativeBytes = Uint8Array;
  const hex = (byte) => (byte < 16 ? "0" : "") + apply(toHex, byte, [16]);
  const toHex = Number.prototype.toString;
  define(globalThis, "crypto", {
    getRandomValues(array) {
      const length = apply(byteLengthOf, array, []);
      if (length > MAX_RANDOM_BYTES) throw new NativeError(`getRandomValues fills at most ${MAX_RANDOM_BYTES} bytes`);
      const bytes = new NativeBytes(apply(bufferOf, array, []), apply(offsetOf, array, []), length);
      for (let index = 0; index < length; index += 1) bytes[index] = random() & 255;
      return array;
    },
    randomUUID() {
      let id = "";
      for (let index = 0; index < 16; index += 1) {
        let byte = random() & 255;
        if (index === 6) byte = (byte & 15) | 64;
        if (index === 8) byte = (byte & 63) | 128;
        id += (index === 4 || index === 6 || index === 8 || index === 10 ? "-" : "") + hex(byte);
      }
      return id;
    },
    get subtle() {
      throw new NativeError("crypto.subtle is not available in a script; let a subtool encrypt, sign or hash");
    },
  });
})
