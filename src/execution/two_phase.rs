//! Runs one statement on all shards or on none. 1. Each shard's session and the name of its future prepared
//! transaction are recorded (`running`). 2. All shards run it, and prepare it (`prepared`). 3. Their commit is
//! recorded, for all of them at once (`committing`): before this only a rollback may come, after it only a commit. 4.
//! They commit (`done`). If the session dies meanwhile, `recovery` ends what is left.

use super::error;
use super::points;
use super::run::{ExecutionLane, Wave, after, cells};
use crate::catalog::caller::Caller;
use crate::catalog::execution::{self, ExecutionState};
use crate::error::Failure;
use crate::remote::RemoteError;
use crate::remote::fan_out::Question;
use crate::remote::quote::literal;
use crate::remote::result::Rows;
use crate::remote::transaction::{FLUSHED, IDENTITY, Transaction};

/// Identifies the running server; returns how many prepared transactions it may have, and how many are free.
const SLOTS: &str =
    "SELECT (SELECT system_identifier::pg_catalog.text FROM pg_catalog.pg_control_system()),
    EXTRACT(epoch FROM pg_catalog.pg_postmaster_start_time()), s.most, s.most OPERATOR(pg_catalog.-) (SELECT pg_catalog.count(*) FROM pg_catalog.pg_prepared_xacts)
    FROM (SELECT pg_catalog.current_setting('max_prepared_transactions')::bigint) s (most)";

/// A prepared transaction is ended by the role that prepares it, so this is not a role that the statement has set.
/// Deferred work runs before, as it would at a commit: with the role in effect after the statement, so that its
/// settings no longer matter. The last result is the server's record of the prepared transaction.
fn prepare(gid: &str) -> String {
    format!(
        "SET CONSTRAINTS ALL IMMEDIATE; SET LOCAL ROLE NONE; PREPARE TRANSACTION {gid};
         SELECT {IDENTITY}, {FLUSHED}, p.transaction::pg_catalog.text
           FROM pg_catalog.pg_prepared_xacts p
          WHERE p.gid OPERATOR(pg_catalog.=) {gid} AND p.owner OPERATOR(pg_catalog.=) session_user
            AND p.database OPERATOR(pg_catalog.=) pg_catalog.current_database()",
        gid = literal(gid)
    )
}

/// Whether this is the number that a prepared transaction shows, which lacks the epoch.
fn is_short_of(short: &str, xid: &str) -> bool {
    matches!((short.parse::<u64>(), xid.parse::<u64>()), (Ok(short), Ok(xid)) if xid & 0xffff_ffff == short)
}

/// Why a statement failed on a shard.
pub struct Reason {
    pub shard: String,
    /// The state that it ends in.
    pub fails_as: ExecutionState,
    pub why: Failure,
}

impl Wave {
    /// A shard without free prepared transactions fails before anything is done. Shards of one server share its free
    /// ones.
    pub fn require_slots(&mut self) -> Result<(), Failure> {
        let answers = self.ask(Question::of_all(SLOTS))?;
        let servers: Vec<Vec<String>> =
            answers.iter().map(|answer| answer.as_ref().map(cells).unwrap_or_default()).collect();
        for (lane, server) in self.lanes.iter_mut().zip(&servers).filter(|(lane, _)| lane.failure.is_none()) {
            let number = |at: usize| server.get(at).and_then(|text| text.parse::<i64>().ok());
            lane.system_identifier = server.first().cloned().unwrap_or_default();
            let needed = servers.iter().filter(|other| other.get(..2) == server.get(..2)).count();
            let needed = i64::try_from(needed).unwrap_or(i64::MAX);
            lane.failure = match (number(2), number(3)) {
                (Some(_), Some(free)) if free >= needed => None,
                (Some(most), Some(free)) => Some(error::too_few_slots(&lane.shard, most, free, needed)),
                _ => Some(RemoteError::unreadable(&lane.shard, "max_prepared_transactions").into()),
            };
        }
        Ok(())
    }

