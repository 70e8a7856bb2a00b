//! Before finish deletes rows, the target shows that it has them. The source's rows of the
//! scope are frozen since the cutover; the target notes the keys that its clients have
//! taken away since it opened. So a frozen key is on the target, or it is among those.
//!
//! Invariant: a batch is deleted only in the transaction in which each of its keys was
//! shown to be on the target or taken away there by a client.

use crate::agent::error::{Result, SplitError};
use crate::agent::session::Side;
use crate::agent::state::progress::Progress;
use crate::catalog::split::{self, Plan};
use crate::error::{Failure, SqlState};
use crate::remote::Connection;
use crate::remote::copy::{self, Bounds};
use crate::remote::quote::{array_literal, literal};
use crate::server::txn::transaction;
use crate::split::engine::Engine;
use crate::split::owners::{self, LookedThrough};
use crate::split::table::Table;
use crate::{agent, guc};

/// The target, asked for the keys of one table.
pub struct Prover<'a> {
    target: &'a mut Connection,
    plan: &'a Plan,
    table: &'a Table,
    /// The target's leaves when it opened.
    leaves: Vec<String>,
    /// The operator has said that rows may be missing.
    accepts: bool,
    looked_through: LookedThrough,
}

impl<'a> Prover<'a> {
    pub fn new(engine: &'a mut Engine, progress: &Progress, position: usize, accepts: bool) -> Prover<'a> {
        let known = progress.tables.get(position).and_then(|table| table.target_leaves.as_ref());
        let leaves = known.into_iter().flatten().map(|leaf| leaf.oid.clone()).collect();
        let Engine { target, plan, tables, .. } = engine;
        let looked_through = LookedThrough::default();
        Prover { target, plan, table: &tables[position], leaves, accepts, looked_through }
    }

    /// Shows that the target has the rows that `condition` selects of a leaf of the source,
    /// in the source's open transaction; how many they are.
    pub fn prove(&mut self, source: &mut Connection, leaf: &str, condition: &str) -> Result<u64> {
        self.look()?;
        let keys = crate::remote::quote::idents("t.", self.table.source.key());
        let window = self.table.window_table();
        let format = self.table.text_format();
        let copied = copy::pipe(
            source,
            &format!("COPY (SELECT {keys} FROM ONLY {leaf} t WHERE {condition}) TO STDOUT ({format})"),
            self.target,
            &format!("COPY {window} FROM STDIN ({format})"),
            Bounds::unlimited(),
        )?;
        if copied.rows > 0 {
            self.target.run(&format!("ANALYZE {window}"))?;
            self.require_all()?;
        }
        self.target.run("ROLLBACK")?;
        Ok(copied.rows)
    }

    /// Begins the target's transaction: nothing comes to the table until its end, and what is
    /// there is looked at. To plan a query may run it already.
    fn look(&mut self) -> Result<()> {
        self.target.run("BEGIN")?;
        self.target.run(&format!("LOCK TABLE {} IN ROW EXCLUSIVE MODE", self.table.target.name))?;
        let code = owners::code_now(self.target, self.plan, Side::Target)?;
        self.looked_through.require_none(self.target, self.plan, Side::Target, &code)?;
        Ok(())
    }

    fn require_all(&mut self) -> Result<()> {
        let rows = self.target.run(&self.missing())?;
        let cells: Vec<Option<String>> = rows.rows.into_iter().next().unwrap_or_default();
        let mut cells = cells.into_iter().map(Option::unwrap_or_default);
        let (count, key) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
        let log_is_full = cells.next().as_deref() == Some("t");
        if count == "0" {
            return Ok(());
        }
        if self.accepts {
            let text = format!(
                "{count} rows of {} are deleted from the source that the target does not have, as accepted; one of them: {key}",
                self.table.source.name
            );
            transaction(|| split::event(self.plan.id, None, None, &text));
            return Ok(());
        }
        Err(SplitError::Failed(self.refusal(&count, &key, log_is_full)))
    }

    /// Keys of the window that the target neither has nor has been asked to delete.
    fn missing(&self) -> String {
        let gone =
            format!("shardmaster_agent.{}", agent::gone_table(self.plan.id, self.table.policy.ordinal));
        let keys = agent::queue_keys(&self.table.source).join(", ");
        let scope = self.plan.scope.filter(&self.table.target_by, "t");
        // Which leaf a row was in the source does not tell: it counts if all were emptied.
        let all_emptied = format!(
            "(SELECT bool_and(EXISTS (SELECT 1 FROM {gone} g WHERE g.op = 'T' AND g.leaf = l))
                FROM unnest({}::oid[]) l)",
            array_literal(&self.leaves)
        );
        format!(
            "SELECT count(*), min(ROW({keys})::text), pg_relation_size({name}) >= {full}
               FROM {window} k
              WHERE NOT EXISTS (SELECT 1 FROM {target} t WHERE {same_row} AND {scope})
                AND NOT EXISTS (SELECT 1 FROM {gone} g WHERE {same_gone})
                AND NOT coalesce({all_emptied}, false)",
            name = literal(&gone),
            full = guc::queue_max_bytes(),
            window = self.table.window_table(),
            target = self.table.target_only(),
            same_row = self.table.target_join(),
            same_gone = self.table.gone_join(),
        )
    }

    fn refusal(&self, count: &str, key: &str, log_is_full: bool) -> Failure {
        let plan = self.plan;
        let why = if log_is_full {
            "the log of keys that clients have deleted there is full (shardmaster.queue_max_size)"
        } else {
            "no client has deleted them there since the cutover"
        };
        Failure::new(
            SqlState::NOT_IN_STATE,
            format!(
                "table {}: {count} rows of the moved keys are on shard \"{}\" and not on shard \"{}\"; they were not deleted",
                self.table.source.name, plan.source.shard_key, plan.target.shard_key
            ),
        )
        .detail(format!("one of them has the key {key}; {why}"))
        .hint(format!(
            "Find out why shard \"{}\" has lost them and bring them back from shard \"{}\", then call shard_split_finish({id}) again. If they may go: SELECT shard_split_finish({id}, accept_missing => true).",
            plan.target.shard_key,
            plan.source.shard_key,
            id = plan.id
        ))
    }
}
