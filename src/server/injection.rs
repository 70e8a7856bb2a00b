//! Injection points, for tests: `shardmaster.fault` holds, fails, ends or kills a worker there. It contains
//! `point=action` for each of them, separated by commas.

use super::txn::transaction;
use super::{sql, wait};
use crate::error::{Failure, SqlState};
use crate::guc;
use std::time::Duration;

/// A place in the code, before or after a commit.
pub struct Point {
    pub name: &'static str,
    pub phase: &'static str,
    pub description: &'static str,
}

/// Makes constants of injection points, in the order in which they are reached: of one phase, or each with its own.
/// Those of a split come with the list of all of them, of which tests ask the server.
macro_rules! points {
    ($phase:literal: $($id:ident = $name:literal, $description:literal;)+) => {
        $(pub const $id: &$crate::server::injection::Point =
            &$crate::server::injection::Point { name: $name, phase: $phase, description: $description };)+
    };
    ($($id:ident = $name:literal, $phase:literal, $description:literal;)+) => {
        $(pub const $id: &$crate::server::injection::Point =
            &$crate::server::injection::Point { name: $name, phase: $phase, description: $description };)+
        pub const ALL: &[&$crate::server::injection::Point] = &[$($id),+];
    };
}
pub(crate) use points;

/// The error of `'point=error'`: it is transient, so the worker tries again.
#[derive(Debug, thiserror::Error)]
#[error("fault injected at point \"{0}\"")]
pub struct InjectedFault(pub &'static str);

/// Reaches an injection point. It costs nothing if the setting is empty. It is never called inside a transaction of
/// the master. A fault that was set before the event that leads here is known here: a worker that has not waited since
/// reads the setting now.
pub fn reach(point: &'static Point) -> Result<(), InjectedFault> {
    wait::reload();
    reach_if(point, fires)
}

/// Reaches a point in a session that calls a procedure, whose transaction is open. That it has fired is not recorded:
/// the session ends with it.
pub fn reach_in_session(point: &'static Point) -> Result<(), InjectedFault> {
    reach_if(point, |_| true)
}

fn reach_if(point: &'static Point, fires: impl Fn(&str) -> bool) -> Result<(), InjectedFault> {
    let Some(faults) = guc::fault() else { return Ok(()) };
    let Some(fault) = of_point(&faults, point.name) else { return Ok(()) };
    match &fault[point.name.len() + 1..] {
        "hold" => hold(point, fault),
        "error" if fires(fault) => return Err(InjectedFault(point.name)),
        "exit" if fires(fault) => std::process::exit(1),
        // SAFETY: this kills our own process.
        "kill" if fires(fault) => unsafe {
            kill(std::process::id() as i32, 9);
        },
        _ => {}
    }
    Ok(())
}

impl From<InjectedFault> for Failure {
    fn from(fault: InjectedFault) -> Failure {
        Failure::new(SqlState::INTERNAL, fault.to_string())
    }
}

/// Returns the setting of a point, as `point=action`.
fn of_point<'a>(faults: &'a str, point: &str) -> Option<&'a str> {
    let mut each = faults.split(',').map(str::trim);
    each.find(|fault| fault.strip_prefix(point).is_some_and(|rest| rest.starts_with('=')))
}

unsafe extern "C" {
    fn kill(pid: i32, signal: i32) -> i32;
}

/// Waits here for as long as the setting requires.
fn hold(point: &Point, fault: &str) {
    let _status = wait::status_scope();
    wait::report_anywhere(&format!("held at point \"{}\"", point.name));
    while guc::fault().is_some_and(|faults| of_point(&faults, point.name) == Some(fault)) {
        wait::sleep(Duration::from_secs(1));
        wait::reload_anywhere();
    }
}

/// Returns true once for each `point=action`, across restarts of the server.
fn fires(fault: &str) -> bool {
    transaction(|| {
        sql::write(
            "INSERT INTO shardmaster.fault_fired (fault) VALUES ($1) ON CONFLICT DO NOTHING",
            &[fault.into()],
        )
    }) == 1
}
