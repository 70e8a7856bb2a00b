//! The table `decision`: the last decided cutover of each namespace and keyspace that the
//! database has taken part in. It stays when all else of the splits has gone, so that a master
//! that was restored to a time before is told. A side notes the decision by the commit that
//! opens or closes it to clients.

use super::{LONGEST, MANY, has};
use crate::agent::error::{Result, SplitError};
use crate::agent::session::Side;
use crate::catalog::split::Plan;
use crate::clean;
use crate::remote::Connection;
use crate::remote::quote::{array_literal, literal};

/// The table, which is safe to create again.
pub const TABLE: &str = include_str!("../../../sql/agent/decision.sql");

/// Entries whose names are kept; of more only the number is.
const KEPT: usize = 1_000;

/// A decided cutover, as its sides note it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decided<'a> {
    /// Of the routing.
    pub version: i64,
    /// Entries of routing that moved.
    pub entries: &'a [String],
}

impl<'a> Decided<'a> {
    pub fn of(plan: &'a Plan, version: i64) -> Decided<'a> {
        Decided { version, entries: &plan.entries }
    }
}

/// A split may have been installed by a version that had no such table.
pub fn ensure(connection: &mut Connection) -> Result<()> {
    if has(connection, "decision")? {
        return Ok(());
    }
    match connection.run(TABLE) {
        Ok(_) => Ok(()),
        Err(error) if error.is("23505") || error.is("42P07") => {
            Err(SplitError::Retry(format!("another split on shard \"{}\"", error.shard)))
        }
        Err(error) => Err(error.into()),
    }
}

/// The statement that notes a decision beside the change of a side's state to this one, if that
/// has been made. An older decision than the one that is noted changes nothing.
pub fn note(split: i64, side: Side, state: &str, decided: Decided<'_>) -> String {
    let Decided { version, entries } = decided;
    let keys = if entries.len() <= KEPT { array_literal(entries) } else { "NULL".to_owned() };
    format!(
        "INSERT INTO shardmaster_agent.decision AS d
                (namespace, keyspace, split_id, token, side, version, other, entries, key_count, keys)
         SELECT namespace, keyspace, split_id, token, side, version, other_shard, entries, {}, {keys}::text[]
           FROM shardmaster_agent.side
          WHERE split_id = {split} AND side = {} AND state = {} AND version = {version}
         ON CONFLICT (namespace, keyspace) DO UPDATE
            SET split_id = EXCLUDED.split_id, token = EXCLUDED.token, side = EXCLUDED.side, version = EXCLUDED.version,
                other = EXCLUDED.other, entries = EXCLUDED.entries, key_count = EXCLUDED.key_count, keys = EXCLUDED.keys,
                decided_at = EXCLUDED.decided_at
          WHERE d.version <= EXCLUDED.version",
        entries.len(),
        literal(side.as_str()),
        literal(state)
    )
}

/// A decision as the row has it.
pub struct Noted {
    pub keyspace: String,
    pub split: i64,
    pub token: String,
    pub side: Side,
    pub version: i64,
    pub other: String,
    pub entries: String,
    pub key_count: i64,
}

/// What is noted of a namespace.
pub fn all(connection: &mut Connection, namespace: &str) -> Result<Vec<Noted>> {
    if !has(connection, "decision")? {
        return Ok(Vec::new());
    }
    let rows = connection.query(
        &format!(
            "SELECT left(keyspace, {LONGEST}), split_id, left(token, {LONGEST}), side, version, left(other, {LONGEST}),
                    left(entries, {LONGEST}), key_count
               FROM shardmaster_agent.decision WHERE namespace = $1 ORDER BY keyspace LIMIT {MANY}"
        ),
        &[Some(namespace)],
    )?;
    let noted = |row: Vec<Option<String>>| {
        let [keyspace, split, token, side, version, other, entries, count] = <[_; 8]>::try_from(row).ok()?;
        Some(Noted {
            keyspace: clean::message(&keyspace?),
            split: split?.parse().ok()?,
            token: clean::message(&token?),
            side: if side? == Side::Source.as_str() { Side::Source } else { Side::Target },
            version: version?.parse().ok()?,
            other: clean::message(&other?),
            entries: clean::message(&entries?),
            key_count: count?.parse().ok()?,
        })
    };
    Ok(rows.rows.into_iter().filter_map(noted).collect())
}

/// The entries that moved by it; None: more than are kept.
pub fn keys(connection: &mut Connection, namespace: &str, keyspace: &str) -> Result<Option<Vec<String>>> {
    let rows = connection.query(
        &format!(
            "SELECT key FROM shardmaster_agent.decision d CROSS JOIN LATERAL unnest(d.keys) key
              WHERE namespace = $1 AND keyspace = $2 LIMIT {KEPT} + 1"
        ),
        &[Some(namespace), Some(keyspace)],
    )?;
    let keys: Vec<String> = rows.rows.into_iter().flatten().flatten().collect();
    Ok((!keys.is_empty() && keys.len() <= KEPT).then_some(keys))
}

/// The version with which a split has taken its keys from here, if it was the last of its keyspace.
pub fn version_of(source: &mut Connection, plan: &Plan) -> Result<Option<i64>> {
    let noted = all(source, &plan.source.namespace)?;
    let is_it =
        |noted: &&Noted| noted.split == plan.id && noted.token == plan.token && noted.side == Side::Source;
    Ok(noted.iter().find(is_it).map(|noted| noted.version))
}

/// Whether the source has taken part in a later decision of the keyspace than this one.
pub fn is_past(source: &mut Connection, plan: &Plan, version: i64) -> Result<bool> {
    let noted = all(source, &plan.source.namespace)?;
    Ok(noted.iter().any(|noted| noted.keyspace == plan.keyspace && noted.version > version))
}

/// The highest number of a split that is noted.
pub fn highest_split(connection: &mut Connection) -> Result<Option<i64>> {
    if !has(connection, "decision")? {
        return Ok(None);
    }
    let rows = connection.run("SELECT max(split_id) FROM shardmaster_agent.decision")?;
    Ok(rows.scalar().and_then(|id| id.parse().ok()))
}

/// Forgets what is noted of a namespace.
pub fn forget(connection: &mut Connection, namespace: &str) -> Result<()> {
    connection.query("DELETE FROM shardmaster_agent.decision WHERE namespace = $1", &[Some(namespace)])?;
    Ok(())
}
