//! Tables and partitions with few rows of the scope: several in one transaction and in a few messages, each of which
//! is a round trip. Deleting from one of them alone takes some thirty.
//!
//! Nothing is refused here. A table that is not plain, or that has any problem, is left to the deletion from that
//! table alone, which reports the problem. Only time is lost.

use crate::agent::blocks::LeafRows;
use crate::agent::error::{Result, SplitError};
use crate::agent::seen::SeenTables;
use crate::agent::shape::{Column, Leaf, TableShape};
use crate::agent::state::epoch;
use crate::remote::copy::Bounds;
use crate::remote::quote::literal;
use crate::remote::result::Rows;
use crate::remote::{Connection, Together};
use crate::server::wait::{self, WorkerStatus};
use crate::split::end::purge::BlockDelete;
use crate::split::engine::scope_size;
use crate::split::injection_points::reach;
use crate::split::references::inbound_fks::ReferencingTables;
use crate::split::references::{self, Reference};
use crate::words::counted;
use std::collections::{BTreeMap, BTreeSet};

/// The greatest number of tables and partitions of one transaction: only changes of a table wait for their locks.
const MOST_PARTS: usize = 64;
/// The greatest number of blocks of a leaf that is read completely.
const FEW_BLOCKS: i64 = 32;
/// The greatest number of rows of a leaf that an index finds, by the planner's estimate, and of their bytes.
pub const FEW_ROWS: u32 = 1000;
const FEW_BYTES: f64 = 1e6;

/// A table of the plan, by its position, and one of its leaves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LeafPart {
    pub position: usize,
    pub leaf: usize,
}

/// Rows of a leaf that are about to be deleted.
pub struct RowsToDelete<'a> {
    part: LeafPart,
    pub position: usize,
    pub leaf: &'a Leaf,
    shape: &'a TableShape,
    column: &'a Column,
    /// The condition on a row `t` of the leaf.
    condition: String,
    /// The whole leaf is short.
    is_short: bool,
}

impl RowsToDelete<'_> {
    pub fn rows(&self) -> LeafRows<'_> {
        LeafRows { leaf: &self.leaf.name, condition: &self.condition }
    }
}

/// Something that shows that rows are on the other side.
pub trait RowProof {
    /// Whether it can show rows of a table together with others.
    fn can_show(&self, position: usize) -> bool;
    /// Returns how many rows of each are shown, in the open transaction of the session that has them. A number is None
    /// if not all of them are, for whatever reason.
    fn show(&mut self, here: &mut Connection, asked: &[RowsToDelete<'_>]) -> Result<Vec<Option<u64>>>;
}

/// The rows that a transaction was begun for, and the foreign keys that it has found.
type Begun<'a> = (Vec<RowsToDelete<'a>>, Vec<Reference>);

/// The number of deleted rows of each leaf.
pub type Gone = BTreeMap<LeafPart, u64>;

/// Deletes from tables: `together` takes as many of their leaves as take little time, and `alone` a table with its
/// remaining leaves. Returns the number of deleted rows.
pub fn tables<C>(
    context: &mut C,
    shapes: &[TableShape],
    mut together: impl FnMut(&mut C, &[LeafPart]) -> Result<Gone>,
    mut alone: impl FnMut(&mut C, usize, &TableShape) -> Result<u64>,
) -> Result<u64> {
    let (mut size, mut deleted) = (Together::up_to(MOST_PARTS), 0u64);
    let mut left = parts(shapes);
    while !left.is_empty() {
        let behind = left.split_off(size.begin().min(left.len()));
        let gone = together(context, &left)?;
        deleted = gone.values().fold(deleted, |sum, rows| sum.saturating_add(*rows));
        left.retain(|part| !gone.contains_key(part));
        for some in left.chunk_by(|one, other| one.position == other.position) {
            let Some(LeafPart { position, .. }) = some.first() else { continue };
            let shape = with_leaves(&shapes[*position], some);
            deleted = deleted.saturating_add(alone(context, *position, &shape)?);
        }
        size.end();
        left = behind;
    }
    Ok(deleted)
}

fn parts(shapes: &[TableShape]) -> Vec<LeafPart> {
    let of = |(position, shape): (usize, &TableShape)| {
        (0..shape.leaves().len()).map(move |leaf| LeafPart { position, leaf }).collect::<Vec<_>>()
    };
    shapes.iter().enumerate().flat_map(of).collect()
}

/// Returns a table with only some of its leaves.
fn with_leaves(shape: &TableShape, some: &[LeafPart]) -> TableShape {
    let mut shape = shape.clone();
    if let Some(leaves) = shape.leaves.as_mut() {
        let mut number = 0..;
        leaves.retain(|_| number.next().is_some_and(|number| some.iter().any(|part| part.leaf == number)));
    }
    shape
}

impl BlockDelete {
    /// Deletes the scope's rows of those of some tables that have few. If something shows rows, only those are deleted
    /// that are shown to be on the other side.
    pub fn few(
        &self,
        connection: &mut Connection,
        parts: &[LeafPart],
        shapes: &[TableShape],
        mut shows: Option<&mut dyn RowProof>,
    ) -> Result<Gone> {
        let can_show = |position: usize| shows.as_ref().is_none_or(|shows| shows.can_show(position));
        let asked: Vec<RowsToDelete<'_>> = parts
            .iter()
            .filter(|part| can_show(part.position))
            .filter_map(|part| self.asked(*part, shapes.get(part.position)?))
            .collect();
        if asked.is_empty() {
            return Ok(Gone::new());
        }
        let gone = match self.batch(connection, asked, &mut shows) {
            Ok(gone) => gone,
            // The deletion from each table alone finds out which of them it is, and reports it.
            Err(SplitError::Remote(error)) if error.is_verdict() => {
                connection.run("ROLLBACK")?;
                return Ok(Gone::new());
            }
            Err(error) => return Err(error),
        };
        if !gone.is_empty() {
            reach(self.after_batch)?;
            wait::report_as(
                WorkerStatus::Working,
                &format!(
                    "deleting rows of {}",
                    counted(gone.len(), "table or partition", "tables and partitions")
                ),
            );
        }
        Ok(gone)
    }

