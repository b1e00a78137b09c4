// The pages' one script: shows what the server made, and sends what a person decided.
//
// It decides nothing, and it makes no HTML from text: a fragment is parsed by the browser on its way in
// (a request for a document), everything else is built node by node. So the page lives under
// `trusted-types 'none'`: no policy exists that an attacker could feed.
"use strict";

(() => {
  /** How long a card that has just moved or come cannot be decided, in milliseconds: longer than a double click. */
  const SETTLE = 800;
  /** How many open cards are on the page at most; further ones come as these are decided. */
  const MOST_CARDS = 50;
  /** How long an answer may take before we say that none came. */
  const ANSWER_WITHIN = 30_000;
  /** The pauses before the connection is tried again grow up to this. */
  const LONGEST_PAUSE = 15_000;

  const root = document.documentElement;

  // The theme first, before anything is painted.
  const memory = {
    get(key) {
      try { return localStorage.getItem(key); } catch { return null; }
    },
    set(key, value) {
      try {
        if (value === null) localStorage.removeItem(key);
        else localStorage.setItem(key, value);
      } catch { /* A browser that keeps nothing: the choice lasts until the page goes. */ }
    },
  };
  const chosenTheme = memory.get("theme");
  if (chosenTheme === "light" || chosenTheme === "dark") root.dataset.theme = chosenTheme;
  if (memory.get("keys") === "off") root.dataset.noKeys = "";

  function switchTheme() {
    const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    const next = (root.dataset.theme ?? system) === "dark" ? "light" : "dark";
    // Back at what the system says, we follow the system again.
    memory.set("theme", next === system ? null : next);
    if (next === system) delete root.dataset.theme;
    else root.dataset.theme = next;
    announce(`${next} theme`);
  }

  // Small things.

  const find = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  function build(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  function icon(name) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    for (const [key, value] of [["class", "icon"], ["viewBox", "0 0 24 24"], ["aria-hidden", "true"]]) {
      svg.setAttribute(key, value);
    }
    const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
    use.setAttribute("href", `#i-${name}`);
    svg.append(use);
    return svg;
  }

  const STATE_ICONS = {
    awaiting_confirmation: "pause", accepted: "clock", queued: "clock", running: "running", succeeded: "done",
    failed: "failed", denied: "ban", expired: "clock", cancelled: "stop", timed_out: "clock", unknown: "question",
  };
  const FINAL = new Set(["succeeded", "failed", "denied", "expired", "cancelled", "timed_out", "unknown"]);

  function stateBadge(state, words) {
    const badge = build("span", { class: `state state-${state}` });
    badge.append(icon(STATE_ICONS[state] ?? "question"), build("span", {}, words));
    return badge;
  }

  /** The same picture of a value that parts.html makes. */
  function valueElement(value) {
    const many = value.lines.length > 1;
    const isEmpty = value.kind === "string" && value.bytes === 0;
    const element = build("bdi", { dir: "ltr", class: `value kind-${value.kind}${many ? " many" : ""}${isEmpty ? " empty-text" : ""}` });
    value.lines.forEach((spans, index) => {
      const line = build("span", { class: "line" });
      for (const span of spans) {
        line.append("c" in span ? build("mark", { class: "chip", title: span.n }, span.c) : span.t);
      }
      if (index < value.lines.length - 1) line.append("\n");
      element.append(line);
    });
    const notes = build("span", { class: "value-notes" });
    if (isEmpty) notes.append(build("span", {}, "an empty text"));
    if (many) notes.append(build("span", {}, `${value.lines.length} lines, ${value.bytes} bytes`));
    for (const note of value.notes) notes.append(build("span", { class: "flag" }, icon("eye"), note));
    return notes.childNodes.length > 0 ? [element, notes] : [element];
  }

  /** Says something to whoever listens instead of looking. */
  function announce(words) {
    const place = find("#announcements");
    // The same words twice are said twice.
    if (place) place.textContent = place.textContent === words ? `${words}\u00a0` : words;
  }

  // Talking to the executor.

  /** A text that is JSON already: numbers and untouched values keep every digit. */
  class Exact {
    constructor(text) { this.text = text; }
  }

  function toJson(value) {
    if (value instanceof Exact) return value.text;
    if (Array.isArray(value)) return `[${value.map(toJson).join(",")}]`;
    const entries = value instanceof Map ? [...value] : null;
    if (entries) return `{${entries.map(([key, entry]) => `${JSON.stringify(key)}:${toJson(entry)}`).join(",")}}`;
    if (value !== null && typeof value === "object") return toJson(new Map(Object.entries(value)));
    return JSON.stringify(value);
  }

  class Problem extends Error {
    constructor(status, answer) {
      super(answer.error?.message ?? `the executor answered ${status}`);
      this.status = status;
      this.answer = answer;
      this.code = answer.error?.code ?? answer.code ?? "";
      this.hint = answer.error?.hint ?? "";
    }
  }

  async function send(path, body) {
    let response;
    try {
      response = await fetch(path, {
        method: "POST",
        headers: { "content-type": "application/json", "x-page-token": find('meta[name="page-token"]').content },
        body: toJson(body),
        credentials: "same-origin",
        cache: "no-store",
        redirect: "error",
        signal: AbortSignal.timeout(ANSWER_WITHIN),
      });
    } catch {
      throw new Problem(0, { error: {
        message: "No answer came, so we cannot say whether this arrived.",
        hint: "What came of it shows here once the connection is back.",
      } });
    }
    const answer = response.status === 204 ? {} : await response.json().catch(() => ({}));
    if (response.ok) return answer;
    if (response.status === 401) signedOut();
    throw new Problem(response.status, answer);
  }

  /** A page or a fragment, parsed by the browser while it arrives; scripts in it never run. */
  function load(address) {
    return new Promise((resolve, reject) => {
      const request = new XMLHttpRequest();
      request.open("GET", address);
      request.responseType = "document";
      request.timeout = ANSWER_WITHIN;
      request.onload = () => {
        if (request.status === 200 && request.response) return resolve(request.response);
        if (request.status === 401) signedOut();
        return reject(new Problem(request.status, {}));
      };
      request.onerror = request.ontimeout = () => reject(new Problem(0, {}));
      request.send();
    });
  }

  function inWords(problem) {
    return [problem.message, problem.hint].filter(Boolean).join(" ");
  }

  function showBanner(words) {
    const banner = find("#banner");
    if (!banner) return;
    banner.hidden = words === null;
    banner.textContent = words ?? "";
  }

  let isSignedOut = false;
  function signedOut() {
    if (isSignedOut) return;
    isSignedOut = true;
    showBanner("You are signed out. In a terminal of your own: agent-magic-tool executor page");
  }

  // Forms made from a schema.

  const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;

  function controls(field) {
    return all("input, textarea, select", field);
  }

  /** Whether a person changed this field: an untouched one is sent as the very text that came. */
  function touched(field) {
    return controls(field).some((control) => {
      if (control.type === "radio" || control.type === "checkbox") return control.checked !== control.defaultChecked;
      if (control.tagName === "SELECT") return [...control.options].some((option) => option.selected !== option.defaultSelected)
        && !(control.selectedIndex === 0 && ![...control.options].some((option) => option.defaultSelected));
      return control.value !== control.defaultValue;
    });
  }

  /** The field's value as JSON, `undefined` for one that is not given, or a problem in words. */
  function fieldValue(field) {
    const { type, json } = field.dataset;
    if (!touched(field) && json !== undefined) return { value: new Exact(json) };
    const required = "required" in field.dataset;
    const missing = required ? { problem: "This is required." } : { value: undefined };
    const [control] = controls(field);
    switch (type) {
      case "boolean":
      case "choice": {
        const picked = control.tagName === "SELECT" ? control.value : (find("input:checked", field)?.value ?? "");
        return picked === "" ? missing : { value: new Exact(picked) };
      }
      case "choices": {
        const picked = all("input:checked", field).map((box) => new Exact(box.value));
        return picked.length === 0 && !touched(field) ? missing : { value: picked };
      }
      case "list": {
        const items = control.value.split("\n").map((item) => item.trim()).filter(Boolean);
        return items.length === 0 && !touched(field) ? missing : { value: items };
      }
      case "number": {
        const text = control.value.trim();
        if (text === "") return missing;
        return NUMBER.test(text) ? { value: new Exact(text) } : { problem: "This is no number, like 12 or -0.5." };
      }
      case "json": {
        const text = control.value.trim();
        if (text === "") return missing;
        try {
          JSON.parse(text);
          return { value: new Exact(text) };
        } catch (error) {
          return { problem: `This is no JSON: ${error.message}` };
        }
      }
      default:
        // An empty text that was asked for is one; the server knows the least length.
        if (control.value === "" && (!required || !touched(field))) return missing;
        return { value: control.value };
    }
  }

  /** The whole input of a form as a tree of maps, or `null` after telling what is wrong. */
  function formInput(form) {
    const input = new Map();
    const problems = [];
    for (const field of all("[data-field]", form)) {
      const { value, problem } = fieldValue(field);
      if (problem) problems.push({ pointer: field.dataset.pointer, problem });
      if (problem || value === undefined) continue;
      const keys = field.dataset.pointer.split("/").slice(1).map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"));
      const last = keys.pop();
      let place = input;
      for (const key of keys) {
        if (!(place.get(key) instanceof Map)) place.set(key, new Map());
        place = place.get(key);
      }
      place.set(last, value);
    }
    showProblems(form, problems);
    return problems.length === 0 ? input : null;
  }

  /** Puts each problem under its field, and returns those that belong to no field. */
  function showProblems(form, problems) {
    const left = new Set(problems);
    let first = null;
    for (const field of all("[data-field]", form)) {
      const { pointer } = field.dataset;
      const own = problems.filter((one) => one.pointer === pointer || one.pointer.startsWith(`${pointer}/`));
      for (const one of own) left.delete(one);
      find("[data-problem]", field).textContent = own.map((one) => one.problem).join(" ");
      for (const control of controls(field)) {
        if (own.length > 0) control.setAttribute("aria-invalid", "true");
        else control.removeAttribute("aria-invalid");
      }
      if (own.length > 0) first ??= controls(field)[0];
    }
    first?.focus();
    if (problems.length > 0) announce(`${problems.length} ${problems.length === 1 ? "field needs" : "fields need"} another look`);
    return [...left].map((one) => `${one.pointer}: ${one.problem}`);
  }

  // Cards.

  /** Every card on the page by its task's id, in the order of the page. */
  const cards = new Map();
  /** What the stream last said of a task. */
  const lastSaid = new Map();
  const openCards = () => [...cards.values()].filter((card) => !card.isClosed);

  const endSeen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      const card = cards.get(entry.target.closest("[data-card]")?.dataset.card);
      card?.wasSeen();
    }
  });

  class Card {
    constructor(element) {
      this.element = element;
      this.id = element.dataset.card;
      this.digest = element.dataset.digest;
      this.tool = element.dataset.tool;
      this.word = element.dataset.word ?? null;
      this.isDangerous = "danger" in element.dataset;
      this.isLong = "long" in element.dataset;
      this.isQuestion = element.dataset.kind === "question";
      this.isClosed = false;
      this.isDeciding = false;
      this.isSettling = false;
      this.isSeen = false;
      this.edited = null;
      this.trigger = null;
      cards.set(this.id, this);
      const evidence = this.part("evidence");
      if (this.isLong) {
        evidence.addEventListener("scroll", () => {
          const read = (100 * (evidence.scrollTop + evidence.clientHeight)) / evidence.scrollHeight;
          const bar = this.part("read");
          bar.value = Math.max(bar.value, read);
        }, { passive: true });
      }
      endSeen.observe(this.part("end"));
      this.settle();
    }

    part(name) { return find(`[data-${name}]`, this.element); }
    all(selector) { return all(selector, this.element); }
    panel(name) { return find(`form[data-form="${name}"]`, this.element); }

    /** For a moment nothing here can be pressed: what came or moved under a finger is not what was aimed at. */
    settle() {
      if (this.isClosed) return;
      clearTimeout(this.settled);
      this.isSettling = true;
      this.part("actions").inert = true;
      delete this.element.dataset.settling;
      void this.element.offsetWidth;
      this.element.dataset.settling = "";
      this.refresh();
      // Nobody sees it yet: the moment begins when the page is looked at.
      if (document.hidden) return;
      this.settled = setTimeout(() => {
        this.isSettling = false;
        delete this.element.dataset.settling;
        if (this.isClosed) return;
        this.part("actions").inert = false;
        this.refresh();
        this.afterSettling?.();
        this.afterSettling = null;
      }, SETTLE);
    }

    wasSeen() {
      if (document.hidden) return;
      this.isSeen = true;
      endSeen.unobserve(this.part("end"));
      const bar = this.part("read");
      if (bar) bar.value = 100;
      this.refresh();
    }

    /** Why this cannot be approved yet, in words, or null. */
    obstacle() {
      if (this.isSettling) return "One moment.";
      if (!this.isSeen) return this.isLong ? "Read to the end to approve." : "Look at the whole request to approve.";
      const typed = this.part("typed");
      if (this.word !== null && typed && typed.value.trim() !== this.word) return `Type ${this.word} to approve.`;
      return null;
    }

    refresh() {
      if (this.isClosed) return;
      const obstacle = this.obstacle();
      const gate = this.part("gate");
      const words = obstacle ?? gate.dataset.rest;
      if (gate.textContent !== words) gate.textContent = words;
      gate.toggleAttribute("data-shut", obstacle !== null && !this.isSettling);
      delete gate.dataset.nudge;
      for (const button of this.all("[data-approve]")) button.setAttribute("aria-disabled", String(obstacle !== null));
      const tick = this.part("tick");
      if (tick) {
        tick.disabled = obstacle !== null;
        if (obstacle !== null) tick.checked = false;
      }
      batch.refresh();
    }

    mayApprove() {
      if (this.isClosed || this.isDeciding) return false;
      const obstacle = this.obstacle();
      if (obstacle === null) return true;
      this.part("gate").dataset.nudge = "";
      announce(obstacle);
      const typed = this.part("typed");
      if (this.isSeen && !this.isSettling && typed) typed.focus();
      return false;
    }

    /** One way to decide at a time: sends it, and either closes or says what prevented it. */
    async decide(path, body, close) {
      if (this.isClosed || this.isDeciding || this.isSettling) return;
      this.isDeciding = true;
      this.element.dataset.deciding = "";
      this.element.setAttribute("aria-busy", "true");
      this.tell("");
      try {
        const answer = await send(path, body);
        this.isDeciding = false;
        close(answer);
      } catch (problem) {
        if (!(problem instanceof Problem)) throw problem;
        this.isDeciding = false;
        this.refuse(problem);
      } finally {
        delete this.element.dataset.deciding;
        this.element.removeAttribute("aria-busy");
        // What the stream said of it meanwhile.
        if (this.isLost && !this.isDeciding) this.gone();
      }
    }

    refuse(problem) {
      const { decided } = problem.answer;
      if (problem.status === 409 && decided) this.close("ban", decided);
      else if (problem.status === 409 || problem.status === 410) this.renew();
      else this.tell(inWords(problem));
    }

    tell(words) { this.part("trouble").textContent = words; }

    /** The request is no longer what was shown: shows it as it is now, unread. */
    async renew() {
      try {
        const fresh = await cardFrom(`/card/${this.id}`);
        if (fresh === null) return this.gone();
        cards.delete(this.id);
        endSeen.unobserve(this.part("end"));
        this.element.replaceWith(fresh);
        const card = new Card(fresh);
        card.tell("This request changed while you looked. Nothing was decided; please read it again.");
        fresh.focus();
      } catch {
        this.tell("This request changed while you looked, and could not be loaded again. Reload the page.");
      }
      return undefined;
    }

    approve() {
      if (!this.mayApprove()) return;
      this.decide("/decide", this.decision("approve"), (answer) => this.approved("approved", answer));
    }

    decision(verdict, reason = null) {
      const typed = this.part("typed")?.value.trim() || null;
      return { decisions: [{ id: this.id, digest: this.digest }], verdict, reason, typed };
    }

    approved(words, answer) {
      const state = answer.decided?.find((one) => one.id === this.id)?.state ?? answer.state ?? "queued";
      this.close("check", words, state);
    }

    deny() {
      const reason = this.note("deny");
      this.decide("/decide", this.decision("deny", reason), () => this.close("ban", "denied by you", "denied"));
    }

    note(panel) { return find("[data-note]", this.panel(panel)).value.trim() || null; }

    answer(action) {
      if (action === "accept" && !this.mayApprove()) return;
      const content = action === "accept" ? formInput(this.panel("answer")) : null;
      if (action === "accept" && content === null) return;
      const words = { accept: "answered", decline: "declined by you", cancel: "cancelled by you" }[action];
      const body = { id: this.id, digest: this.digest, action, content };
      this.decide("/answer", body, () => this.close(action === "accept" ? "check" : "ban", words));
    }

    /** Sends the edited input to be checked, then shows what changed. */
    async edit() {
      const form = this.panel("edit");
      const input = formInput(form);
      if (input === null || this.isDeciding) return;
      this.isDeciding = true;
      this.tell("");
      try {
        const answer = await send("/edit", { id: this.id, digest: this.digest, input });
        this.isDeciding = false;
        this.edited = { input, digest: answer.digest };
        this.showChanges(answer.changes);
      } catch (problem) {
        this.isDeciding = false;
        if (!(problem instanceof Problem)) throw problem;
        if (problem.status === 422) this.tell(showProblems(form, problem.answer.problems ?? []).join(" "));
        else this.refuse(problem);
      }
    }

    showChanges(changes) {
      const many = changes.length === 1 ? "1 field" : `${changes.length} fields`;
      this.part("changes-title").textContent = changes.length === 0 ? "You changed nothing" : `You changed ${many}`;
      const side = (word, name, value) => build("div", { class: name },
        build("span", { class: "change-word" }, word), ...(value === null ? ["not given"] : valueElement(value)));
      find("dl[data-changes]", this.element).replaceChildren(...changes.map((change) => build("div", { class: "field" },
        build("dt", {}, build("span", { class: "label" }, change.label)),
        build("dd", { class: "change" }, side("before", "before", change.before), side("after", "after", change.after)))));
      this.open("changes");
      announce(this.part("changes-title").textContent);
    }

    approveEdited() {
      if (this.edited === null || !this.mayApprove()) return;
      const body = {
        id: this.id, digest: this.digest, edited_digest: this.edited.digest, input: this.edited.input,
        reason: this.note("changes"), typed: this.part("typed")?.value.trim() || null,
      };
      this.decide("/decide-edit", body, (answer) => this.approved("edited and approved", answer));
    }

    grant() {
      const form = this.panel("remember");
      const fields = all("[data-grant]", form).map((field) => {
        const picked = find("input[type=radio]:checked", field);
        const value = find(`[data-value="${picked.value}"]`, picked.closest(".grant-choice"));
        return { pointer: field.dataset.grant, how: picked.value, value: value ? value.value.trim() : null };
      });
      const uses = find("[data-uses]", form).value.trim();
      return {
        id: this.id, digest: this.digest, fields,
        expires_in: find("[data-expires]", form).value,
        most_uses: uses === "" ? null : new Exact(uses),
        typed: (find("[data-word-typed]", form).value.trim() || this.part("typed")?.value.trim()) ?? null,
      };
    }

    /** The grant as it is chosen now: what it needs, and what it would have let through. */
    weighGrant() {
      const form = this.panel("remember");
      const wide = find("[data-needs-word]:checked", form) !== null;
      find("[data-word-box]", form).hidden = !wide;
      clearTimeout(this.weighing);
      this.weighing = setTimeout(async () => {
        const place = find("[data-would-match]", form);
        try {
          const { matched, of } = await send("/grants/preview", this.grant());
          place.textContent = of === 0 ? "There were no earlier requests to compare with."
            : `It would have let ${matched} of the last ${of} requests run by themselves.`;
        } catch (problem) {
          place.textContent = inWords(problem);
        }
      }, 200);
    }

    remember() {
      const form = this.panel("remember");
      const uses = find("[data-uses]", form);
      const word = find("[data-word-typed]", form);
      const wordNeeded = this.element.dataset.grantWord;
      if (uses.value.trim() !== "" && !/^[1-9]\d{0,8}$/.test(uses.value.trim())) {
        uses.focus();
        return this.tell("How many times is a whole number, or empty for no limit.");
      }
      if (!find("[data-word-box]", form).hidden && word.value.trim() !== wordNeeded) {
        word.focus();
        return this.tell(`Type ${wordNeeded} to allow something this wide.`);
      }
      if (!this.mayApprove()) return undefined;
      return this.decide("/grants", this.grant(), (answer) => this.approved("approved and remembered", answer));
    }

    /** Opens one panel and closes the others; what opened it gets the focus back. */
    open(name) {
      if (this.isClosed || this.isSettling) return;
      const panel = this.panel(name);
      if (!panel) return;
      this.shut(false);
      this.trigger = find(`[data-opens="${name}"][aria-controls]`, this.element) ?? this.trigger;
      panel.hidden = false;
      this.trigger?.setAttribute("aria-expanded", "true");
      if (name === "remember") this.weighGrant();
      const first = find("[data-first]", panel) ?? find("input:not([type=hidden]), textarea, select", panel);
      first?.focus({ preventScroll: true });
      panel.scrollIntoView({ block: "nearest" });
    }

    shut(focusBack = true) {
      for (const panel of this.all("form.panel")) panel.hidden = true;
      for (const button of this.all("[aria-expanded]")) button.setAttribute("aria-expanded", "false");
      if (focusBack) (this.trigger ?? this.element).focus();
    }

    /** It no longer waits, and not because of what was pressed here. */
    gone() {
      this.isLost = true;
      if (this.isDeciding || this.isClosed) return;
      const said = lastSaid.get(this.id);
      if (said) this.close(STATE_ICONS[said.state] ?? "ban", "no longer waits", said.state, said.state_words);
      else this.close("ban", "no longer waits: decided elsewhere, withdrawn or too late");
    }

    /** Folds the card into one quiet line, in its place. */
    close(picture, words, state = null, stateWords = null) {
      if (this.isClosed) return;
      const hadFocus = this.element.contains(document.activeElement);
      this.isClosed = true;
      clearTimeout(this.settled);
      clearTimeout(this.weighing);
      const outcome = this.part("outcome");
      const side = build("span", { class: "closed-side" });
      const status = build("span", { "data-task": this.id });
      const said = lastSaid.get(this.id);
      const isNews = said && said.state !== "awaiting_confirmation";
      const shown = isNews ? said : (state ? { state, state_words: stateWords ?? state.replaceAll("_", " ") } : null);
      // Who denied it knows that it is denied.
      if (shown && shown.state !== "denied") status.append(stateBadge(shown.state, shown.state_words));
      side.append(status);
      if (state !== null && !FINAL.has(shown.state)) side.append(stopButton(this.id, this.tool));
      side.append(build("a", { href: `/task/${this.id}` }, "Details"));
      outcome.replaceChildren(icon(picture), build("span", { class: "closed-tool" }, this.tool), build("span", {}, words), side);
      find(".card-open", this.element).remove();
      outcome.hidden = false;
      delete this.element.dataset.settling;
      this.element.classList.add("closed");
      this.element.removeAttribute("aria-labelledby");
      this.element.setAttribute("aria-label", `${this.tool}: ${words}`);
      announce(`${this.tool}: ${words}`);

      // What is below has just moved up.
      const order = [...cards.values()];
      const below = order.slice(order.indexOf(this) + 1).filter((card) => !card.isClosed);
      for (const card of below) card.settle();
      if (hadFocus) (below[0] ?? openCards()[0] ?? this).element.focus({ preventScroll: true });
      this.element.scrollIntoView({ block: "nearest" });
      batch.refresh();
      showMood();
      takeMore();
    }
  }

  function stopButton(id, tool) {
    return build("button", { class: "button small", type: "button", "data-action": "stop", "data-id": id },
      icon("stop"), build("span", {}, "Stop"), build("span", { class: "spoken" }, ` ${tool}`));
  }

  async function cardFrom(address) {
    try {
      const fragment = await load(address);
      const element = find("[data-card]", fragment);
      return element ? document.importNode(element, true) : null;
    } catch (problem) {
      if (problem.status === 404 || problem.status === 410) return null;
      throw problem;
    }
  }

  // New cards come one after the other, at the end.

  let wanted = [];
  let isTaking = false;

  function waitingNow(ids) {
    const still = new Set(ids);
    for (const card of openCards()) if (!still.has(card.id)) card.gone();
    wanted = ids.filter((id) => !cards.has(id));
    takeMore();
  }

  async function takeMore() {
    if (isTaking || !find("#cards")) return;
    isTaking = true;
    try {
      while (wanted.length > 0 && openCards().length < MOST_CARDS) {
        const id = wanted.shift();
        if (cards.has(id)) continue;
        const element = await cardFrom(`/card/${id}`);
        if (element === null || cards.has(id)) continue;
        append(element);
      }
    } catch { /* The connection went; what is missing comes when it is back. */ } finally {
      isTaking = false;
      showMood();
      if (counts) showCounts(counts);
    }
  }

  function append(element) {
    element.classList.add("new");
    find("#cards").append(element);
    const card = new Card(element);
    batch.offer();
    showMood();
    announce(`${card.isQuestion ? "A question waits" : "A new request waits"}: ${card.tool}`);
    if (element.getBoundingClientRect().top > innerHeight - 120) find("#below").hidden = false;
  }

  /** Whether anything is there at all. */
  function showMood() {
    const empty = find("#empty");
    if (empty && find("#cards")) empty.hidden = cards.size > 0;
    const below = find("#below");
    if (below && !below.hidden && openCards().every((card) => card.element.getBoundingClientRect().top < innerHeight - 120)) {
      below.hidden = true;
    }
  }

  let counts = null;
  function showCounts(next) {
    counts = next;
    for (const place of all("[data-count]")) {
      const count = next[place.dataset.count] ?? 0;
      place.textContent = count > 999 ? "999+" : String(count);
      place.toggleAttribute("data-none", count === 0);
    }
    const title = document.title.replace(/^\(\d+\+?\) /, "");
    document.title = next.waiting > 0 ? `(${next.waiting}) ${title}` : title;
    const lead = find("[data-lead]");
    if (lead) {
      lead.textContent = next.waiting === 0 ? "Nothing needs you."
        : next.waiting === 1 ? "One request needs your yes or no." : `${next.waiting} requests need your yes or no.`;
    }
    const more = find("#more");
    if (more) {
      const open = openCards().length;
      const coming = Math.min(wanted.length, Math.max(0, MOST_CARDS - open));
      const behind = next.waiting - open - coming;
      more.hidden = behind <= 0;
      find("[data-more]", more).textContent = String(behind);
    }
  }

  // Several at once: only what was shown, of one subtool, all or nothing.

  const batch = {
    ticked: () => openCards().filter((card) => card.part("tick")?.checked),

    /** A box to tick stands where there are two of a kind, and nothing destructive. */
    offer() {
      const kinds = new Map();
      for (const card of openCards()) {
        if (!card.isDangerous && !card.isQuestion) kinds.set(card.tool, (kinds.get(card.tool) ?? 0) + 1);
      }
      const [first] = batch.ticked();
      for (const card of openCards()) {
        const several = !card.isDangerous && !card.isQuestion && kinds.get(card.tool) > 1;
        const fits = !first || first.tool === card.tool;
        card.part("tick-label")?.toggleAttribute("data-on", several && fits);
        if (!several && card.part("tick")) card.part("tick").checked = false;
      }
    },

    refresh() {
      const bar = find("#batch");
      if (!bar) return;
      batch.offer();
      const ticked = batch.ticked();
      const appears = bar.hidden && ticked.length > 0;
      bar.hidden = ticked.length === 0;
      if (ticked.length === 0) return;
      find("[data-batch-count]").textContent = `${ticked.length} ticked`;
      find("[data-batch-tool]").textContent = ticked[0].tool;
      find("[data-batch-approve]").textContent = ticked.length === 1 ? "Approve the one ticked" : `Approve the ${ticked.length} ticked`;
      if (!appears) return;
      bar.inert = true;
      setTimeout(() => { bar.inert = false; }, SETTLE);
    },

    async decide(verdict) {
      const ticked = batch.ticked();
      const bar = find("#batch");
      if (ticked.length === 0 || bar.inert || ticked.some((card) => card.isDeciding)) return;
      if (verdict === "approve" && !ticked.every((card) => card.mayApprove())) return;
      bar.inert = true;
      for (const card of ticked) card.isDeciding = true;
      const decisions = ticked.map((card) => ({ id: card.id, digest: card.digest }));
      try {
        const answer = await send("/decide", { decisions, verdict, reason: null, typed: null });
        for (const card of ticked) {
          card.isDeciding = false;
          if (verdict === "approve") card.approved("approved with others", answer);
          else card.close("ban", "denied by you", "denied");
        }
      } catch (problem) {
        if (!(problem instanceof Problem)) throw problem;
        for (const card of ticked) {
          card.isDeciding = false;
          if (card.isLost) card.gone();
        }
        const left = ticked.find((card) => !card.isClosed);
        left?.tell(`None of the ${ticked.length} was decided. ${inWords(problem)}`);
        left?.part("trouble").scrollIntoView({ block: "nearest" });
      } finally {
        bar.inert = false;
        batch.refresh();
      }
    },

    clear() {
      for (const card of batch.ticked()) card.part("tick").checked = false;
      batch.refresh();
    },
  };

  // Live: one stream for all tabs of the browser, since a browser opens only six connections to one place.

  const live = {
    failures: 0,
    queue: null,
    source: null,
    channel: null,

    start() {
      live.channel = new BroadcastChannel("events");
      live.channel.onmessage = (message) => live.receive(message.data);
      if (navigator.locks) live.lead(false);
      else live.connect();
      document.addEventListener("visibilitychange", () => {
        // A hidden tab is slowed down by its browser: the one that is looked at takes over.
        if (!document.hidden && !live.source && navigator.locks) live.lead(true);
      });
    },

    lead(steal) {
      live.queue?.abort();
      const queue = new AbortController();
      live.queue = queue;
      navigator.locks.request("events", steal ? { steal } : { signal: queue.signal }, () => new Promise(() => live.connect()))
        .catch(() => {
          // Another tab took over; we are next when it closes. Or it was we who left the queue.
          if (queue.signal.aborted) return;
          live.disconnect();
          live.lead(false);
        });
    },

    tell(message) {
      live.receive(message);
      live.channel.postMessage(message);
    },

    connect() {
      live.disconnect();
      if (isSignedOut) return;
      const source = new EventSource("/events");
      live.source = source;
      source.onopen = () => {
        live.failures = 0;
        live.tell({ kind: "open" });
      };
      for (const kind of ["waiting", "task"]) {
        source.addEventListener(kind, (event) => live.tell({ kind, data: JSON.parse(event.data) }));
      }
      source.onerror = () => {
        source.close();
        live.failures += 1;
        live.tell({ kind: "lost" });
        const pause = Math.min(LONGEST_PAUSE, 500 * 2 ** Math.min(live.failures - 1, 6));
        live.retry = setTimeout(live.connect, pause * (0.8 + 0.4 * Math.random()));
      };
    },

    disconnect() {
      clearTimeout(live.retry);
      live.source?.close();
      live.source = null;
    },

    receive({ kind, data }) {
      if (kind === "open") {
        clearTimeout(live.worry);
        if (!isSignedOut) showBanner(null);
        catchUp();
      } else if (kind === "lost") {
        // A restart takes a moment; nobody need be told of that.
        clearTimeout(live.worry);
        live.worry = setTimeout(() => { if (!isSignedOut) showBanner("No connection to the executor. Trying again."); }, 1200);
        // The stream does not say why: a page that answers 401 does.
        load("/").catch(() => {});
      } else if (kind === "waiting") {
        if (find("#cards")) waitingNow(data.ids);
        showCounts(data.counts);
      } else if (kind === "task") {
        taskSaid(data);
      }
    },
  };

  function taskSaid(said) {
    lastSaid.set(said.id, said);
    if (lastSaid.size > 2000) lastSaid.delete(lastSaid.keys().next().value);
    for (const place of all(`[data-task="${CSS.escape(said.id)}"]`)) {
      const badge = find(".state", place);
      if (badge) badge.replaceWith(stateBadge(said.state, said.state_words));
      else if (place.closest(".closed") && said.state !== "denied") place.append(stateBadge(said.state, said.state_words));
      const line = place.closest(".card-closed, .row") ?? place;
      if (said.final) for (const button of all('[data-action="stop"]', line)) button.remove();
    }
    const story = find(`[data-live-task="${CSS.escape(said.id)}"]`);
    if (story) refreshStory(story);
    if (find("#task-rows") && !find(`#task-rows [data-task="${CSS.escape(said.id)}"]`)) refreshRows();
  }

  /** What happened while nobody told us. */
  async function catchUp() {
    try {
      if (find("#cards")) {
        const page = await load("/");
        if (find("#cards", page)) {
          const ids = all("[data-card]", page).map((card) => card.dataset.card);
          // The page shows the first ones only; a card beyond them is not gone.
          const behind = Number(find("[data-more]", page)?.textContent ?? 0);
          waitingNow(behind > 0 ? [...new Set([...ids, ...openCards().map((card) => card.id)])] : ids);
        }
      }
      if (find("#task-rows")) await refreshRows();
      const story = find("[data-live-task]");
      if (story) await refreshStory(story);
    } catch { /* Gone again: the next connection catches up. */ }
  }

  /** Rows keep their places: known ones change, new ones come at the end. */
  async function refreshRows() {
    const page = await load("/tasks");
    const rows = find("#task-rows");
    for (const fresh of all("#task-rows > [data-task]", page)) {
      const own = find(`[data-task="${CSS.escape(fresh.dataset.task)}"]`, rows);
      if (!own) rows.append(document.importNode(fresh, true));
      else find(".state", own).replaceWith(document.importNode(find(".state", fresh), true));
    }
    find("#empty").hidden = rows.children.length > 0;
  }

  let storyTimer = 0;
  function refreshStory(story) {
    clearTimeout(storyTimer);
    storyTimer = setTimeout(async () => {
      // Not while somebody writes in it.
      if (story.contains(document.activeElement) && document.activeElement.matches("input, textarea, select")) return;
      const fresh = find("[data-live-task]", await load(location.pathname).catch(() => document));
      if (fresh && fresh !== story) {
        const hadFocus = story.contains(document.activeElement);
        story.replaceChildren(...[...fresh.childNodes].map((node) => document.importNode(node, true)));
        if (hadFocus) find("#main").focus({ preventScroll: true });
      }
    }, 120);
  }

  // Time passes.

  function span(seconds) {
    if (seconds < 60) return `${Math.max(0, Math.floor(seconds))} s`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
    if (seconds < 172_800) return `${Math.floor(seconds / 3600)} h`;
    return `${Math.floor(seconds / 86_400)} d`;
  }

  function tick() {
    const now = Date.now();
    for (const time of all("time[data-ago], time[data-left]")) {
      const at = Date.parse(time.dateTime);
      if (Number.isNaN(at)) continue;
      const words = "ago" in time.dataset ? `${span((now - at) / 1000)} ago`
        : at > now ? `${span((at - now) / 1000)} left` : "time is up";
      if (time.textContent !== words) time.textContent = words;
    }
  }

  // What a person does.

  async function act(button, path, body, done) {
    if (button.getAttribute("aria-busy") === "true") return;
    button.setAttribute("aria-busy", "true");
    button.setAttribute("aria-disabled", "true");
    try {
      done(await send(path, body));
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      button.removeAttribute("aria-busy");
      button.removeAttribute("aria-disabled");
      const words = problem.answer.decided ?? inWords(problem);
      button.title = words;
      announce(words);
      showBanner(words);
      setTimeout(() => { if (find("#banner").textContent === words) showBanner(null); }, 6000);
    }
  }

  const cardOf = (element) => cards.get(element.closest("[data-card]")?.dataset.card);

  const actions = {
    theme: switchTheme,
    help() { find("#help").showModal(); },
    logout(button) { act(button, "/logout", {}, () => location.replace("/")); },
    approve(button) { cardOf(button).approve(); },
    decline(button) { cardOf(button).answer("decline"); },
    dismiss(button) { cardOf(button).answer("cancel"); },
    open(button) {
      const card = cardOf(button);
      if (button.getAttribute("aria-expanded") === "true") card.shut();
      else card.open(button.dataset.opens);
    },
    shut(button) { cardOf(button).shut(); },
    below() {
      const last = openCards().findLast((card) => card.element.getBoundingClientRect().top > innerHeight - 120);
      last?.element.focus({ preventScroll: true });
      last?.element.scrollIntoView({ block: "start", behavior: "smooth" });
      find("#below").hidden = true;
    },
    "batch-approve"() { batch.decide("approve"); },
    "batch-deny"() { batch.decide("deny"); },
    "batch-clear"() { batch.clear(); },
    stop(button) {
      act(button, "/cancel", { id: button.dataset.id }, () => {
        find("span", button).textContent = "Stopping";
        announce("told to stop");
      });
    },
    revoke(button) {
      act(button, "/grants/revoke", { id: button.dataset.id }, () => {
        const grant = button.closest("[data-grant-id]");
        find("[data-grant-state]", grant).textContent = "revoked";
        grant.classList.add("over");
        grant.tabIndex = -1;
        grant.focus({ preventScroll: true });
        // Its place stays, so that the rest does not move under the pointer.
        button.style.visibility = "hidden";
        announce("revoked");
      });
    },
  };

  const forms = {
    deny(card) { card.deny(); },
    edit(card) { card.edit(); },
    changes(card) { card.approveEdited(); },
    remember(card) { card.remember(); },
    answer(card) { card.answer("accept"); },
  };

  async function tryIt(form) {
    const input = formInput(form);
    const trouble = find("[data-trouble]", form);
    trouble.textContent = "";
    if (input === null || form.getAttribute("aria-busy") === "true") return;
    form.setAttribute("aria-busy", "true");
    try {
      const { id } = await send("/try", { tool: form.dataset.tool, input });
      location.assign(`/task/${encodeURIComponent(id)}`);
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      trouble.textContent = problem.status === 422 ? showProblems(form, problem.answer.problems ?? []).join(" ") : inWords(problem);
    } finally {
      form.removeAttribute("aria-busy");
    }
  }

  async function settleIt(form, happened) {
    const trouble = find("[data-trouble]", form);
    try {
      await send("/settle", { id: form.dataset.id, happened, note: find("[data-note]", form).value.trim() || null });
      location.reload();
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      trouble.textContent = problem.answer.decided ?? inWords(problem);
    }
  }

  /** Searches while one types; without this the form does the same by itself. */
  let searching = 0;
  function search(form) {
    clearTimeout(searching);
    searching = setTimeout(async () => {
      const found = find("#found");
      const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
      const address = `${form.getAttribute("action")}${query.size > 0 ? `?${query}` : ""}`;
      found.setAttribute("aria-busy", "true");
      try {
        const fresh = find("#found", await load(address));
        found.replaceChildren(...[...fresh.childNodes].map((node) => document.importNode(node, true)));
        history.replaceState(null, "", address);
        const many = all(".row", found).length;
        announce(many === 1 ? "1 found" : `${many} found`);
      } catch { /* The last answer stays. */ } finally {
        found.removeAttribute("aria-busy");
      }
    }, 180);
  }

  function onClick(event) {
    const button = event.target.closest("[data-action]");
    if (!button) return;
    // The second click of a double click was meant for what stood here before.
    if (event.detail > 1 && button.dataset.action !== "theme") return;
    actions[button.dataset.action](button);
  }

  function onSubmit(event) {
    const form = event.target;
    const kind = form.dataset.form;
    if ("search" in form.dataset) {
      event.preventDefault();
      search(form);
    }
    if (!kind) return;
    event.preventDefault();
    if (kind === "try") tryIt(form);
    else if (kind === "settle") settleIt(form, event.submitter?.value === "true");
    else forms[kind](cardOf(form));
  }

  function onInput(event) {
    const { target } = event;
    if (target.closest("[data-search]")) return search(target.closest("[data-search]"));
    if (target.id === "keys-on") {
      memory.set("keys", target.checked ? null : "off");
      root.toggleAttribute("data-no-keys", !target.checked);
      return undefined;
    }
    const card = cardOf(target);
    if (!card) return undefined;
    if (target.matches("[data-tick]")) batch.refresh();
    else if (target.matches("[data-typed]")) card.refresh();
    else if (target.closest('form[data-form="remember"]') && !target.matches("[data-word-typed]")) card.weighGrant();
    return undefined;
  }

  // The keyboard.

  function current() {
    const focused = cards.get(document.activeElement?.closest?.("[data-card]")?.dataset.card);
    return focused && !focused.isClosed ? focused : null;
  }

  function move(step) {
    const open = openCards();
    if (open.length === 0) return;
    const order = [...cards.values()];
    const here = cards.get(document.activeElement?.closest?.("[data-card]")?.dataset.card);
    const at = here ? order.indexOf(here) : step > 0 ? -1 : order.length;
    const ahead = step > 0 ? order.slice(at + 1) : order.slice(0, at).reverse();
    const next = ahead.find((card) => !card.isClosed) ?? (here && !here.isClosed ? here : open[0]);
    next.element.focus({ preventScroll: true });
    next.element.scrollIntoView({ block: "start" });
  }

  function whenSettled(card, then) {
    if (card.isSettling) card.afterSettling = () => { if (current() === card) then(); };
    else then();
  }

  const keys = {
    j() { move(1); },
    k() { move(-1); },
    a(card) {
      whenSettled(card, () => {
        const typed = card.part("typed");
        const first = card.isQuestion ? find("[data-field] input, [data-field] textarea, [data-field] select", card.element) : null;
        const place = first ?? (typed && typed.value.trim() !== card.word ? typed : find(".actions [data-approve]", card.element));
        place.focus();
        place.scrollIntoView({ block: "nearest" });
      });
    },
    d(card) {
      whenSettled(card, () => {
        if (card.isQuestion) find('[data-action="decline"]', card.element).focus();
        else card.open("deny");
      });
    },
    e(card) { whenSettled(card, () => card.open("edit")); },
    r(card) { whenSettled(card, () => card.open("remember")); },
    x(card) {
      const tick = card.part("tick");
      if (!tick || tick.disabled || !card.part("tick-label").hasAttribute("data-on")) return;
      tick.checked = !tick.checked;
      batch.refresh();
      announce(tick.checked ? "ticked" : "unticked");
    },
  };

  function onKey(event) {
    const { target, key } = event;
    // Holding Enter down must not press what comes next.
    if (key === "Enter" && event.repeat && target.closest("button")) return event.preventDefault();
    if (key === "Escape") {
      const card = cardOf(target);
      if (card && !card.isClosed && card.all("form.panel").some((panel) => !panel.hidden)) {
        event.preventDefault();
        card.shut();
      }
      return undefined;
    }
    const writing = target.closest("input:not([type=checkbox]):not([type=radio]), textarea, select");
    if (key === "Enter" && !event.shiftKey && !event.isComposing && target.matches('form[data-form="deny"] textarea')) {
      event.preventDefault();
      if (!event.repeat) target.form.requestSubmit();
      return undefined;
    }
    if (key === "Enter" && !event.repeat && target.matches(".actions [data-typed]")) {
      event.preventDefault();
      cardOf(target).approve();
      return undefined;
    }
    if (writing || event.ctrlKey || event.metaKey || event.altKey || event.isComposing || find("dialog[open]")) return undefined;
    if ("noKeys" in root.dataset) return undefined;
    if (key === "?") {
      event.preventDefault();
      return find("#help")?.showModal();
    }
    if (key === "/" && find("input[type=search]")) {
      event.preventDefault();
      return find("input[type=search]").focus();
    }
    if (cards.size === 0) return undefined;
    if (key === "ArrowDown" || key === "ArrowUp") {
      // Arrows scroll, as everywhere, until nothing of the card is out of sight.
      const card = current();
      if (!card || target !== card.element) return undefined;
      const { top, bottom } = card.element.getBoundingClientRect();
      if (top < 0 || bottom > innerHeight || card.isLong) return undefined;
      event.preventDefault();
      return move(key === "ArrowDown" ? 1 : -1);
    }
    if (!Object.hasOwn(keys, key) || event.repeat && key !== "j" && key !== "k") return undefined;
    event.preventDefault();
    if (key === "j" || key === "k") return keys[key]();
    const card = current() ?? (openCards().length === 1 ? openCards()[0] : null);
    if (!card) return announce("Choose a request first, with j and k.");
    if (current() !== card) card.element.focus({ preventScroll: true });
    return keys[key](card);
  }

  // Getting in.

  async function login() {
    const secret = location.hash.slice(1);
    if (secret === "") return;
    // Out of the address and its history before anything else can see it.
    history.replaceState(null, "", location.pathname);
    const words = find("[data-login-words]");
    words.textContent = "Opening";
    try {
      await send("/login", { token: secret });
      location.replace("/");
    } catch (problem) {
      words.textContent = problem.status === 403
        ? "This link was used already, or is older than a minute. A new one comes from a terminal of your own:"
        : `${problem.message} Ask for a new link in a terminal of your own:`;
    }
  }

  document.addEventListener("DOMContentLoaded", () => {
    document.addEventListener("click", onClick);
    if (find("[data-login]")) {
      login();
      return;
    }
    // A link that was not needed: its secret does not stay in the address.
    if (location.hash.length > 24 && !document.getElementById(location.hash.slice(1))) {
      history.replaceState(null, "", location.pathname + location.search);
    }
    document.addEventListener("submit", onSubmit);
    document.addEventListener("input", onInput);
    document.addEventListener("keydown", onKey);
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) return;
      tick();
      for (const card of openCards()) card.settle();
    });
    document.addEventListener("scroll", showMood, { passive: true });
    const keysOn = find("#keys-on");
    if (keysOn) keysOn.checked = !("noKeys" in root.dataset);
    for (const element of all("[data-card]")) new Card(element);
    batch.offer();
    const places = all("[data-count]");
    if (places.length > 0) {
      showCounts(Object.fromEntries(places.map((place) => [place.dataset.count, Number(place.textContent)])));
      live.start();
    }
    tick();
    setInterval(tick, 1000);
  });
})();
