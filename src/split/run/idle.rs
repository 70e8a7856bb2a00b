//! A split without writes. Its queues are checked as often as steps are made otherwise, less often when nothing has
//! come for long, and steps themselves become rare: changes of tables, leases and figures can wait for a time that
//! grows with the time in which nothing came. A session that requests something wakes the worker.

use super::Worker;
use super::pace::is_lease_due;
use crate::agent::error::Result;
use crate::agent::state::overflow;
use crate::remote::Connection;
use crate::server::wait;
use crate::split::table::SplitTable;
use std::time::{Duration, Instant};

/// The longest time between two steps.
const LONGEST: Duration = Duration::from_secs(10);
/// The longest time between two checks, used if nothing has come for twenty times as long.
const SELDOM: Duration = Duration::from_secs(1);
/// The time that a check may take: if queues are large a step is as cheap.
const QUICK: Duration = Duration::from_millis(20);

impl Worker {
    /// Waits between two steps; it ends early if something has come, or this worker is woken.
    pub(super) fn pause(&mut self, pause: Duration) {
        let Some(since) = self.idle_since else {
            wait::sleep(pause);
            return;
        };
        let until = Instant::now() + (since.elapsed() / 2).min(LONGEST);
        let pause = || pause.max((since.elapsed() / 20).min(SELDOM));
        while !wait::sleep(pause()) && Instant::now() < until && !is_lease_due(self.lease_renewed) {
            let began = Instant::now();
            // An error comes again in the step, which reports it.
            let is_empty = self.engine.as_mut().is_some_and(|engine| {
                are_empty(engine.tenure.plan.id, &mut engine.sessions.control, &engine.tables)
                    .unwrap_or(false)
            });
            if !is_empty || began.elapsed() > QUICK {
                return;
            }
        }
    }
}

/// Whether no change waits on the source.
fn are_empty(split: i64, control: &mut Connection, tables: &[SplitTable]) -> Result<bool> {
    let queues = tables.iter().map(|table| format!("EXISTS (SELECT FROM {})", table.queue));
    let all: Vec<String> = queues.chain([overflow::any(split)]).collect();
    control.prepare("queues", &format!("SELECT {}", all.join(" OR ")))?;
    Ok(control.run("EXECUTE queues")?.scalar() == Some("f"))
}
