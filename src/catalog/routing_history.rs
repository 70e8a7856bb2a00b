//! Routing at earlier versions: entries of closed versions stay.

use super::keyspace::Keyspace;
use crate::keys::interval;
use crate::keys::strategy::EntryLookup;
use crate::server::sql;
use pgrx::prelude::*;

/// Returns entries that a version routes otherwise than now, each with the shard of that version. The shard is None if
/// the version does not have the entry.
pub fn difference(keyspace: &str, version: i64) -> Vec<(String, Option<String>)> {
    sql::read(
        "SELECT coalesce(o.key, n.key), o.read_shard
           FROM (SELECT key, read_shard FROM shardmaster.routing_entry
                  WHERE keyspace = $1 AND valid_from <= $2 AND (valid_to IS NULL OR valid_to > $2)) o
           FULL JOIN
                (SELECT key, read_shard FROM shardmaster.routing_entry
                  WHERE keyspace = $1 AND valid_to IS NULL) n ON n.key = o.key
          WHERE o.read_shard IS DISTINCT FROM n.read_shard
          ORDER BY 1",
        &[keyspace.into(), version.into()],
        |row| (row.value(1), row.get(2)),
    )
}

/// Returns those of the entries, under their current names, whose rows a split has moved since the version, and which
/// the version routes to another shard. If ranges were cut since, the part that both have counts.
pub fn moved_by_split_since(keyspace: &str, keys: &[String], version: i64) -> Vec<String> {
    sql::read_column(
        "WITH moved AS (
             SELECT key, span FROM shardmaster.routing_entry
              WHERE keyspace = $1
                AND valid_from = ANY (ARRAY(SELECT version FROM shardmaster.routing_version
                                             WHERE keyspace = $1 AND version > $3 AND split_id IS NOT NULL)))
         SELECT key FROM moved WHERE span IS NULL AND key = ANY ($2)
         UNION
         SELECT n.key FROM shardmaster.routing_entry n
           JOIN moved m ON m.span && n.span
           LEFT JOIN shardmaster.routing_entry o
                  ON o.span && n.span AND int8range(o.valid_from, o.valid_to) @> $3
          WHERE n.keyspace = $1 AND n.key = ANY ($2) AND n.valid_to IS NULL
            AND (o.key IS NULL OR o.read_shard <> n.read_shard AND m.span && (o.span * n.span))
          ORDER BY 1",
        &[keyspace.into(), keys.to_vec().into(), version.into()],
    )
}

/// Returns the shard that a version routes a key to, given in its canonical form.
pub fn shard_at(keyspace: &Keyspace, key: &str, version: i64) -> Option<String> {
    let by_name = |name: String| {
        sql::read_one(
            "SELECT read_shard FROM shardmaster.routing_entry
              WHERE keyspace = $1 AND key = $2 AND valid_from <= $3 AND valid_to IS NULL
              UNION ALL
             SELECT read_shard FROM shardmaster.routing_entry
              WHERE keyspace = $1 AND key = $2 AND valid_from <= $3 AND valid_to > $3",
            &[keyspace.name.as_str().into(), name.into(), version.into()],
            |row| row.value(1),
        )
    };
    match keyspace.strategy.entry(key) {
        EntryLookup::Named(name) => by_name(name),
        EntryLookup::Covering(of) => sql::read_one(
            "SELECT read_shard FROM shardmaster.routing_entry
              WHERE span @> $1 AND int8range(valid_from, valid_to) @> $2",
            &[interval::position(&keyspace.name, of, Some(key)).into(), version.into()],
            |row| row.value(1),
        ),
    }
}

