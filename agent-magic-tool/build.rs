//! Links the program at a fixed address.
//!
//! Every command is a process of its own. In a position-independent executable the loader first
//! relocates 50,000 pointers in 900 KB of tables that belong to the executor (TLS, schemas, SQL), which
//! took more than half of the instructions of a `run`. See BENCHMARKS.md.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
