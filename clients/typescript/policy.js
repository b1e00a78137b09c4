// Policies: what to do about a gate, which is a task that waits for a human.
//
// A policy is any function of a gate. It returns `true` to approve, `false` to deny, nothing to leave it to a human on
// the page, or `{approve, note, answer}`.

/** The verdict in what a policy returned, ready to be sent, if there is one. Throws a `TypeError` if it is no verdict. */
export function verdictOf(found) {
  if (found === undefined || found === null) return undefined;
  const { approve, note, answer } = typeof found === "boolean" ? { approve: found } : found;
  if (typeof approve !== "boolean") throw new TypeError(`it returned a value of type ${typeof found}, which is no verdict`);
  if (!["string", "undefined"].includes(typeof (note ?? undefined))) {
    throw new TypeError(`its note is of type ${typeof note}, and no text`);
  }
  if (answer === undefined || answer === null) return { approve, note };
  if (!isPlain(answer)) throw new TypeError("its answer is no object with the fields of the form");
  return { approve, note, answer: JSON.parse(JSON.stringify(answer)) };
}

/** Denies everything. */
export const rejectAll = () => false;

/** Approves everything that a key may approve, also what destroys something. */
export const approveAll = () => true;

/** Decides by the name of the subtool, which may have `*`. What no rule names is denied. */
export function bySubtool(rules) {
  const own = checked(rules);
  return (gate) => {
    if (own.has(gate.subtool)) return own.get(gate.subtool);
    const matching = [...own].filter(([pattern]) => matches(pattern, gate.subtool));
    return matching.length > 0 && matching.every(([, allowed]) => allowed);
  };
}

/** Decides by what a call changes. A kind that is not named is denied. */
export function byKind(rules) {
  const own = checked(rules);
  const unknown = [...own.keys()].filter((kind) => !["read", "write", "destructive"].includes(kind));
  if (unknown.length > 0) {
    throw new TypeError(`there are the kinds read, write and destructive, not ${unknown.join(", ")}`);
  }
  return (gate) => own.get(kindOf(gate)) ?? false;
}

/** `read` changes nothing, `destructive` destroys something, all else is a `write`. */
export function kindOf(gate) {
  if (gate.danger !== false) return "destructive";
  return gate.effect === "read" ? "read" : "write";
}

function matches(pattern, name) {
  const parts = pattern.split("*").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${parts.join(".*")}$`, "s").test(name);
}

/** Refuses `"no"` and the like, which would count as a yes. */
function checked(rules) {
  if (!isPlain(rules)) throw new TypeError("rules are an object of names and true or false");
  const own = new Map(Object.entries(rules));
  const wrong = [...own].filter(([, allowed]) => typeof allowed !== "boolean").map(([name]) => name);
  if (wrong.length > 0) throw new TypeError(`a rule is true or false: ${wrong.join(", ")}`);
  return own;
}

/** Whether it is an object with fields, and not a list, a `Map` or the like. */
const isPlain = (value) => Object.prototype.toString.call(value) === "[object Object]";
