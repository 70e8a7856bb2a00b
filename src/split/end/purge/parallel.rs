//! Batches of one table that are deleted at the same time, each by its own pair of sessions.
//!
//! Invariant: each is what a single batch is: a transaction in which the worker's generation cannot be overtaken, its
//! leaf is locked and was checked, and each of its rows was shown to be on the target. They are of other blocks or
//! leaves, so none waits for another, and what a batch commits does not depend on whether the others do.

use crate::agent::error::Result;
use crate::agent::shape::{Column, Leaf, TableShape};
use crate::agent::state::epoch;
use crate::remote::copy::Bounds;
use crate::remote::result::Rows;
use crate::remote::{Connection, RemoteError};
use crate::server::wait::{self, WorkerStatus};
use crate::split::blocks::{self, BlockSpan};
use crate::split::end::proof::parallel::{ProofPair, prove};
use crate::split::end::purge::{FIRST_BLOCKS, MAX_BLOCKS, MIN_BLOCKS, Touched, Walk};
use crate::split::engine::{scope_size, stream_sessions};
use crate::split::injection_points::reach;
use crate::split::references;
use std::time::Instant;

/// The deletion from one table.
pub struct Going<'a> {
    walk: &'a Walk,
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

/// The result of beginning a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Began {
    Yes,
    /// Another session waits for a stronger lock, or has one.
    Locked,
    /// The rows are in another file now, and in other blocks.
    Rewritten,
}

