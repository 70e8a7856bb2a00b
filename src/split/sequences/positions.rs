//! The positions of sequences, and how those of the target are raised: only upwards, under the lock that ALTER
//! SEQUENCE takes. If reading and setting were separate, ids would be given out twice.

use super::counter::{CounterState, out_of_reach};
use super::draw::{DrawnSequence, no_numbers};
use super::pair::SequencePair;
use super::survey::NumbersToCome;
use crate::agent::error::{Result, SplitError};
use crate::error::SqlState;
use crate::numbers::introspect;
use crate::remote::Connection;
use crate::remote::quote::{ident, literal};
use crate::remote::result::Rows;
use crate::server::retry::{self, Attempt, Backoff};
use crate::words::counted;
use std::time::{Duration, Instant};

/// How far a sequence of the target is set ahead of the source's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ahead {
    /// By the margin.
    Enough,
    /// By twice the margin, so that nothing is left to be done within the fence: a transaction that has drawn from the
    /// sequence there keeps it from being raised until it ends.
    Plenty,
}

/// The positions of a pair's sequences. `to` is `None` if the target's does not exist any more.
pub struct SequencePosition {
    pub from: Vec<CounterState>,
    pub to: Option<CounterState>,
    /// Numbers of the source that another sequence of the target covers, by a range of its own: this one is not raised
    /// among them, and ends before they begin.
    others: Vec<[i64; 2]>,
}

/// Returns the queries for the positions on the source and on the target, or None if there are none.
pub fn questions(pairs: &[SequencePair]) -> Option<[String; 2]> {
    if pairs.is_empty() {
        return None;
    }
    let from = question(pairs.iter().flat_map(|pair| &pair.from));
    Some([from, question(pairs.iter().map(|pair| &pair.to))])
}

fn question<'a>(sequences: impl Iterator<Item = &'a DrawnSequence>) -> String {
    let parts = sequences.enumerate().map(|(number, sequence)| {
        let name = &sequence.name;
        format!("SELECT {number}, {}::regclass, last_value, is_called::int FROM {name}", literal(name))
    });
    format!(
        "SELECT v.number, seqincrement, seqmin, seqmax, seqstart, v.now, seqcache, v.is_called
           FROM ({}) v (number, relation, now, is_called) JOIN pg_sequence ON seqrelid = v.relation",
        parts.collect::<Vec<_>>().join(" UNION ALL ")
    )
}

/// Returns SQL that fails if a name belongs to another object since it was read.
pub fn still_sequences<'a>(sequences: impl Iterator<Item = &'a DrawnSequence> + Clone) -> String {
    introspect::still_sequences(sequences.map(|sequence| (sequence.oid.as_str(), sequence.name.as_str())))
}

/// The SQLSTATE of that failure.
pub const IS_OTHER: &str = "22003";

pub fn ask(
    source: &mut Connection,
    target: &mut Connection,
    pairs: &[SequencePair],
    [of_source, of_target]: &[String; 2],
) -> Result<Vec<SequencePosition>> {
    if pairs.is_empty() {
        return Ok(Vec::new());
    }
    source.send(of_source)?;
    target.send(of_target)?;
    let (from, to) = (source.finish(), target.finish());
    read(source, &from?, target, &to?, pairs)
}

pub fn read(
    source: &Connection,
    from: &Rows,
    target: &Connection,
    to: &Rows,
    pairs: &[SequencePair],
) -> Result<Vec<SequencePosition>> {
    let there = pairs.iter().enumerate().map(|(number, pair)| {
        let state = state_of(target, to, number, &pair.to.name)?;
        Ok(state.map(|state| state.held(pair.holds)))
    });
    let there: Vec<Option<CounterState>> = there.collect::<Result<_>>()?;
    with_reached(source, from, pairs, &there)
}

