//! Decides which sequences of which shards get a block, and which block, before anything changes.

use super::block::{Block, Blocks, NARROW};
use crate::catalog::number_block::GivenBlock;
use crate::error::{Failure, SqlState};
use crate::numbers::introspect::{OnShard, ShardSequence};

/// The outcome for a sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpreadOutcome {
    /// It gets these numbers.
    Gets([i64; 2]),
    /// It already has numbers of its own.
    Keeps,
    /// It has numbers of its own until it restarts; the text gives the reason.
    KeepsForNow(String),
    /// It is the same sequence as that of another shard.
    Shared(String),
    /// No key needs numbers of its own, and it cannot have any; the text gives the reason.
    Left(String),
}

/// The outcomes by the index of the shard, and then by that of the sequence.
pub struct SpreadPlan {
    pub outcomes: Vec<Vec<SpreadOutcome>>,
    /// The blocks to record: those that are given out, and those that were found.
    pub given: Vec<GivenBlock>,
    /// Why sequences that need numbers of their own cannot have any.
    pub problems: Vec<Failure>,
}

pub fn make(shards: &[OnShard], known: &[GivenBlock], blocks: Blocks) -> SpreadPlan {
    let mut plan = SpreadPlan { outcomes: Vec::new(), given: Vec::new(), problems: Vec::new() };
    let standings: Vec<Vec<NumberStanding>> = shards
        .iter()
        .enumerate()
        .map(|(at, shard)| standings(shards, at, shard, known, &mut plan.given))
        .collect();
    // The last numbers come from the catalog, and from the shards if the catalog lacks some blocks.
    let mut wide = BlockEnd::of(blocks, shards, known, &plan.given);
    let mut narrow = BlockEnd::of(NARROW, shards, known, &plan.given);
    for (shard, standings) in shards.iter().zip(standings) {
        let mut taken: Vec<TakenBlock<'_>> = Vec::new();
        let mut outcomes = Vec::new();
        for (sequence, standing) in shard.sequences.iter().zip(standings) {
            outcomes.push(match standing {
                NumberStanding::Same(other) => SpreadOutcome::Shared(other),
                NumberStanding::Apart => SpreadOutcome::Keeps,
                NumberStanding::ApartForNow(why) => SpreadOutcome::KeepsForNow(why),
                NumberStanding::Open => {
                    let origin = NumberOrigin::of(sequence, shard, known);
                    let blocks = blocks.fit_for(sequence.holds);
                    let end = if blocks.is_narrow() { &mut narrow } else { &mut wide };
                    let shared = taken.iter_mut().find(|taken| {
                        taken.is_narrow == blocks.is_narrow() && taken.may_have(sequence, origin)
                    });
                    let next = shared.as_ref().map_or_else(|| end.next(), |taken| Some(taken.block));
                    match (fit(shard, sequence, next, blocks), next) {
                        (Ok(range), Some(block)) => {
                            match shared {
                                Some(taken) => taken.by.push((sequence, origin)),
                                None => {
                                    end.last = block.last;
                                    let (is_narrow, by) = (blocks.is_narrow(), vec![(sequence, origin)]);
                                    taken.push(TakenBlock { block, is_narrow, by });
                                }
                            }
                            SpreadOutcome::Gets(range)
                        }
                        (Ok(_), None) => SpreadOutcome::Left("has no block".to_owned()),
                        (Err(problem), _) => {
                            let text = problem.message.clone();
                            plan.problems.extend(sequence.is_needed.then_some(problem));
                            SpreadOutcome::Left(text)
                        }
                    }
                }
            });
        }
        let shard_key = &shard.shard.shard_key;
        plan.given.extend(
            taken.iter().map(|taken| GivenBlock { shard_key: shard_key.clone(), range: taken.block.range() }),
        );
        plan.outcomes.push(outcomes);
    }
    plan
}

/// A block for sequences of one shard, and these sequences.
struct TakenBlock<'a> {
    block: Block,
    is_narrow: bool,
    by: Vec<(&'a ShardSequence, NumberOrigin)>,
}

