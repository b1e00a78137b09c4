// Numbers, dates and lists as a reader in the United States writes them. The engine has no tables of locales.
//
// What is here gives what Node gives, for the locale "en-US" and the time zone UTC. Everything else fails and says what to
// write instead, since a number in the wrong form would go unnoticed.
(function (bridge, parts) {
  "use strict";

  const { define, Collator } = parts;
  const refuse = (what, instead) => { throw new RangeError(`${what} is not available in a script; ${instead}`); };
  const localeOf = (locales) => {
    const list = typeof locales === "string" ? [locales] : [...(locales ?? [])];
    return list.length === 0 ? "en-US" : String(list[0]);
  };
  const checkOptions = (given, known, what) => {
    for (const key of Object.keys(given)) {
      if (given[key] !== undefined && !known.includes(key)) {
        refuse(`the option \`${key}\` of ${what}`, `only ${known.join(", ")} are`);
      }
    }
  };

  // --- Numbers ---

  const SYMBOLS = {
    __proto__: null, USD: "$", EUR: "€", GBP: "£", JPY: "¥", INR: "₹", CNY: "CN¥", KRW: "₩", CAD: "CA$", AUD: "A$", MXN: "MX$",
    BRL: "R$", NZD: "NZ$", HKD: "HK$", TWD: "NT$", VND: "₫", ILS: "₪", PHP: "₱",
  };
  const CURRENCY_DIGITS = {
    __proto__: null, JPY: 0, KRW: 0, VND: 0, CLP: 0, PYG: 0, ISK: 0, UGX: 0, RWF: 0, XAF: 0, XOF: 0, XPF: 0, BIF: 0, DJF: 0, GNF: 0,
    KMF: 0, VUV: 0, BHD: 3, JOD: 3, KWD: 3, OMR: 3, TND: 3, LYD: 3,
  };
  const NUMBER_OPTIONS = [
    "style", "currency", "currencyDisplay", "minimumFractionDigits", "maximumFractionDigits", "minimumIntegerDigits",
    "minimumSignificantDigits", "maximumSignificantDigits", "useGrouping", "signDisplay", "notation", "compactDisplay",
    "numberingSystem", "localeMatcher",
  ];
  const oneOf = (given, key, values, fallback) => {
    const value = given[key] ?? fallback;
    if (!values.includes(value)) refuse(`${key}: ${JSON.stringify(value)}`, `write one of ${values.map((known) => JSON.stringify(known)).join(", ")}`);
    return value;
  };
  const digitsOf = (given, key, least, most, fallback) => {
    if (given[key] === undefined) return fallback;
    const value = Math.floor(Number(given[key]));
    if (!(value >= least && value <= most)) throw new RangeError(`${key} value is out of range.`);
    return value;
  };
  const numberSettings = (locales, options, kind) => {
    const given = options ?? {};
    const locale = localeOf(locales);
    checkOptions(given, NUMBER_OPTIONS, kind);
    const style = oneOf(given, "style", ["decimal", "percent", "currency"], "decimal");
    const plain = style === "currency" ? /^en(?:-US)?$/i : /^en(?:-(?:US|GB|CA|AU|NZ|IE))?$/i;
    if (!plain.test(locale)) refuse(`the locale "${locale}" for numbers`, `write "en-US", or put the number together with toFixed and replace`);
    const settings = { locale, style };
    if (style === "currency") {
      if (given.currency === undefined) throw new TypeError("Currency code is required with currency style.");
      settings.currency = String(given.currency).toUpperCase();
      if (!/^[A-Z]{3}$/.test(settings.currency)) throw new RangeError("Invalid currency code : " + given.currency);
      settings.currencyDisplay = oneOf(given, "currencyDisplay", ["symbol", "code"], "symbol");
    }
    settings.notation = oneOf(given, "notation", ["standard", "compact"], "standard");
    oneOf(given, "compactDisplay", ["short"], "short");
    settings.signDisplay = oneOf(given, "signDisplay", ["auto", "always", "never", "exceptZero", "negative"], "auto");
    settings.grouping = oneOf(given, "useGrouping", [true, false, "auto", "always", "min2"], settings.notation === "compact" ? "min2" : "auto");
    settings.leastInteger = digitsOf(given, "minimumIntegerDigits", 1, 21, 1);
    if (given.minimumSignificantDigits !== undefined || given.maximumSignificantDigits !== undefined) {
      settings.leastSignificant = digitsOf(given, "minimumSignificantDigits", 1, 21, 1);
      settings.mostSignificant = digitsOf(given, "maximumSignificantDigits", settings.leastSignificant, 21, 21);
      return settings;
    }
    const usual = style === "currency" ? CURRENCY_DIGITS[settings.currency] ?? 2 : 0;
    let least = digitsOf(given, "minimumFractionDigits", 0, 100, undefined);
    let most = digitsOf(given, "maximumFractionDigits", 0, 100, undefined);
    settings.isRoundedCompact = settings.notation === "compact" && least === undefined && most === undefined;
    const usualMost = style === "currency" ? usual : style === "percent" ? 0 : settings.notation === "compact" ? 0 : 3;
    const usualLeast = settings.notation === "compact" ? 0 : usual;
    if (least === undefined) least = Math.min(usualLeast, most ?? usualLeast);
    if (most === undefined) most = Math.max(settings.notation === "compact" ? 0 : usualMost, least);
    if (least > most) throw new RangeError("maximumFractionDigits value is out of range.");
    return Object.assign(settings, { least, most });
  };
  // The digits of a number that is not negative, and where its point is: 12.5 is ["125", 2].
  const decimal = (value) => {
    const [, whole, fraction = "", exponent = "0"] = /^(\d+)(?:\.(\d+))?(?:e([+-]\d+))?$/.exec(String(value));
    const digits = (whole + fraction).replace(/^0+/, "");
    return [digits, whole.length + Number(exponent) - (whole.length + fraction.length - digits.length)];
  };
  // Rounds to so many digits after the point, halves away from zero.
  const round = ([digits, point], places) => {
    const kept = point + places;
    if (kept >= digits.length) return [digits, point];
    if (kept < 0 || digits === "") return ["", 0];
    const carries = digits[kept] >= "5";
    const head = digits.slice(0, kept);
    if (!carries) return [head, point];
    const next = String(BigInt(head === "" ? "0" : head) + 1n).padStart(kept, "0");
    return [next, point + next.length - kept];
  };
  const spell = ([digits, point], least) => {
    const whole = point > 0 ? digits.slice(0, point).padEnd(point, "0") : "0";
    let fraction = point > 0 ? digits.slice(point) : digits === "" ? "" : "0".repeat(-point) + digits;
    fraction = fraction.replace(/0+$/, "").padEnd(least, "0");
    return [whole, fraction];
  };
  const rounded = (parts, settings) => {
    if (settings.mostSignificant !== undefined) {
      const kept = round(parts, settings.mostSignificant - parts[1]);
      const point = kept[0] === "" ? 1 : kept[1];
      return spell(kept, Math.max(settings.leastSignificant - point, 0));
    }
    return spell(round(parts, settings.most), settings.least);
  };
  const compact = (parts, settings) => {
    const spellCompact = (step) => {
      const scaled = [parts[0], parts[1] - 3 * step];
      if (!settings.isRoundedCompact) return rounded(scaled, settings);
      return spell(round(scaled, Math.max(2 - scaled[1], 0)), 0);
    };
    let step = Math.min(Math.max(Math.floor((parts[1] - 1) / 3), 0), 4);
    let spelled = spellCompact(step);
    if (spelled[0].length > 3 && step < 4) {
      step += 1;
      spelled = spellCompact(step);
    }
    return [spelled[0], spelled[1], ["", "K", "M", "B", "T"][step]];
  };
  const formatNumber = (input, settings) => {
    const value = typeof input === "bigint" ? input : Number(input);
    let isNegative = value < 0 || Object.is(value, -0);
    let body, isZero = false;
    if (Number.isNaN(value)) { body = "NaN"; isNegative = false; }
    else if (value === Infinity || value === -Infinity) body = "∞";
    else {
      const parts = decimal(value < 0 ? -value : value);
      if (settings.style === "percent" && parts[0] !== "") parts[1] += 2;
      const [whole, fraction, letter = ""] = settings.notation === "compact" ? compact(parts, settings) : rounded(parts, settings);
      isZero = /^0*$/.test(whole + fraction);
      const padded = whole.padStart(settings.leastInteger, "0");
      const isGrouped = settings.grouping !== false && (settings.grouping !== "min2" || padded.length > 4);
      body = (isGrouped ? padded.replace(/\B(?=(?:\d{3})+$)/g, ",") : padded) + (fraction === "" ? "" : `.${fraction}`) + letter;
    }
    if (settings.style === "percent") body += "%";
    if (settings.style === "currency") {
      const symbol = settings.currencyDisplay === "code" ? undefined : SYMBOLS[settings.currency];
      body = symbol === undefined ? `${settings.currency}\u00a0${body}` : symbol + body;
    }
    const { signDisplay } = settings;
    if (signDisplay === "never") return body;
    if (isNegative && !(isZero && (signDisplay === "exceptZero" || signDisplay === "negative"))) return `-${body}`;
    if (!isNegative && (signDisplay === "always" || (signDisplay === "exceptZero" && !isZero && body !== "NaN"))) return `+${body}`;
    return body;
  };
  const unavailable = (name, instead) => function () { return refuse(name, instead); };
  class NumberFormat {
    #settings;
    constructor(locales, options) { this.#settings = numberSettings(locales, options, "Intl.NumberFormat"); }
    get format() { return (value) => formatNumber(value, this.#settings); }
    resolvedOptions() {
      const { locale, style, currency, least, most } = this.#settings;
      return { locale, numberingSystem: "latn", style, currency, minimumFractionDigits: least, maximumFractionDigits: most };
    }
  }
  NumberFormat.prototype.formatToParts = unavailable("formatToParts", "write format");
  NumberFormat.prototype.formatRange = unavailable("formatRange", "write format twice");
  define(Number.prototype, "toLocaleString", { toLocaleString(locales, options) {
    return formatNumber(Number.prototype.valueOf.call(this), numberSettings(locales, options, "toLocaleString"));
  } }.toLocaleString);
  define(BigInt.prototype, "toLocaleString", { toLocaleString(locales, options) {
    return formatNumber(BigInt.prototype.valueOf.call(this), numberSettings(locales, options, "toLocaleString"));
  } }.toLocaleString);

  // --- Dates ---

  const MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
  const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
  const DATE_KEYS = ["weekday", "year", "month", "day"];
  const TIME_KEYS = ["hour", "minute", "second"];
  const DATE_OPTIONS = [...DATE_KEYS, ...TIME_KEYS, "timeZone", "timeZoneName", "dateStyle", "timeStyle", "hour12", "hourCycle", "localeMatcher"];
  const two = (value) => String(value).padStart(2, "0");
  const dateSettings = (locales, options, kind, needs) => {
    const given = { ...options };
    checkOptions(given, DATE_OPTIONS, kind);
    const locale = localeOf(locales);
    if (!/^(?:en(?:-US|-GB|-CA)?|sv-SE)$/i.test(locale)) refuse(`the locale "${locale}" for dates`, `write "en-US", or put the date together from toISOString()`);
    if (given.timeZone !== undefined && !/^(?:UTC|Etc\/UTC|GMT|Etc\/GMT)$/i.test(given.timeZone)) {
      refuse(`the time zone "${given.timeZone}"`, "times are in UTC: add the difference in milliseconds to the date, and say so");
    }
    oneOf(given, "timeZoneName", ["short", undefined], undefined);
    for (const [key, method] of [["dateStyle", "toLocaleTimeString"], ["timeStyle", "toLocaleDateString"]]) {
      if (kind === method && given[key] !== undefined) throw new TypeError(`Invalid option : ${key}`);
    }
    if (given.dateStyle !== undefined || given.timeStyle !== undefined) {
      for (const key of [...DATE_KEYS, ...TIME_KEYS, "timeZoneName"]) {
        if (given[key] !== undefined) throw new TypeError(`Can't set option ${key} when ${given.dateStyle !== undefined ? "dateStyle" : "timeStyle"} is used`);
      }
      const date = { full: { weekday: "long", month: "long", day: "numeric", year: "numeric" }, long: { month: "long", day: "numeric", year: "numeric" }, medium: { month: "short", day: "numeric", year: "numeric" }, short: { month: "numeric", day: "numeric", year: "2-digit" } };
      const time = { full: { timeZoneName: "long" }, long: { timeZoneName: "short" }, medium: {}, short: { second: undefined } };
      if (given.dateStyle !== undefined) Object.assign(given, date[oneOf(given, "dateStyle", Object.keys(date))]);
      if (given.timeStyle !== undefined) Object.assign(given, { hour: "numeric", minute: "2-digit", second: "2-digit" }, time[oneOf(given, "timeStyle", Object.keys(time))]);
      given.joins = ["full", "long"].includes(given.dateStyle);
    } else if (![...DATE_KEYS, ...TIME_KEYS].some((key) => (needs.includes(key) || kind === "Intl.DateTimeFormat") && given[key] !== undefined)) {
      if (needs.includes("day")) Object.assign(given, { year: "numeric", month: "numeric", day: "numeric" });
      if (needs.includes("hour")) Object.assign(given, { hour: "numeric", minute: "2-digit", second: "2-digit" });
    }
    given.locale = /^en$/i.test(locale) ? "en-US" : locale;
    const hasDate = DATE_KEYS.some((key) => given[key] !== undefined);
    const isNumeric = (key) => given[key] === "numeric" || given[key] === "2-digit";
    const isDefault = given.year === "numeric" && isNumeric("month") && isNumeric("day") && given.weekday === undefined;
    const isIso = /CA|SE/i.test(locale) && isDefault && given.hour === undefined;
    const isBritish = /GB/i.test(locale) && (given.month !== undefined && given.day !== undefined && given.year !== undefined || !hasDate);
    if (/CA|SE/i.test(locale) && !isIso) refuse(`the locale "${locale}" for such dates`, `write "en-US", or put the date together from toISOString()`);
    if (/GB/i.test(locale) && (!isBritish || given.hour12 || given.joins || given.timeZoneName !== undefined || (given.hour !== undefined && given.minute === undefined))) refuse(`the locale "en-GB" for such dates`, `write "en-US", or put the date together from toISOString()`);
    return Object.assign(given, { isIso, isBritish: isBritish && /GB/i.test(locale) });
  };
  const dateText = (date, settings) => {
    const year = date.getUTCFullYear();
    if (settings.isIso) return `${year}-${two(date.getUTCMonth() + 1)}-${two(date.getUTCDate())}`;
    const widths = (key, values) => (settings[key] === undefined ? undefined : oneOf(settings, key, values));
    const weekday = widths("weekday", ["long", "short"]);
    const day = widths("day", ["numeric", "2-digit"]);
    const month = widths("month", ["numeric", "2-digit", "short", "long"]);
    const dayText = day === undefined ? undefined : day === "2-digit" ? two(date.getUTCDate()) : String(date.getUTCDate());
    const yearText = widths("year", ["numeric", "2-digit"]) === undefined ? undefined : settings.year === "2-digit" && !(settings.isBritish && settings.dateStyle !== undefined) ? two(year % 100) : String(year);
    const name = weekday === undefined ? undefined : DAYS[date.getUTCDay()].slice(0, weekday === "short" ? 3 : undefined);
    const isNamed = month === "short" || month === "long";
    let text;
    if (isNamed) {
      const full = MONTHS[date.getUTCMonth()];
      const british = settings.isBritish && full === "September" ? "Sept" : full.slice(0, 3);
      const monthText = month === "long" ? full : british;
      if (settings.isBritish) return `${name === undefined ? "" : `${name}, `}${dayText} ${monthText} ${yearText}`;
      const head = dayText === undefined ? monthText : `${monthText} ${dayText}`;
      text = yearText === undefined ? head : dayText === undefined ? `${head} ${yearText}` : `${head}, ${yearText}`;
      if (name !== undefined && dayText === undefined) refuse("a weekday without a day", "add day: \"numeric\"");
    } else {
      if (month === undefined && [name, dayText, yearText].filter((part) => part !== undefined).length > 1) {
        refuse("a date without a month", "add month, or put the date together from getUTCDate and getUTCFullYear");
      }
      const number = month === undefined ? undefined : month === "2-digit" || settings.isBritish ? two(date.getUTCMonth() + 1) : String(date.getUTCMonth() + 1);
      const order = settings.isBritish ? [two(date.getUTCDate()), number, yearText] : [number, dayText, yearText];
      text = order.filter((part) => part !== undefined).join("/");
      if (name !== undefined && text === "") return name;
      if (name !== undefined && (dayText === undefined || month === undefined)) refuse("a weekday without a day and a month", "add both");
    }
    return name === undefined ? text : `${name}, ${text}`;
  };
  const timeText = (date, settings) => {
    const { hour, minute, second } = settings;
    if (hour === undefined && (minute !== undefined) !== (second !== undefined)) {
      return String(minute === undefined ? date.getUTCSeconds() : date.getUTCMinutes());
    }
    const is12 = settings.hour12 ?? (settings.hourCycle === undefined ? !settings.isBritish : ["h11", "h12"].includes(settings.hourCycle));
    const hours = date.getUTCHours();
    const shown = is12 ? hours % 12 || 12 : settings.hour12 === false && !settings.isBritish && hours === 0 ? 24 : hours;
    const texts = [];
    if (hour !== undefined) texts.push(hour === "2-digit" || (!is12 && (!settings.isBritish || settings.second !== undefined || settings.timeStyle !== undefined)) ? two(shown) : String(shown));
    if (minute !== undefined) texts.push(two(date.getUTCMinutes()));
    if (second !== undefined) texts.push(two(date.getUTCSeconds()));
    const zone = settings.timeZoneName === undefined ? "" : settings.timeZoneName === "long" ? " Coordinated Universal Time" : " UTC";
    return texts.join(":") + (hour !== undefined && is12 ? ` ${hours < 12 ? "AM" : "PM"}` : "") + zone;
  };
  const formatDate = (date, settings) => {
    if (Number.isNaN(date.getTime())) return undefined;
    const pieces = [];
    const hasDate = DATE_KEYS.some((key) => settings[key] !== undefined);
    const hasTime = TIME_KEYS.some((key) => settings[key] !== undefined);
    if (hasDate) pieces.push(dateText(date, settings));
    if (hasTime) pieces.push(timeText(date, settings));
    else if (settings.timeZoneName !== undefined) pieces.push("UTC");
    const joins = settings.joins ?? settings.month === "long";
    const isWeekday = settings.weekday !== undefined && settings.day === undefined;
    return pieces.join(isWeekday ? " " : joins && hasTime ? " at " : ", ");
  };
  class DateTimeFormat {
    #settings;
    constructor(locales, options) { this.#settings = dateSettings(locales, options, "Intl.DateTimeFormat", ["day"]); }
    get format() {
      return (value) => {
        const text = formatDate(value === undefined ? new Date() : new Date(value), this.#settings);
        if (text === undefined) throw new RangeError("Invalid time value");
        return text;
      };
    }
    resolvedOptions() { return { locale: this.#settings.locale, calendar: "gregory", numberingSystem: "latn", timeZone: "UTC" }; }
  }
  DateTimeFormat.prototype.formatToParts = unavailable("formatToParts", "use getUTCFullYear, getUTCMonth and the like");
  DateTimeFormat.prototype.formatRange = unavailable("formatRange", "write format twice");
  for (const [name, needs] of [["toLocaleString", ["weekday", "year", "month", "day", "hour", "minute", "second"]], ["toLocaleDateString", DATE_KEYS], ["toLocaleTimeString", TIME_KEYS]]) {
    define(Date.prototype, name, { [name](locales, options) {
      return formatDate(new Date(this.getTime()), dateSettings(locales, options, name, needs)) ?? "Invalid Date";
    } }[name]);
  }

  // --- Words ---

  const english = (locales, name) => {
    const locale = localeOf(locales);
    if (!/^en\b/i.test(locale)) refuse(`the locale "${locale}" of ${name}`, "write the words yourself");
  };
  class PluralRules {
    #isOrdinal;
    constructor(locales, options = {}) {
      english(locales, "Intl.PluralRules");
      this.#isOrdinal = oneOf(options, "type", ["cardinal", "ordinal"], "cardinal") === "ordinal";
    }
    select(value) {
      if (!this.#isOrdinal) return Math.abs(value) === 1 ? "one" : "other";
      const [last, tens] = [Math.abs(value) % 10, Math.abs(value) % 100];
      return last === 1 && tens !== 11 ? "one" : last === 2 && tens !== 12 ? "two" : last === 3 && tens !== 13 ? "few" : "other";
    }
  }
  class ListFormat {
    #word;
    #style;
    constructor(locales, options = {}) {
      english(locales, "Intl.ListFormat");
      this.#word = oneOf(options, "type", ["conjunction", "disjunction"], "conjunction") === "conjunction" ? "and" : "or";
      this.#style = oneOf(options, "style", ["long"], "long");
    }
    format(list) {
      const items = [...list];
      if (items.length < 3) return items.join(` ${this.#word} `);
      return `${items.slice(0, -1).join(", ")}, ${this.#word} ${items.at(-1)}`;
    }
  }
  const Intl = { NumberFormat, DateTimeFormat, Collator, PluralRules, ListFormat };
  for (const kind of Object.values(Intl)) kind.supportedLocalesOf = (locales) => (localeOf(locales) === "en-US" ? ["en-US"] : []);
  const callable = (kind) => new Proxy(kind, { __proto__: null, apply: (target, self, args) => new target(...args) });
  for (const name of ["NumberFormat", "DateTimeFormat", "Collator"]) Intl[name] = callable(Intl[name]);
  for (const name of ["RelativeTimeFormat", "Segmenter", "DisplayNames", "DurationFormat", "Locale", "getCanonicalLocales", "supportedValuesOf"]) {
    Object.defineProperty(Intl, name, { get: unavailable(`Intl.${name}`, "write the words yourself"), enumerable: false });
  }
  define(globalThis, "Intl", Intl);
})
