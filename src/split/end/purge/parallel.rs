//! Batches of one table that are deleted at the same time, each by its own session; one session is the plain case.
//!
//! Invariant: each batch is a transaction in which the worker's generation cannot be overtaken, its leaf is locked and
//! was checked, and, if a proof is required, each of its rows was shown to be on the target. They are of other blocks
//! or leaves, so none waits for another, and what a batch commits does not depend on whether the others do.

use crate::agent::blocks::{self, BlockSpan, LeafRows};
use crate::agent::error::Result;
use crate::agent::shape::{Column, Leaf, TableShape};
use crate::agent::state::epoch;
use crate::remote::copy::Bounds;
use crate::remote::result::Rows;
use crate::remote::{Connection, RemoteError};
use crate::server::wait::{self, WorkerStatus};
use crate::split::end::proof::Prover;
use crate::split::end::proof::parallel::{DeletePair, prove};
use crate::split::end::purge::{BlockDelete, FIRST_BLOCKS, MAX_BLOCKS, MIN_BLOCKS, Touched};
use crate::split::engine::{scope_size, stream_sessions};
use crate::split::injection_points::reach;
use crate::split::references;
use std::time::Instant;

/// The deletion from one table.
pub struct ParallelDelete<'a> {
    by: &'a BlockDelete,
    position: usize,
    shape: &'a TableShape,
    column: &'a Column,
    scope: String,
    leaves: &'a [Leaf],
    touched: Touched,
    at: DeleteCursor,
    /// The number of blocks of the next batch.
    size: i64,
}

/// The next leaf, and the position in it.
#[derive(Clone, Default)]
struct DeleteCursor {
    leaf: usize,
    /// `None` if the leaf was not read yet.
    open: Option<OpenLeaf>,
}

#[derive(Clone)]
struct OpenLeaf {
    /// The file that its rows are in.
    file: Option<String>,
    blocks: i64,
    /// Few rows, which an index finds, are one batch.
    few: bool,
    from: i64,
}

struct DeleteBatch<'a> {
    leaf: &'a Leaf,
    file: Option<String>,
    condition: String,
    /// The position where it begins.
    at: DeleteCursor,
}

impl DeleteBatch<'_> {
    fn rows(&self) -> LeafRows<'_> {
        LeafRows { leaf: &self.leaf.name, condition: &self.condition }
    }

    /// Returns what is being done, if this is the first of `count` batches.
    fn status(&self, count: usize) -> String {
        let (from, total) = self.at.open.as_ref().map_or((0, 0), |open| (open.from, open.blocks));
        let several = if count > 1 { format!(", {count} batches at a time") } else { String::new() };
        format!("deleting rows of {}: block {from} of {total}{several}", self.leaf.name)
    }
}

/// The result of beginning a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Began {
    Yes,
    /// Another session waits for a stronger lock, or has one.
    Locked,
    /// The rows are in another file now, and in other blocks.
    Rewritten,
}

impl BlockDelete {
    /// Begins the deletion. Returns None for a table or column that is gone, which holds no rows of the scope.
    pub fn of_table<'a>(
        &'a self,
        session: &mut Connection,
        position: usize,
        shape: &'a TableShape,
    ) -> Result<Option<ParallelDelete<'a>>> {
        let policy = self.plan.tables.get(position);
        let Some(column) = policy.and_then(|policy| shape.column(&policy.shard_by)) else { return Ok(None) };
        let touched = self.touched(session, position)?;
        Ok(Some(ParallelDelete {
            by: self,
            position,
            shape,
            column,
            scope: self.plan.scope.predicate(column, "t"),
            leaves: shape.leaves(),
            touched,
            at: DeleteCursor::default(),
            size: FIRST_BLOCKS,
        }))
    }
}

impl<'a> ParallelDelete<'a> {
    pub fn is_over(&self) -> bool {
        self.at.leaf >= self.leaves.len()
    }

    /// Deletes the next batches, one for each pair, and returns the number of deleted rows.
    pub fn some(&mut self, pairs: &mut [DeletePair<'_>]) -> Result<u64> {
        let began = Instant::now();
        let mut batches = Vec::new();
        while batches.len() < pairs.len()
            && let Some(pair) = pairs.first_mut()
            && let Some(batch) = self.next(pair.session)?
        {
            batches.push(batch);
        }
        if let Some(batch) = batches.first() {
            wait::report_as(WorkerStatus::Working, &batch.status(batches.len()));
        }
        self.begin(pairs, &mut batches)?;
        if batches.is_empty() {
            return Ok(0);
        }
        let count = batches.len();
        let pairs = &mut pairs[..count];
        let of: Vec<LeafRows<'_>> = batches.iter().map(DeleteBatch::rows).collect();
        let shown = prove(pairs, &of)?;
        let deleted = self.delete(pairs, &batches, &shown)?;
        self.size = blocks::adapt(self.size, blocks::by_time(began.elapsed()), MIN_BLOCKS, MAX_BLOCKS);
        Ok(deleted)
    }

    /// Returns the next batch, or None if there is none. No transaction is open.
    fn next(&mut self, session: &mut Connection) -> Result<Option<DeleteBatch<'a>>> {
        let Some(leaf) = self.leaves.get(self.at.leaf) else { return Ok(None) };
        let open = match self.at.open.take() {
            Some(open) => open,
            None => self.open(session, leaf)?,
        };
        let span = BlockSpan::next(open.from, self.size, open.blocks, open.few);
        let at = DeleteCursor { leaf: self.at.leaf, open: Some(open.clone()) };
        let batch = DeleteBatch { leaf, file: open.file.clone(), condition: span.condition(&self.scope), at };
        match span.to {
            Some(to) => self.at.open = Some(OpenLeaf { from: to, ..open }),
            None => self.at.leaf += 1,
        }
        Ok(Some(batch))
    }

