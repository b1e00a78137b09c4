//! Links the small program as one file that needs no other: it starts in half the time of one that loads libraries, and
//! runs in a container or sandbox that has nothing else. See BENCHMARKS.md.
//!
//! Where the C library is not there as an archive, the program is linked as any other.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |key: &str| env::var(format!("CARGO_CFG_TARGET_{key}")).unwrap_or_default();
    if target("OS") != "linux" || target("ENV") != "gnu" || env::var("HOST") != env::var("TARGET") {
        return;
    }
    // rustc asks for these by name, and for the kind that is loaded. The linker finds the scripts first, which name the
    // archives in their place.
    let libraries = [("gcc_s", "libgcc_eh.a"), ("c", "libc.a"), ("m", "libm.a")].into_iter();
    let others = ["dl", "pthread", "rt", "util"].map(|name| (name, format!("lib{name}.a")));
    let libraries = libraries.map(|(name, archive)| (name, archive.to_owned())).chain(others);
    let folder = env::var("OUT_DIR").expect("cargo sets it");
    for (name, file) in libraries {
        let Some(path) = archive(&file) else {
            println!("cargo::warning={file} is not installed, so the small program needs libraries when it starts");
            return;
        };
        let script = Path::new(&folder).join(format!("lib{name}.so"));
        fs::write(script, format!("INPUT({path})\n")).expect("the folder of the build is writable");
    }
    // Only for the program: a search path for the library would also be one of the full program, which loads its libraries.
    println!("cargo::rustc-link-arg-bins=-L{folder}");
    println!("cargo::rustc-link-arg-bins=-static");
    println!("cargo::rustc-link-arg-bins=-no-pie");
}

/// The path of an archive of the compiler, if it has one and the path needs no quotes.
fn archive(name: &str) -> Option<String> {
    let output = Command::new("cc").arg(format!("-print-file-name={name}")).output().ok()?;
    let path = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    let is_plain = path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._+-".contains(&byte));
    (is_plain && Path::new(&path).is_absolute() && Path::new(&path).exists()).then_some(path)
}
