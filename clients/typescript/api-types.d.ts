/** The types of the HTTP API. Made by clients/generate.py from the OpenAPI document; change that, not this. */

/** Whether the server works. */
export type Health = {
  /** Always `ok`. */
  status: string;
  version: string;
};

/** What happens to a question while the session answers another one. */
export type WhenBusy = "interrupt" | "queue" | "cancel";

/** Limits of one question. They only lower those of the configuration. */
export type SubmitLimits = {
  /** The most requests to the model. */
  steps?: number | null;
  /** The most tokens, in and out. */
  tokens?: number | null;
  /** The highest cost, in the currency of the configured prices. */
  cost?: number | null;
  /** The most calls of subtools, by whatever makes them. */
  calls?: number | null;
  /** After how many seconds the work is stopped. */
  deadline?: number | null;
};

/** A question for a session. */
export type SubmitRequest = {
  /** The question. Lines that begin with `!word` are commands: `!help` lists them. */
  message: string;
  /** The session: an id of your choice, or the number of a session. Without it a new session begins. */
  session?: string | null;
  /** A model of the configuration that answers this question only. */
  model?: string | null;
  /** Whether the answer is waited for. What commands alone print is always answered at once. */
  wait?: boolean;
  /** How many seconds the answer is waited for: 600 unless you say otherwise. The work goes on after that. */
  timeout?: number | null;
  /** Whether lines that begin with `!` are commands; a key may rule them out for all of its messages. */
  commands?: boolean;
  /** What happens while the session answers another question. */
  when_busy?: WhenBusy;
  limits?: SubmitLimits;
};

/** What a turn used. */
export type TurnUsage = {
  requests: number;
  input_tokens: number;
  cached_tokens: number;
  output_tokens: number;
  cost: number;
};

/** The answer to a question. */
export type SubmitAnswer = {
  /** The session's number. */
  session: number;
  /** The session's id. */
  id: string;
  answer: string;
  /** `completed`, or why the work stopped: `max_iterations`, `budget_exhausted`, `truncated`, `refused`, `policy_denied`, `approval_denied`, `cancelled`, `deadline_exceeded`. */
  termination: string;
  /** A limit cut the work short. */
  truncated: boolean;
  model: string;
  usage: TurnUsage;
};

/** A question whose answer is not there yet: read the session's state, or follow its stream. */
export type SubmitPending = {
  session: number;
  id: string;
  /** The question, by which the session's state and its stream know it; only commands have none. */
  question?: string | null;
  /** `working`, or `queued` while the work on others goes on. */
  state: string;
};

/** News about a task of the session. */
export type TaskNews = {
  id: string;
  subtool: string;
  state: string;
  /** The beginning of the result of a final task; how much is the session's preview length. */
  preview?: string | null;
};

/** A task that waits for a human. Only the page, or a client whose API key may decide, can answer it. */
export type GateNews = {
  id: string;
  subtool: string;
  /** What waits and where it is decided, in words for the user. It contains no secret link. */
  message: string;
};

/** How a turn ended. */
export type TurnOutcome = {
  /** The last answer of the model, or what the commands printed; after the preface, if there is one. */
  answer: string;
  termination: string;
  /** A limit cut the work short. */
  truncated: boolean;
  /** The number of the session. */
  session: number;
  model: string;
  usage: TurnUsage;
};

/** What is wrong, and how to go on. */
export type ErrorShape = {
  /** One of a fixed list, like `bad-api-key`. */
  code: string;
  message: string;
  hint?: string | null;
  details?: Record<string, unknown> | null;
};

/** What happens in a session. As a server-sent event its name is its type, and `tok` for a text. */
export type SessionEvent = {
  type: "text";
  text: string;
} | {
  type: "restart";
} | TaskNews & {
  type: "task";
} | GateNews & {
  type: "gate";
} | {
  type: "note";
  text: string;
} | TurnOutcome & {
  type: "done";
} | {
  type: "error";
  error: ErrorShape;
};

/** A session in a list. */
export type SessionInfo = {
  number: number;
  /** The client's id, like `llama-127.0.0.1`; the terminal's own sessions have none. */
  client?: string | null;
  /** The name of the API key to which it belongs. */
  key?: string | null;
  /** When it began, like `2026-11-23T08:00:00Z`. */
  began_at: string;
  /** Whether it answers a question now, or waits for a task. */
  is_busy: boolean;
};

/** The sessions of a client. */
export type SessionList = {
  /** The oldest first. */
  sessions: Array<SessionInfo>;
};

/** A question, and what became of it. */
export type QuestionState = {
  /** Its id, as `submit` answered it. */
  question: string;
  /** `queued`, `working` or `ended`. */
  state: string;
  answer?: string | null;
  /** Why it ended: as in the answer of `submit`. */
  termination?: string | null;
  /** A limit cut the work short. */
  truncated: boolean;
  /** What it used; after a restart that is not known. */
  usage?: TurnUsage | null;
  /** Why there is no answer. */
  error?: ErrorShape | null;
};

/** What a session is doing, and its last answer. */
export type SessionState = {
  session: number;
  /** `idle`, `working`, or `waiting` for a task. */
  state: string;
  model: string;
  /** The last answer of the model, if it has ended. */
  answer?: string | null;
  /** The tasks that have not ended. */
  open: Array<TaskNews>;
  /** The latest questions that were not waited for, and what became of them; the oldest first. */
  questions: Array<QuestionState>;
};

