//! Orphans: what splits of a lost master, or of plans that are no more, have left on a
//! shard. Runs in the session of the operator.

use super::error::{Result, SplitError};
use super::install;
use super::session::{self, Side};
use crate::catalog::{shard, split};
use crate::error::Failure;
use crate::remote::Connection;
use crate::sql;

/// What was found on a shard and what was done to it.
type Removed = Vec<(String, String)>;

/// Gives the shard to this master.
pub fn adopt(shard_key: &str) -> std::result::Result<(), Failure> {
    let shard = shard::by_key(shard_key)?;
    let mut connection = session::open(&shard, "adopt")?;
    if connection.run("SELECT to_regclass('shardmaster_agent.master')")?.scalar().is_some() {
        connection.query("UPDATE shardmaster_agent.master SET identity = $1", &[Some(&split::identity())])?;
    }
    Ok(())
}

/// Removes every side that no active plan of this master accounts for.
pub fn run(shard_key: &str) -> std::result::Result<Removed, Failure> {
    let shard = shard::by_key(shard_key)?;
    let mut connection = session::open(&shard, "cleanup")?;
    remove_orphans(&mut connection).map_err(SplitError::into_failure)
}

fn remove_orphans(connection: &mut Connection) -> Result<Removed> {
    session::check_identity(connection, &split::identity())?;
    let mut removed = Vec::new();
    for (id, side) in sides(connection)? {
        if is_accounted_for(id, side, connection.shard()) {
            continue;
        }
        install::drop_side(connection, id, side)?;
        removed.push((format!("{} side of split {id}", side.as_str()), "removed".to_owned()));
    }
    Ok(removed)
}

/// Sides by their state rows, and by triggers that have lost theirs.
fn sides(connection: &mut Connection) -> Result<Vec<(i64, Side)>> {
    let mut query = "SELECT DISTINCT (regexp_match(tgname, '^00_shardmaster_(\\d+)_([st])_'))[1],
                CASE (regexp_match(tgname, '^00_shardmaster_(\\d+)_([st])_'))[2] WHEN 's' THEN 'source' ELSE 'target' END
           FROM pg_trigger WHERE tgname ~ '^00_shardmaster_\\d+_[st]_'"
        .to_owned();
    if connection.run("SELECT to_regclass('shardmaster_agent.side')")?.scalar().is_some() {
        query.push_str(" UNION SELECT split_id::text, side FROM shardmaster_agent.side");
    }
    let rows = connection.run(&query)?;
    Ok(rows
        .rows
        .iter()
        .filter_map(|row| match row.as_slice() {
            [Some(id), Some(side)] => {
                let side = if side == "source" { Side::Source } else { Side::Target };
                id.parse().ok().map(|id| (id, side))
            }
            _ => None,
        })
        .collect())
}

/// The ledger knows what may exist; another split of the same number, of a master
/// that is gone, does not count.
fn is_accounted_for(id: i64, side: Side, shard_key: &str) -> bool {
    sql::read_one(
        "SELECT 1 FROM shardmaster.split_ledger l
          WHERE l.split_id = $1 AND l.side = $2 AND l.removed_at IS NULL
            AND l.shard_key IN (SELECT s.shard_key FROM shardmaster.shard s, shardmaster.shard o
                                 WHERE o.shard_key = $3 AND s.conninfo IS NOT DISTINCT FROM o.conninfo)",
        &[id.into(), side.as_str().into(), shard_key.into()],
        |_| (),
    )
    .is_some()
}
