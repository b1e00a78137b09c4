//! Links the program at a fixed address.
//!
//! Every command is a process of its own. At any other address the loader first adjusts 50,000
//! pointers in 900 KB of tables that belong to the executor (TLS, schemas, SQL), which was more than
//! half of the instructions of a whole `run`. See BENCHMARKS.md.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
