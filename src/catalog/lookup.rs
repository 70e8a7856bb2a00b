//! Rows of `shardmaster.lookup`, `lookup_shard`, `lookup_removal` and `lookup_assigned`: the lookup indexes, and the
//! progress of each with each shard. Their pairs are in `lookup_entry.rs`.

use super::caller::Caller;
use super::keyspace::LockedKeyspace;
use super::shard::POSTGRES;
use super::table_policy::TableName;
use crate::catalog::declaration;
use crate::error::Failure;
use crate::keys::key_type::KeyType;
use crate::named_enum::named_enum;
use crate::server::sql::{self, Row};
use std::collections::BTreeSet;

/// The SQL name of the strategy of such a keyspace.
pub const STRATEGY: &str = "lookup";

/// The table and columns that a lookup index reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupSource {
    /// The name in the table policy.
    pub table_name: String,
    pub table: TableName,
    pub column: String,
    /// The column of the owners.
    pub shard_by: String,
    /// The token by which shards know the source.
    pub token: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    pub name: String,
    /// The keyspace that the owners are keys of.
    pub of: String,
    pub key_type: KeyType,
    pub owner_type: KeyType,
    pub epoch: i64,
    pub swept: i64,
    /// `None` if no table was added yet.
    pub source: Option<LookupSource>,
}

const QUERY: &str = "SELECT l.name, l.of_keyspace, l.key_type, k.key_type, l.epoch, l.swept, l.table_name, parse_ident(l.table_name),
        l.column_name, p.shard_by, l.token::text
   FROM shardmaster.lookup l
   JOIN shardmaster.keyspace k ON k.name = l.of_keyspace
   LEFT JOIN shardmaster.table_policy p ON p.keyspace = l.of_keyspace AND p.table_name = l.table_name";

fn from_row(row: &Row<'_>) -> Lookup {
    let source = row.get::<String>(7).and_then(|table_name| {
        let mut parts: Vec<String> = row.value(8);
        let name = parts.pop().unwrap_or_default();
        Some(LookupSource {
            table_name,
            table: TableName { schema: parts.pop(), name },
            column: row.get(9)?,
            shard_by: row.get(10)?,
            token: row.get(11)?,
        })
    });
    Lookup {
        name: row.value(1),
        of: row.value(2),
        key_type: KeyType::from_catalog(&row.value::<String>(3)),
        owner_type: row.get::<String>(4).map_or(KeyType::Text, |name| KeyType::from_catalog(&name)),
        epoch: row.value(5),
        swept: row.value(6),
        source,
    }
}

pub fn find(name: &str) -> Option<Lookup> {
    sql::read_one(&format!("{QUERY} WHERE l.name = $1"), &[name.into()], |row| from_row(&row))
}

/// Returns the keyspace of a lookup index, or None if there is no lookup index of this name.
pub fn of(name: &str) -> Option<String> {
    let query = "SELECT of_keyspace FROM shardmaster.lookup WHERE name = $1";
    sql::read_one(query, &[name.into()], |row| row.value(1))
}

/// Returns all lookup indexes, by their names.
pub fn all() -> Vec<Lookup> {
    sql::read_again(&format!("{QUERY} ORDER BY l.name"), &[], |row| from_row(&row))
}

/// Returns the lookup indexes of a keyspace, or only those of `table` if it is given.
pub fn of_keyspace(keyspace: &str, table: Option<&str>) -> Vec<String> {
    sql::read_column(
        "SELECT name FROM shardmaster.lookup WHERE of_keyspace = $1 AND ($2 IS NULL OR table_name = $2) ORDER BY name",
        &[keyspace.into(), table.into()],
    )
}

/// Waits for other sessions that name a keyspace, so that no two get one name.
pub fn lock_names() {
    sql::write("LOCK TABLE shardmaster.lookup IN SHARE ROW EXCLUSIVE MODE", &[]);
}

pub fn insert(name: &str, of: &LockedKeyspace, key_type: KeyType) {
    sql::write(
        "INSERT INTO shardmaster.lookup (name, of_keyspace, key_type) VALUES ($1, $2, $3)",
        &[name.into(), of.name.as_str().into(), key_type.as_str().into()],
    );
}

pub fn delete(name: &str) {
    sql::write("DELETE FROM shardmaster.lookup WHERE name = $1", &[name.into()]);
}

