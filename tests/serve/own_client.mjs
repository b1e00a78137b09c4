// Our own client for JavaScript.
//
// node own_client.mjs URL COMMAND, with the commands and the output of own_client.py

import {
  ApiError, Client, Decider, approveAll, byKind, bySubtool, rejectAll,
} from "../../clients/typescript/index.js";

const [, , url, text] = process.argv;
const command = JSON.parse(text);
const POLICIES = {
  reject_all: () => rejectAll,
  approve_all: () => approveAll,
  by_subtool: bySubtool,
  by_kind: byKind,
  function: (note) => async (gate) => ({ approve: gate.fields[0].value.text === note, note: "by hand" }),
  answer: (answer) => () => ({ approve: true, answer }),
  nothing: () => () => undefined,
  words: () => () => "yes",
  fails: () => (gate) => gate.no.such.field,
};

const plain = ({ gate, result, reason }) => ({ subtool: gate.subtool, result, reason });

async function main() {
  const [[name, rules]] = Object.entries(command.policy ?? { reject_all: null });
  const [key, policy] = [command.decide_key, POLICIES[name](rules)];
  const askedBy = "ask_key" in command ? { askedBy: command.ask_key } : {};
  if (command.gates) return { gates: await new Decider({ url, key, ...askedBy }).gates() };
  if (command.gate) return plain(await new Decider({ url, key, policy }).decide(command.gate));
  const client = new Client({ url, key: command.ask_key });
  const decider = name === "reject_all" ? client.decidedBy(key) : client.decidedBy(key, policy);
  await decider.start();
  const events = [];
  for await (const event of client.ask(command.message)) events.push(event);
  await decider.close();
  const names = [...new Set(events.map((event) => event.name))].sort();
  return { answer: events.at(-1).data.answer, events: names, outcomes: decider.outcomes.map(plain) };
}

try {
  console.log(JSON.stringify(await main()));
} catch (error) {
  if (error instanceof ApiError) console.log(JSON.stringify({ status: error.status, code: error.code }));
  else if (error instanceof TypeError) console.log(JSON.stringify({ wrong: error.message }));
  else throw error;
}
