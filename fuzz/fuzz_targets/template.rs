//! See `template` in `src/lib.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| agent_magic_tool_fuzz::template(bytes));
