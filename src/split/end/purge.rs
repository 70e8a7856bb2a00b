//! Deletes the scope's rows of a side: in batches of blocks, each a transaction of its own, by one or several sessions.
//! Both sides are guarded by then, so no row of the scope appears behind the batch that has passed.

pub mod parallel;
pub mod scope_rows;
pub mod small_batch;

use crate::agent::blocks::LeafRows;
use crate::agent::error::{Result, SplitError};
use crate::agent::session::Side;
use crate::agent::shape::{Leaf, TableShape};
use crate::agent::state::is_gone;
use crate::catalog::split::Plan;
use crate::error::SqlState;
use crate::remote::Connection;
use crate::split::copy::key_identity::KeyIdentity;
use crate::split::end::proof::parallel::DeletePair;
use crate::split::injection_points::Point;
use crate::split::references::inbound_fks::{InboundFks, ReferencingTables};
use crate::split::untrusted_code::{self, WatchedCode};
use std::cell::RefCell;

/// The sizes of the first batch, of the smallest, and of the largest.
const FIRST_BLOCKS: i64 = 256;
const MIN_BLOCKS: i64 = 8;
const MAX_BLOCKS: i64 = 1 << 16;

/// The deletion of rows from the tables of a side.
pub struct BlockDelete {
    plan: Plan,
    side: Side,
    generation: i64,
    after_batch: &'static Point,
    /// Tables that must not reference a row that is deleted.
    inbound: InboundFks,
    /// What rows are identified by.
    key_identity: KeyIdentity,
}

impl BlockDelete {
    pub fn new(
        plan: &Plan,
        inbound: InboundFks,
        key_identity: KeyIdentity,
        generation: i64,
        after_batch: &'static Point,
    ) -> BlockDelete {
        let (plan, side) = (plan.clone(), inbound.side);
        BlockDelete { plan, side, generation, after_batch, inbound, key_identity }
    }

    /// Refuses to delete if that would run code of an untrusted role.
    pub fn look_through(&self, connection: &mut Connection, code: &str) -> Result<()> {
        untrusted_code::look_through(connection, &self.plan, self.side, code).map(drop)
    }

    /// Checks this in the transaction of a batch: nothing is added to the leaf until its end, nor to the tables that
    /// may reference the leaf's rows, and its name means it until then. Returns the file that its rows are in, which
    /// stays, too.
    fn look_again(
        &self,
        connection: &mut Connection,
        touched: &Touched,
        leaf: &Leaf,
    ) -> Result<Option<String>> {
        let locks = format!("{}; LOCK TABLE ONLY {} IN ROW EXCLUSIVE MODE", touched.beside.lock(), leaf.name);
        if let Err(error) = connection.run(&locks) {
            if !is_gone(&error) {
                return Err(error.into());
            }
            connection.run("ROLLBACK")?;
            return Err(SplitError::renamed(&error));
        }
        let found = connection.query(
            "SELECT $1::regclass::oid = $2::oid, pg_relation_filenode($2::oid)",
            &[Some(&leaf.name), Some(&leaf.oid)],
        )?;
        if found.scalar() != Some("t") {
            connection.run("ROLLBACK")?;
            let shard = connection.shard();
            return Err(SplitError::Retry(format!(
                "{} on shard \"{shard}\", which is another relation now",
                leaf.name
            )));
        }
        if !self.inbound.are_the_same(connection)? {
            let code = untrusted_code::code_now(connection, &self.plan, self.side)?;
            self.look_through(connection, &code)?;
            connection.run("ROLLBACK")?;
            let shard = connection.shard();
            return Err(SplitError::Retry(format!("tables of shard \"{shard}\" that have other names now")));
        }
        touched.watched.borrow_mut().look(connection)?;
        Ok(found.rows.into_iter().next().and_then(|row| row.into_iter().nth(1).flatten()))
    }

    /// Returns the tables that the batches of a table touch.
    fn touched(&self, connection: &mut Connection, position: usize) -> Result<Touched> {
        let beside = self.inbound.beside(connection, &self.plan, &[position])?;
        let watched = RefCell::new(WatchedCode::of(self.plan.of_tables(&beside.positions), self.side));
        Ok(Touched { beside, watched })
    }

    /// Requires that the selected rows are gone and, if they had to be shown to be on the other side, that these are
    /// the ones that were.
    fn require_gone(
        &self,
        connection: &mut Connection,
        rows: LeafRows<'_>,
        shown: Option<u64>,
        deleted: u64,
    ) -> Result<()> {
        let is_shown = shown.map(|shown| shown == deleted);
        if is_shown == Some(true) {
            return Ok(());
        }
        let left = connection.run(&format!("SELECT 1 FROM {rows} LIMIT 1"))?;
        if !left.rows.is_empty() {
            connection.run("ROLLBACK")?;
            return Err(self.kept(connection, rows.leaf));
        }
        if is_shown == Some(false) {
            connection.run("ROLLBACK")?;
            return Err(SplitError::Retry(format!(
                "rows of {} on shard \"{}\" that change although their keys have moved",
                rows.leaf,
                connection.shard()
            )));
        }
        Ok(())
    }

    /// Requires, after a DELETE, that the scope's rows are still identified by what identified them when they moved.
    fn require_identity(
        &self,
        connection: &mut Connection,
        position: usize,
        shape: &TableShape,
    ) -> Result<()> {
        let Some(policy) = self.plan.tables.get(position) else { return Ok(()) };
        if self.key_identity.is_still(connection, shape, &policy.shard_by)? {
            return Ok(());
        }
        connection.run("ROLLBACK")?;
        Err(SplitError::Retry(format!(
            "{} on shard \"{}\", whose keys have other names now",
            shape.name,
            connection.shard()
        )))
    }

    /// Returns the error for rows that were kept by a rule or a trigger that fires in a replica, which the table was
    /// given meanwhile.
    fn kept(&self, connection: &Connection, name: &str) -> SplitError {
        let (shard, id) = (connection.shard(), self.plan.id);
        let end = match self.side {
            Side::Source => "finish",
            Side::Target => "rollback",
        };
        SplitError::failed(
            SqlState::NOT_IN_STATE,
            format!("rows of {name} on shard \"{shard}\" are still there after they were deleted"),
            format!(
                "A trigger or rule that is enabled ALWAYS or REPLICA keeps them. Disable it, then call shard_split_{end}({id}) again."
            ),
        )
    }

    /// Deletes the rows of one table, whatever the other side has of it.
    pub fn table(&self, connection: &mut Connection, position: usize, shape: &TableShape) -> Result<u64> {
        let Some(mut delete) = self.of_table(connection, position, shape)? else { return Ok(0) };
        let mut pairs = [DeletePair { session: connection, prover: None }];
        let mut deleted = 0u64;
        while !delete.is_over() {
            deleted = deleted.saturating_add(delete.some(&mut pairs)?);
        }
        Ok(deleted)
    }
}

/// The table of the batches, and the tables that may reference its rows.
struct Touched {
    beside: ReferencingTables,
    /// The code of these tables only: checking all of the split for each table would take quadratic time.
    watched: RefCell<WatchedCode>,
}
