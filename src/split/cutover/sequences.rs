//! Sequences of moving tables: the target's are raised past the source's, so that
//! no identifier is given out twice.

use crate::agent::error::{Result, SplitError};
use crate::error::SqlState;
use crate::guc;
use crate::remote::quote::{array_of, literal};
use crate::remote::result::Rows;
use crate::remote::{Connection, RemoteError};
use crate::server::wait;
use crate::split::engine::Engine;
use crate::split::table::Table;
use std::time::{Duration, Instant};

/// Sequences that fill columns of tables: owned by them, or called in a default. The last
/// column: the table's owner, where he may not set the sequence himself. A default of his that
/// draws from somebody else's does not have it raised.
const OF_TABLES: &str = "
    SELECT w.position, a.attname, format('%I.%I', n.nspname, s.relname),
           CASE WHEN NOT pg_has_role(t.relowner, s.relowner, 'USAGE')
                 AND NOT has_sequence_privilege(t.relowner, s.oid, 'UPDATE') THEN t.relowner::regrole END
      FROM unnest($1::oid[]) WITH ORDINALITY w (relation, position)
      JOIN pg_attribute a ON a.attrelid = w.relation
      JOIN pg_class t ON t.oid = a.attrelid
      LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
      JOIN pg_depend p
        ON (p.classid = 'pg_class'::regclass AND p.refclassid = 'pg_class'::regclass
            AND p.refobjid = a.attrelid AND p.refobjsubid = a.attnum AND p.deptype IN ('a', 'i'))
        OR (p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid AND p.refclassid = 'pg_class'::regclass)
      JOIN pg_class s
        ON s.relkind = 'S' AND s.oid = CASE WHEN p.classid = 'pg_class'::regclass THEN p.objid ELSE p.refobjid END
      JOIN pg_namespace n ON n.oid = s.relnamespace
     WHERE a.attnum > 0 AND NOT a.attisdropped
     GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3";

/// A sequence that fills a column.
struct Filler {
    /// The table's position in the list that was asked for.
    table: String,
    column: String,
    /// Qualified and quoted.
    sequence: String,
    /// Who owns the table, and may not set it.
    may_not: Option<String>,
}

/// Those of one column on both sides.
struct Pair {
    from: String,
    to: Filler,
}

/// How far a sequence of the target is set ahead of the source's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ahead {
    /// By the margin.
    Enough,
    /// By twice of it, so that nothing is left to be done within the fence: what has drawn
    /// from the sequence there keeps it from being raised until its transaction ends.
    Plenty,
}

/// Raises every sequence of the target to where the source's is, plus a margin. Until the
/// deadline it waits for those who have drawn from one.
pub fn raise(engine: &mut Engine, ahead: Ahead, deadline: Instant) -> Result<()> {
    let tables: Vec<Oids<'_>> = engine
        .tables
        .iter()
        .map(|Table { source, target, .. }| (source.oid.as_deref(), target.oid.as_deref()))
        .collect();
    raise_of_tables(&mut engine.control, &mut engine.target, &tables, ahead, deadline)
}

/// A table's on both sides.
pub type Oids<'a> = (Option<&'a str>, Option<&'a str>);

