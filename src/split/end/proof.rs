//! Before finish deletes rows, the target shows that it has them. The source's rows of the scope are frozen since the
//! cutover; the target notes the keys of rows that its clients have changed since it opened. So a frozen row is on the
//! target as it is here, or its key is among those.
//!
//! Invariant: a batch is deleted only in the transaction in which each of its rows was shown to be on the target, or
//! to have been changed or taken away there by a client.

pub mod parallel;
use crate::agent::blocks::LeafRows;
use crate::agent::error::{Result, SplitError};
use crate::agent::session::Side;
use crate::agent::state::queue;
use crate::catalog::split::{self, Plan};
use crate::error::{Failure, SqlState};
use crate::guc;
use crate::remote::Connection;
use crate::remote::quote::literal;
use crate::remote::result::Rows;
use crate::server::txn::transaction;
use crate::split::engine::stream_sessions;
use crate::split::table::SplitTable;
use crate::split::untrusted_code::WatchedCode;
use crate::split::verify::changes::Changes;
use crate::split::verify::key;
use crate::split::verify::rows::{self, Sides};
use crate::words::moved;

/// The target, which is asked for the rows of one table.
pub struct Prover<'a> {
    target: &'a mut Connection,
    plan: &'a Plan,
    table: &'a SplitTable,
    /// What its clients have changed.
    changes: Changes,
    /// The operator has accepted that rows may be missing.
    accepts: bool,
    /// The noted keys have the columns of the current key.
    is_noted: bool,
    /// It is known of all rows whether clients have changed them.
    knows_changes: bool,
    /// This table only, and the code that a query over it could run.
    watched: WatchedCode,
}

