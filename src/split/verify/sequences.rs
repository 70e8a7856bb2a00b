//! Sequences of tables that were found equal: whether one has numbers of its own, on either side, and a row has a
//! number that it will give out later. This is reported beside the table, and does not block a finish: no row is
//! wrong.

use super::slice::position_of;
use crate::agent::error::Result;
use crate::agent::session::Side;
use crate::agent::table_names::TableNames;
use crate::catalog::split::Plan;
use crate::catalog::verification::{RowDifference, VerificationStatus};
use crate::numbers::behind::{self, NumberEnd};
use crate::numbers::introspect;
use crate::split::engine::Engine;
use crate::split::engine::sessions::EngineSessions;
use crate::split::table::SplitTable;

/// Checks them after the cutover, while both sides' tables are locked.
pub fn look_at(engine: &mut Engine) -> Result<()> {
    let Some(mut run) = engine.verification.take() else { return Ok(()) };
    let done: Vec<(usize, usize)> = run
        .compared
        .iter()
        .enumerate()
        .filter(|(_, (table, _))| table.status == VerificationStatus::Passed)
        .filter_map(|(number, (table, _))| Some((position_of(&engine.tables, table.ordinal)?, number)))
        .collect();
    let found = if done.is_empty() {
        Ok(Vec::new())
    } else {
        find(&engine.tenure.plan, &mut engine.sessions, &engine.tables, &done)
    };
    for behind in found.as_deref().unwrap_or_default() {
        let of_table = done.iter().find(|(position, _)| *position == behind.column.0);
        if let Some((table, _)) = of_table.and_then(|(_, number)| run.compared.get_mut(*number)) {
            let key = vec![behind.number.to_string()];
            table.example.get_or_insert(RowDifference { key, what: behind.text() });
        }
    }
    engine.verification = Some(run);
    found.map(drop)
}

fn find(
    plan: &Plan,
    sessions: &mut EngineSessions,
    tables: &[SplitTable],
    done: &[(usize, usize)],
) -> Result<Vec<behind::NumberBehind>> {
    let lists = [Side::Source, Side::Target].map(|side| TableNames::keyed_lists(plan, side));
    let is_done = |position: usize| done.iter().any(|(other, _)| *other == position);
    let EngineSessions { reader, target, .. } = sessions;
    let of = |name: &dyn Fn(usize) -> String| -> Vec<Option<String>> {
        (0..tables.len()).map(|position| is_done(position).then(|| name(position))).collect()
    };
    let mut ends = [
        NumberEnd {
            tables: of(&|position| tables[position].source.name.clone()),
            sequences: introspect::of_tables(reader, &lists[0])?,
            session: reader,
        },
        NumberEnd {
            tables: of(&|position| tables[position].target.name.clone()),
            sequences: introspect::of_tables(target, &lists[1])?,
            session: target,
        },
    ];
    Ok(behind::find(&mut ends)?)
}
