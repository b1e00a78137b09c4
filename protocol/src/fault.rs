//! Fault injection: named points in the code at which a test can kill the process.
//!
//! `AGENT_MAGIC_TOOL_FAULT=commit.before:kill:2` kills the process with SIGKILL when it passes the point
//! `commit.before` for the second time; with `hang` the thread that passes it never goes on. In a release build the points compile to nothing and the variable
//! is not read.

/// The fault point named `what.stage`.
#[cfg(not(debug_assertions))]
#[inline]
pub fn point(_what: &str, _stage: &str) {}

/// The fault point named `what.stage`.
#[cfg(debug_assertions)]
pub fn point(what: &str, stage: &str) {
    use std::sync::atomic::{AtomicU32, Ordering};
    static PASSED: AtomicU32 = AtomicU32::new(0);

    let Some(plan) = plan() else { return };
    if plan.point.split_once('.') == Some((what, stage)) && PASSED.fetch_add(1, Ordering::SeqCst) + 1 == plan.nth {
        if plan.hangs {
            loop {
                std::thread::park();
            }
        }
        nix::sys::signal::kill(nix::unistd::getpid(), nix::sys::signal::Signal::SIGKILL)
            .expect("a process can signal itself");
    }
}

#[cfg(debug_assertions)]
struct FaultPlan {
    point: String,
    hangs: bool,
    nth: u32,
}

#[cfg(debug_assertions)]
fn plan() -> Option<&'static FaultPlan> {
    static PLAN: std::sync::OnceLock<Option<FaultPlan>> = std::sync::OnceLock::new();
    PLAN.get_or_init(|| parse(&std::env::var("AGENT_MAGIC_TOOL_FAULT").ok()?)).as_ref()
}

#[cfg(debug_assertions)]
fn parse(text: &str) -> Option<FaultPlan> {
    let mut parts = text.split(':');
    let point = parts.next()?.to_owned();
    let hangs = match parts.next()? {
        "kill" => false,
        "hang" => true,
        _ => return None,
    };
    Some(FaultPlan { point, hangs, nth: parts.next()?.parse().ok()? })
}
