//! Orphans: what splits of a lost master, or of plans that are no more, have left on a
//! shard. Runs in the session of the operator.

mod routes;

use super::error::{Result, SplitError};
use super::install;
use super::session::{self, Side};
use crate::catalog::{shard, split};
use crate::error::Failure;
use crate::remote::Connection;
use crate::sql;

/// What was found on a shard and what was done to it.
type Removed = Vec<(String, String)>;

/// Gives the shard to this master, whose splits get numbers that the shard does not know.
pub fn adopt(shard_key: &str) -> std::result::Result<(), Failure> {
    let shard = shard::by_key(shard_key)?;
    let mut connection = session::open(&shard, "adopt")?;
    if connection.run("SELECT to_regclass('shardmaster_agent.master')")?.scalar().is_some() {
        let highest =
            sides(&mut connection).map_err(SplitError::into_failure)?.into_iter().map(|side| side.id);
        if let Some(highest) = highest.max() {
            split::number_after(highest);
        }
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
    for found in sides(connection)? {
        if is_accounted_for(&found, connection.shard()) {
            continue;
        }
        let object = format!("{} side of split {}", found.side.as_str(), found.id);
        if let Some(why) = keeps_clients_off(connection, &found)? {
            removed.push((object, why));
            continue;
        }
        install::drop_side(connection, found.id, found.side)?;
        removed.push((object, "removed".to_owned()));
    }
    Ok(removed)
}

/// A side of a split on a shard.
struct Found {
    id: i64,
    side: Side,
    /// None: triggers that have lost their state row.
    token: Option<String>,
    /// Of a source whose rows have left: where they are.
    moved_to: Option<String>,
}

/// Sides by their state rows, and by triggers that have lost theirs.
fn sides(connection: &mut Connection) -> Result<Vec<Found>> {
    let mut query = "SELECT DISTINCT (regexp_match(tgname, '^00_shardmaster_(\\d+)_([st])_'))[1] AS id,
                CASE (regexp_match(tgname, '^00_shardmaster_(\\d+)_([st])_'))[2] WHEN 's' THEN 'source' ELSE 'target' END AS side
           FROM pg_trigger WHERE tgname ~ '^00_shardmaster_\\d+_[st]_'"
        .to_owned();
    if connection.run("SELECT to_regclass('shardmaster_agent.side')")?.scalar().is_some() {
        query = format!(
            "SELECT coalesce(t.id, s.split_id::text), coalesce(t.side, s.side), s.token,
                    CASE WHEN s.state = 'moved' THEN s.other_shard END
               FROM ({query}) t FULL JOIN shardmaster_agent.side s ON s.split_id = t.id::bigint AND s.side = t.side"
        );
    } else {
        query = format!("SELECT t.id, t.side, NULL, NULL FROM ({query}) t");
    }
    let rows = connection.run(&query)?;
    let found = rows.rows.into_iter().filter_map(|row| match row.as_slice() {
        [Some(id), Some(side), token, moved_to] => {
            let side = if side == "source" { Side::Source } else { Side::Target };
            let (token, moved_to) = (token.clone(), moved_to.clone());
            id.parse().ok().map(|id| Found { id, side, token, moved_to })
        }
        _ => None,
    });
    Ok(found.collect())
}

/// The ledger knows what may exist. Another split of the same number, of a master that is
/// gone, has another token.
fn is_accounted_for(found: &Found, shard_key: &str) -> bool {
    sql::read_one(
        "SELECT 1 FROM shardmaster.split_ledger l JOIN shardmaster.split_plan p ON p.id = l.split_id
          WHERE l.split_id = $1 AND l.side = $2 AND l.removed_at IS NULL AND p.token = coalesce($4, p.token)
            -- Of one that was rolled back only a target that was given up as lost is left.
            AND p.phase <> 'rolled_back'
            AND l.shard_key IN (SELECT s.shard_key FROM shardmaster.shard s, shardmaster.shard o
                                 WHERE o.shard_key = $3 AND s.conninfo IS NOT DISTINCT FROM o.conninfo)",
        &[found.id.into(), found.side.as_str().into(), shard_key.into(), found.token.as_deref().into()],
        |_| (),
    )
    .is_some()
}

/// A redirect of rows that have left must stay while this master sends clients of these
/// keys here: it was restored to a time before they moved.
fn keeps_clients_off(connection: &mut Connection, found: &Found) -> Result<Option<String>> {
    let Some(moved_to) = &found.moved_to else { return Ok(None) };
    let left = routes::read(connection, found.id)?;
    Ok(routes::to_shard(&left, connection.shard()).map(|route| {
        format!(
            "kept: {} \"{}\" is routed to this shard by keyspace \"{}\", but rows of it have moved to shard \"{moved_to}\"; assign what has moved there with {}(.., force => true), then clean up again",
            route.what, route.entry, route.keyspace, route.assigned_by
        )
    }))
}