/// Combines the source's current positions with those that the target's were raised to.
pub fn with_reached(
    source: &Connection,
    from: &Rows,
    pairs: &[SequencePair],
    reached: &[Option<CounterState>],
) -> Result<Vec<SequencePosition>> {
    let mut number = 0;
    let mut all = Vec::with_capacity(pairs.len());
    for pair in pairs {
        let mut states = Vec::with_capacity(pair.from.len());
        for sequence in &pair.from {
            states.extend(
                state_of(source, from, number, &sequence.name)?.map(|state| (sequence.oid.as_str(), state)),
            );
            number += 1;
        }
        all.push(states);
    }
    let has_another = |at: usize, oid: &str, from: CounterState| {
        all.iter().zip(reached).enumerate().any(|(other, (states, to))| {
            other != at
                && to.is_some_and(|to| to.is_apart_from(from))
                && states.iter().any(|(of, _)| *of == oid)
        })
    };
    let of = |at: usize, states: &[(&str, CounterState)], to: Option<CounterState>| {
        let is_among = |from: CounterState| to.is_some_and(|to| !to.is_apart_from(from));
        let mut position = SequencePosition { from: Vec::new(), to, others: Vec::new() };
        for (oid, from) in states {
            if is_among(*from) && has_another(at, oid, *from) {
                position.others.push(from.range())
            } else {
                position.from.push(*from)
            }
        }
        position
    };
    let positions = all.iter().zip(reached).enumerate();
    Ok(positions.map(|(at, (states, to))| of(at, states, *to)).collect())
}

fn state_of(
    connection: &Connection,
    rows: &Rows,
    number: usize,
    sequence: &str,
) -> Result<Option<CounterState>> {
    let number = number.to_string();
    let of_it = |row: &&Vec<Option<String>>| row.first().is_some_and(|cell| cell.as_deref() == Some(&number));
    let Some(row) = rows.rows.iter().find(of_it) else { return Ok(None) };
    let numbers: Option<Vec<i64>> = row[1..].iter().map(|cell| cell.as_deref()?.parse().ok()).collect();
    let state = numbers.and_then(|numbers| CounterState::read(&numbers));
    Ok(Some(state.ok_or_else(|| no_numbers(connection, &format!("sequence {sequence}"), &row[1..]))?))
}

impl SequencePosition {
    /// Returns the number up to which the target's must not give out any. Returns None if there is nothing on either
    /// side, or it has numbers of its own. It is an error if the source's counts in the other direction.
    pub fn value(&self, sequence: &str) -> std::result::Result<Option<i64>, (String, String)> {
        let Some(to) = self.to else { return Ok(None) };
        let same_way = || self.from.iter().filter(|from| from.is_up() == to.is_up());
        // A sequence with other numbers than the source's gives out none of them, and keeps to its own.
        let to_follow = || same_way().filter(|from| !to.is_apart_from(**from)).map(|from| from.now());
        let value = if to.is_up() { to_follow().max() } else { to_follow().min() };
        if same_way().next().is_none() && !self.from.is_empty() {
            let text = format!("sequence {sequence} counts in the other direction from that of the source");
            let hint = format!(
                "Give both the same sign: ALTER SEQUENCE {sequence} INCREMENT BY .., with MINVALUE and MAXVALUE that fit."
            );
            return Err((text, hint));
        }
        Ok(value)
    }
}

/// Returns why it is not raised, and what to do about it.
pub fn not_to_be_set(pair: &SequencePair) -> Option<(String, String)> {
    let (name, owner) = (&pair.to.name, pair.to.may_not.as_ref()?);
    let who = if pair.table.is_some() { "which owns the table" } else { "for which it would be raised" };
    let text = format!("sequence {name} cannot be set by role {owner}, {who}");
    let hint = format!(
        "It is raised with that role's rights. GRANT UPDATE ON SEQUENCE {name} TO {owner}, or let clients use another one."
    );
    Some((text, hint))
}

/// Returns why the target's cannot be past the source's, and what to do about it.
pub fn unfit(pair: &SequencePair, position: &SequencePosition) -> Option<(String, String)> {
    let sequence = &pair.to.name;
    match position.value(sequence) {
        Err(why) => Some(why),
        Ok(None) => None,
        Ok(Some(value)) => out_of_reach(position.to?, sequence, value),
    }
}