pub fn set_source(name: &str, table: &TableName, column: &str, caller: &Caller) {
    sql::write(
        "UPDATE shardmaster.lookup SET table_name = $2, column_name = $3, named_by = $4, token = gen_random_uuid(), epoch = 1, swept = 1
          WHERE name = $1",
        &[name.into(), table.quoted().into(), column.into(), declaration::by(caller).into()],
    );
}

/// Forgets the table and all that was found in it. What is on shards must be removed separately.
pub fn forget_source(name: &str) {
    for query in [
        // This waits for workers that are about to record what they have found.
        "SELECT FROM shardmaster.lookup WHERE name = $1 FOR UPDATE",
        "INSERT INTO shardmaster.lookup_removal (token, lookup, shard_key)
         SELECT l.token, l.name, s.shard_key FROM shardmaster.lookup l JOIN shardmaster.lookup_shard s ON s.lookup = l.name
          WHERE l.name = $1 AND l.token IS NOT NULL",
        "DELETE FROM shardmaster.lookup_shard WHERE lookup = $1",
        "DELETE FROM shardmaster.lookup_assigned WHERE lookup = $1",
        "DELETE FROM shardmaster.lookup_conflict WHERE lookup = $1",
        "DELETE FROM shardmaster.lookup_entry WHERE lookup = $1",
        "UPDATE shardmaster.lookup SET table_name = NULL, column_name = NULL, named_by = NULL, token = NULL WHERE name = $1",
    ] {
        sql::write(query, &[name.into()]);
    }
}

/// Returns a running split that computes one of the columns, or leaves it out.
pub fn split_that_maps(keyspace: &str, table: &str, columns: [&str; 2]) -> Option<i64> {
    sql::read_one(
        &format!(
            "SELECT p.id FROM shardmaster.split_plan p JOIN shardmaster.split_map m ON m.split_id = p.id
              WHERE p.keyspace = $1 AND m.table_name = $2 AND m.column_name IN ($3, $4) AND NOT {} ORDER BY p.id LIMIT 1",
            super::split_state::IS_OVER
        ),
        &[keyspace.into(), table.into(), columns[0].into(), columns[1].into()],
        |row| row.value(1),
    )
}

/// Returns the lookup index that uses a column of a split's table. No lookup index is added before the transaction
/// ends.
pub fn by_column(split: i64, table: &str, column: &str) -> Option<String> {
    sql::write("LOCK TABLE shardmaster.lookup IN SHARE MODE", &[]);
    sql::read_one(
        "SELECT l.name FROM shardmaster.lookup l JOIN shardmaster.split_plan p ON p.keyspace = l.of_keyspace
          WHERE p.id = $1 AND l.table_name = $2 AND l.column_name = $3 ORDER BY l.name LIMIT 1",
        &[split.into(), table.into(), column.into()],
        |row| row.value(1),
    )
}

named_enum! {
    pub enum LookupState {
        /// The shard was not read yet.
        New = "new",
        Filling = "filling",
        Filled = "filled",
    }
}

/// The progress of a lookup index with a shard.
#[derive(Debug, Clone)]
pub struct LookupProgress {
    pub shard_key: String,
    pub state: LookupState,
    pub steps: i64,
    pub place: Option<String>,
    pub shape: Option<String>,
}

/// Whether a shard that takes part has no row.
pub fn lacks_shards(lookup: &str) -> bool {
    sql::exists(
        "SELECT true FROM shardmaster.shard s
          WHERE s.kind = $2 AND s.status <> 'disabled'
            AND NOT EXISTS (SELECT FROM shardmaster.lookup_shard l WHERE l.lookup = $1 AND l.shard_key = s.shard_key) LIMIT 1",
        &[lookup.into(), POSTGRES.into()])
}

/// Adds the missing rows: one for each shard that takes part.
pub fn add_shards(lookup: &str) {
    sql::write(
        "INSERT INTO shardmaster.lookup_shard (lookup, shard_key)
         SELECT $1, s.shard_key FROM shardmaster.shard s
          WHERE s.kind = $2 AND s.status <> 'disabled'
            AND NOT EXISTS (SELECT FROM shardmaster.lookup_shard l WHERE l.lookup = $1 AND l.shard_key = s.shard_key)
             ON CONFLICT DO NOTHING",
        &[lookup.into(), POSTGRES.into()],
    );
}