    fn open(&self, session: &mut Connection, leaf: &Leaf) -> Result<OpenLeaf> {
        session.run("BEGIN")?;
        let file = self.by.look_again(session, &self.touched, leaf)?;
        let few = scope_size::is_small(session, &leaf.name, self.column, &self.by.plan.scope)?;
        session.run("COMMIT")?;
        let blocks = blocks::of_leaf(session, &leaf.name)?.blocks;
        Ok(OpenLeaf { file, blocks, few, from: 0 })
    }

    /// Begins the transactions of the batches, as far as this is possible without waiting behind other sessions; the
    /// remaining batches are tried again.
    fn begin(&mut self, pairs: &mut [DeletePair<'_>], batches: &mut Vec<DeleteBatch<'_>>) -> Result<()> {
        for number in 0..batches.len() {
            let began = self.begin_one(&mut pairs[number], &batches[number], number > 0)?;
            if began == Began::Yes {
                continue;
            }
            let DeletePair { session, prover } = &mut pairs[number];
            session.run("ROLLBACK")?;
            prover.as_mut().map_or(Ok(()), Prover::leave)?;
            self.at = batches[number].at.clone();
            if began == Began::Rewritten {
                self.at.open = None;
            }
            batches.truncate(number);
            return Ok(());
        }
        Ok(())
    }

    /// `is_stream`: another batch is begun already. A session that waits for a lock of that batch comes before this
    /// one.
    fn begin_one(
        &self,
        pair: &mut DeletePair<'_>,
        batch: &DeleteBatch<'_>,
        is_stream: bool,
    ) -> Result<Began> {
        let BlockDelete { plan, side, generation, inbound, .. } = self.by;
        let DeletePair { session, prover } = pair;
        epoch::begin_as(session, plan.id, *side, *generation)?;
        if is_stream {
            session.run(stream_sessions::SHORTLY)?;
        }
        let file = match self.by.look_again(session, &self.touched, batch.leaf) {
            Err(error) if is_stream && stream_sessions::is_in_the_way(&error) => return Ok(Began::Locked),
            looked => looked?,
        };
        if file != batch.file {
            return Ok(Began::Rewritten);
        }
        match prover.as_mut().map_or(Ok(()), |prover| prover.look(is_stream)) {
            Err(error) if is_stream && stream_sessions::is_in_the_way(&error) => return Ok(Began::Locked),
            looked => looked?,
        }
        if is_stream {
            session.run(&stream_sessions::as_a_step())?;
        }
        match inbound.find(session, plan, self.position, &self.touched.beside, batch.rows()) {
            Ok(None) => Ok(Began::Yes),
            Ok(Some(inbound_fk)) => {
                session.run("ROLLBACK")?;
                Err(references::stays_bound(plan, *side, &inbound_fk))
            }
            // The batches before this one continue; next time it is the first one, and reports whom it waits for.
            Err(error) if is_stream && stream_sessions::is_in_the_way(&error) => Ok(Began::Locked),
            Err(error) => Err(error),
        }
    }

    /// Deletes what was shown, or all of it if nothing has to be. If one batch cannot be deleted, the others are committed
    /// first.
    fn delete(
        &self,
        pairs: &mut [DeletePair<'_>],
        batches: &[DeleteBatch<'_>],
        shown: &[Option<u64>],
    ) -> Result<u64> {
        let delete = |batch: &DeleteBatch<'_>| Some(format!("DELETE FROM {}", batch.rows()));
        let deletes: Vec<Option<String>> = batches.iter().map(delete).collect();
        let mut sessions: Vec<&mut Connection> = pairs.iter_mut().map(|pair| &mut *pair.session).collect();
        let answers = Connection::ask_all(&mut sessions, &deletes, Bounds::unlimited().stall)?;
        let (mut deleted, mut failed) = (0_u64, None);
        for (((pair, batch), shown), answer) in pairs.iter_mut().zip(batches).zip(shown).zip(answers) {
            match self.end(pair.session, batch, *shown, answer) {
                Ok(rows) => deleted = deleted.saturating_add(rows),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(deleted), Err)
    }

    fn end(
        &self,
        session: &mut Connection,
        batch: &DeleteBatch<'_>,
        shown: Option<u64>,
        answer: Option<std::result::Result<Rows, RemoteError>>,
    ) -> Result<u64> {
        let deleted = answer.transpose()?.map_or(0, |answer| answer.affected);
        self.by.require_gone(session, batch.rows(), shown, deleted)?;
        self.by.require_identity(session, self.position, self.shape)?;
        session.run("COMMIT")?;
        reach(self.by.after_batch)?;
        Ok(deleted)
    }
}