/// Returns the numbers that the target's will give out once it is raised. Returns None if there are none, or they are
/// unknown.
pub fn to_come(pair: &SequencePair, position: &SequencePosition) -> Option<NumbersToCome> {
    let (state, value) = (position.to?, position.value(&pair.to.name).ok()?);
    let range = value.map_or(state, |value| state.after(value)).to_come()?;
    // For sequences that count down, numbers beyond the source's are not checked.
    let is_as_of_source = state.is_up()
        && !position.from.is_empty()
        && !position.from.iter().any(|from| state.is_apart_from(*from))
        && position.others.is_empty()
        && position.from.iter().any(|from| from.is_up() && state.ends_within(*from));
    let of_others = position.others.iter().map(|of| of[0]).min().filter(|_| state.is_up());
    Some(NumbersToCome { range, is_up: state.is_up(), is_as_of_source, of_others })
}

/// Warns if the target's step is smaller: a client that uses each number for as many values as the source's step, like
/// an object mapper, would use some twice.
pub fn by_less(pair: &SequencePair, position: &SequencePosition) -> Option<String> {
    let there = position.to?.increment;
    let here = position.from.iter().map(|state| state.increment).max_by_key(|step| step.unsigned_abs())?;
    (there.unsigned_abs() < here.unsigned_abs()).then(|| {
        let name = &pair.to.name;
        format!(
            "sequence {name} increments by {there} on the target, and by {here} on the source: clients that take {} numbers with each of its would give out some twice; ALTER SEQUENCE {name} INCREMENT BY {here} makes both alike",
            here.unsigned_abs()
        )
    })
}

/// Warns about a sequence with another name: clients may name it.
pub fn otherwise_called(pair: &SequencePair) -> Option<(String, String)> {
    let (name, here) = (&pair.to.name, pair.from.first()?);
    let is_called_so = pair.from.iter().any(|from| from.relname == pair.to.relname);
    (!is_called_so).then(|| {
        (
            format!(
                "sequence {name} takes the place of {} of the source: clients that use that name fail",
                here.name
            ),
            format!("If any do: ALTER SEQUENCE {name} RENAME TO {} on the target.", ident(&here.relname)),
        )
    })
}

/// The number below which a warning is given, since they are used up soon. A session takes as many in advance as
/// CACHE.
const FEW: i128 = 1_000;

/// Reports a sequence of the target that has no number left once it is raised, or none by now.
pub fn used_up(pair: &SequencePair, position: &SequencePosition) -> Option<(String, String)> {
    let (left, more) = (left(pair, position)?, more(pair));
    (left == 0).then(|| (format!("sequence {} has no number left", pair.to.name), more))
}

/// Reports a sequence that has few numbers left.
pub fn scarce(pair: &SequencePair, position: &SequencePosition) -> Option<(String, String)> {
    let (left, more) = (left(pair, position)?, more(pair));
    let few = FEW.max(i128::from(position.to?.cache));
    (1..few).contains(&left).then(|| {
        let numbers = counted(usize::try_from(left).unwrap_or_default(), "number", "numbers");
        (
            format!("sequence {} has {numbers} left once it is raised past that of the source", pair.to.name),
            more,
        )
    })
}

fn more(pair: &SequencePair) -> String {
    let name = &pair.to.name;
    format!(
        "Give it more on the target: ALTER SEQUENCE {name} with another MAXVALUE (MINVALUE, if it counts down), or AS bigint."
    )
}

/// Returns how many numbers the target's will give out before its end. Returns None if nothing is known of it, or it
/// is not raised.
fn left(pair: &SequencePair, position: &SequencePosition) -> Option<i128> {
    let (state, value) = (position.to?, position.value(&pair.to.name).ok()?);
    Some(value.map_or(state, |value| state.after(value)).left())
}

