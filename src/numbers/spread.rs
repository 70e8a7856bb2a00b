//! Gives each shard numbers of its own: `shard_sequences_spread()`.
//!
//! A call asks every shard, decides, and then gives each sequence its block, one after the other. It may end after any
//! of them: blocks come after all numbers of every shard, so a sequence with a block is apart from one that has none
//! yet, and the next call recognizes this.

use super::block::{BELOW, Block, Blocks, NARROW, SIZE};
use super::error;
use super::plan::{self, SpreadOutcome, SpreadPlan};
use super::rows;
use crate::agent::error::SplitError;
use crate::agent::short_lock;
use crate::catalog::number_block::{self, GivenBlock};
use crate::catalog::{keyspace, shard, table_policy};
use crate::error::Failure;
use crate::numbers::introspect::{OnShard, ShardSequence, look};
use crate::remote::Connection;
use crate::remote::quote::literal;
use crate::server::retry::Attempt;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

pub struct Spread<'a> {
    pub keyspace: &'a str,
    pub blocks: Blocks,
    /// Nothing is changed.
    pub dry_run: bool,
    /// The time limit for the whole call.
    pub timeout: Duration,
}

/// One sequence of one shard, as people see it.
pub struct SpreadLine {
    pub shard: String,
    pub sequence: String,
    pub first: i64,
    pub last: i64,
    pub outcome: String,
}

impl Spread<'_> {
    pub fn run(&self) -> Result<Vec<SpreadLine>, Failure> {
        let deadline = Instant::now() + self.timeout;
        let mut shards = look_at_all(self.keyspace, deadline)?;
        let plan = plan::make(&shards, &number_block::all(), self.blocks);
        if let Some(first) = plan.problems.first() {
            return Err(error::cannot_be_spread(self.keyspace, first, &plan.problems));
        }
        if !self.dry_run {
            plan.given.iter().for_each(|given| number_block::insert(self.keyspace, given));
            give(&mut shards, &plan, deadline)?;
        }
        Ok(lines(&shards, &plan))
    }
}

/// Reads a keyspace's sequences on every shard; nobody else gives out a block until the transaction ends.
fn look_at_all(keyspace: &str, deadline: Instant) -> Result<Vec<OnShard>, Failure> {
    keyspace::find(keyspace)?;
    let tables = table_policy::list(keyspace);
    if tables.is_empty() {
        return Err(error::no_tables(keyspace));
    }
    number_block::lock();
    let shards = shard::all().into_iter().filter(shard::Shard::holds_rows);
    // A silent shard may have any numbers.
    let looked = shards.map(|shard| look(shard, &tables, deadline)).collect::<Result<Vec<_>, _>>();
    let mut shards = looked.map_err(SplitError::into_failure)?;
    rows::look(&mut shards).map_err(SplitError::into_failure)?;
    if shards.is_empty() {
        return Err(error::no_shards());
    }
    Ok(shards)
}

/// Reserves blocks for sequences that are about to be created on a shard, one like each block of another shard; with
/// `dry_run`, they are not recorded. `like` are the first numbers of those, and the result has them, too.
pub fn reserve(
    keyspace: &str,
    shard_key: &str,
    like: &BTreeSet<i64>,
    timeout: Duration,
    dry_run: bool,
) -> Result<BTreeMap<i64, Block>, Failure> {
    let shards = look_at_all(keyspace, Instant::now() + timeout)?;
    let mut known = number_block::all();
    let is_wide = |given: &&GivenBlock| !NARROW.has(given.range);
    let size = known.iter().rfind(is_wide).map_or(SIZE, |given| given.range[1] - given.range[0] + 1);
    let is_beyond = known.iter().any(|given| given.range[1] >= BELOW);
    let wide = Blocks { size, below: if is_beyond { i64::MAX } else { BELOW } };
    let mut made = BTreeMap::new();
    for first in like {
        let of = known.iter().find(|given| given.range[0] == *first);
        let blocks = if of.is_some_and(|given| NARROW.has(given.range)) { NARROW } else { wide };
        let block =
            plan::next(&shards, &known, blocks).ok_or_else(|| error::no_block(keyspace, blocks.below))?;
        let given = GivenBlock { shard_key: shard_key.to_owned(), range: block.range() };
        if !dry_run {
            number_block::insert(keyspace, &given);
        }
        known.push(given);
        made.insert(*first, block);
    }
    Ok(made)
}

fn give(shards: &mut [OnShard], plan: &SpreadPlan, deadline: Instant) -> Result<(), Failure> {
    for (shard, outcomes) in shards.iter_mut().zip(&plan.outcomes) {
        for (sequence, outcome) in shard.sequences.iter().zip(outcomes) {
            if let SpreadOutcome::Gets(range) = outcome {
                give_one(&mut shard.session, sequence, *range, deadline)?;
            }
        }
    }
    Ok(())
}

/// Makes short attempts: sessions that draw queue behind each of them.
fn give_one(
    session: &mut Connection,
    sequence: &ShardSequence,
    range: [i64; 2],
    deadline: Instant,
) -> Result<(), Failure> {
    let statement = format!(
        "BEGIN; SET LOCAL lock_timeout = '100ms'; DO {}; COMMIT",
        literal(&plan::statement(sequence, range))
    );
    let longest = deadline.saturating_duration_since(Instant::now());
    let given = short_lock::again(longest, || match session.run(&statement) {
        Ok(_) => Ok(Attempt::Done(())),
        Err(error) => {
            session.run("ROLLBACK")?;
            if !error.is_lock_timeout() {
                return Err(error.into());
            }
            Ok(Attempt::Waits(format!(
                "a transaction on shard \"{}\" that has used sequence {}",
                session.shard(),
                sequence.name
            )))
        }
    });
    given.map_err(|error| match error {
        SplitError::Remote(error) if error.is(plan::DRAWN) => {
            error::drawn(session.shard(), &sequence.name, &error.message, range[0])
        }
        error => error.into_failure(),
    })
}

fn lines(shards: &[OnShard], plan: &SpreadPlan) -> Vec<SpreadLine> {
    let mut lines = Vec::new();
    for (shard, outcomes) in shards.iter().zip(&plan.outcomes) {
        for (sequence, outcome) in shard.sequences.iter().zip(outcomes) {
            let range = [sequence.numbers.min, sequence.numbers.max];
            let (range, outcome) = match outcome {
                SpreadOutcome::Gets(range) => (*range, "given".to_owned()),
                SpreadOutcome::Keeps => (range, "kept".to_owned()),
                SpreadOutcome::KeepsForNow(why) => (range, format!("kept: {why}")),
                SpreadOutcome::Shared(other) => (range, format!("the sequence of shard \"{other}\"")),
                SpreadOutcome::Left(why) => (range, format!("left unchanged: {why}")),
            };
            lines.push(SpreadLine {
                shard: shard.shard.shard_key.clone(),
                sequence: sequence.name.clone(),
                first: range[0],
                last: range[1],
                outcome,
            });
        }
    }
    lines
}