/// Returns the shards that a version routes keys to, given in their canonical form, as committed by now. A shard is
/// None if the key was routed nowhere.
pub fn shards_at(keyspace: &Keyspace, keys: &[String], version: i64) -> Vec<Option<String>> {
    let (mut names, mut positions) = (Vec::new(), Vec::new());
    for (ordinal, key) in keys.iter().enumerate() {
        match keyspace.strategy.entry(key) {
            EntryLookup::Named(name) => names.push((ordinal, name)),
            EntryLookup::Covering(of) => {
                positions.push((ordinal, interval::position(&keyspace.name, of, Some(key))));
            }
        }
    }
    let (ordinals, names): (Vec<usize>, Vec<String>) = names.into_iter().unzip();
    let named = sql::read_latest(
        "SELECT w.ordinal::int, e.read_shard
           FROM unnest($2) WITH ORDINALITY AS w (key, ordinal)
          CROSS JOIN LATERAL (
                SELECT read_shard FROM shardmaster.routing_entry
                 WHERE keyspace = $1 AND key = w.key AND valid_from <= $3 AND valid_to IS NULL
                 UNION ALL
                SELECT read_shard FROM shardmaster.routing_entry
                 WHERE keyspace = $1 AND key = w.key AND valid_from <= $3 AND valid_to > $3) e",
        &[keyspace.name.as_str().into(), names.into(), version.into()],
        |row| (row.value::<i32>(1), row.value::<String>(2)),
    );
    let mut found = vec![None; keys.len()];
    place(&mut found, &ordinals, named);
    let (ordinals, positions): (Vec<usize>, Vec<Vec<u8>>) = positions.into_iter().unzip();
    let covered = sql::read_latest(
        "SELECT w.ordinal::int, e.read_shard
           FROM unnest($1) WITH ORDINALITY AS w (position, ordinal)
           JOIN shardmaster.routing_entry e ON e.span @> w.position AND int8range(e.valid_from, e.valid_to) @> $2",
        &[positions.into(), version.into()],
        |row| (row.value::<i32>(1), row.value::<String>(2)),
    );
    place(&mut found, &ordinals, covered);
    found
}

/// Puts each result at the place of its key. The numbers of the results count from 1.
fn place(found: &mut [Option<String>], ordinals: &[usize], shards: Vec<(i32, String)>) {
    for (number, shard) in shards {
        let ordinal = usize::try_from(number - 1).ok().and_then(|number| ordinals.get(number));
        if let Some(slot) = ordinal.and_then(|ordinal| found.get_mut(*ordinal)) {
            *slot = Some(shard);
        }
    }
}

/// What a version did to one key.
pub struct HistoryRow {
    pub version: i64,
    pub changed_at: TimestampWithTimeZone,
    pub key: Option<String>,
    pub from_shard: Option<String>,
    pub to_shard: Option<String>,
    pub reason: Option<String>,
    pub changed_by: String,
    pub split_id: Option<i64>,
}

/// Returns the history of a keyspace. The shards are those that the rows were read from: a cutover's target counts
/// once it is decided.
pub fn history(keyspace: &str) -> Vec<HistoryRow> {
    sql::read(
        "SELECT v.version, v.changed_at, c.key, c.from_shard, c.to_shard, v.reason, v.changed_by, v.split_id
           FROM shardmaster.routing_version v
           LEFT JOIN (SELECT version, key, bucket, span, max(from_shard) AS from_shard, max(to_shard) AS to_shard
                        FROM (SELECT valid_from AS version, key, bucket, span, NULL AS from_shard, read_shard AS to_shard
                                FROM shardmaster.routing_entry WHERE keyspace = $1
                               UNION ALL
                              SELECT valid_to, key, bucket, span, read_shard, NULL
                                FROM shardmaster.routing_entry WHERE keyspace = $1 AND valid_to IS NOT NULL) e
                       GROUP BY version, key, bucket, span) c ON c.version = v.version
          WHERE v.keyspace = $1
          ORDER BY v.version, c.bucket, c.span, c.key COLLATE \"C\"",
        &[keyspace.into()],
        |row| HistoryRow {
            version: row.value(1),
            changed_at: row.value(2),
            key: row.get(3),
            from_shard: row.get(4),
            to_shard: row.get(5),
            reason: row.get(6),
            changed_by: row.value(7),
            split_id: row.get(8),
        },
    )
}