    fn asked<'a>(&self, part: LeafPart, shape: &'a TableShape) -> Option<RowsToDelete<'a>> {
        let LeafPart { position, leaf } = part;
        let column = shape.column(&self.plan.tables.get(position)?.shard_by)?;
        Some(RowsToDelete {
            part,
            position,
            leaf: shape.leaves().get(leaf)?,
            shape,
            column,
            condition: self.plan.scope.predicate(column, "t"),
            is_short: false,
        })
    }

    fn batch(
        &self,
        connection: &mut Connection,
        asked: Vec<RowsToDelete<'_>>,
        shows: &mut Option<&mut dyn RowProof>,
    ) -> Result<Gone> {
        let Some((mut asked, references)) = self.begin(connection, asked)? else { return Ok(Gone::new()) };
        self.leave_many(connection, &mut asked)?;
        self.leave_bound(connection, &mut asked, &references)?;
        let shown = match shows {
            Some(shows) => shows.show(connection, &asked)?,
            None => vec![None; asked.len()],
        };
        let rows: Vec<(RowsToDelete<'_>, Option<u64>)> =
            asked.into_iter().zip(shown).filter(|(_, shown)| shows.is_none() || shown.is_some()).collect();
        match self.delete(connection, &rows)? {
            Some(gone) => {
                connection.run("COMMIT")?;
                Ok(gone)
            }
            None => {
                connection.run("ROLLBACK")?;
                Ok(Gone::new())
            }
        }
    }

    /// Begins the transaction: nothing is added to the leaves until its end, their names mean them, and the code that
    /// a query over them could run was checked. Returns None if something has changed.
    fn begin<'a>(
        &self,
        connection: &mut Connection,
        mut asked: Vec<RowsToDelete<'a>>,
    ) -> Result<Option<Begun<'a>>> {
        // Tables whose rows may reference these are read as well.
        let positions = positions(&asked);
        let beside = self.inbound.beside(connection, &self.plan, &positions)?;
        let mut seen = SeenTables::default();
        let message = [
            epoch::begin_statements(self.plan.id, self.side, self.generation),
            beside.lock(),
            lock(&asked),
            sizes(&asked),
            self.inbound.still(),
            references::question(connection, &self.plan, self.side)?,
            seen.statements(connection, &self.plan, self.side)?,
        ];
        let outcome = connection.run_for_each(&message.join("; "));
        let answers = match epoch::begun(connection, outcome) {
            Err(SplitError::Remote(error)) if error.is_verdict() => return Ok(None),
            answers => answers?,
        };
        let [_, sizes, still, references, look] = answers.as_slice() else {
            connection.run("ROLLBACK")?;
            return Ok(None);
        };
        let now = references::read(connection.shard(), &self.plan, self.side, references)?;
        if still.scalar() != Some("t") || ReferencingTables::of(&now, &positions) != beside {
            connection.run("ROLLBACK")?;
            return Ok(None);
        }
        let look = seen.read(connection, &self.plan, self.side, look)?;
        self.look_through(connection, look.code())?;
        let mut sizes = sizes.rows.iter().map(|row| LeafSize::read(row));
        asked.retain_mut(|asked| {
            let size = sizes.next().flatten();
            asked.is_short = size.as_ref().is_some_and(LeafSize::is_short);
            size.is_some_and(|size| size.is_it && (asked.is_short || size.has_index))
        });
        Ok(Some((asked, now)))
    }

    /// Leaves out long leaves whose rows an index does not find.
    fn leave_many(&self, connection: &mut Connection, asked: &mut Vec<RowsToDelete<'_>>) -> Result<()> {
        let explain =
            |asked: &RowsToDelete<'_>| scope_size::explain(&asked.leaf.name, asked.column, &self.plan.scope);
        let explains: Vec<String> = asked.iter().filter(|asked| !asked.is_short).map(explain).collect();
        let mut answers = connection.run_each(&explains, Bounds::unlimited().stall)?.into_iter();
        let is_few = |answer: Rows| scope_size::is_few(&answer, f64::from(FEW_ROWS), FEW_BYTES);
        asked.retain(|asked| asked.is_short || answers.next().is_some_and(is_few));
        Ok(())
    }

    /// Leaves out rows that are referenced by rows that stay.
    fn leave_bound(
        &self,
        connection: &mut Connection,
        asked: &mut Vec<RowsToDelete<'_>>,
        references: &[Reference],
    ) -> Result<()> {
        // If a referencing table may not be read, the deletion from the other table alone reports that.
        let is_closed =
            |reference: &Reference, to: usize| !reference.can_read && reference.to_position == Some(to);
        asked.retain(|asked| !references.iter().any(|reference| is_closed(reference, asked.position)));
        let (mut questions, mut counts) = (Vec::new(), Vec::new());
        for asked in asked.iter() {
            let to_it: Vec<&Reference> = references
                .iter()
                .filter(|reference| !reference.is_period && reference.to_position == Some(asked.position))
                .collect();
            let mut more = Vec::new();
            if !to_it.is_empty() {
                more = self.inbound.questions(&self.plan, &to_it, asked.rows());
            }
            counts.push(more.len());
            questions.append(&mut more);
        }
        let mut answers = connection.run_each(&questions, Bounds::unlimited().stall)?.into_iter();
        let mut counts = counts.into_iter();
        asked.retain(|_| {
            let of_it: Vec<Rows> = answers.by_ref().take(counts.next().unwrap_or_default()).collect();
            of_it.iter().skip(1).all(|inbound_fk| inbound_fk.rows.is_empty())
        });
        Ok(())
    }

    /// Deletes the rows. Returns None if other rows than those shown were deleted, or not all; then nothing must be
    /// committed.
    fn delete(
        &self,
        connection: &mut Connection,
        rows: &[(RowsToDelete<'_>, Option<u64>)],
    ) -> Result<Option<Gone>> {
        let delete = |(asked, _): &(RowsToDelete<'_>, _)| format!("DELETE FROM {}", asked.rows());
        let deletes: Vec<String> = rows.iter().map(delete).collect();
        let deleted = connection.run_each(&deletes, Bounds::unlimited().stall)?;
        let (mut left, mut gone, mut tables) = (Vec::new(), Gone::new(), BTreeSet::new());
        for ((asked, shown), deleted) in rows.iter().zip(deleted) {
            if shown.is_some_and(|shown| shown != deleted.affected) {
                return Ok(None);
            }
            if shown.is_none() {
                left.push(format!("SELECT 1 FROM {} LIMIT 1", asked.rows()));
            }
            if let Some(policy) =
                self.plan.tables.get(asked.position).filter(|_| tables.insert(asked.position))
            {
                left.push(format!(
                    "SELECT 1 WHERE NOT ({})",
                    self.key_identity.still(asked.shape, &policy.shard_by)
                ));
            }
            gone.insert(asked.part, deleted.affected);
        }
        let left = connection.run_each(&left, Bounds::unlimited().stall)?;
        Ok(left.iter().all(|rows| rows.rows.is_empty()).then_some(gone))
    }
}

/// Returns the positions of the tables, in order.
pub fn positions(asked: &[RowsToDelete<'_>]) -> Vec<usize> {
    let mut positions: Vec<usize> = asked.iter().map(|asked| asked.position).collect();
    positions.dedup();
    positions
}

fn lock(asked: &[RowsToDelete<'_>]) -> String {
    let only: Vec<String> = asked.iter().map(|asked| format!("ONLY {}", asked.leaf.name)).collect();
    format!("LOCK TABLE {} IN ROW EXCLUSIVE MODE", only.join(", "))
}

/// The size of a leaf.
struct LeafSize {
    is_it: bool,
    blocks: i64,
    has_index: bool,
}

fn sizes(asked: &[RowsToDelete<'_>]) -> String {
    let of_each = |(number, asked): (usize, &RowsToDelete<'_>)| {
        let (name, oid) = (literal(&asked.leaf.name), literal(&asked.leaf.oid));
        format!(
            "SELECT {number}, {name}::regclass::oid = {oid}::oid,
                    pg_relation_size({oid}::oid) / current_setting('block_size')::bigint, {}",
            scope_size::has_index(&asked.leaf.name, asked.column)
        )
    };
    let all: Vec<String> = asked.iter().enumerate().map(of_each).collect();
    format!("{} ORDER BY 1", all.join(" UNION ALL "))
}

impl LeafSize {
    fn read(row: &[Option<String>]) -> Option<LeafSize> {
        let cell = |at: usize| row.get(at).and_then(Option::as_deref);
        Some(LeafSize {
            is_it: cell(1) == Some("t"),
            blocks: cell(2)?.parse().ok()?,
            has_index: cell(3) == Some("t"),
        })
    }

    fn is_short(&self) -> bool {
        self.blocks <= FEW_BLOCKS
    }
}
