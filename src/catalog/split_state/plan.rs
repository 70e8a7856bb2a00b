//! The creation of a plan: its row, its keys, its tables.

use crate::server::sql;

/// What a plan is made of.
pub struct NewPlan<'a> {
    pub keyspace: &'a str,
    pub source: &'a str,
    pub target: &'a str,
    pub description: Option<&'a str>,
    /// The kind as in `scope_kind`.
    pub kind: &'a str,
    /// The scope, as names of routing entries.
    pub entries: Vec<String>,
    pub routing_version: i64,
}

/// Stores a plan with the tables that its keyspace has, and returns its number.
pub fn create(new: NewPlan<'_>) -> i64 {
    let id = sql::write_one(
        "WITH s AS MATERIALIZED (
             SELECT encode(sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')), 'hex') AS secret)
         INSERT INTO shardmaster.split_plan
                (keyspace, source_shard, target_shard, description, scope_kind, tenants, secret, token, routing_version_at_start)
         SELECT $1, $2, $3, $4, $5, $6, s.secret, encode(sha256(convert_to(s.secret, 'UTF8')), 'hex'), $7 FROM s
         RETURNING id",
        &[
            new.keyspace.into(),
            new.source.into(),
            new.target.into(),
            new.description.into(),
            new.kind.into(),
            new.entries.into(),
            new.routing_version.into(),
        ],
        |row| row.value::<i64>(1),
    );
    let id = id.unwrap_or_default();
    sql::write(
        "INSERT INTO shardmaster.split_key (split_id, keyspace, key)
         SELECT id, keyspace, unnest(tenants) FROM shardmaster.split_plan WHERE id = $1",
        &[id.into()],
    );
    take_tables(id, new.keyspace);
    id
}

/// Replaces the tables of a plan by those that its keyspace has now.
pub fn take_tables(id: i64, keyspace: &str) {
    sql::write("DELETE FROM shardmaster.split_table WHERE split_id = $1", &[id.into()]);
    sql::write(
        "INSERT INTO shardmaster.split_table (split_id, ordinal, table_name, shard_by)
         SELECT $1, row_number() OVER (ORDER BY table_name), table_name, shard_by
           FROM shardmaster.table_policy WHERE keyspace = $2 AND policy = 'sharded'",
        &[id.into(), keyspace.into()],
    );
}

/// Creates the reverse split of a split, with its tables and its keys, which the split still holds. Shards know it by
/// the same secret, so that the mover of one is admitted by the other.
pub fn create_reverse(of: i64) -> i64 {
    let id = sql::write_one(
        "INSERT INTO shardmaster.split_plan
                (keyspace, source_shard, target_shard, description, scope_kind, tenants, secret, token, reverse_of)
         SELECT keyspace, target_shard, source_shard, 'the reverse split of split ' || id, scope_kind, tenants, secret, token, id
           FROM shardmaster.split_plan WHERE id = $1 RETURNING id",
        &[of.into()],
        |row| row.value::<i64>(1),
    );
    let id = id.unwrap_or_default();
    sql::write(
        "INSERT INTO shardmaster.split_key (split_id, keyspace, key, active)
         SELECT $1, keyspace, key, false FROM shardmaster.split_key WHERE split_id = $2",
        &[id.into(), of.into()],
    );
    sql::write(
        "INSERT INTO shardmaster.split_table (split_id, ordinal, table_name, shard_by)
         SELECT $1, ordinal, table_name, shard_by FROM shardmaster.split_table WHERE split_id = $2",
        &[id.into(), of.into()],
    );
    id
}

/// Sets whether the plan holds its keys, so that no other split may move them.
pub fn hold_keys(id: i64, active: bool) {
    sql::write(
        "UPDATE shardmaster.split_key SET active = $2 WHERE split_id = $1",
        &[id.into(), active.into()],
    );
}
