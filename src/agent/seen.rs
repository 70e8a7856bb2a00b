//! What a side's tables looked like when they were looked at last. Whoever looks again asks whether anything may be
//! another since, as one number, in the snapshot and under the locks in which he would look; he looks anew only where that
//! differs. What one session has seen holds for the next one of the same worker: the number says so to that one, too.

use super::catalogs;
use super::error::Result;
use super::observe::{self, SERVER};
use super::session::Side;
use super::shape::Observation;
use super::stamp::{self, LISTS};
use crate::agent;
use crate::catalog::split::Plan;
use crate::remote::Connection;
use crate::remote::result::Rows;
use std::sync::LazyLock;

static ASKED: LazyLock<String> = LazyLock::new(|| {
    let prefix = format!("${}", LISTS.len() + 1);
    let number = stamp::value(|_, number| format!("${number}"), &prefix);
    format!("SELECT pg_current_snapshot()::text, {SERVER}, {number}")
});

/// What a side's tables look like now, in the session's snapshot, but for how large they are: that may be older.
pub fn look(connection: &mut Connection, plan: &Plan, side: Side) -> Result<Observation> {
    let mut seen = SeenTables::default();
    let asked = seen.statements(connection, plan, side)?;
    let answers = connection.run_for_each(&asked)?;
    seen.read(connection, plan, side, &answers.into_iter().next().unwrap_or_default())
}

/// One side's tables as a session saw them.
#[derive(Default)]
pub struct SeenTables {
    /// None: nobody has seen them, or there is more to be looked at each time.
    known: Option<Observation>,
    /// What is known was seen by this session.
    is_own: bool,
    is_new: bool,
}

impl SeenTables {
    /// The statements that ask whether they are as they were, or else what they are like, of which one gives rows: to be
    /// sent with others.
    pub fn statements(&mut self, connection: &mut Connection, plan: &Plan, side: Side) -> Result<String> {
        // Made ready beforehand: what is prepared behind a fence is waited for there.
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

    /// What they are like, by the answer; where that is not told by it, the session is asked.
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

    /// Whether they may be others than at this session's look before: in what was read last something was.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// The next look is as the session's first one.
    pub fn forget(&mut self) {
        self.is_own = false;
    }
}

/// What it is prepared as.
const NAME: &str = "stamp";

/// Of lists that it does not know the planner thinks that they name all there is.
fn by_indexes(statements: &str) -> String {
    format!("SET enable_seqscan = off; {statements}; RESET enable_seqscan")
}

/// The same in the snapshot of now; None: something may be another.
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
