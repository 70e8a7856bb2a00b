//! Sequences of moving tables: the target's are raised past the source's, so that
//! no identifier is given out twice.

use crate::agent::error::{Result, SplitError};
use crate::guc;
use crate::remote::Connection;
use crate::remote::quote::literal;
use crate::split::cutover::given_up;
use crate::split::engine::Engine;
use crate::split::table::Table;

/// Sequences that fill columns of a table: owned by them, or called in a default.
const OF_TABLE: &str = "
    SELECT a.attname, format('%I.%I', n.nspname, s.relname)
      FROM pg_attribute a
      LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
      JOIN pg_depend p
        ON (p.classid = 'pg_class'::regclass AND p.refclassid = 'pg_class'::regclass
            AND p.refobjid = a.attrelid AND p.refobjsubid = a.attnum AND p.deptype IN ('a', 'i'))
        OR (p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid AND p.refclassid = 'pg_class'::regclass)
      JOIN pg_class s
        ON s.relkind = 'S' AND s.oid = CASE WHEN p.classid = 'pg_class'::regclass THEN p.objid ELSE p.refobjid END
      JOIN pg_namespace n ON n.oid = s.relnamespace
     WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped
     GROUP BY 1, 2 ORDER BY 1, 2";

/// How far a sequence of the target is set ahead of the source's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ahead {
    /// By the margin.
    Enough,
    /// By twice of it, so that nothing is left to be done within the fence: what has drawn
    /// from the sequence there keeps it from being raised until its transaction ends.
    Plenty,
}

/// Raises every sequence of the target to where the source's is, plus a margin.
pub fn raise(engine: &mut Engine, ahead: Ahead) -> Result<()> {
    for position in 0..engine.tables.len() {
        for (from, to) in pairs(engine, position)? {
            raise_one(&mut engine.control, &mut engine.target, (&from, &to), ahead)?;
        }
    }
    Ok(())
}

/// Sequences of the same column on both sides.
fn pairs(engine: &mut Engine, position: usize) -> Result<Vec<(String, String)>> {
    let Table { source, target, .. } = &engine.tables[position];
    pairs_of(&mut engine.control, &mut engine.target, (source.oid.as_deref(), target.oid.as_deref()))
}

fn pairs_of(
    source: &mut Connection,
    target: &mut Connection,
    (from, to): (Option<&str>, Option<&str>),
) -> Result<Vec<(String, String)>> {
    let from = of_table(source, from)?;
    let to = of_table(target, to)?;
    Ok(from
        .into_iter()
        .filter_map(|(column, sequence)| {
            to.iter().find(|(c, _)| *c == column).map(|(_, counterpart)| (sequence, counterpart.clone()))
        })
        .collect())
}

fn of_table(connection: &mut Connection, oid: Option<&str>) -> Result<Vec<(String, String)>> {
    let rows = connection.query(OF_TABLE, &[oid])?;
    Ok(rows
        .rows
        .into_iter()
        .filter_map(|row| match row.as_slice() {
            [Some(column), Some(sequence)] => Some((column.clone(), sequence.clone())),
            _ => None,
        })
        .collect())
}

/// A sequence of the target that cannot be set to where the source's is: why, and what to do.
pub fn find_unfit(
    source: &mut Connection,
    target: &mut Connection,
    tables: (Option<&str>, Option<&str>),
) -> Result<Option<(String, String)>> {
    for (from, to) in pairs_of(source, target, tables)? {
        let owner = target.query(
            "SELECT c.relowner::regrole FROM pg_class c WHERE c.oid = $1::regclass AND NOT pg_has_role(c.relowner, 'USAGE')",
            &[Some(&to)],
        )?;
        if let Some(owner) = owner.scalar() {
            let hint = format!("GRANT {owner} TO the mover's role: ALTER SEQUENCE is for owners.");
            return Ok(Some((format!("sequence {to} belongs to {owner}"), hint)));
        }
        let Some(value) = last_value(source, &from)? else { continue };
        if state(target, &to)?.is_some_and(|state| !state.reaches(value)) {
            let text = format!("sequence {to} ends before {value}, where that of the source is");
            let hint = format!(
                "ALTER SEQUENCE {to} AS bigint, or with another MAXVALUE (MINVALUE, if it counts down)."
            );
            return Ok(Some((text, hint)));
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
    now: i64,
}

impl State {
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

fn last_value(connection: &mut Connection, sequence: &str) -> Result<Option<i64>> {
    let read = connection.run(&format!("SELECT last_value FROM {sequence}"))?;
    Ok(read.scalar().and_then(|v| v.parse().ok()))
}

fn state(connection: &mut Connection, sequence: &str) -> Result<Option<State>> {
    let state = connection.query(
        &format!(
            "SELECT seqincrement, seqmin, seqmax, (SELECT last_value FROM {sequence}) FROM pg_sequence WHERE seqrelid = $1::regclass"
        ),
        &[Some(sequence)],
    )?;
    let numbers: Vec<i64> =
        state.rows.iter().flatten().map(|c| c.as_deref().and_then(|t| t.parse().ok()).unwrap_or(0)).collect();
    let [increment, min, max, now] = numbers.as_slice() else { return Ok(None) };
    Ok(Some(State { increment: *increment, min: *min, max: *max, now: *now }))
}

/// Only upwards, under the lock that ALTER SEQUENCE takes: read and set apart, ids
/// were given out twice. A sequence that counts down is raised downwards.
fn raise_one(
    source: &mut Connection,
    target: &mut Connection,
    (from, to): (&str, &str),
    ahead: Ahead,
) -> Result<()> {
    let Some(value) = last_value(source, from)? else { return Ok(()) };
    let Some(state) = state(target, to)? else { return Ok(()) };
    // Never lowered, so what is there is there for good: nobody has to be waited for.
    if state.has_passed(state.beyond(value, 1)) {
        return Ok(());
    }
    let wanted = state.next_of_its_own(state.beyond(value, if ahead == Ahead::Plenty { 2 } else { 1 }));
    let increment = state.increment;
    let behind = if state.is_up() { "<" } else { ">" };
    // DO runs as one statement: lock, compare, restart. Others who draw wait behind it.
    let raised = target.run(&format!(
        "BEGIN; SET LOCAL lock_timeout = '100ms'; DO {}; COMMIT",
        literal(&format!(
            "BEGIN
                 ALTER SEQUENCE {to} INCREMENT BY {increment};
                 IF (SELECT last_value FROM {to}) {behind} {wanted} THEN
                     ALTER SEQUENCE {to} RESTART WITH {wanted};
                 END IF;
             END"
        ))
    ));
    match raised {
        Ok(_) => Ok(()),
        Err(error) if error.is_lock_timeout() => {
            target.run("ROLLBACK")?;
            Err(SplitError::GaveUp(given_up::because(&format!(
                "a transaction on shard \"{}\" that has drawn from sequence {to}",
                target.shard()
            ))))
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(increment: i64, now: i64) -> State {
        let (min, max) = if increment > 0 { (1, i64::MAX) } else { (i64::MIN, -1) };
        State { increment, min, max, now }
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
}