/** What was done to a session. */
export type SessionChange = {
  session: number;
  /** `deleted`, `reset`, `stopped` or `idle`. */
  state: string;
};

/** Text that hides nothing. */
export type PlainText = {
  /** The text itself; or, if `hidden` is not empty, with `\u{200B}` for a character that is not visible, `\u{20*4}` for four of them, and `\\` for a backslash. */
  text: string;
  /** The names of the characters that are not visible. */
  hidden: Array<string>;
  /** What looks like something else. */
  notes: Array<string>;
};

/** A JSON Schema of an object. It is a type of its own since generators of clients stumble over one without a name. */
export type GateForm = Record<string, unknown>;

/** What a decision needs. */
export type GateNeed = {
  how: "click";
} | {
  how: "word";
  word: string;
} | {
  how: "answer";
  question: PlainText;
  form: GateForm;
} | {
  how: "touch";
} | {
  how: "page";
};

/** Who asks. The folder and the session are its own claims. */
export type GateCaller = {
  user: string;
  uid: number;
  folder: string;
  session?: string | null;
  /** The client for which it works, of a server that several share: like `the API key phone`. */
  client?: string | null;
  /** The API key with which it was asked, as its name and its id: like `phone.1a2b3c4d`. */
  key?: string | null;
  at: string;
};

/** A field of the input. */
export type GateField = {
  name: string;
  value: PlainText;
  /** The JSON that the value holds as a text. */
  decoded?: PlainText | null;
  /** What the value replaces. */
  replaces?: PlainText | null;
  /** The lines that differ from what is replaced. */
  diff?: string | null;
  /** Whether the value is the default. */
  is_default: boolean;
};

/** A file that is executed. */
export type GateFile = {
  role: string;
  path: string;
  owner: string;
  /** How long it is, if the input names it. */
  bytes?: number | null;
  /** The start of the hash of its content; absent of a place, which has none. */
  sha256?: string | null;
  /** Who else could change it. */
  warning?: string | null;
};

/** The rows of one table that foreign keys change with a change in a database. */
export type GateCascade = {
  table: string;
  /** How many rows are deleted or changed. */
  words: string;
  /** The first of the rows, before and after it. */
  diff?: string | null;
  /** The first of the rows, if they are only shown as they are. */
  rows?: PlainText | null;
};

/** A change in a database, as it was tried. */
export type GateChange = {
  rows_affected: number;
  /** How many rows that are there it overwrites or removes to make room for its own, if it may. */
  replaced?: number | null;
  /** How many of them are shown. */
  shown: number;
  diff?: string | null;
  rows?: PlainText | null;
  /** The columns that the database sets by itself: what is written there may differ from what is shown. */
  set_by_database?: Array<PlainText>;
  /** What it sets off in other tables, by foreign keys and triggers. */
  sets_off?: Array<string>;
  /** The rows of other tables that foreign keys change with it; those that triggers change are not shown. */
  cascades?: Array<GateCascade>;
};

/** What a dry run of the task showed. */
export type GateDryRun = {
  /** Absent: nothing could be shown. */
  shown?: PlainText | null;
  /** Whether long lists and texts in it are cut. */
  is_cut?: boolean;
  /** Why nothing could be shown. */
  why_not?: string | null;
};

/** One task that waits for a human, as its card shows it. */
export type Gate = {
  id: string;
  /** A decision carries it, so that it counts only for what was shown. */
  digest: string;
  subtool: string;
  description: string;
  /** What happens, in one sentence of ours. */
  summary: string;
  needs: GateNeed;
  effect: string;
  effect_words: string;
  /** Whether it destroys something. */
  danger: boolean;
  /** Whether it was asked with the same API key, which can then only deny it. */
  own?: boolean;
  /** The rule that requires the confirmation. */
  why: string;
  /** What the agent says; unverified. */
  reason?: PlainText | null;
  asked_by: GateCaller;
  /** When it starts if it is approved, unless that is at once. */
  starts?: string | null;
  expires_at: string;
  fields: Array<GateField>;
  /** The exact request, with secrets replaced by their names. */
  would_send: PlainText;
  /** What it reaches: an origin, a program, a file. */
  touches: Array<string>;
  /** The files that it executes. */
  runs: Array<GateFile>;
  /** The files that its input names. */
  reads?: Array<GateFile>;
  /** What a change in a database does. */
  change?: GateChange | null;
  /** What its dry run showed, if it has one. */
  would_change?: GateDryRun | null;
  /** Why it is not known what would be replaced. */
  unknown?: string | null;
  /** What is unusual about it. */
  marks: Array<string>;
};

/** What waits for a human. */
export type GateList = {
  /** The oldest first. */
  gates: Array<Gate>;
  /** How many more wait. */
  more: number;
};

/** What happens to what waits for a human. As a server-sent event its name is its type. */
export type GateEvent = Gate & {
  type: "gate";
} | {
  type: "gone";
  id: string;
} | {
  type: "error";
  error: ErrorShape;
};

export type GateVerdict = "approve" | "deny";

/** A decision on a task. */
export type GateDecision = {
  decision: GateVerdict;
  /** That of the gate that was shown. */
  digest: string;
  word?: string | null;
  /** For the agent. */
  note?: string | null;
  /** The fields of the answer, if the gate asks a question. */
  answer?: Record<string, unknown> | null;
};

/** The state of a task after a decision. */
export type DecisionAnswer = {
  id: string;
  state: string;
};

/** An error. */
export type ErrorAnswer = {
  error: ErrorShape;
};
