//! Statistics of the target's tables, made before clients use it. Autovacuum would be too late: without them the
//! planner does not use an index that it used on the source. They are made in a session of its own, between two steps
//! and before writers wait for the cutover; a table that cannot be analyzed does not delay anything, and the history
//! names it with the reason.

use crate::agent::catalogs;
use crate::agent::session::{self, Side};
use crate::agent::table_names::TableNames;
use crate::catalog::split::{self, Plan};
use crate::guc;
use crate::remote::{Connection, RemoteError};
use crate::server::txn::transaction;
use crate::server::wait;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const UNANALYZED: &str = include_str!("../../sql/check/unanalyzed.sql");

/// This is shorter than deadlock_timeout, after which an autovacuum would be cancelled.
const LOCK_MS: u32 = 500;
/// How long it works before the split's next step.
const TURN: Duration = Duration::from_secs(5);
/// The number of tables in one statement.
const TOGETHER: usize = 16;
/// The first version with the right MAINTAIN.
const HAS_MAINTAIN: i32 = 170_000;

/// A table that is to be analyzed.
struct AnalyzedTable {
    position: usize,
    /// The name, qualified and quoted.
    name: String,
    /// The table, or a partition of it, that the mover may not analyze.
    forbidden: Option<String>,
}

/// Analyzes the tables that took rows and were not analyzed since, each once by this engine. Returns false if some are
/// left until after the next step.
pub fn run(plan: &Plan, target: &mut Connection, analyzed: &mut BTreeSet<usize>) -> bool {
    let began = Instant::now();
    let purpose = format!("split {} analyze", plan.id);
    let opened = unanalyzed(plan, target, analyzed).and_then(|tables| {
        // Mostly nothing is to be done, and a session costs more than this check.
        let needs_session = tables.iter().any(|table| table.forbidden.is_none());
        let session = needs_session.then(|| open(plan, &purpose)).transpose()?;
        Ok((session, tables))
    });
    let (session, tables) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            tell(plan.id, &format!("tables of the target were not analyzed: {error}"));
            return true;
        }
    };
    let (forbidden, allowed): (Vec<AnalyzedTable>, Vec<AnalyzedTable>) =
        tables.into_iter().partition(|table| table.forbidden.is_some());
    for table in &forbidden {
        let name = table.forbidden.as_deref().unwrap_or_default();
        let why = format!("the mover owns neither {name} nor the database, and has no MAINTAIN on it");
        not_analyzed(plan.id, analyzed, table, &why);
    }
    let Some(mut session) = session else { return true };
    for some in allowed.chunks(TOGETHER) {
        if began.elapsed() > TURN {
            return false;
        }
        // A table that cannot be analyzed does not prevent the others.
        if together(&mut session, some) {
            analyzed.extend(some.iter().map(|table| table.position));
            continue;
        }
        for table in some {
            if began.elapsed() > TURN {
                return false;
            }
            wait::report(&format!("statistics of table {} on the target", table.name));
            match analyze(&mut session, &table.name) {
                Ok(()) => {
                    analyzed.insert(table.position);
                }
                Err(error) => not_analyzed(plan.id, analyzed, table, &error.to_string()),
            }
        }
    }
    true
}

/// Analyzes several tables in one statement, which is one round trip: outside of a transaction each has one of its
/// own. Returns false if one of them failed.
fn together(session: &mut Connection, tables: &[AnalyzedTable]) -> bool {
    let names: Vec<&str> = tables.iter().map(|table| table.name.as_str()).collect();
    let Some(first) = names.first() else { return true };
    wait::report(&format!("statistics of table {first} and {} more on the target", names.len() - 1));
    names.len() > 1 && analyze(session, &names.join(", ")).is_ok()
}

/// Records a table that was not analyzed. It is not tried again: its clients find no statistics.
fn not_analyzed(split: i64, analyzed: &mut BTreeSet<usize>, table: &AnalyzedTable, why: &str) {
    analyzed.insert(table.position);
    let name = &table.name;
    tell(split, &format!("table {name} of the target was not analyzed, so that it has no statistics: {why}"));
}

fn tell(split: i64, text: &str) {
    transaction(|| split::event_again(split, text));
}

fn open(plan: &Plan, purpose: &str) -> Result<Connection, RemoteError> {
    let mut session = session::open(&plan.target, purpose)?;
    let limit = guc::remote_timeout().as_millis() * 4 / 5;
    session.run(&format!("SET lock_timeout = {LOCK_MS}; SET statement_timeout = '{limit}ms'"))?;
    Ok(session)
}

fn unanalyzed(
    plan: &Plan,
    target: &mut Connection,
    analyzed: &BTreeSet<usize>,
) -> Result<Vec<AnalyzedTable>, RemoteError> {
    let [schemas, names] = TableNames::of(plan, Side::Target).lists();
    let right = (target.server_version() >= HAS_MAINTAIN).then_some("MAINTAIN");
    let parameters = [Some(schemas.as_str()), Some(&names), right];
    let rows = catalogs::ask_again(target, "unanalyzed", UNANALYZED, &parameters)?;
    let table = |row: &Vec<Option<String>>| {
        let [Some(position), Some(name), forbidden] = row.as_slice() else { return None };
        Some(AnalyzedTable {
            position: position.parse().ok()?,
            name: name.clone(),
            forbidden: forbidden.clone(),
        })
    };
    let all = rows.rows.iter().filter_map(table);
    Ok(all.filter(|table| !analyzed.contains(&table.position)).collect())
}

/// Analyzes tables. What indexes and statistics compute runs with the rights of the tables' owners, not with the
/// mover's.
fn analyze(session: &mut Connection, names: &str) -> Result<(), RemoteError> {
    session.run(&format!("ANALYZE {names}")).map(drop)
}