impl TakenBlock<'_> {
    /// Whether another sequence may draw from the same block: sequences that were apart on their shard stay apart, and
    /// so do those of one column.
    fn may_have(&self, sequence: &ShardSequence, origin: NumberOrigin) -> bool {
        self.by
            .iter()
            .all(|(other, of)| of.may_be_with(origin) && other.columns.is_disjoint(&sequence.columns))
    }
}

/// The numbers that a sequence has had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NumberOrigin {
    /// The numbers of any new sequence.
    Ordinary,
    /// A block that it was given, identified by its first number.
    Block(i64),
    /// Numbers that somebody has set: their range, and where they start.
    ByHand([i64; 3]),
}

impl NumberOrigin {
    fn of(sequence: &ShardSequence, shard: &OnShard, known: &[GivenBlock]) -> NumberOrigin {
        let (min, max) = (sequence.numbers.min, sequence.numbers.max);
        let is_its = |given: &&GivenBlock| given.shard_key == shard.shard.shard_key && given.has([min, max]);
        match known.iter().find(is_its) {
            Some(given) => NumberOrigin::Block(given.range[0]),
            None if sequence.is_bounded() || sequence.start != 1 => NumberOrigin::ByHand([
                min,
                if sequence.is_bounded() { max } else { i64::MAX },
                sequence.start,
            ]),
            None => NumberOrigin::Ordinary,
        }
    }

    fn may_be_with(self, other: NumberOrigin) -> bool {
        match (self, other) {
            (NumberOrigin::Ordinary, NumberOrigin::Block(_))
            | (NumberOrigin::Block(_), NumberOrigin::Ordinary) => true,
            _ => self == other,
        }
    }
}

/// Returns the next block after those of all shards.
pub fn next(shards: &[OnShard], known: &[GivenBlock], blocks: Blocks) -> Option<Block> {
    let mut found = known.to_vec();
    for (at, shard) in shards.iter().enumerate() {
        standings(shards, at, shard, known, &mut found);
    }
    BlockEnd::of(blocks, shards, &found, &[]).next()
}

/// Where the blocks end that are given out, or in use.
struct BlockEnd {
    blocks: Blocks,
    /// The greatest number that is drawn or in rows.
    drawn: i64,
    /// The last number of the last block.
    last: i64,
}

impl BlockEnd {
    /// Narrow blocks lie before all numbers that columns of type integer do not hold.
    fn of(blocks: Blocks, shards: &[OnShard], known: &[GivenBlock], given: &[GivenBlock]) -> BlockEnd {
        let counts = |number: &i64| !blocks.is_narrow() || *number < blocks.below;
        let drawn = shards.iter().flat_map(|shard| &shard.sequences).map(used).filter(counts);
        let last = known.iter().chain(given).map(|given| given.range[1]).filter(counts);
        BlockEnd { blocks, drawn: drawn.max().unwrap_or(0), last: last.max().unwrap_or(0) }
    }

    fn next(&self) -> Option<Block> {
        self.blocks.next(self.drawn, self.last)
    }
}

/// Returns the standings of one shard's sequences; ranges that are found but not recorded are added to `given`.
fn standings(
    shards: &[OnShard],
    at: usize,
    shard: &OnShard,
    known: &[GivenBlock],
    given: &mut Vec<GivenBlock>,
) -> Vec<NumberStanding> {
    let mut all = Vec::new();
    for sequence in &shard.sequences {
        let others = OtherSequences::of(shards, at, sequence);
        let standing = others.standing(known, sequence);
        if matches!(standing, NumberStanding::Apart | NumberStanding::ApartForNow(_))
            && !others.is_known(known, sequence)
        {
            given.extend(others.found(sequence));
        }
        all.push(standing);
    }
    all
}

/// Returns the greatest number that is drawn or in rows.
fn used(sequence: &ShardSequence) -> i64 {
    sequence.numbers.last.max(sequence.in_rows).unwrap_or(0)
}

/// Whether somebody has set both ends of its numbers.
fn is_block(sequence: &ShardSequence) -> bool {
    sequence.is_bounded() && sequence.numbers.min > 1
}

