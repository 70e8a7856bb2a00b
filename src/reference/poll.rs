//! The state of an origin that each turn reads, at the cost of a check of its queues.

use crate::agent::error::SplitError;
use crate::agent::reference::{queue_table, sequence};
use crate::agent::state::reference as rows;
use crate::catalog::reference::ReferenceSet;
use crate::guc;
use crate::reference::copies::{self, ReferenceOrigin};
use crate::reference::install::ReferenceWorker;
use crate::reference::{points, probe};
use crate::remote::Connection;
use crate::remote::quote::text_array;
use crate::server::injection::reach;

/// The state of an origin that each turn reads.
pub struct Pulse {
    pub is_full: bool,
    pub has_entries: bool,
    pub bytes: i64,
    /// The bytes that a queue may have.
    limit: i64,
    /// A text that differs once a table was truncated, rewritten or altered, or its triggers were: the queue does not
    /// show that.
    pub tables: String,
}

/// Reads the state, and opens its queues again if one was full.
pub fn look_at_origin(
    set: &ReferenceSet,
    origin: &mut ReferenceOrigin,
    by: &ReferenceWorker<'_>,
) -> Result<Pulse, SplitError> {
    let backoff = origin.backoff.clone();
    let outcome = copies::with_connect_timeout(&backoff, || {
        let control = origin.control(set, by)?;
        let pulse = pulse(set, control)?;
        if pulse.is_full {
            reach(points::FULL)?;
            let queues = existing(control, queues(set))?;
            rows::reopen(control, set, by.generation, &queues)?;
        }
        if pulse.limit != guc::queue_max_bytes() {
            rows::limit(control, set, by.generation)?;
        }
        Ok(pulse)
    });
    origin.backoff = backoff;
    outcome
}

pub fn queues(set: &ReferenceSet) -> Vec<String> {
    set.tables.iter().chain(&set.dropped).map(|member| queue_table(set.id, member.ordinal)).collect()
}

/// Returns existing queues: new tables have none yet.
pub fn existing(control: &mut Connection, queues: Vec<String>) -> Result<Vec<String>, SplitError> {
    let list = text_array(&queues);
    let found = control
        .query("SELECT q FROM unnest($1::text[]) AS q WHERE to_regclass(q) IS NOT NULL", &[Some(&list)])?;
    Ok(found.rows.into_iter().filter_map(|row| row.into_iter().next().flatten()).collect())
}

fn pulse(set: &ReferenceSet, control: &mut Connection) -> Result<Pulse, SplitError> {
    let queues = existing(control, queues(set))?;
    let exists: Vec<String> = queues.iter().map(|queue| format!("EXISTS (SELECT 1 FROM {queue})")).collect();
    let sizes: Vec<String> =
        queues.iter().map(|queue| format!("pg_relation_size('{queue}'::regclass)")).collect();
    let or = |list: Vec<String>, by: &str, none: &str| {
        if list.is_empty() { none.to_owned() } else { list.join(by) }
    };
    let glance = probe::glance(control, set, &set.tables, &set.origin.shard)?;
    let answers = control.run_for_each(&format!(
        "{glance};
         SELECT o.is_full OR coalesce(pg_sequence_last_value('shardmaster_agent.{}'::regclass), 1) > 1, {}, {}, o.max_bytes
           FROM shardmaster_agent.reference_origin o WHERE o.set_id = {}",
        sequence(set.id),
        or(exists, " OR ", "false"),
        or(sizes, " + ", "0"),
        set.id
    ))?;
    let (tables, answer) = (answers.first(), answers.get(1));
    let Some([is_full, has_entries, bytes, limit]) =
        answer.and_then(|answer| answer.rows.first()).map(Vec::as_slice)
    else {
        return Err(probe::not_restored(control));
    };
    let number = |cell: &Option<String>| cell.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0);
    Ok(Pulse {
        is_full: is_full.as_deref() == Some("t"),
        has_entries: has_entries.as_deref() == Some("t"),
        bytes: number(bytes),
        limit: number(limit),
        tables: tables.and_then(|answer| answer.scalar()).unwrap_or_default().to_owned(),
    })
}
