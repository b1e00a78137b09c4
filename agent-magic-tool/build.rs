//! Links the program without `libgcc_s.so`, if the compiler has it as an archive: every command is a process of its own, to
//! load a library takes a tenth of a millisecond, and the few functions of this one, which print where a panic came from,
//! are small.
//!
//! It stays position-independent, with all relocations read-only, as rustc links it: the executor holds secrets and
//! reads what strangers send. Where the C library knows how, its relocations are packed: 100,000 of them, which would
//! take longer than the rest of a `run`. What an agent starts again and again is the small program
//! (`agent-side/build.rs`).

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The first version of glibc that reads packed relocations.
const PACKS_RELOCATIONS: (u32, u32) = (2, 36);

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |key: &str| env::var(format!("CARGO_CFG_TARGET_{key}")).unwrap_or_default();
    if target("OS") != "linux" {
        return;
    }
    let is_native = env::var("HOST") == env::var("TARGET");
    if is_native && target("ENV") == "gnu" && glibc() >= Some(PACKS_RELOCATIONS) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    if is_native
        && target("ENV") == "gnu"
        && let Some(archives) = ["libgcc_eh.a", "libgcc.a"].map(archive).into_iter().collect::<Option<Vec<_>>>()
    {
        // rustc asks for `gcc_s`. The linker finds this script first, which names the archives in its place.
        let folder = env::var("OUT_DIR").expect("cargo sets it");
        let script = format!("INPUT({})\n", archives.join(" "));
        fs::write(Path::new(&folder).join("libgcc_s.so"), script).expect("the folder of the build is writable");
        println!("cargo::rustc-link-search=native={folder}");
    }
}

/// The version of the C library of this machine: `2.36` is `(2, 36)`.
fn glibc() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let printed = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = printed.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
}

/// The path of an archive of the compiler, if it has one and the path needs no quotes.
fn archive(name: &str) -> Option<String> {
    let output = Command::new("cc").arg(format!("-print-file-name={name}")).output().ok()?;
    let path = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    let is_plain = path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._+-".contains(&byte));
    (is_plain && Path::new(&path).is_absolute() && Path::new(&path).exists()).then_some(path)
}