/// The same for some tables. Whatever their number, each server is asked twice, and both at once;
/// those sequences alone cost more that are to be raised.
pub fn raise_of_tables(
    source: &mut Connection,
    target: &mut Connection,
    tables: &[Oids<'_>],
    ahead: Ahead,
    deadline: Instant,
) -> Result<()> {
    let pairs = pairs_of(source, target, tables)?;
    for (pair, (value, state)) in pairs.iter().zip(positions(source, target, &pairs)?) {
        if let (Some(value), Some(state)) = (value, state) {
            raise_one(target, pair, (value, state), ahead, deadline)?;
        }
    }
    Ok(())
}

/// Sequences of the same column on both sides.
fn pairs_of(source: &mut Connection, target: &mut Connection, tables: &[Oids<'_>]) -> Result<Vec<Pair>> {
    let list = |oids: Vec<Option<&str>>| array_of(oids.into_iter());
    source.send_query(OF_TABLES, &[Some(&list(tables.iter().map(|(oid, _)| *oid).collect()))])?;
    target.send_query(OF_TABLES, &[Some(&list(tables.iter().map(|(_, oid)| *oid).collect()))])?;
    let (from, to) = (source.finish(), target.finish());
    let (from, mut to) = (fillers(from?), fillers(to?));
    Ok(from
        .into_iter()
        .filter_map(|from| {
            let is_same = |to: &Filler| to.table == from.table && to.column == from.column;
            let counterpart = to.iter().position(is_same)?;
            Some(Pair { from: from.sequence, to: to.remove(counterpart) })
        })
        .collect())
}

fn fillers(rows: Rows) -> Vec<Filler> {
    let filler = |row| match <[_; 4]>::try_from(row) {
        Ok([Some(table), Some(column), Some(sequence), may_not]) => {
            Some(Filler { table, column, sequence, may_not })
        }
        Ok(_) | Err(_) => None,
    };
    rows.rows.into_iter().filter_map(filler).collect()
}

/// Where each of the sequences is, on the source and on the target. None: it is not there any more.
fn positions(
    source: &mut Connection,
    target: &mut Connection,
    pairs: &[Pair],
) -> Result<Vec<(Option<i64>, Option<State>)>> {
    if pairs.is_empty() {
        return Ok(Vec::new());
    }
    let numbered = |query: &dyn Fn(&Pair) -> String| {
        let parts =
            pairs.iter().enumerate().map(|(number, pair)| format!("SELECT {number}, {}", query(pair)));
        parts.collect::<Vec<_>>().join(" UNION ALL ")
    };
    source.send(&numbered(&|pair| format!("last_value FROM {}", pair.from)))?;
    target.send(&format!(
        "SELECT v.number, seqincrement, seqmin, seqmax, seqstart, v.now
           FROM ({}) v (number, relation, now) JOIN pg_sequence ON seqrelid = v.relation",
        numbered(&|pair| {
            let sequence = &pair.to.sequence;
            format!("{}::regclass, last_value FROM {sequence}", literal(sequence))
        })
    ))?;
    let (values, states) = (source.finish(), target.finish());
    let (values, states) = (values?, states?);
    let row_of = |rows: &Rows, number: usize| {
        let number = number.to_string();
        rows.rows.iter().find(|row| row.first().is_some_and(|cell| cell.as_deref() == Some(&number))).cloned()
    };
    let positions = pairs.iter().enumerate().map(|(number, pair)| {
        let value = row_of(&values, number).map(|row| value_in(source, &pair.from, &row[1..])).transpose()?;
        let state =
            row_of(&states, number).map(|row| state_in(target, &pair.to.sequence, &row[1..])).transpose()?;
        Ok((value, state))
    });
    positions.collect()
}

impl Filler {
    /// Why it is not raised, and what to do about it.
    fn not_to_be_set(&self) -> Option<(String, String)> {
        let (sequence, owner) = (&self.sequence, self.may_not.as_ref()?);
        let text = format!("sequence {sequence} may not be set by role {owner}, to whom the table belongs");
        let hint = format!(
            "It is raised for the owner of the table: GRANT UPDATE ON SEQUENCE {sequence} TO {owner}, or let another sequence fill the column."
        );
        Some((text, hint))
    }
}

/// A sequence of the target that cannot be set to where the source's is: why, and what to do.
pub fn find_unfit(
    source: &mut Connection,
    target: &mut Connection,
    tables: (Option<&str>, Option<&str>),
) -> Result<Option<(String, String)>> {
    let pairs = pairs_of(source, target, &[tables])?;
    // Who may not set it may not read it either, perhaps.
    for Pair { to, .. } in &pairs {
        if let Some(unfit) = to.not_to_be_set() {
            return Ok(Some(unfit));
        }
        let to = &to.sequence;
        let owner = target.query(
            "SELECT c.relowner::regrole FROM pg_class c WHERE c.oid = $1::regclass AND NOT pg_has_role(c.relowner, 'USAGE')",
            &[Some(to)],
        )?;
        if let Some(owner) = owner.scalar() {
            let hint = format!("GRANT {owner} TO the mover's role: ALTER SEQUENCE is for owners.");
            return Ok(Some((format!("sequence {to} belongs to {owner}"), hint)));
        }
    }
    for (pair, position) in pairs.iter().zip(positions(source, target, &pairs)?) {
        let (Some(value), Some(state)) = position else { continue };
        if let Some(unfit) = out_of_reach(state, &pair.to.sequence, value) {
            return Ok(Some(unfit));
        }
    }
    Ok(None)
}

/// Where a sequence is, and where it goes.
#[derive(Clone, Copy)]
struct State {
    increment: i64,
    min: i64,
    max: i64,
    start: i64,
    now: i64,
}

impl State {
    /// None: no server makes such a sequence.
    fn read(numbers: &[i64]) -> Option<State> {
        let [increment, min, max, start, now] = *numbers else { return None };
        let range = min..=max;
        (increment != 0 && range.contains(&start) && range.contains(&now)).then_some(State {
            increment,
            min,
            max,
            start,
            now,
        })
    }

    /// The last value that it is raised to: half of what lies between its start and its end.
    /// How far a sequence is, a source alone says. One that was broken into may say anything,
    /// and where a sequence is at its end nobody inserts into the target's table any more, of
    /// whatever key. The bound is the target's own and moves with no raise, so nothing comes
    /// past it by many of them.
    fn bound(self) -> i64 {
        let end = if self.is_up() { self.max } else { self.min };
        let middle = (i128::from(self.start) + i128::from(end)) / 2;
        self.within(middle)
    }

    /// Whether where the source's is cannot be followed.
    fn is_out_of_bounds(self, value: i64) -> bool {
        let (wanted, bound) = (self.beyond(value, 1), self.bound());
        !self.has_passed(wanted) && if self.is_up() { value > bound } else { value < bound }
    }

    fn is_up(self) -> bool {
        self.increment > 0
    }

    fn reaches(self, value: i64) -> bool {
        if self.is_up() { value < self.max } else { value > self.min }
    }

    /// Some margins beyond the source's value.
    fn beyond(self, value: i64, margins: i64) -> i64 {
        let margin = guc::sequence_margin().saturating_mul(self.increment);
        self.within(i128::from(value) + i128::from(margin) * i128::from(margins))
    }

    fn within(self, value: i128) -> i64 {
        i64::try_from(value.clamp(i128::from(self.min), i128::from(self.max))).unwrap_or(self.max)
    }

    fn has_passed(self, value: i64) -> bool {
        if self.is_up() { self.now >= value } else { self.now <= value }
    }

    /// The first value of its own behind another: where each shard has its own remainder, so
    /// that no two of them give out one value, it keeps to it.
    fn next_of_its_own(self, value: i64) -> i64 {
        let (now, increment) = (i128::from(self.now), i128::from(self.increment));
        let (way, stride) = ((i128::from(value) - now).abs(), increment.abs());
        let own = now + (way + stride - 1) / stride * increment;
        // At its end there is none.
        if self.within(own) == i64::try_from(own).unwrap_or(self.max) { self.within(own) } else { value }
    }
}

/// The numbers of a row, or what stands in their place.
fn numbers(connection: &Connection, sequence: &str, row: &[Option<String>]) -> Result<Vec<i64>> {
    let numbers: Option<Vec<i64>> = row.iter().map(|cell| cell.as_deref()?.parse().ok()).collect();
    Ok(numbers.ok_or_else(|| no_numbers(connection, sequence, row))?)
}

fn no_numbers(connection: &Connection, sequence: &str, row: &[Option<String>]) -> RemoteError {
    let cells: Vec<&str> = row.iter().map(|cell| cell.as_deref().unwrap_or("nothing")).collect();
    RemoteError::no_number(connection.shard(), &format!("sequence {sequence}"), &cells.join(", "))
}

fn value_in(source: &Connection, sequence: &str, row: &[Option<String>]) -> Result<i64> {
    let value = numbers(source, sequence, row)?.first().copied();
    Ok(value.ok_or_else(|| no_numbers(source, sequence, row))?)
}

fn state_in(target: &Connection, sequence: &str, row: &[Option<String>]) -> Result<State> {
    let state = State::read(&numbers(target, sequence, row)?);
    Ok(state.ok_or_else(|| no_numbers(target, sequence, row))?)
}

/// Why a sequence is not raised so far, and what to do about it.
fn out_of_reach(state: State, sequence: &str, value: i64) -> Option<(String, String)> {
    if !state.reaches(value) {
        let text = format!("sequence {sequence} ends before {value}, where that of the source is");
        let hint = format!(
            "ALTER SEQUENCE {sequence} AS bigint, or with another MAXVALUE (MINVALUE, if it counts down)."
        );
        return Some((text, hint));
    }
    if !state.is_out_of_bounds(value) {
        return None;
    }
    let (start, bound) = (state.start, state.bound());
    let text = format!(
        "sequence {sequence}, which starts with {start}, is raised to {bound} at most, half way to its end, and that of the source is at {value}"
    );
    let hint = format!(
        "A source that was broken into can say any value, and use up the target's sequence with it. If it is right: ALTER SEQUENCE {sequence} START WITH {value} on the target, from where the bound counts; or another MAXVALUE (MINVALUE, if it counts down)."
    );
    Some((text, hint))
}

/// Only upwards, under the lock that ALTER SEQUENCE takes: read and set apart, ids
/// were given out twice. A sequence that counts down is raised downwards.
fn raise_one(
    target: &mut Connection,
    Pair { to: filler, .. }: &Pair,
    (value, state): (i64, State),
    ahead: Ahead,
    deadline: Instant,
) -> Result<()> {
    let to = filler.sequence.as_str();
    let unfit = |target: &Connection, (text, hint): (String, String)| {
        SplitError::failed(SqlState::NOT_IN_STATE, format!("shard \"{}\": {text}", target.shard()), hint)
    };
    if let Some(why) = out_of_reach(state, to, value) {
        return Err(unfit(target, why));
    }
    // Never lowered, so what is there is there for good: nobody has to be waited for.
    if state.has_passed(state.beyond(value, 1)) {
        return Ok(());
    }
    if let Some(why) = filler.not_to_be_set() {
        return Err(unfit(target, why));
    }
    let wanted = state.next_of_its_own(state.beyond(value, if ahead == Ahead::Plenty { 2 } else { 1 }));
    let increment = state.increment;
    let behind = if state.is_up() { "<" } else { ">" };
    // DO runs as one statement: lock, compare, restart. Others who draw wait behind it.
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
    patiently(target, &statement, to, deadline)
}

/// Short attempts, ever further apart, since whoever draws queues behind each of them: a
/// transaction that has drawn keeps the sequence until its end.
fn patiently(target: &mut Connection, statement: &str, sequence: &str, deadline: Instant) -> Result<()> {
    let mut pause = Duration::from_millis(50);
    let _said = wait::said();
    loop {
        match target.run(statement) {
            Ok(_) => return Ok(()),
            Err(error) if error.is_lock_timeout() => {}
            Err(error) => return Err(error.into()),
        }
        target.run("ROLLBACK")?;
        let reason =
            format!("a transaction on shard \"{}\" that has drawn from sequence {sequence}", target.shard());
        if Instant::now() + pause > deadline {
            return Err(SplitError::Retry(reason));
        }
        wait::report(&reason);
        wait::sleep(pause);
        pause *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(increment: i64, now: i64) -> State {
        let (min, max) = if increment > 0 { (1, i64::MAX) } else { (i64::MIN, -1) };
        State { increment, min, max, start: increment.signum(), now }
    }

    #[test]
    fn a_sequence_keeps_its_remainder() {
        let cases = [
            (1, 1, 1001, 1001),
            (10, 2, 1001, 1002),
            (10, 2, 1002, 1002),
            (10, 2, 1003, 1012),
            (10, -8, 5, 12),
            (-1, -1, -1001, -1001),
            (-10, -2, -1001, -1002),
            (-10, -2, -1003, -1012),
        ];
        for (increment, now, wanted, own) in cases {
            assert_eq!(state(increment, now).next_of_its_own(wanted), own, "{increment}, {now}, {wanted}");
        }
        let full = State { max: 1005, ..state(10, 2) };
        assert_eq!(full.next_of_its_own(1004), 1004);
    }

    #[test]
    fn what_is_no_sequence_is_none() {
        assert!(State::read(&[1, 1, 10, 1, 10]).is_some());
        for numbers in
            [&[0, 1, 10, 1, 1][..], &[1, 10, 1, 1, 1], &[1, 1, 10, 11, 1], &[1, 1, 10, 1, 0], &[1, 1, 10, 1]]
        {
            assert!(State::read(numbers).is_none(), "{numbers:?}");
        }
    }

    #[test]
    fn a_sequence_is_followed_to_the_half_of_its_range() {
        let int = |now| State { max: i64::from(i32::MAX), ..state(1, now) };
        assert_eq!(int(1).bound(), 1 << 30);
        // Where it is already does not move the bound.
        for now in [1, 1 << 29] {
            assert!(!int(now).is_out_of_bounds(1 << 30), "{now}");
            assert!(int(now).is_out_of_bounds((1 << 30) + 1), "{now}");
        }
        // What has passed it needs no raise.
        assert!(!int(i64::from(i32::MAX)).is_out_of_bounds((1 << 30) + 1));
        let started = State { start: 1 << 30, ..int(1 << 30) };
        assert!(!started.is_out_of_bounds((1 << 30) + 1));
        assert!(state(-1, -1).is_out_of_bounds(i64::MIN + 1));
        assert!(!state(-1, -1).is_out_of_bounds(-1_000_000));
    }
}
