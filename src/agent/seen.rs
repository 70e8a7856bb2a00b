//! The structure of a side's tables at the last observation. The next observation first asks whether anything may have
//! changed since, as one number, in the snapshot and under the locks of the observation; only if that differs it reads
//! everything anew. An observation of one session also serves the next session of the same worker: the number is
//! compared there, too.

use super::catalogs;
use super::error::Result;
use super::observe::{self, SERVER};
use super::session::Side;
use super::shape::Observation;
use crate::agent;
use crate::agent::catalog_fingerprint::{self, LISTS};
use crate::catalog::split::Plan;
use crate::remote::Connection;
use crate::remote::result::Rows;
use std::sync::LazyLock;

static ASKED: LazyLock<String> = LazyLock::new(|| {
    let prefix = format!("${}", LISTS.len() + 1);
    let number = catalog_fingerprint::value(|_, number| format!("${number}"), &prefix);
    format!("SELECT pg_current_snapshot()::text, {SERVER}, {number}")
});

/// Returns the structure of a side's tables now, in the session's snapshot. Only their sizes may be older.
pub fn look(connection: &mut Connection, plan: &Plan, side: Side) -> Result<Observation> {
    SeenTables::default().look(connection, plan, side)
}

/// One side's tables as a session saw them.
#[derive(Default)]
pub struct SeenTables {
    /// `None` if nothing was read yet, or more must be read each time.
    known: Option<Observation>,
    /// What is known was read by this session.
    is_own: bool,
    is_new: bool,
}

impl SeenTables {
    /// Returns the statements that ask whether the tables are unchanged, or else read them, to be sent with others.
    /// One of the statements gives rows.
    pub fn statements(&mut self, connection: &mut Connection, plan: &Plan, side: Side) -> Result<String> {
        // This prepares the statement early: behind a fence, writers would wait for it.
        connection.prepare(NAME, &ASKED)?;
        if self.known.is_none() {
            self.known = observe::latest(plan, side);
            self.is_own = false;
        }
        match &self.known {
            Some(known) => {
                let prefix = agent::trigger_prefix(plan.id, side);
                let lists: Vec<Option<&str>> =
                    known.kin.iter().map(Option::as_deref).chain([Some(prefix.as_str())]).collect();
                Ok(by_indexes(&catalogs::statements(connection, NAME, &ASKED, &lists)?))
            }
            None => observe::statements(connection, plan, side),
        }
    }

    /// Asks this alone.
    pub fn look(&mut self, connection: &mut Connection, plan: &Plan, side: Side) -> Result<Observation> {
        let asked = self.statements(connection, plan, side)?;
        let answers = connection.run_for_each(&asked)?;
        self.read(connection, plan, side, &answers.into_iter().next().unwrap_or_default())
    }

    /// Reads the answer; if it does not suffice, asks the session.
    pub fn read(
        &mut self,
        connection: &mut Connection,
        plan: &Plan,
        side: Side,
        rows: &Rows,
    ) -> Result<Observation> {
        let known = self.known.take();
        let is_first = known.is_none();
        let same = known.and_then(|known| unchanged(known, rows));
        self.is_new = same.is_none() || !self.is_own;
        let now = match same {
            Some(now) => now,
            None => {
                let now = if is_first {
                    observe::read(connection.shard(), plan, rows)?
                } else {
                    observe::observe(connection, plan, side)?
                };
                observe::keep(plan, side, &now);
                now
            }
        };
        if observe::is_whole(&now) {
            self.known = Some(now.clone());
            self.is_own = true;
        }
        Ok(now)
    }

    /// Whether the tables may differ from this session's earlier observation: the last read found a change.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Makes the next read count as the session's first one.
    pub fn forget(&mut self) {
        self.is_own = false;
    }
}

/// The name of the prepared statement.
const NAME: &str = "stamp";

/// The planner assumes that lists of unknown length name everything, so sequential scans are disabled.
fn by_indexes(statements: &str) -> String {
    format!("SET enable_seqscan = off; {statements}; RESET enable_seqscan")
}

/// Returns the known observation with the current snapshot, or None if something may have changed.
fn unchanged(known: Observation, rows: &Rows) -> Option<Observation> {
    let [Some(snapshot), Some(server), Some(stamp)] = rows.rows.first()?.as_slice() else { return None };
    let is_same = known.stamp.as_ref() == Some(stamp) && known.server == *server;
    is_same.then(|| Observation { snapshot: snapshot.clone(), ..known })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_counts_while_its_number_does() {
        let known: Observation = serde_json::from_str(
            r#"{"snapshot": "1:1:", "server": "7:00000001", "encoding": "UTF8", "code": "c", "endless": null,
                "stamp": "a", "kin": [], "tables": []}"#,
        )
        .unwrap();
        let rows = |server: &str, stamp: Option<&str>| Rows {
            rows: vec![vec![Some("2:2:".into()), Some(server.into()), stamp.map(str::to_owned)]],
            ..Rows::default()
        };
        let now = unchanged(known.clone(), &rows("7:00000001", Some("a"))).unwrap();
        assert_eq!((now.snapshot.as_str(), now.code()), ("2:2:", "c"));
        for (server, stamp) in [("7:00000001", Some("b")), ("7:00000002", Some("a")), ("7:00000001", None)] {
            assert!(unchanged(known.clone(), &rows(server, stamp)).is_none(), "{server} {stamp:?}");
        }
        assert!(unchanged(known, &Rows::default()).is_none());
    }
}
