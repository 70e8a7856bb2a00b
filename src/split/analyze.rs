//! Statistics of the target's tables, before clients come to it. Nobody else makes them in time: without them the planner does
//! not use an index that it used on the source. In a session of its own, between two steps and before anybody waits for the
//! cutover; a table that cannot be analyzed keeps nothing waiting, and the history says which and why.

use super::engine::Engine;
use crate::agent::session::{self, Side};
use crate::agent::{catalogs, observe};
use crate::catalog::split;
use crate::guc;
use crate::remote::quote::text_array;
use crate::remote::{Connection, RemoteError};
use crate::server::txn::transaction;
use crate::server::wait;
use std::time::{Duration, Instant};

const UNANALYZED: &str = include_str!("../../sql/check/unanalyzed.sql");

/// Shorter than deadlock_timeout, after which a vacuum that the server itself has begun would be ended.
const LOCK_MS: u32 = 500;
/// How long it goes on before the split's next step.
const TURN: Duration = Duration::from_secs(5);
/// MAINTAIN is a right from this version on.
const HAS_MAINTAIN: i32 = 170_000;

/// A table that is to be analyzed.
struct Table {
    position: usize,
    /// Qualified and quoted.
    name: String,
    /// It, or a partition of it, that the mover may not analyze.
    forbidden: Option<String>,
}

/// Analyzes the tables that took rows and were not analyzed since, each once by this engine. False: some are left, for
/// after the next step.
pub fn run(engine: &mut Engine) -> bool {
    let began = Instant::now();
    let purpose = format!("split {} analyze", engine.plan.id);
    let opened = session::open(&engine.plan.target, &purpose).and_then(|mut session| {
        let tables = unanalyzed(&mut session, engine)?;
        Ok((session, tables))
    });
    let (mut session, tables) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            tell(engine, &format!("tables of the target were not analyzed: {error}"));
            return true;
        }
    };
    for table in tables {
        if began.elapsed() > TURN {
            return false;
        }
        engine.analyzed.insert(table.position);
        wait::report(&format!("statistics of table {} on the target", table.name));
        let problem = match table.forbidden {
            Some(name) => {
                Some(format!("the mover owns neither {name} nor the database, and has no MAINTAIN on it"))
            }
            None => analyze(&mut session, &table.name).err().map(|error| error.to_string()),
        };
        if let Some(problem) = problem {
            tell(
                engine,
                &format!(
                    "table {} of the target was not analyzed, its clients find no statistics: {problem}",
                    table.name
                ),
            );
        }
    }
    true
}

fn tell(engine: &Engine, text: &str) {
    transaction(|| split::event_again(engine.plan.id, text));
}

fn unanalyzed(session: &mut Connection, engine: &Engine) -> Result<Vec<Table>, RemoteError> {
    let limit = guc::remote_timeout().as_millis() * 4 / 5;
    session.run(&format!("SET lock_timeout = {LOCK_MS}; SET statement_timeout = '{limit}ms'"))?;
    let (schemas, names) = observe::table_names(&engine.plan, Side::Target);
    let right = (session.server_version() >= HAS_MAINTAIN).then_some("MAINTAIN");
    let lists = [schemas, names].map(|list| text_array(&list));
    let rows = catalogs::ask(session, UNANALYZED, &[Some(&lists[0]), Some(&lists[1]), right])?;
    let table = |row: &Vec<Option<String>>| {
        let [Some(position), Some(name), forbidden] = row.as_slice() else { return None };
        Some(Table { position: position.parse().ok()?, name: name.clone(), forbidden: forbidden.clone() })
    };
    let all = rows.rows.iter().filter_map(table);
    Ok(all.filter(|table| !engine.analyzed.contains(&table.position)).collect())
}

/// As the tables' owners: what indexes and statistics compute runs with their rights, not the mover's.
fn analyze(session: &mut Connection, name: &str) -> Result<(), RemoteError> {
    session.run(&format!("ANALYZE {name}")).map(drop)
}