/// The sequences of other shards that fill the same columns.
struct OtherSequences<'a> {
    of: &'a OnShard,
    all: Vec<(&'a OnShard, &'a ShardSequence)>,
    /// An earlier shard that has the same sequence.
    same: Option<&'a OnShard>,
    /// An earlier sequence of the same shard and column that may give out the same numbers.
    beside: Option<&'a ShardSequence>,
}

enum NumberStanding {
    Same(String),
    /// No other sequence can give out its numbers.
    Apart,
    /// No other sequence can give out its numbers until it restarts.
    ApartForNow(String),
    Open,
}

impl<'a> OtherSequences<'a> {
    fn of(shards: &'a [OnShard], at: usize, own: &ShardSequence) -> OtherSequences<'a> {
        let of = &shards[at];
        let (mut all, mut same) = (Vec::new(), None);
        for (other, shard) in shards.iter().enumerate().filter(|(other, _)| *other != at) {
            for theirs in &shard.sequences {
                if of.is_one(own, shard, theirs) {
                    same = same.or(Some(shard).filter(|_| other < at));
                } else if !own.columns.is_disjoint(&theirs.columns) {
                    all.push((shard, theirs));
                }
            }
        }
        let before = of.sequences.iter().take_while(|theirs| theirs.oid != own.oid);
        let mut beside = before.filter(|theirs| !own.columns.is_disjoint(&theirs.columns));
        let beside = beside.find(|theirs| own.numbers.meet(theirs.numbers).is_some());
        OtherSequences { of, all, same, beside }
    }

    fn standing(&self, known: &[GivenBlock], own: &ShardSequence) -> NumberStanding {
        if let Some(same) = self.same {
            return NumberStanding::Same(same.shard.shard_key.clone());
        }
        // A sequence that may give out a number a second time gets other numbers.
        if own.numbers.cycles || own.is_behind || self.beside.is_some() {
            return NumberStanding::Open;
        }
        if self.is_known(known, own) {
            return if own.numbers.is_nearly_used_up() {
                NumberStanding::Open
            } else {
                NumberStanding::Apart
            };
        }
        // If a sequence is the only bounded one, nobody knows the numbers of the next shard's sequence.
        let mut all = self.all.iter().filter(|(_, theirs)| !is_block(own) || theirs.is_bounded());
        if !self.all.is_empty() && all.all(|(_, theirs)| own.numbers.meet(theirs.numbers).is_none()) {
            self.restarted(own).map_or(NumberStanding::Apart, NumberStanding::ApartForNow)
        } else {
            NumberStanding::Open
        }
    }

    /// Returns the problem of sequences that take turns if one would restart with a number of another: TRUNCATE ..
    /// RESTART IDENTITY.
    fn restarted(&self, own: &ShardSequence) -> Option<String> {
        let meets = |(shard, theirs): &&(&OnShard, &ShardSequence)| {
            let number = own.restarted().meet(theirs.numbers)?;
            let (name, start, like) = (&own.name, own.start, &shard.shard.shard_key);
            Some(format!(
                "RESTART begins with {start} and reaches {number}, a number of shard \"{like}\": ALTER SEQUENCE {name} START WITH a number of its own"
            ))
        };
        self.all.iter().find_map(|of| meets(&of))
    }

    fn is_known(&self, known: &[GivenBlock], own: &ShardSequence) -> bool {
        let range = [own.numbers.min, own.numbers.max];
        known.iter().any(|given| given.shard_key == self.of.shard.shard_key && given.has(range))
    }

    /// Returns the range of a sequence that is apart: given out by a master before it was restored, or set by
    /// somebody.
    fn found(&self, own: &ShardSequence) -> Option<GivenBlock> {
        let mut all = self.all.iter().filter(|(_, theirs)| theirs.is_bounded());
        let is_apart = all.all(|(_, theirs)| own.numbers.is_apart_from(theirs.numbers));
        let range = [own.numbers.min, own.numbers.max];
        (own.is_bounded() && is_apart)
            .then(|| GivenBlock { shard_key: self.of.shard.shard_key.clone(), range })
    }
}

/// Returns the numbers that a sequence would give out from a block, or why it cannot.
fn fit(
    shard: &OnShard,
    sequence: &ShardSequence,
    block: Option<Block>,
    blocks: Blocks,
) -> Result<[i64; 2], Failure> {
    let problem = |state, text: String, hint: String| {
        let text = format!("shard \"{}\": sequence {} {text}", shard.shard.shard_key, sequence.name);
        Failure::new(state, text).hint(hint)
    };
    let state = SqlState::NOT_IN_STATE;
    if !sequence.may_set || !sequence.may_read {
        let owner = &sequence.owner;
        let hint = format!(
            "ALTER SEQUENCE is for owners. GRANT {owner} TO the mover's role and to the owner of the table, or make the table's owner its owner."
        );
        return Err(problem(
            SqlState::INSUFFICIENT_PRIVILEGE,
            format!("belongs to {owner}, whose rights the mover or the table's owner does not have"),
            hint,
        ));
    }
    if sequence.numbers.increment < 0 {
        let hint =
            "Give it a range of its own on each shard with ALTER SEQUENCE, or a sequence that counts up.";
        return Err(problem(state, "counts down".into(), hint.into()));
    }
    if sequence.numbers.cycles {
        let hint = format!("ALTER SEQUENCE {} NO CYCLE, on the shard.", sequence.name);
        return Err(problem(state, "cycles: it would give out its numbers again".into(), hint));
    }
    if let Some(partitions) = &sequence.in_the_way {
        let hint = "Add a default partition for them, or partition by another column.";
        let text = format!("fills a column that the table is partitioned by: {partitions}");
        return Err(problem(state, text, hint.into()));
    }
    if let Some(narrow) = &sequence.narrow {
        let hint = "Make it accept every bigint, or add the shard-by column to the key.";
        let text = format!("fills {narrow}, which may refuse numbers of a block");
        return Err(problem(state, text, hint.into()));
    }
    let too_small = || {
        let column = sequence.columns.first().map_or_else(String::new, |(_, column)| column.clone());
        let hint = format!(
            "Make it bigint on each shard, with all columns that refer to it: ALTER TABLE .. ALTER {column} TYPE bigint. Or give each shard's sequence a remainder: INCREMENT BY the greatest number of shards there will ever be."
        );
        problem(state, format!("fills {}, which is too small for blocks", sequence.held_by), hint)
    };
    // A narrow block is used up sooner than the column: only a key that needs one is worth that.
    if blocks.is_narrow() && (block.is_none() || !sequence.is_needed) {
        return Err(too_small());
    }
    let Some(block) = block else {
        let hint = "If no client uses them as floating-point numbers, raise the bound: below => 9223372036854775807. Or use smaller blocks: block => 1000000000.";
        let text = format!("has no block left below {}: a greater number is in use", blocks.below);
        return Err(problem(state, text, hint.into()));
    };
    if sequence.holds < block.last {
        return Err(too_small());
    }
    block.of_sequence(sequence.numbers.increment, sequence.numbers.like()).ok_or_else(|| {
        let hint = "Use larger blocks, which hold many of its steps: block => 1000000000000.".to_owned();
        problem(
            state,
            format!("counts by {}, for which a block is too small", sequence.numbers.increment),
            hint,
        )
    })
}

/// The SQLSTATE if a sequence reaches its block before it is given to it.
pub const DRAWN: &str = "55S01";

/// Returns the statement that gives a sequence its numbers. It waits for transactions that have drawn and not ended
/// yet, and compares under the lock that ALTER SEQUENCE takes.
pub fn statement(sequence: &ShardSequence, [first, last]: [i64; 2]) -> String {
    let (name, increment) = (&sequence.name, sequence.numbers.increment);
    format!(
        "BEGIN
             ALTER SEQUENCE {name} INCREMENT BY {increment};
             IF (SELECT s.is_called AND s.last_value >= {first} FROM {name} s) THEN
                 RAISE EXCEPTION USING ERRCODE = '{DRAWN}', MESSAGE = (SELECT s.last_value FROM {name} s);
             END IF;
             ALTER SEQUENCE {name} AS pg_catalog.int8 MINVALUE {first} MAXVALUE {last} START WITH {first} RESTART WITH {first};
         END"
    )
}
