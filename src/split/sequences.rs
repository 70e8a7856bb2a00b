//! Sequences of moving tables: the target's are raised past the source's, so that
//! no identifier is given out twice.

use super::cutover;
use super::engine::{Engine, Table};
use super::error::{Result, SplitError};
use super::quote::literal;
use crate::guc;
use crate::remote::Connection;

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
    let margin = guc::sequence_margin();
    for position in 0..engine.tables.len() {
        for (from, to) in pairs(engine, position)? {
            raise_one(&mut engine.control, &mut engine.target, (&from, &to), margin, ahead)?;
        }
    }
    Ok(())
}

/// Sequences of the same column on both sides.
fn pairs(engine: &mut Engine, position: usize) -> Result<Vec<(String, String)>> {
    let Table { source, target, .. } = &engine.tables[position];
    let from = of_table(&mut engine.control, source.oid.as_deref())?;
    let to = of_table(&mut engine.target, target.oid.as_deref())?;
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

/// Only upwards, under the lock that ALTER SEQUENCE takes: read and set apart, ids
/// were given out twice. A sequence that counts down is raised downwards.
fn raise_one(
    source: &mut Connection,
    target: &mut Connection,
    (from, to): (&str, &str),
    margin: i64,
    ahead: Ahead,
) -> Result<()> {
    let read = source.run(&format!("SELECT last_value FROM {from}"))?;
    let Some(value) = read.scalar().and_then(|v| v.parse::<i64>().ok()) else { return Ok(()) };
    let state = target.query(
        &format!(
            "SELECT seqincrement, seqmin, seqmax, (SELECT last_value FROM {to}) FROM pg_sequence WHERE seqrelid = $1::regclass"
        ),
        &[Some(to)],
    )?;
    let numbers: Vec<i64> =
        state.rows.iter().flatten().map(|c| c.as_deref().and_then(|t| t.parse().ok()).unwrap_or(0)).collect();
    let [increment, min, max, now] = numbers.as_slice() else { return Ok(()) };
    let is_up = *increment > 0;
    let at = |times: i64| {
        let to = value.saturating_add(margin.saturating_mul(*increment).saturating_mul(times));
        if is_up { to.min(*max) } else { to.max(*min) }
    };
    // Never lowered, so what is there is there for good: nobody has to be waited for.
    if if is_up { *now >= at(1) } else { *now <= at(1) } {
        return Ok(());
    }
    let wanted = at(if ahead == Ahead::Plenty { 2 } else { 1 });
    let behind = if is_up { "<" } else { ">" };
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
            Err(SplitError::GaveUp(cutover::gave_up(&format!(
                "a transaction on shard \"{}\" that has drawn from sequence {to}",
                target.shard()
            ))))
        }
        Err(error) => Err(error.into()),
    }
}