impl<'a> Prover<'a> {
    pub fn new(
        target: &'a mut Connection,
        plan: &'a Plan,
        table: &'a SplitTable,
        changes: Changes,
        accepts: bool,
    ) -> Result<Prover<'a>> {
        // Without a proof, the noted keys are not read.
        let is_noted = key::is_as_noted(target, plan, table)?;
        if !accepts {
            key::require_as_noted(target, plan, table)?;
        }
        rows::prepare_target(target, table)?;
        let position = plan.tables.iter().position(|policy| policy.ordinal == table.policy.ordinal);
        let alone = plan.of_tables(&position.into_iter().collect::<Vec<_>>());
        let watched = WatchedCode::of(alone, Side::Target);
        Ok(Prover { target, plan, table, changes, accepts, is_noted, knows_changes: true, watched })
    }

    /// Begins the target's transaction: nothing is added to the table until its end, and what is there is checked.
    /// Planning a query may run code already, so this comes first. `shortly`: no lock is waited for.
    pub fn look(&mut self, shortly: bool) -> Result<()> {
        self.target.run("BEGIN")?;
        if shortly {
            self.target.run(stream_sessions::SHORTLY)?;
        }
        self.target.run(&format!("LOCK TABLE {} IN ROW EXCLUSIVE MODE", self.table.target.name))?;
        if shortly {
            self.target.run(&stream_sessions::as_a_step())?;
        }
        self.watched.look(self.target)?;
        self.changes.look(self.plan, self.target, self.table)
    }

    /// Ends the transaction without a proof.
    pub fn leave(&mut self) -> Result<()> {
        self.target.run("ROLLBACK")?;
        Ok(())
    }

    /// Returns the question about the keys that were sent to the target, or None if the noted keys are not read.
    fn missing_question(&self) -> Option<String> {
        self.is_noted.then(|| self.missing())
    }

    fn require_all(&mut self, rows: Rows) -> Result<()> {
        let cells: Vec<Option<String>> = rows.rows.into_iter().next().unwrap_or_default();
        let mut cells = cells.into_iter().map(Option::unwrap_or_default);
        let (count, key) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
        let log_is_full = cells.next().as_deref() == Some("t");
        let is_another = cells.next().as_deref() != Some("t");
        if cells.next().as_deref() == Some("t") {
            self.know_keys_alone();
        }
        if count == "0" {
            return Ok(());
        }
        if self.accepts {
            self.say(&format!(
                "{count} rows of {} that the target does not have are deleted from the source, as accepted; one of them: {key}",
                self.table.source.name
            ));
            return Ok(());
        }
        Err(SplitError::Failed(self.refusal(&count, &key, log_is_full, is_another)))
    }

    fn know_keys_alone(&mut self) {
        if self.knows_changes {
            self.knows_changes = false;
            self.say(&format!(
                "rows of {} are known only by their keys: the log of what clients have changed there is full (shardmaster.queue_max_size)",
                self.table.source.name
            ));
        }
    }

    fn say(&self, text: &str) {
        transaction(|| split::event(self.plan.id, None, None, text));
    }

    /// Returns the question whether the rows that it has and no client has changed there are as they were. Returns
    /// None if that is unknown, or does not matter.
    fn same_question(&self) -> Option<String> {
        let is_asked = self.knows_changes && !self.accepts;
        is_asked.then(|| rows::looked(self.plan, self.table, &self.changes.explain(self.plan, self.table)))
    }

    fn require_same(&mut self, source: &mut Connection, rows: LeafRows<'_>, answer: &Rows) -> Result<()> {
        let unless = self.changes.explain(self.plan, self.table);
        let Prover { target, plan, table, .. } = self;
        let compared = Sides { plan, table, source, target }.tell(answer, rows, &unless)?;
        let Some(example) = compared.found.first() else { return Ok(()) };
        // The log may have become full since it was asked.
        if self.target.run(&format!("SELECT {}", self.changes.are_incomplete()))?.is_true() {
            self.know_keys_alone();
            return Ok(());
        }
        let text = format!(
            "table {}: {} not on shard \"{}\" as they were",
            self.table.source.name,
            moved(compared.differing),
            self.plan.target.shard_key
        );
        let detail = format!(
            "one of them has the key {} and {}; no client has changed it there since the cutover",
            example.text(),
            example.what
        );
        let (id, source) = (self.plan.id, &self.plan.source.shard_key);
        let failure = Failure::new(SqlState::NOT_IN_STATE, text).detail(detail).hint(format!(
            "They were not deleted. Find out which side is right, make both alike, and call shard_split_finish({id}) again. A change of the table or of a type may have caused it. If those of shard \"{source}\" may be lost: SELECT shard_split_finish({id}, accept_missing => true)."
        ));
        Err(SplitError::Failed(failure))
    }

    /// Returns a query for keys that the target neither has nor has been asked to delete.
    fn missing(&self) -> String {
        let keys = queue::keys(&self.table.source).join(", ");
        format!(
            "SELECT count(*), min(ROW({keys})::text), pg_relation_size({name}) >= {full}, {same}, {incomplete}
               FROM pg_temp.verify_keys k WHERE {missing}",
            name = literal(&self.changes.log),
            full = guc::queue_max_bytes(),
            same = self.changes.are_of(self.table),
            incomplete = self.changes.are_incomplete(),
            missing = is_missing(self.plan, self.table, &self.changes),
        )
    }

    fn refusal(&self, count: &str, key: &str, log_is_full: bool, is_another: bool) -> Failure {
        let plan = self.plan;
        let why = if is_another {
            "the table there is not the one that the cutover opened: it was replaced since"
        } else if log_is_full {
            "the log of keys that clients have deleted there is full (shardmaster.queue_max_size)"
        } else {
            "no client has deleted them there since the cutover"
        };
        Failure::new(
            SqlState::NOT_IN_STATE,
            format!(
                "table {}: {} on shard \"{}\" and not on shard \"{}\"; none of them was deleted",
                self.table.source.name,
                moved(count.parse().unwrap_or(0_i64)),
                plan.source.shard_key,
                plan.target.shard_key
            ),
        )
        .detail(format!("one of them has the key {key}; {why}"))
        .hint(format!(
            "Find out why shard \"{}\" has lost them and copy them again from shard \"{}\". Then call shard_split_finish({id}) again. If they may be lost: SELECT shard_split_finish({id}, accept_missing => true).",
            plan.target.shard_key,
            plan.source.shard_key,
            id = plan.id
        ))
    }
}

/// Returns a condition: the target neither has a key `k` nor was asked to delete it.
pub fn is_missing(plan: &Plan, table: &SplitTable, changes: &Changes) -> String {
    format!(
        "NOT EXISTS (SELECT 1 FROM {target} t WHERE {same_row} AND {scope}) AND NOT {explained}",
        target = table.target_only(),
        same_row = table.target_join(),
        scope = plan.scope.filter(&table.target_by, "t"),
        explained = changes.explain_absence(table),
    )
}