/// Returns the progress with all shards that take part.
pub fn progress(lookup: &str) -> Vec<LookupProgress> {
    read_progress(lookup, None)
}

/// Returns the progress with one shard, or None if it has no row.
pub fn progress_of(lookup: &str, shard_key: &str) -> Option<LookupProgress> {
    read_progress(lookup, Some(shard_key)).into_iter().next()
}

fn read_progress(lookup: &str, shard_key: Option<&str>) -> Vec<LookupProgress> {
    sql::read(
        "SELECT l.shard_key, l.state, l.steps, l.place, l.shape
           FROM shardmaster.lookup_shard l JOIN shardmaster.shard s ON s.shard_key = l.shard_key
          WHERE l.lookup = $1 AND s.status <> 'disabled' AND ($2 IS NULL OR l.shard_key = $2) ORDER BY s.shard_index",
        &[lookup.into(), shard_key.into()],
        |row| LookupProgress {
            shard_key: row.value(1),
            state: LookupState::from_name(&row.value::<String>(2)).unwrap_or(LookupState::New),
            steps: row.value(3),
            place: row.get(4),
            shape: row.get(5),
        },
    )
}

/// Marks the shards that have these entries by now to be read anew.
pub fn fill_again(lookup: &Lookup, entries: &[String]) {
    sql::write(
        "UPDATE shardmaster.lookup_shard s SET state = 'new'
          WHERE s.lookup = $1
            AND s.shard_key IN (SELECT e.read_shard FROM shardmaster.routing_entry e
                                 WHERE e.keyspace = $2 AND e.key = ANY ($3) AND e.valid_to IS NULL)",
        &[lookup.name.as_str().into(), lookup.of.as_str().into(), entries.to_vec().into()],
    );
}

/// Marks these shards to be read anew.
pub fn look_anew(lookup: &Lookup, shards: &BTreeSet<String>) {
    let shards: Vec<String> = shards.iter().cloned().collect();
    sql::write(
        "UPDATE shardmaster.lookup_shard SET state = 'new' WHERE lookup = $1 AND shard_key = ANY ($2) AND state <> 'new'",
        &[lookup.name.as_str().into(), shards.into()],
    );
}

/// Stores the progress. Returns false if the lookup index, or its table, no longer exists, so that nothing is left to
/// do for it.
pub fn store(lookup: &Lookup, progress: &LookupProgress) -> bool {
    let Some(source) = &lookup.source else { return false };
    sql::write(
        "UPDATE shardmaster.lookup_shard s SET state = $3, steps = $4, place = $5, shape = $6
           FROM shardmaster.lookup l
          WHERE s.lookup = $1 AND s.shard_key = $2 AND l.name = s.lookup AND l.token = $7::uuid",
        &[
            lookup.name.as_str().into(),
            progress.shard_key.as_str().into(),
            progress.state.as_str().into(),
            progress.steps.into(),
            progress.place.clone().into(),
            progress.shape.clone().into(),
            source.token.as_str().into(),
        ],
    ) == 1
}

/// Locks the lookup index: no other session changes or drops it before the transaction ends. Returns false if it, or
/// its table, is another one by now.
pub fn hold(lookup: &Lookup) -> bool {
    let Some(source) = &lookup.source else { return false };
    sql::write(
        "SELECT FROM shardmaster.lookup WHERE name = $1 AND token = $2::uuid FOR KEY SHARE",
        &[lookup.name.as_str().into(), source.token.as_str().into()],
    ) == 1
}

/// Begins a new epoch, since changes of a shard may have been missed: every existing pair must be checked again.
pub fn next_epoch_if_any(lookup: &Lookup) {
    sql::write(
        "UPDATE shardmaster.lookup l SET epoch = epoch + 1, swept = CASE WHEN p.is_there THEN swept ELSE epoch + 1 END
           FROM (SELECT EXISTS (SELECT FROM shardmaster.lookup_entry e WHERE e.lookup = $1)) AS p (is_there) WHERE l.name = $1",
        &[lookup.name.as_str().into()],
    );
}

