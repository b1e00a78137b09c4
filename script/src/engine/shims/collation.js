// The order of texts: that of English and of most languages with Latin letters, as `localeCompare` has it elsewhere.
//
// The engine itself compares code units, which puts `a` after `Z`. Letters of other alphabets keep the order of Unicode.
(function (bridge, parts) {
  "use strict";

  const { apply } = Reflect;
  const { define } = parts;
  const NativeError = Error;
  const NativeTypeError = TypeError;
  const text = String;
  const normalize = String.prototype.normalize;
  const lower = String.prototype.toLowerCase;
  const codePointAt = String.prototype.codePointAt;
  const indexOf = String.prototype.indexOf;

  const SIGNS = "_-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$";
  // Letters that do not decompose and yet are sorted with others.
  const SPECIAL = { __proto__: null, "ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ł": "l", "ı": "i", "’": "'", "‘": "'", "–": "-", "—": "-" };
  const isMark = (code) => (code >= 0x300 && code <= 0x36f) || (code >= 0x1ab0 && code <= 0x1aff) || (code >= 0x20d0 && code <= 0x20ff);
  const isDigit = (code) => code >= 48 && code <= 57;

  // The rank of a letter in lower case that is no digit: white space, signs, digits, Latin letters, others.
  const rankOf = (letter, code) => {
    if (code === 32 || (code >= 9 && code <= 13) || code === 0xa0) return code === 32 ? 20 : code + 1;
    const sign = apply(indexOf, SIGNS, [letter]);
    if (sign >= 0) return 300 + sign;
    if (isDigit(code)) return 1000 + code;
    if (code >= 97 && code <= 122) return 2000 + code;
    return code < 128 ? 0 : code < 0xc0 || (code >= 0x2000 && code < 0x2c00) ? 400 + code / 65536 : 3000 + code;
  };

  // Three keys: the letters, their marks, their cases.
  const keysOf = (value, numeric) => {
    const letters = [], marks = [], cases = [];
    const push = (list, item) => define(list, list.length, item);
    const decomposed = apply(normalize, value, ["NFD"]);
    for (let at = 0; at < decomposed.length;) {
      const code = apply(codePointAt, decomposed, [at]);
      const letter = code > 0xffff ? decomposed[at] + decomposed[at + 1] : decomposed[at];
      at += letter.length;
      if (isMark(code)) {
        if (marks.length > 0) marks[marks.length - 1] = marks[marks.length - 1] * 1000 + (code - 0x300) + 1;
        continue;
      }
      if (numeric && isDigit(code)) {
        // A number counts as one letter, by its digits without leading zeros.
        let digits = letter;
        while (at < decomposed.length && isDigit(apply(codePointAt, decomposed, [at]))) { digits += decomposed[at]; at += 1; }
        let from = 0;
        while (from < digits.length - 1 && digits[from] === "0") from += 1;
        push(letters, 1000 + (digits.length - from) / 1000);
        push(marks, 0);
        push(cases, 0);
        for (let index = from; index < digits.length; index += 1) {
          push(letters, 1000 + apply(codePointAt, digits, [index]));
          push(marks, 0);
          push(cases, 0);
        }
        continue;
      }
      const small = apply(lower, letter, []);
      const plain = SPECIAL[small] ?? small;
      for (let index = 0; index < plain.length; index += 1) {
        const plainCode = apply(codePointAt, plain, [index]);
        if (plainCode > 0xffff) index += 1;
        push(letters, rankOf(plainCode > 0xffff ? letter : plain[index], plainCode));
        push(marks, plain === small ? 0 : 1);
        push(cases, letter === small ? 0 : 1);
      }
    }
    return [letters, marks, cases];
  };
  const compareKeys = (left, right) => {
    const length = left.length < right.length ? left.length : right.length;
    for (let index = 0; index < length; index += 1) {
      if (left[index] !== right[index]) return left[index] < right[index] ? -1 : 1;
    }
    return left.length === right.length ? 0 : left.length < right.length ? -1 : 1;
  };

  const exec = RegExp.prototype.exec;
  const SENSITIVITIES = { __proto__: null, base: [0], accent: [0, 1], case: [0, 2], variant: [0, 1, 2] };
  const compare = (left, right, settings) => {
    if (left === right) return 0;
    const leftKeys = keysOf(left, settings.numeric), rightKeys = keysOf(right, settings.numeric);
    const levels = SENSITIVITIES[settings.sensitivity];
    for (let index = 0; index < levels.length; index += 1) {
      const level = levels[index];
      const order = compareKeys(leftKeys[level], rightKeys[level]);
      if (order !== 0) return level === 2 && settings.upperFirst ? -order : order;
    }
    return 0;
  };

  const LOCALES = /^(?:en|de|fr|es|it|pt|nl|id|ms|ca|und|root)\b/i;
  const settingsOf = (locales, options) => {
    const list = typeof locales === "string" ? [locales] : locales ?? [];
    for (let index = 0; index < list.length; index += 1) {
      if (apply(exec, LOCALES, [text(list[index])]) === null) {
        throw new NativeError(`texts cannot be compared by the rules of "${list[index]}" in a script; write "en", or compare with < and >`);
      }
    }
    const given = options ?? {};
    const sensitivity = given.sensitivity ?? "variant";
    if (SENSITIVITIES[sensitivity] === undefined) throw new RangeError(`Value ${sensitivity} out of range for Intl.Collator options property sensitivity`);
    if (given.ignorePunctuation) throw new NativeError("ignorePunctuation is not available in a script; remove the punctuation with replace first");
    return { __proto__: null, sensitivity, numeric: Boolean(given.numeric), upperFirst: given.caseFirst === "upper" };
  };

  define(String.prototype, "localeCompare", { localeCompare(that, locales, options) {
    if (this === null || this === undefined) throw new NativeTypeError("String.prototype.localeCompare called on null or undefined");
    return compare(text(this), text(that), settingsOf(locales, options));
  } }.localeCompare);

  class Collator {
    #settings;
    #compare;
    constructor(locales, options) { this.#settings = settingsOf(locales, options); }
    get compare() {
      this.#compare ??= (left, right) => compare(text(left), text(right), this.#settings);
      return this.#compare;
    }
    resolvedOptions() { return { locale: "en-US", usage: "sort", sensitivity: this.#settings.sensitivity, numeric: this.#settings.numeric }; }
  }
  parts.Collator = Collator;
})