    /// Makes all shards prepare the statement, and returns the first failure, which is that of all.
    pub fn prepare(&mut self) -> Result<Option<Failure>, Failure> {
        points::reach(points::RUNNING)?;
        self.require_no_splits();
        if let Some(failure) = self.first_failure() {
            return Ok(Some(failure));
        }
        let opened = self.run_between(&after())?;
        if let Some(failure) = self.first_failure() {
            return Ok(Some(failure));
        }
        points::reach(points::RAN)?;
        let questions = self.of_gids(prepare);
        let answers = self.ask(Question::of_each(&questions))?;
        for ((lane, opened), answer) in self.lanes.iter_mut().zip(&opened).zip(&answers) {
            lane.note_prepared(opened, answer.as_ref());
        }
        points::reach(points::ASKED)?;
        match self.first_failure() {
            Some(failure) => Ok(Some(failure)),
            None => self.record(|id, lane| match &lane.transaction {
                Some(transaction) => execution::is_prepared(id, &lane.shard, transaction, lane.rows),
                None => Ok(()),
            }),
        }
    }

    /// Records the decision: once this is committed, all shards commit.
    pub fn decide(&mut self) -> Result<(), Failure> {
        points::reach(points::PREPARED)?;
        Caller::as_owner(|_| {
            self.lanes.iter().try_for_each(|lane| execution::decides(self.execution.id, &lane.shard))
        })
    }

    /// Tells the shards to commit. Returns false if it is not known of some whether they have done so.
    pub fn commit_prepared(&mut self) -> Result<bool, Failure> {
        points::reach(points::DECIDED)?;
        let commits = self.of_gids(|gid| format!("COMMIT PREPARED {}", literal(gid)));
        self.ask(Question::of_each(&commits))?;
        // The commits may not have waited for the disk and for standbys; a second commit does.
        let answers = self.ask_outcomes("")?;
        points::reach(points::COMMITTED)?;
        let mut is_known = true;
        for (lane, answer) in self.lanes.iter().zip(&answers) {
            match answer.as_ref().and_then(Rows::scalar) {
                Some("committed") => {
                    Caller::as_owner(|_| execution::is_done(self.execution.id, &lane.shard, None))?;
                }
                _ => is_known = false,
            }
        }
        Ok(is_known)
    }

    /// Returns the reasons why it is not to commit; its sessions end.
    pub fn into_reasons(self) -> Vec<Reason> {
        let reason = |lane: ExecutionLane| {
            lane.failure.map(|why| Reason { shard: lane.shard, fails_as: lane.fails_as, why })
        };
        self.lanes.into_iter().filter_map(reason).collect()
    }

    fn first_failure(&self) -> Option<Failure> {
        self.lanes.iter().find_map(|lane| lane.failure.clone())
    }

    fn of_gids(&self, text: impl Fn(&str) -> String) -> Vec<Option<String>> {
        self.lanes.iter().map(|lane| lane.gid.as_deref().map(&text)).collect()
    }
}

impl ExecutionLane {
    /// Records the prepared transaction. `opened` contains the transaction before it was prepared, and its server.
    fn note_prepared(&mut self, opened: &[String], answer: Option<&Rows>) {
        if self.failure.is_some() {
            return;
        }
        match (opened, answer.map(cells).unwrap_or_default().as_slice()) {
            ([xid, system, timeline, ..], [now, since, flushed, short])
                if system == now && timeline == since && is_short_of(short, xid) =>
            {
                self.transaction = Some(Transaction {
                    xid: xid.clone(),
                    system_identifier: system.clone(),
                    timeline: timeline.clone(),
                    flushed: flushed.clone(),
                });
            }
            _ => self.failure = Some(error::not_prepared(&self.shard)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_told_by_its_end() {
        assert!(is_short_of("745", "745") && is_short_of("745", "4294968041"));
        for (short, xid) in [("746", "745"), ("", ""), ("745", "x"), ("4294968041", "4294968041")] {
            assert!(!is_short_of(short, xid), "{short} {xid}");
        }
    }
}