impl Walk {
    /// Begins the deletion. Returns None for a table or column that is gone, which holds no rows of the scope.
    pub fn go<'a>(
        &'a self,
        source: &mut Connection,
        position: usize,
        shape: &'a TableShape,
    ) -> Result<Option<Going<'a>>> {
        let policy = self.plan.tables.get(position);
        let Some(column) = policy.and_then(|policy| shape.column(&policy.shard_by)) else { return Ok(None) };
        let touched = self.touched(source, position)?;
        Ok(Some(Going {
            walk: self,
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

impl<'a> Going<'a> {
    pub fn is_over(&self) -> bool {
        self.at.leaf >= self.leaves.len()
    }

    /// Deletes the next batches, one for each pair, and returns the number of deleted rows.
    pub fn some(&mut self, pairs: &mut [ProofPair<'_>]) -> Result<u64> {
        let began = Instant::now();
        let mut batches = Vec::new();
        while batches.len() < pairs.len()
            && let Some(pair) = pairs.first_mut()
            && let Some(batch) = self.next(pair.source)?
        {
            batches.push(batch);
        }
        if let Some(batch) = batches.first() {
            wait::report_as(
                WorkerStatus::Working,
                &format!("deleting rows of {}, {} batches at a time", batch.leaf.name, batches.len()),
            );
        }
        self.begin(pairs, &mut batches)?;
        if batches.is_empty() {
            return Ok(0);
        }
        let count = batches.len();
        let pairs = &mut pairs[..count];
        let of: Vec<(&str, &str)> =
            batches.iter().map(|batch| (&*batch.leaf.name, &*batch.condition)).collect();
        let shown = prove(pairs, &of)?;
        let deleted = self.delete(pairs, &batches, &shown)?;
        self.size = blocks::adapt(self.size, blocks::by_time(began.elapsed()), MIN_BLOCKS, MAX_BLOCKS);
        Ok(deleted)
    }

    /// Returns the next batch, or None if there is none. No transaction is open.
    fn next(&mut self, source: &mut Connection) -> Result<Option<DeleteBatch<'a>>> {
        let Some(leaf) = self.leaves.get(self.at.leaf) else { return Ok(None) };
        let open = match self.at.open.take() {
            Some(open) => open,
            None => self.open(source, leaf)?,
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

    fn open(&self, source: &mut Connection, leaf: &Leaf) -> Result<OpenLeaf> {
        source.run("BEGIN")?;
        let file = self.walk.look_again(source, &self.touched, leaf)?;
        let few = scope_size::is_small(source, &leaf.name, self.column, &self.walk.plan.scope)?;
        source.run("COMMIT")?;
        let blocks = blocks::of_leaf(source, &leaf.name)?.blocks;
        Ok(OpenLeaf { file, blocks, few, from: 0 })
    }

    /// Begins the transactions of the batches, as far as this is possible without waiting behind other sessions; the
    /// remaining batches are tried again.
    fn begin(&mut self, pairs: &mut [ProofPair<'_>], batches: &mut Vec<DeleteBatch<'_>>) -> Result<()> {
        for number in 0..batches.len() {
            let began = self.begin_one(&mut pairs[number], &batches[number], number > 0)?;
            if began == Began::Yes {
                continue;
            }
            pairs[number].source.run("ROLLBACK")?;
            pairs[number].prover.leave()?;
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
    fn begin_one(&self, pair: &mut ProofPair<'_>, batch: &DeleteBatch<'_>, is_stream: bool) -> Result<Began> {
        let Walk { plan, side, generation, bonds, .. } = self.walk;
        let ProofPair { source, prover } = pair;
        epoch::begin_as(source, plan.id, *side, *generation)?;
        if is_stream {
            source.run(stream_sessions::SHORTLY)?;
        }
        let file = match self.walk.look_again(source, &self.touched, batch.leaf) {
            Err(error) if is_stream && stream_sessions::is_in_the_way(&error) => return Ok(Began::Locked),
            looked => looked?,
        };
        if file != batch.file {
            return Ok(Began::Rewritten);
        }
        match prover.look(is_stream) {
            Err(error) if is_stream && stream_sessions::is_in_the_way(&error) => return Ok(Began::Locked),
            looked => looked?,
        }
        if is_stream {
            source.run(&stream_sessions::as_a_step())?;
        }
        let rows = (batch.leaf.name.as_str(), batch.condition.as_str());
        match bonds.find(source, plan, (self.position, &self.touched.beside), rows) {
            Ok(None) => Ok(Began::Yes),
            Ok(Some(bond)) => Err(references::stays_bound(plan, *side, &bond)),
            // The batches before this one continue; next time it is the first one, and reports whom it waits for.
            Err(error) if is_stream && stream_sessions::is_in_the_way(&error) => Ok(Began::Locked),
            Err(error) => Err(error),
        }
    }

    /// Deletes what was shown. If one batch cannot be deleted, the others are committed first.
    fn delete(&self, pairs: &mut [ProofPair<'_>], batches: &[DeleteBatch<'_>], shown: &[u64]) -> Result<u64> {
        let delete = |batch: &DeleteBatch<'_>| {
            Some(format!("DELETE FROM ONLY {} t WHERE {}", batch.leaf.name, batch.condition))
        };
        let deletes: Vec<Option<String>> = batches.iter().map(delete).collect();
        let mut sessions: Vec<&mut Connection> = pairs.iter_mut().map(|pair| &mut *pair.source).collect();
        let answers = Connection::ask_all(&mut sessions, &deletes, Bounds::unlimited().stall)?;
        let (mut deleted, mut failed) = (0_u64, None);
        for (((pair, batch), shown), answer) in pairs.iter_mut().zip(batches).zip(shown).zip(answers) {
            match self.end(pair.source, batch, *shown, answer) {
                Ok(rows) => deleted = deleted.saturating_add(rows),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(deleted), Err)
    }

    fn end(
        &self,
        source: &mut Connection,
        batch: &DeleteBatch<'_>,
        shown: u64,
        answer: Option<std::result::Result<Rows, RemoteError>>,
    ) -> Result<u64> {
        let deleted = answer.transpose()?.map_or(0, |answer| answer.affected);
        self.walk.require_gone(source, (&batch.leaf.name, &batch.condition), Some(shown), deleted)?;
        self.walk.require_meant(source, self.position, self.shape)?;
        source.run("COMMIT")?;
        reach(self.walk.after_batch)?;
        Ok(deleted)
    }
}
