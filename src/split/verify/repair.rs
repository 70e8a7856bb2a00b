//! Rows that were found to differ are copied again: their keys are entered in the queue of changes, as if a client had
//! written to them. The next window copies them, whatever state they are in by then.

use crate::agent::error::Result;
use crate::agent::state::epoch::Tenure;
use crate::agent::state::queue;
use crate::catalog::verification;
use crate::remote::quote::literal;
use crate::server::txn::transaction;
use crate::split::engine::sessions::EngineSessions;
use crate::split::table::SplitTable;

/// The number of keys that are entered in one transaction.
const BATCH: i64 = 1000;

/// Enters some of the remaining keys.
pub fn run(tenure: &Tenure, sessions: &mut EngineSessions, tables: &[SplitTable]) -> Result<()> {
    let id = tenure.plan.id;
    let Some(repair) = transaction(|| verification::to_repair(id, BATCH)) else { return Ok(()) };
    if let Some(table) = tables.iter().find(|table| table.policy.ordinal == repair.ordinal) {
        let rows: Vec<String> = repair
            .keys
            .iter()
            .map(|key| {
                let values: Vec<String> = key.iter().map(|value| literal(value)).collect();
                format!("('U', {})", values.join(", "))
            })
            .collect();
        let statement = format!(
            "INSERT INTO {} (op, {}) VALUES {}",
            table.queue,
            queue::keys(&table.source).join(", "),
            rows.join(", ")
        );
        sessions.control_transaction(tenure, &statement)?;
    }
    transaction(|| verification::repaired(id, &repair));
    Ok(())
}