/// Raises those of the target that are behind, and returns each position afterwards. One that cannot be raised does
/// not stop the others.
pub fn raise_all(
    target: &mut Connection,
    pairs: &[SequencePair],
    positions: &[SequencePosition],
    ahead: Ahead,
    deadline: Instant,
) -> Result<Raised> {
    let mut raised = Raised { reached: positions.iter().map(|position| position.to).collect(), any: false };
    let mut raises = Vec::new();
    for (number, (pair, position)) in pairs.iter().zip(positions).enumerate() {
        if let Some((wanted, statement)) = raise_one(target, pair, position, ahead)? {
            raises.push((number, wanted, statement));
        }
    }
    raised.any = !raises.is_empty();
    let mut first = None;
    let mut left = raises.as_slice();
    while !left.is_empty() {
        let statements: Vec<String> = left.iter().map(|(.., statement)| statement.clone()).collect();
        let done = match target.run_transactions(&statements) {
            Ok(()) => left.len(),
            Err((done, error)) => {
                target.run("ROLLBACK")?;
                let Some((number, _, statement)) = left.get(done) else { return Err(error.into()) };
                let sequence = pairs.get(*number).map(|pair| pair.to.name.as_str()).unwrap_or_default();
                if let Err(error) = retry_on_lock(target, statement, sequence, deadline) {
                    first.get_or_insert(error);
                }
                done + 1
            }
        };
        for (number, wanted, _) in left.iter().take(done) {
            if let Some(Some(state)) = raised.reached.get_mut(*number) {
                *state = state.raised_to(*wanted);
            }
        }
        left = left.get(done..).unwrap_or_default();
    }
    first.map_or(Ok(raised), Err)
}

pub struct Raised {
    /// The positions that the target's have at least.
    pub reached: Vec<Option<CounterState>>,
    /// Whether there was anything to raise.
    pub any: bool,
}

/// Returns the transaction that raises one, and how far, or None if nothing is to be done. A sequence that counts down
/// is raised downwards.
fn raise_one(
    target: &Connection,
    pair: &SequencePair,
    position: &SequencePosition,
    ahead: Ahead,
) -> Result<Option<(i64, String)>> {
    let to = pair.to.name.as_str();
    let fail = |(text, hint): (String, String)| {
        SplitError::failed(SqlState::NOT_IN_STATE, format!("shard \"{}\": {text}", target.shard()), hint)
    };
    if let Some(why) = unfit(pair, position) {
        // For one that may be drawn from, the check has reported it.
        return if pair.is_sure { Err(fail(why)) } else { Ok(None) };
    }
    let (Some(state), Some(value)) = (position.to, position.value(to).map_err(fail)?) else {
        return Ok(None);
    };
    // A sequence is never lowered, so its position is permanent, and no session has to be waited for. ALTER SEQUENCE
    // invalidates what sessions have taken in advance.
    if state.have_all_passed(state.beyond(value, 1)) {
        return Ok(None);
    }
    if let Some(why) = not_to_be_set(pair) {
        return Err(fail(why));
    }
    let wanted = state.wanted(value, if ahead == Ahead::Plenty { 2 } else { 1 });
    let increment = state.increment;
    let behind = if state.is_up() { "<" } else { ">" };
    // DO runs as one statement: lock, compare, restart. Other sessions that draw wait behind it.
    let statement = format!(
        "BEGIN; SET LOCAL lock_timeout = '100ms'; DO {}; COMMIT",
        literal(&format!(
            "BEGIN
                 ALTER SEQUENCE {to} INCREMENT BY {increment};
                 IF (SELECT last_value FROM {to}) {behind} {wanted} THEN
                     ALTER SEQUENCE {to} RESTART WITH {wanted};
                 END IF;
             END"
        ))
    );
    Ok(Some((wanted, statement)))
}

/// Makes short attempts with growing pauses, since sessions that draw queue behind each of them: a transaction that
/// has drawn keeps the sequence until its end.
fn retry_on_lock(target: &mut Connection, statement: &str, sequence: &str, deadline: Instant) -> Result<()> {
    const PAUSES: Backoff = Backoff::new(Duration::from_millis(50), Duration::MAX);
    let raised = retry::until(deadline, PAUSES, || {
        let Err(error) = target.run(statement) else { return Ok(Attempt::Done(())) };
        target.run("ROLLBACK")?;
        if !error.is_lock_timeout() {
            return Err(SplitError::from(error));
        }
        let shard = target.shard();
        Ok(Attempt::Waits(format!("a transaction on shard \"{shard}\" that has used sequence {sequence}")))
    });
    raised?.map_err(SplitError::Retry)
}