pub fn swept(lookup: &Lookup, epoch: i64) {
    sql::write(
        "UPDATE shardmaster.lookup SET swept = $2 WHERE name = $1",
        &[lookup.name.as_str().into(), epoch.into()],
    );
}

/// Records what the last read found: the number of waiting entries, the age of the oldest in seconds, and what the
/// index waits for.
pub fn report(lookup: &str, shard_key: &str, waiting: i64, lag_seconds: f64, waits_for: Option<&str>) {
    // A read that shows nothing new writes nothing.
    sql::write(
        "UPDATE shardmaster.lookup_shard SET waiting = $3, lag = make_interval(secs => $4), looked_at = clock_timestamp(),
                error_code = NULL, error_message = $5
          WHERE lookup = $1 AND shard_key = $2
            AND ($3 > 0 OR waiting > 0 OR error_message IS DISTINCT FROM $5 OR looked_at IS NULL
                 OR looked_at < clock_timestamp() - interval '10 s')",
        &[lookup.into(), shard_key.into(), waiting.into(), lag_seconds.into(), waits_for.map(crate::clean::printable).into()],
    );
}

fn said(error: &Failure) -> String {
    let error = error.cleaned();
    error.hint.map_or(error.message.clone(), |hint| format!("{}. {hint}", error.message))
}

/// Records the error of a shard that cannot be asked. Its earlier figures stay.
pub fn report_failure(lookup: &str, shard_key: &str, error: &Failure) {
    sql::write(
        "UPDATE shardmaster.lookup_shard SET error_code = $3, error_message = $4
          WHERE lookup = $1 AND shard_key = $2 AND (error_code, error_message) IS DISTINCT FROM ($3, $4)",
        &[lookup.into(), shard_key.into(), error.sqlstate.as_str().to_owned().into(), said(error).into()],
    );
}

/// Whether any key was ever routed to a shard.
pub fn ever_routed(keyspace: &str, shard_key: &str) -> bool {
    sql::exists(
        "SELECT true FROM shardmaster.routing_entry
          WHERE keyspace = $1 AND (read_shard = $2 OR write_shard = $2) LIMIT 1",
        &[keyspace.into(), shard_key.into()],
    )
}

/// Returns a shard that keys are routed to and whose rows were not all read yet.
pub fn not_filled(lookup: &str) -> Option<String> {
    not_filled_but(lookup, None, i64::MAX)
}

/// Like `not_filled`, but leaves out unread rows of `entry` and of entries that were assigned after the number `last`.
pub fn not_filled_but(lookup: &str, entry: Option<&str>, last: i64) -> Option<String> {
    shard_not_filled(lookup).or_else(|| shard_of_assigned(lookup, entry, last))
}

/// Returns the number of the last assigned entry that is still to be read, or 0 if there is none.
pub fn last_assigned(lookup: &str) -> i64 {
    let query = "SELECT id FROM shardmaster.lookup_assigned WHERE lookup = $1 ORDER BY id DESC LIMIT 1";
    sql::read_one(query, &[lookup.into()], |row| row.value(1)).unwrap_or(0)
}

/// Returns a shard where rows of assigned keys are still to be read.
pub fn shard_of_assigned(lookup: &str, but: Option<&str>, last: i64) -> Option<String> {
    sql::read_one(
        "SELECT e.read_shard
           FROM shardmaster.lookup_assigned a
           JOIN shardmaster.lookup l ON l.name = a.lookup
           JOIN shardmaster.routing_entry e ON e.keyspace = l.of_keyspace AND e.key = a.entry AND e.valid_to IS NULL
          WHERE a.lookup = $1 AND a.entry IS DISTINCT FROM $2 AND a.id <= $3 LIMIT 1",
        &[lookup.into(), but.into(), last.into()],
        |row| row.value(1),
    )
}

fn shard_not_filled(lookup: &str) -> Option<String> {
    sql::read_one(
        "SELECT s.shard_key FROM shardmaster.lookup l CROSS JOIN shardmaster.shard s
          WHERE l.name = $1 AND s.kind = $2
            AND NOT EXISTS (SELECT FROM shardmaster.lookup_shard p WHERE p.lookup = l.name AND p.shard_key = s.shard_key AND p.state = 'filled')
            AND EXISTS (SELECT FROM shardmaster.routing_entry e
                         WHERE e.keyspace = l.of_keyspace AND e.valid_to IS NULL AND s.shard_key IN (e.read_shard, e.write_shard))
          ORDER BY s.shard_index LIMIT 1",
        &[lookup.into(), POSTGRES.into()],
        |row| row.value(1),
    )
}

