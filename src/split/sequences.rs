//! Sequences of moving tables: the target's are raised past the source's, so that
//! no identifier is given out twice.

use super::engine::{Engine, Table};
use super::error::Result;
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

/// Raises every sequence of the target to where the source's is, plus a margin.
pub fn raise(engine: &mut Engine) -> Result<()> {
    let margin = guc::sequence_margin();
    for position in 0..engine.tables.len() {
        for (from, to) in pairs(engine, position)? {
            raise_one(&mut engine.control, &mut engine.target, &from, &to, margin)?;
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
    from: &str,
    to: &str,
    margin: i64,
) -> Result<()> {
    let read = source.run(&format!("SELECT last_value FROM {from}"))?;
    let Some(value) = read.scalar().and_then(|v| v.parse::<i64>().ok()) else { return Ok(()) };
    let state = target.query(
        "SELECT seqincrement, seqmin, seqmax, seqcache FROM pg_sequence WHERE seqrelid = $1::regclass",
        &[Some(to)],
    )?;
    let numbers: Vec<i64> =
        state.rows.iter().flatten().map(|c| c.as_deref().and_then(|t| t.parse().ok()).unwrap_or(0)).collect();
    let [increment, min, max, _cache] = numbers.as_slice() else { return Ok(()) };
    let wanted = if *increment > 0 {
        value.saturating_add(margin.saturating_mul(*increment)).min(*max)
    } else {
        value.saturating_add(margin.saturating_mul(*increment)).max(*min)
    };
    let ahead = if *increment > 0 { "<" } else { ">" };
    // DO runs as one statement: lock, compare, restart.
    target.run(&format!(
        "DO {}",
        literal(&format!(
            "BEGIN
                 ALTER SEQUENCE {to} INCREMENT BY {increment};
                 IF (SELECT last_value FROM {to}) {ahead} {wanted} THEN
                     ALTER SEQUENCE {to} RESTART WITH {wanted};
                 END IF;
             END"
        ))
    ))?;
    Ok(())
}
