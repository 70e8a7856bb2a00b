//! The number of this machine.

use super::error;
use crate::error::Failure;
use crate::guc;
use pgrx::prelude::*;
use shardmaster_client::snowflake::{chance_to_meet, machine_of};
use std::cell::OnceCell;

/// Returns the machine id in the settings, or one derived from a name; the settings are fixed at the server's start.
pub fn id() -> Result<u16, Failure> {
    thread_local! {
        static MACHINE: OnceCell<u16> = const { OnceCell::new() };
    }
    MACHINE.with(|machine| match machine.get() {
        Some(machine) => Ok(*machine),
        None => {
            let found = find()?;
            Ok(*machine.get_or_init(|| found))
        }
    })
}

fn find() -> Result<u16, Failure> {
    if let Some(machine) = guc::machine_id() {
        return Ok(machine);
    }
    let named = |name: Option<String>| name.filter(|name| !name.is_empty());
    let worker_id = named(guc::worker_id()).or_else(|| named(std::env::var("WORKER_ID").ok()));
    let worker_id = worker_id.ok_or_else(error::no_machine)?;
    let machine = machine_of(&worker_id);
    let percent = |machines: u16| 100.0 * chance_to_meet(machines);
    ereport!(
        PgLogLevel::WARNING,
        PgSqlErrorCode::ERRCODE_WARNING,
        format!("machine id {machine} is a hash of \"{worker_id}\""),
        format!(
            "Of 5 machines with hashed ids two share one with a probability of {:.1} %, of 40 with {:.0} %. Set shardmaster.machine_id.",
            percent(5),
            percent(40)
        )
    );
    Ok(machine)
}