/// Something that is left on shards of lookup indexes that no longer exist.
pub struct Removal {
    pub token: String,
    pub lookup: String,
    pub shard_key: String,
    pub error: Option<String>,
}

pub fn removals() -> Vec<Removal> {
    sql::read_again(
        "SELECT token::text, lookup, shard_key, error_message FROM shardmaster.lookup_removal ORDER BY lookup, shard_key",
        &[],
        |row| Removal {
            token: row.value(1),
            lookup: row.value(2),
            shard_key: row.value(3),
            error: row.get(4),
        },
    )
}

pub fn removed(token: &str, shard_key: &str) {
    sql::write(
        "DELETE FROM shardmaster.lookup_removal WHERE token = $1::uuid AND shard_key = $2",
        &[token.into(), shard_key.into()],
    );
}

pub fn not_removed(removal: &Removal, error: &Failure) {
    sql::write(
        "UPDATE shardmaster.lookup_removal SET error_message = $3 WHERE token = $1::uuid AND shard_key = $2",
        &[removal.token.as_str().into(), removal.shard_key.as_str().into(), said(error).into()],
    );
}

/// Whether the token is that of a lookup index of this master.
pub fn is_known(token: &str) -> bool {
    let query = "SELECT true FROM shardmaster.lookup WHERE token::text = $1";
    sql::exists(query, &[token.into()])
}

/// Whether a worker is needed.
pub fn has_work() -> bool {
    sql::read_one_again(
        "SELECT true WHERE EXISTS (SELECT FROM shardmaster.lookup WHERE token IS NOT NULL)
                        OR EXISTS (SELECT FROM shardmaster.lookup_removal)",
        &[],
        |_| (),
    )
    .is_some()
}

/// Returns entries that were assigned, the oldest first.
pub fn assigned(lookup: &str, most: i64) -> Vec<(i64, String)> {
    sql::read(
        "SELECT id, entry FROM shardmaster.lookup_assigned WHERE lookup = $1 ORDER BY id LIMIT $2",
        &[lookup.into(), most.into()],
        |row| (row.value(1), row.value(2)),
    )
}

pub fn assignments_done(ids: &[i64]) {
    sql::write("DELETE FROM shardmaster.lookup_assigned WHERE id = ANY ($1)", &[ids.to_vec().into()]);
}

/// What shard_lookups() shows of a lookup index and a shard.
pub struct ShownLookup {
    pub lookup: String,
    pub of: String,
    pub table_name: Option<String>,
    pub column: Option<String>,
    pub shard_key: Option<String>,
    pub state: Option<String>,
    pub waiting: Option<i64>,
    pub lag_seconds: Option<f64>,
    /// What the lookup index waits for.
    pub error: Option<String>,
    /// The error is not an expected part of its work.
    pub is_failing: bool,
}

pub fn shown() -> Vec<ShownLookup> {
    sql::read(
        "SELECT l.name, l.of_keyspace, l.table_name, l.column_name, p.shard_key,
                CASE WHEN p.state = 'filled' AND l.epoch > l.swept THEN 'sweeping' ELSE p.state END, p.waiting,
                extract(epoch FROM p.lag + CASE WHEN p.waiting > 0 THEN clock_timestamp() - p.looked_at ELSE interval '0' END)::float8,
                CASE WHEN s.status = 'disabled' THEN 'nothing: the shard is disabled, and what is written there is not followed' ELSE p.error_message END,
                p.error_code IS NOT NULL
           FROM shardmaster.lookup l
           LEFT JOIN (shardmaster.lookup_shard p JOIN shardmaster.shard s ON s.shard_key = p.shard_key) ON p.lookup = l.name
          ORDER BY l.name, s.shard_index",
        &[],
        |row| ShownLookup {
            lookup: row.value(1),
            of: row.value(2),
            table_name: row.get(3),
            column: row.get(4),
            shard_key: row.get(5),
            state: row.get(6),
            waiting: row.get(7),
            lag_seconds: row.get(8),
            error: row.get(9),
            is_failing: row.value(10),
        },
    )
}
