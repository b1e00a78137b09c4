// Forms made from a schema. Turns what a person typed into JSON that keeps every digit.

import { all, announce, find } from "./draw.js";
import { RawJson } from "./send.js";

const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;

function controls(field) {
    return all("input, textarea, select", field);
}

/** Whether a person changed this field; an untouched field is sent back exactly as it came. */
export function touched(field) {
    return controls(field).some((control) => {
        if (control.type === "radio" || control.type === "checkbox") return control.checked !== control.defaultChecked;
        if (control.tagName === "SELECT")
            return (
                [...control.options].some((option) => option.selected !== option.defaultSelected) &&
                !(control.selectedIndex === 0 && ![...control.options].some((option) => option.defaultSelected))
            );
        return control.value !== control.defaultValue;
    });
}

/** The field's value, `undefined` if it is not given, or a problem to show. */
function fieldValue(field) {
    const { type, json } = field.dataset;
    if (!touched(field) && json !== undefined) return { value: new RawJson(json) };
    const required = "required" in field.dataset;
    const missing = required ? { problem: "This is required." } : { value: undefined };
    const [control] = controls(field);
    switch (type) {
        case "boolean":
        case "choice": {
            const picked = control.tagName === "SELECT" ? control.value : (find("input:checked", field)?.value ?? "");
            return picked === "" ? missing : { value: new RawJson(picked) };
        }
        case "choices": {
            const picked = all("input:checked", field).map((box) => new RawJson(box.value));
            return picked.length === 0 && !touched(field) ? missing : { value: picked };
        }
        case "list": {
            const items = control.value
                .split("\n")
                .map((item) => item.trim())
                .filter(Boolean);
            return items.length === 0 && (!required || !touched(field)) ? missing : { value: items };
        }
        case "number": {
            const text = control.value.trim();
            if (text === "") return missing;
            if (NUMBER.test(text)) return { value: new RawJson(text) };
            return { problem: "This is not a number. Write it like 12 or -0.5." };
        }
        case "json": {
            const text = control.value.trim();
            if (text === "") return missing;
            try {
                JSON.parse(text);
                return { value: new RawJson(text) };
            } catch (error) {
                return { problem: `This is not valid JSON: ${error.message}` };
            }
        }
        default:
            // An empty text that the person typed is a value; the server checks the minimum length.
            if (control.value === "" && (!required || !touched(field))) return missing;
            return { value: control.value };
    }
}

/** The input of a form as a tree of maps, or `null` after showing what is wrong. */
export function formInput(form) {
    const input = new Map();
    const problems = [];
    for (const field of all("[data-field]", form)) {
        const { value, problem } = fieldValue(field);
        if (problem) problems.push({ pointer: field.dataset.pointer, problem });
        if (problem || value === undefined) continue;
        const keys = field.dataset.pointer
            .split("/")
            .slice(1)
            .map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"));
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

/** Shows each problem under its field, and returns those that belong to no field, as text. */
export function showProblems(form, problems) {
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
    if (problems.length > 0)
        announce(`${problems.length} ${problems.length === 1 ? "field needs" : "fields need"} another look`);
    return [...left].map((one) => (one.pointer ? `${one.pointer}: ${one.problem}` : one.problem));
}
