//! Injection points, for tests: `shardmaster.fault` holds, breaks, ends or kills a worker
//! there.

use super::txn::transaction;
use super::{sql, wait};
use crate::guc;
use std::time::Duration;

/// A place in the code, on the near or the far side of a commit.
pub struct Point {
    pub name: &'static str,
    pub phase: &'static str,
    pub description: &'static str,
}

/// The error of `'point=error'`: it passes by itself, so the worker tries again.
#[derive(Debug, thiserror::Error)]
#[error("fault injected at point \"{0}\"")]
pub struct InjectedFault(pub &'static str);

/// Free when the setting is empty. Never called inside a transaction of the master.
pub fn reach(point: &'static Point) -> Result<(), InjectedFault> {
    let Some(fault) = guc::fault() else { return Ok(()) };
    let Some(("", action)) = fault.strip_prefix(point.name).and_then(|rest| rest.split_once('=')) else {
        return Ok(());
    };
    match action {
        "hold" => hold(point, &fault),
        "error" if fires(&fault) => return Err(InjectedFault(point.name)),
        "exit" if fires(&fault) => std::process::exit(1),
        // SAFETY: kill of our own process.
        "kill" if fires(&fault) => unsafe {
            kill(std::process::id() as i32, 9);
        },
        _ => {}
    }
    Ok(())
}

unsafe extern "C" {
    fn kill(pid: i32, signal: i32) -> i32;
}

/// Waits here until the setting changes.
fn hold(point: &Point, fault: &str) {
    let _said = wait::said();
    wait::report(&format!("held at point \"{}\"", point.name));
    while guc::fault().as_deref() == Some(fault) {
        wait::sleep(Duration::from_secs(1));
    }
}

/// True once for each value of the setting, across restarts of the server.
fn fires(fault: &str) -> bool {
    transaction(|| {
        sql::write(
            "INSERT INTO shardmaster.fault_fired (fault) VALUES ($1) ON CONFLICT DO NOTHING",
            &[fault.into()],
        )
    }) == 1
}
