//! Scripts that try to break out, to hang, to exhaust, or to confuse the protocol. Each ends as expected, and what it says
//! stays one message per line.

use std::io;

use script::{FailureKind, Limits, Start, WorkerMessage, worker};
use serde_json::{Value, json};

use super::host::{answer, play, play_with, replay, start};

/// How a script must end.
#[derive(Debug, Clone, Copy)]
enum End {
    /// With a result as this JSON.
    Value(&'static str),
    /// With a failure of this kind whose message or hint contains this.
    Failed(FailureKind, &'static str),
    /// The host never ends what it waits for.
    Waiting,
}

use End::{Failed, Value as Returns, Waiting};
use FailureKind::{Call, Limit, Stuck, Syntax, Thrown, Value as BadValue};

const SCRIPTS: &[(&str, End)] = &[
    // Time.
    ("while (true) {}", Failed(Limit, "compute_ms")),
    ("for (;;) { try { for (;;) {} } catch {} finally { continue } }", Failed(Limit, "compute_ms")),
    ("await echo({}); do {} while (1)", Failed(Limit, "compute_ms")),
    ("(function again() { Promise.resolve().then(again) })(); await never({})", Failed(Limit, "compute_ms")),
    ("queueMicrotask(function again() { queueMicrotask(again) }); await never({})", Failed(Limit, "compute_ms")),
    ("/^(a+)+$/.test('a'.repeat(40) + 'b')", Failed(Limit, "compute_ms")),
    ("try { 'x'.repeat(50).match(/(x+x+)+y/) } catch {} return 1", Failed(Limit, "compute_ms")),
    ("return 'a'.repeat(30).replace(/(a|a)*c/g, '')", Failed(Limit, "compute_ms")),
    ("function* endless() { while (true) yield 1 } return [...endless()].length", Failed(Limit, "")),
    (
        "for (const x of { [Symbol.iterator]() { return { next: () => ({ done: false }) } } }) {}",
        Failed(Limit, "compute_ms"),
    ),
    ("outer: for (;;) { for (;;) { continue outer } }", Failed(Limit, "compute_ms")),
    ("setTimeout(() => { while (true) {} }, 1)", Failed(Limit, "compute_ms")),
    ("return { toJSON() { while (true) {} } }", Failed(Limit, "compute_ms")),
    ("throw { get message() { while (true) {} } }", Failed(Limit, "compute_ms")),
    ("class E extends Error { get message() { while (true) {} } } throw new E()", Failed(Limit, "compute_ms")),
    ("[1, 2, 3].sort(() => { while (true) {} })", Failed(Limit, "compute_ms")),
    ("await { then() { while (true) {} } }", Failed(Limit, "compute_ms")),
    (
        "Array.prototype.indexOf.call(new Proxy({}, { get: (t, k) => k === 'length' ? 2 ** 53 - 1 : 0 }), 1)",
        Failed(Limit, "compute_ms"),
    ),
    // Memory and stack.
    ("const all = []; while (true) all.push(new Array(1000).fill('x'))", Failed(Limit, "memory_bytes")),
    ("let s = 'x'; while (true) s += s", Failed(Thrown, "")),
    ("return 'x'.repeat(2 ** 28)", Failed(Limit, "memory_bytes")),
    ("return new Uint8Array(2 ** 30).length", Failed(Limit, "memory_bytes")),
    ("return new Array(2 ** 31).fill(0).length", Failed(Limit, "")),
    ("const m = new Map(); for (let i = 0; ; i++) m.set(i, { i })", Failed(Limit, "")),
    ("function f() { return f() + 1 } return f()", Failed(Limit, "stack")),
    ("function f() { return f() + 1 } try { f() } catch (e) { return e instanceof RangeError }", Returns("true")),
    ("let o = {}; for (let i = 0; i < 100000; i++) o = { o }; return o", Failed(Limit, "")),
    ("let a = []; for (let i = 0; i < 100; i++) a = [a]; return a", Failed(BadValue, "nested")),
    ("let a = []; for (let i = 0; i < 99; i++) a = [a]; return JSON.stringify(a).length", Returns("200")),
    ("return JSON.parse('['.repeat(1e6))", Failed(Limit, "")),
    ("const o = { toString() { return `${o}` } }; return `${o}`", Failed(Limit, "stack")),
    ("const p = new Proxy({}, { get: (t, k, r) => r[k] }); return p.x", Failed(Limit, "stack")),
    ("return eval('1')", Failed(Thrown, "eval is not available")),
    // Values that cross.
    ("let a = 'x'.repeat(1000); for (let i = 0; i < 20; i++) a = [a, a]; return a", Failed(Limit, "max_value_")),
    ("let a = []; for (let i = 0; i < 60; i++) a = [a, a]; return a", Failed(Limit, "max_value_nodes")),
    ("let a = {}; for (let i = 0; i < 60; i++) a = { a, b: a }; await echo(a)", Failed(Limit, "max_value_nodes")),
    ("return 'x'.repeat(5 * 2 ** 20)", Failed(Limit, "max_value_bytes")),
    ("return '\\u0000'.repeat(2 ** 20)", Failed(Limit, "max_value_bytes")),
    ("await echo({ text: 'é'.repeat(3 * 2 ** 20) })", Failed(Limit, "max_value_bytes")),
    ("return new Array(1e9)", Failed(Limit, "max_value_nodes")),
    ("try { await echo({ a: new Array(1e6) }) } catch { return 'caught' }", Failed(Limit, "max_value_nodes")),
    ("const a = {}; a.a = a; return a", Failed(BadValue, "contains itself")),
    ("const a = []; a.push(a); await echo({ a })", Failed(Thrown, "contains itself")),
    ("return 10n", Failed(BadValue, "BigInt")),
    ("return { total: 10n }", Failed(BadValue, "`total` of the result is a BigInt")),
    ("BigInt.prototype.toJSON = function () { return String(this) }; return [10n]", Returns("[\"10\"]")),
    ("return () => 1", Failed(BadValue, "function")),
    ("return Symbol('x')", Failed(BadValue, "symbol")),
    ("return new Map([[1, 2]])", Failed(BadValue, "Object.fromEntries(map)")),
    ("return { seen: new Set([1]) }", Failed(BadValue, "[...set]")),
    ("return [1, 2].values()", Failed(BadValue, "[...iterator]")),
    ("return { a: echo({}) }", Failed(BadValue, "await")),
    ("return [NaN, Infinity, -0, undefined, () => 1, Symbol('x'), null]", Returns("[null,null,0,null,null,null,null]")),
    (
        "return { a: undefined, b() {}, c: Symbol('x'), d: new Date(0), e: /x/, f: new Error('x') }",
        Returns(r#"{"d":"1970-01-01T00:00:00.000Z","e":{},"f":{}}"#),
    ),
    ("return [new Number(1), new String('x'), new Boolean(false), Object(null)]", Returns(r#"[1,"x",false,{}]"#)),
    ("return new Uint8Array([1, 2])", Returns(r#"{"0":1,"1":2}"#)),
    ("return { toJSON: () => undefined }", Returns("null")),
    ("return { a: { toJSON: (key) => key + '!' } }", Returns(r#"{"a":"a!"}"#)),
    ("return { toJSON() { throw new Error('evil') } }", Failed(BadValue, "evil")),
    ("return { get a() { throw new TypeError('evil') } }", Failed(BadValue, "evil")),
    ("let n = 0; return { get a() { return ++n }, get b() { return ++n } }", Returns(r#"{"a":1,"b":2}"#)),
    ("return { get a() { echo({}); return 1 } }", Failed(BadValue, "stopped")),
    ("return new Proxy({ a: 1 }, { ownKeys: () => ['a', 'a'] })", Failed(BadValue, "")),
    ("return new Proxy([1, 2], {})", Returns("[1,2]")),
    ("return new Proxy({}, { ownKeys() { while (true) {} } })", Failed(Limit, "compute_ms")),
    ("return '\\ud800' + 'a' + '\\udc00' + '\\\\ud800'", Returns(r#""\ufffda\ufffd\\ud800""#)),
    ("return { '\\ud800': 1 }", Returns(r#"{"\ufffd":1}"#)),
    ("return '\\u2028\\u2029\\n\\r\\0\\u0085'", Returns(r#""\u2028\u2029\n\r\u0000\u0085""#)),
    (
        "return JSON.parse('{\"__proto__\": {\"x\": 1}, \"constructor\": 2}')",
        Returns(r#"{"__proto__":{"x":1},"constructor":2}"#),
    ),
    (
        "const x = await echo(JSON.parse('{\"__proto__\": {\"x\": 1}}')); return [x.x ?? 'own', Object.keys(x)]",
        Returns(r#"["own",["__proto__"]]"#),
    ),
    // Wrong arguments.
    ("await echo('text')", Failed(Thrown, "not a string; write echo({")),
    ("await echo([1])", Failed(Thrown, "not an array")),
    ("await echo({}, {})", Failed(Thrown, "not 2 arguments")),
    ("await echo(echo({}))", Failed(Thrown, "await")),
    ("await echo(null)", Failed(Thrown, "not null")),
    ("await echo(() => 1)", Failed(Thrown, "not a function")),
    ("await echo(new Date(0))", Failed(Thrown, "not an object as JSON")),
    ("await Promise.all([1, 2].map(echo))", Failed(Thrown, "not 3 arguments")),
    ("await echo(undefined); return await echo()", Returns("{}")),
    ("await sleep()", Failed(Thrown, "not undefined")),
    ("await sleep(NaN)", Failed(Thrown, "not NaN")),
    ("setTimeout('x()', 1)", Failed(Thrown, "setTimeout takes a function")),
    ("setTimeout(() => {}, Infinity)", Failed(Thrown, "at most")),
    // The host says that there is no such subtool.
    ("return await tools.nothing({})", Returns("{}")),
    ("return { a: echo({ a: 1 }).a }", Failed(Thrown, "write (await echo({ … })).a")),
    ("const { a } = echo({ a: 1 })", Failed(Thrown, "was not awaited")),
    ("return { ...echo({ a: 1 }) }", Failed(Thrown, "was not awaited")),
    ("return Object.keys(echo({ a: 1 }))", Failed(Thrown, "was not awaited")),
    ("return JSON.stringify(echo({ a: 1 }))", Failed(Thrown, "was not awaited")),
    ("return 'a' in echo({ a: 1 })", Failed(Thrown, "was not awaited")),
    ("return `${echo({ a: 1 })}`", Failed(Thrown, "was not awaited")),
    ("for (const row of echo({})) console.log(row)", Failed(Thrown, "was not awaited")),
    ("const hint = new Error('a'); hint.hint = 'do that'; throw hint", Failed(Thrown, "a")),
    // Calls.
    ("for (let i = 0; i < 2000; i++) echo({ i })", Failed(Limit, "max_calls")),
    ("for (let i = 0; ; i++) { try { await echo({ i }) } catch {} }", Failed(Limit, "max_calls")),
    ("while (true) { try { echo({}) } catch {} }", Failed(Limit, "max_calls")),
    ("await new Promise(() => {})", Failed(Stuck, "never settled")),
    ("await { then() {} }", Failed(Stuck, "")),
    ("await echo({}); await new Promise(() => {})", Failed(Stuck, "")),
    ("await never({})", Waiting),
    ("never({}); return 1", Waiting),
    ("fail({}); return 1", Failed(Call, "it failed")),
    ("fail({}).catch(() => {}); return 1", Returns("1")),
    ("Promise.reject(new Error('lost')); return 1", Failed(Thrown, "lost")),
    (
        "const p = Promise.reject(new Error('late')); await echo({}); try { await p } catch { return 'handled' }",
        Returns("\"handled\""),
    ),
    ("echo({}).then(() => { throw new Error('later') }); return 1", Failed(Thrown, "later")),
    ("setTimeout(() => { throw new Error('in a timer') }, 5); return 1", Failed(Thrown, "in a timer")),
    ("await Promise.all([fail({}), fail({}), echo({})])", Failed(Call, "it failed")),
    (
        "try { await fail({ code: 'x' }) } catch (e) { throw new Error('wrapped', { cause: e }) }",
        Failed(Thrown, "its cause: it failed"),
    ),
    ("throw null", Failed(Thrown, "no memory")),
    ("throw undefined", Failed(Thrown, "undefined")),
    ("throw { code: 1 }", Failed(Thrown, "{\"code\":1}")),
    ("throw Symbol('x')", Failed(Thrown, "Symbol(x)")),
    ("throw new Proxy(new Error('x'), { get() { throw 1 } })", Failed(Thrown, "")),
    (
        "const e = new Error('x'); Object.defineProperty(e, 'message', { get() { throw e } }); throw e",
        Failed(Thrown, ""),
    ),
    ("throw new Proxy({}, { getPrototypeOf() { throw 1 } })", Failed(Thrown, "")),
    ("const e = new Error('x'); e.cause = e; throw e", Failed(Thrown, "x")),
    // Changed standard objects.
    ("Object.prototype.x = 1; Object.prototype.toJSON = undefined; return await echo({ a: 1 })", Returns(r#"{"a":1}"#)),
    (
        "Object.prototype.get = () => 1; Object.prototype.value = 2; Object.prototype.has = 3; return await tools.echo({ a: 1 })",
        Returns(r#"{"a":1}"#),
    ),
    (
        "Array.prototype.map = Array.prototype.push = Array.prototype.join = null; return await echo({ a: [1] })",
        Returns(r#"{"a":[1]}"#),
    ),
    ("Array.prototype[Symbol.iterator] = function* () { yield 9 }; return await echo({ a: 1 })", Returns(r#"{"a":1}"#)),
    (
        "for (const k of [0, 1, 2]) Object.defineProperty(Array.prototype, k, { set() { throw 1 }, get: () => 7 }); return await echo({ a: 1 })",
        Failed(Thrown, ""),
    ),
    (
        "JSON.stringify = JSON.parse = () => 'hacked'; try { await fail({ code: 'c' }) } catch (e) { return [e.code, e.details.input] }",
        Returns(r#"["c",{"code":"c"}]"#),
    ),
    ("Promise.prototype.then = function () { throw 1 }; return await echo({ a: 1 })", Returns(r#"{"a":1}"#)),
    (
        "Promise = Map = WeakMap = Error = TypeError = Reflect = String = undefined; try { await fail({}) } catch (e) { return e.message }",
        Returns("\"it failed\""),
    ),
    ("Function.prototype.call = Function.prototype.apply = null; return await echo({ a: 1 })", Returns(r#"{"a":1}"#)),
    ("Reflect.apply = () => 'hacked'; console.log('a'); return await echo({ a: 1 })", Returns(r#"{"a":1}"#)),
    ("globalThis.tools = globalThis.echo = null; return typeof globalThis.echo", Returns("\"object\"")),
    (
        "Error.prepareStackTrace = () => { while (true) {} }; Error.stackTraceLimit = 0; return await echo({ a: 1 })",
        Returns(r#"{"a":1}"#),
    ),
    (
        "Object.defineProperty(Error.prototype, 'stack', { get() { throw 1 } }); return await echo({ a: 1 })",
        Returns(r#"{"a":1}"#),
    ),
    ("WeakMap.prototype.set = WeakMap.prototype.get = () => { throw 1 }; await fail({})", Failed(Call, "it failed")),
    (
        "SubtoolError.prototype.name = 'x'; try { Object.setPrototypeOf(SubtoolError, null) } catch {} try { await fail({}) } catch (e) { return e instanceof SubtoolError }",
        Returns("true"),
    ),
    ("Object.freeze(globalThis); return await echo({ a: 1 })", Returns(r#"{"a":1}"#)),
    ("String.prototype.toWellFormed = null; console.log('a\\ud800'); return 1", Returns("1")),
    ("Promise.prototype.constructor = { [Symbol.species]: null }; return await echo({ a: 1 })", Returns(r#"{"a":1}"#)),
    // The world outside.
    ("return fetch('https://example.com')", Failed(Thrown, "call a subtool")),
    ("const fs = require('fs')", Failed(Thrown, "there are no modules")),
    ("const fs = await import('fs')", Failed(Thrown, "there are no modules")),
    ("import fs from 'fs'; return 1", Failed(Syntax, "leave out `import`")),
    ("export default async function main() {}", Failed(Syntax, "without `export`")),
    ("return process.env.HOME", Failed(Thrown, "no environment")),
    ("return Buffer.from('x')", Failed(Thrown, "btoa")),
    ("return new Function('return 1')()", Failed(Thrown, "Function is not available")),
    ("return (() => {}).constructor('return this')()", Failed(Thrown, "Function is not available")),
    ("return (async () => {}).constructor('return 1')", Failed(Thrown, "Function is not available")),
    ("return (function* () {}).constructor('yield 1')", Failed(Thrown, "Function is not available")),
    (
        "return Reflect.construct(Object.getPrototypeOf(async function* () {}).constructor, ['yield 1'])",
        Failed(Thrown, "Function is not available"),
    ),
    ("setInterval(() => {}, 1)", Failed(Thrown, "await sleep(ms)")),
    ("return new WebAssembly.Module()", Failed(Thrown, "plain JavaScript")),
    (
        "return [typeof process, typeof window, typeof std, typeof os, typeof scriptArgs, typeof print, typeof load, typeof bjson]",
        Returns(r#"["undefined","undefined","undefined","undefined","undefined","undefined","undefined","undefined"]"#),
    ),
    (
        "return [typeof fetch, typeof WeakRef, typeof SharedArrayBuffer, typeof Atomics, typeof gc]",
        Returns(r#"["function","undefined","undefined","undefined","undefined"]"#),
    ),
    ("return Date.now() === new Date().getTime() && new Date().toISOString()", Returns("\"2026-03-05T06:07:08.009Z\"")),
    (
        "return [new Date(2024, 0, 1, 12).toISOString(), new Date('2024-07-01T12:00').getHours(), new Date().getTimezoneOffset()]",
        Returns(r#"["2024-01-01T12:00:00.000Z",12,0]"#),
    ),
    (
        "return [Math.random(), Math.random() === Math.random(), crypto.randomUUID().length]",
        Returns("[0.3484200161251918,false,36]"),
    ),
    ("return arguments.length", Returns("0")),
    ("return Object.getOwnPropertyNames(globalThis).filter((name) => name.startsWith('_'))", Returns("[]")),
    ("return crypto.subtle.digest('SHA-256', new Uint8Array())", Failed(Thrown, "crypto.subtle")),
    ("return (1).toLocaleString('de-DE')", Failed(Thrown, "write \"en-US\"")),
    ("return new Date().toLocaleString('en-US', { timeZone: 'Europe/Berlin' })", Failed(Thrown, "UTC")),
    ("return new Intl.RelativeTimeFormat('en')", Failed(Thrown, "Intl.RelativeTimeFormat")),
    // Sources.
    ("", Returns("null")),
    ("#!/usr/bin/env node\nreturn 1", Returns("1")),
    ("return 1 // no end of line", Returns("1")),
    ("return 1 /*", Failed(Syntax, "")),
    ("}); (async function () {", Returns("null")),
    ("return 1 }", Failed(Syntax, "")),
    ("'unfinished", Failed(Syntax, "")),
    ("const a: string = 'x'; return a", Failed(Syntax, "without types")),
    ("interface Order { id: number }\nreturn 1", Failed(Syntax, "without types")),
    ("```js\nreturn 1\n```\n", Returns("1")),
    ("async function main() { await echo({}) }", Failed(BadValue, "`main`")),
    ("function f() { await echo({}) }", Failed(Syntax, "`async`")),
    ("const echo = await echo({ a: 1 })", Failed(Thrown, "rename it")),
    ("with ({ a: 1 }) { return a }", Returns("1")),
    ("undeclared = 5; return undeclared", Returns("5")),
    ("'use strict'; undeclared = 5", Failed(Thrown, "undeclared")),
    ("debugger; return 1", Returns("1")),
];

fn limited(source: &str) -> Start {
    let limits = Limits { compute_ms: 300, memory_bytes: 32 << 20, max_value_nodes: 20_000, ..Limits::default() };
    Start { limits, ..start(source) }
}

#[test]
fn hostile_scripts_end_as_expected() {
    let mut wrong = Vec::new();
    for (source, end) in SCRIPTS {
        let played = play(limited(source));
        let is_right = match (end, played.last()) {
            (Returns(text), WorkerMessage::Done(done)) => {
                let expected: Value = serde_json::from_str(text).expect("JSON");
                done.value.to_value().is_ok_and(|value| value == expected)
            }
            (Failed(kind, words), WorkerMessage::Failed(failed)) => {
                let said = format!("{} {}", failed.message, failed.hint.as_deref().unwrap_or_default());
                failed.kind == *kind && said.contains(words)
            }
            (Waiting, WorkerMessage::Idle(idle)) => idle.pending == 1,
            _ => false,
        };
        // How long a script computes may differ, and how much memory it needs.
        let is_same = matches!(end, Failed(Limit, _)) || replay(limited(source), &played).messages == played.messages;
        if !is_right || !is_same {
            wrong.push(format!("{source}\n    expected {end:?}\n    got {:?}", played.last()));
        }
    }
    assert!(SCRIPTS.len() >= 80 && wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_limit_ends_a_script_that_catches_everything() {
    let mut start = start("while (true) { try { await echo({}) } catch { } finally { continue } }");
    start.limits.max_calls = 10;
    let played = play(start);
    assert_eq!((played.failed().kind, played.calls().len()), (Limit, 10));
}

#[test]
fn notes_are_cut_and_the_rest_is_dropped() {
    let mut start = start("console.log('é'.repeat(60)); for (let i = 0; i < 100; i++) console.log('n', i)");
    start.limits.max_note_bytes = 21;
    start.limits.max_notes_bytes = 60;
    let played = play(start);
    let notes = played.notes();
    assert_eq!(notes[0], format!("{}… (cut)", "é".repeat(10)));
    assert_eq!(notes.last().copied(), Some("further notes are dropped: the notes of a script are limited"));
    assert!(notes.len() < 15, "{notes:?}");
}

#[test]
fn notes_show_what_was_given() {
    let source = r"
        console.log('a\nb\u2028', 1, { a: [1n, new Map([[1, new Set([2])]])] }, undefined, null, () => 1);
        console.error(new RangeError('no'), echo({}), Symbol('s'), NaN);
        console.info('%s has %d', 'x', 2, 'more'); console.warn(); console.log('100%');
        const loop = {}; loop.loop = loop; console.log(loop, new Proxy({}, { ownKeys() { throw 1 } }));
        console.log({ toString() { throw 1 }, toJSON() { throw 1 } }); console.table([{ a: 1 }]);
        console.assert(1 > 2, 'order'); console.group('g'); console.log('in'); console.groupEnd(); console.count();
        console.log(String.fromCharCode(0xd800));
    ";
    let played = play(start(source));
    assert_eq!(
        played.notes(),
        [
            "a\nb\u{2028} 1 {\"a\":[\"1n\",[[1,[2]]]]} undefined null [Function: ]",
            "RangeError: no [Promise: not awaited] Symbol(s) NaN",
            "x has 2 more",
            "",
            "100%",
            "[a value that cannot be shown] [a value that cannot be shown]",
            "[a value that cannot be shown]",
            "[{\"a\":1}]",
            "order (assertion failed)",
            "g",
            "  in",
            "default: 1",
            "\u{fffd}",
        ]
    );
}

#[test]
fn more_calls_than_may_be_open_wait_for_their_turn() {
    let source = "return (await Promise.all(Array.from({ length: 10 }, (_, n) => echo({ n })))).map((x) => x.n)";
    let mut start = start(source);
    start.limits.max_open = 3;
    let mut most = 0;
    let played = play_with(start, answer, |open| {
        most = most.max(open);
        open - 1
    });
    assert_eq!(played.value(), json!([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]));
    assert_eq!(most, 3);
    let order: Vec<_> = played.calls().iter().map(|call| call.input.as_text().to_owned()).collect();
    assert_eq!(order, (0..10).map(|n| format!("{{\"n\":{n}}}")).collect::<Vec<_>>());
}

#[test]
fn a_script_that_has_returned_says_so_while_calls_are_open() {
    let played = play(start("await Promise.race([echo({}), sleep(60_000)]); return 1"));
    let idles = played.messages.iter().filter_map(|message| match message {
        WorkerMessage::Idle(idle) => Some((idle.pending, idle.is_returned)),
        _ => None,
    });
    assert_eq!(idles.collect::<Vec<_>>(), [(2, false), (1, true)]);
    assert_eq!(played.value(), json!(1));
}

#[test]
fn a_stack_has_the_message_and_the_places() {
    let played = play(start("try {\n  null.x\n} catch (e) { return e.stack }"));
    let stack = played.value();
    let stack = stack.as_str().expect("a text");
    assert!(stack.starts_with("TypeError: ") && stack.contains("(script.js:2:"), "{stack}");
}

#[test]
fn a_cleared_timer_is_not_waited_for() {
    let played =
        play(start("const id = setTimeout(() => { throw 1 }, 1e6); clearTimeout(id); clearTimeout(id); return 1"));
    assert_eq!((played.value(), played.settles.len()), (json!(1), 0));
}

#[test]
fn a_host_that_breaks_the_protocol_is_refused() {
    let begin = r#"{"start": {"source": "await echo({})", "tools": {"echo": "echo"}, "now": 0, "seed": "1"}}"#;
    let settle = |seq: u64| format!(r#"{{"settle": {{"seq": {seq}, "now": 1, "outcome": {{"data": null}}}}}}"#);
    for lines in [
        vec!["nonsense".to_owned()],
        vec![settle(1)],
        vec![begin.to_owned(), begin.to_owned()],
        vec![begin.to_owned(), settle(2)],
        vec![begin.to_owned(), "{}".to_owned()],
    ] {
        let mut input = lines.join("\n").into_bytes();
        input.push(b'\n');
        assert!(worker::serve(&input[..], io::sink()).is_err(), "{lines:?}");
    }
    worker::serve(&b""[..], io::sink()).expect("nothing to do");
}

#[test]
fn a_host_that_is_gone_ends_the_script() {
    struct Closed;
    impl io::Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let begin = "{\"start\": {\"source\": \"while (true) { console.log(1); try { echo({}) } catch {} }\", \"now\": 0, \
                 \"tools\": {\"echo\": \"echo\"}, \"seed\": \"1\"}}\n";
    let error = worker::serve(begin.as_bytes(), Closed).expect_err("the pipe is closed");
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
}
