//! The errors of a routing call. Arguments run from the whole to its part: keyspace, shard, table, key.

use crate::catalog::keyspace::{Keyspace, UnknownKeyspace};
use crate::error::{Failure, SqlState};
use crate::keys::interval::Empty;
use crate::keys::key_type::{KeyType, Unsupported};
use crate::keys::strategy::Strategy;
use serde_json::json;

pub use crate::error::invalid;

pub fn unknown_keyspace(keyspace: &str) -> Failure {
    Failure::new(SqlState::UNDEFINED_OBJECT, format!("keyspace \"{keyspace}\" does not exist"))
        .hint("Create it with shard_keyspace_add().")
}

pub fn keyspace_exists(keyspace: &str) -> Failure {
    Failure::new(SqlState::DUPLICATE_OBJECT, format!("keyspace \"{keyspace}\" already exists"))
}

pub fn default_keyspace() -> Failure {
    Failure::new(SqlState::NOT_IN_STATE, "keyspace \"default\" cannot be dropped")
}

pub fn keyspace_in_use(keyspace: &str, by: &str) -> Failure {
    Failure::new(SqlState::IN_USE, format!("keyspace \"{keyspace}\" is in use: {by}"))
}

pub fn other_strategy(keyspace: &Keyspace) -> Failure {
    let Keyspace { name, strategy, .. } = keyspace;
    let message = format!("keyspace \"{name}\" is of strategy \"{}\"", strategy.name());
    Failure::new(SqlState::INVALID_VALUE, message).hint(match strategy {
        Strategy::Directory => "Its keys are assigned one by one. See shard_assign() and shard_split_plan().",
        Strategy::Hash { .. } => {
            "Its keys are in buckets. See shard_assign_bucket(), and shard_split_plan() with the numbers of buckets."
        }
        Strategy::Range { .. } => {
            "Its keys are in ranges. See shard_assign_range() and shard_split_plan_range()."
        }
    })
}

pub fn is_lookup(keyspace: &str, of: &str) -> Failure {
    let message = format!("keyspace \"{keyspace}\" is a lookup index of keyspace \"{of}\"");
    Failure::new(SqlState::UNSUPPORTED, message).hint(format!(
        "Its keys lead to keys of keyspace \"{of}\", which are routed and moved. Name that keyspace. shard_route(), shard_of() and shard_lookup() accept \"{keyspace}\"."
    ))
}

pub fn no_lookup(keyspace: &str) -> Failure {
    Failure::new(SqlState::INVALID_VALUE, format!("keyspace \"{keyspace}\" is not a lookup index"))
        .hint("Its keys are routed themselves. See shard_of() and shard_route().")
}

pub fn unknown_in_lookup(lookup: &str, key: &str) -> Failure {
    let message = format!("key \"{key}\" is not in lookup index \"{lookup}\"");
    Failure::new(SqlState::UNDEFINED_OBJECT, message)
        .hint("No row of the table has it, or the row is newer than the index. shard_lookups() shows how old the index is.")
}

pub fn not_filled(lookup: &str, shard: &str, key: &str) -> Failure {
    let message = format!(
        "key \"{key}\" is not in lookup index \"{lookup}\" yet, which is not filled from shard \"{shard}\""
    );
    Failure::new(SqlState::NOT_IN_STATE, message)
        .hint("It may be there. Retry after a moment. shard_lookups() shows how far the lookup index is.")
}

pub fn unsupported_key_type(name: &str) -> Failure {
    Failure::new(SqlState::INVALID_VALUE, format!("type {name} cannot be the type of a key"))
        .detail("Keys are compared as text, so that equal values must have the same text.")
        .hint("Use smallint, integer, bigint, numeric, text, varchar, char, uuid or an enum. Use text for another type.")
}

pub fn other_key_type(keyspace: &str, is: KeyType, wanted: KeyType) -> Failure {
    let (is, wanted) = (is.as_str(), wanted.as_str());
    let message = format!("keys of keyspace \"{keyspace}\" are of type {is}, not {wanted}");
    Failure::new(SqlState::INVALID_VALUE, message)
        .hint("Tables with keys of another type need a keyspace of their own.")
}

pub fn key_not_canonical(keyspace: &str, key: &str, key_type: KeyType, canonical: &str) -> Failure {
    let message = format!(
        "key \"{key}\" is assigned in keyspace \"{keyspace}\", but as {} it is \"{canonical}\"",
        key_type.as_str()
    );
    Failure::new(SqlState::NOT_IN_STATE, message)
        .hint("Remove it with shard_unassign(), then assign it again.")
}

pub fn table_exists(keyspace: &str, table: &str) -> Failure {
    let message = format!("table \"{table}\" is already in keyspace \"{keyspace}\"");
    Failure::new(SqlState::DUPLICATE_OBJECT, message)
        .hint("shard_tables() shows its column. To use another one, remove it with shard_table_drop() and add it again.")
}

pub fn table_exists_as(keyspace: &str, table: &str, known: &str) -> Failure {
    let message = format!("table \"{table}\" is already in keyspace \"{keyspace}\", as \"{known}\"");
    Failure::new(SqlState::DUPLICATE_OBJECT, message)
        .hint("The rows of a table move by one key. A name without a schema means the namespace of each shard. Remove the other one with shard_table_drop().")
}

pub fn job_of_table(table: &str, job: i64) -> Failure {
    Failure::new(SqlState::NOT_IN_STATE, format!("job {job} of table \"{table}\" has not ended"))
        .hint("SELECT * FROM shard_jobs() shows it.")
}

pub fn unknown_table(keyspace: &str, table: &str) -> Failure {
    let message = format!("table \"{table}\" is not in keyspace \"{keyspace}\"");
    Failure::new(SqlState::UNDEFINED_OBJECT, message).hint("shard_tables() lists the tables of a keyspace.")
}

pub fn table_redirected(keyspace: &str, table: &str, splits: &str) -> Failure {
    let message = format!("table \"{table}\" of keyspace \"{keyspace}\" is redirected by splits {splits}");
    Failure::new(SqlState::IN_USE, message)
        .hint("Its old shards refuse the keys that left, in any keyspace. End that with shard_split_redirect_drop() for each of the splits, or wait for shardmaster.redirect_retention.")
}

pub fn table_guarded(keyspace: &str, table: &str, shards: &str) -> Failure {
    let message = format!("table \"{table}\" of keyspace \"{keyspace}\" is guarded on shards {shards}");
    Failure::new(SqlState::IN_USE, message)
        .hint("Its triggers there would still refuse rows by this keyspace's routes. First remove the guard with shard_guard_remove() on each of the shards.")
}

/// The SQLSTATE of a table without the column, as the server itself raises it.
const UNDEFINED_COLUMN: SqlState = SqlState(*b"42703");

pub fn unknown_column(table: &str, column: &str) -> Failure {
    Failure::new(UNDEFINED_COLUMN, format!("column \"{column}\" of table \"{table}\" does not exist"))
        .hint("If the key has another name in the table, give that name as it is written there. If the table has no such column, add and fill it. If its rows belong to no key, pass NULL for shard_by and policy => 'reference' or 'global'.")
}

const ASSIGN: &str = "Assign it with shard_assign(), shard_assign_bucket() or shard_assign_range(), depending on the keyspace's strategy.";

pub fn unknown_key(keyspace: &str, key: &str) -> Failure {
    let message = format!("key \"{key}\" is not assigned in keyspace \"{keyspace}\"");
    Failure::new(SqlState::UNDEFINED_OBJECT, message).hint(ASSIGN)
}

pub fn unknown_keys(keyspace: &str, keys: &str) -> Failure {
    let message = format!("keys {keys} are not assigned in keyspace \"{keyspace}\"");
    Failure::new(SqlState::UNDEFINED_OBJECT, message).hint(ASSIGN)
}

pub fn unknown_bucket(keyspace: &str, bucket: &str) -> Failure {
    let message = format!("bucket {bucket} of keyspace \"{keyspace}\" does not exist");
    Failure::new(SqlState::INVALID_VALUE, message)
        .hint("Buckets are numbered from 0. shard_entries() lists them.")
}

pub fn unknown_range(keyspace: &str, range: &str) -> Failure {
    let message = format!("range {range} of keyspace \"{keyspace}\" is not assigned");
    Failure::new(SqlState::UNDEFINED_OBJECT, message)
        .hint("Assign a range with shard_assign_range(). shard_entries() lists them.")
}

const VERSIONS: &str = "shard_routing_history() lists the versions.";

pub fn unknown_version(keyspace: &str, version: i64) -> Failure {
    let message = format!("routing version {version} of keyspace \"{keyspace}\" does not exist");
    Failure::new(SqlState::UNDEFINED_OBJECT, message).hint(VERSIONS)
}

pub fn unknown_key_at(keyspace: &str, version: i64, key: &str) -> Failure {
    let message =
        format!("key \"{key}\" was not assigned in routing version {version} of keyspace \"{keyspace}\"");
    Failure::new(SqlState::UNDEFINED_OBJECT, message).hint(VERSIONS)
}

pub fn null_key() -> Failure {
    Failure::new(SqlState::NULL_NOT_ALLOWED, "keys must not be NULL")
}

pub fn duplicate_keys(keys: &str) -> Failure {
    Failure::new(SqlState::INVALID_VALUE, format!("keys are given more than once: {keys}"))
        .hint("Name each key once. Keys are compared in their canonical form.")
}

pub fn routed_elsewhere(keys: &str) -> Failure {
    Failure::new(SqlState::NOT_IN_STATE, format!("keys are routed to another shard: {keys}"))
        .hint("A split moves the rows, an assignment does not. Use shard_split_plan(), or force => true if the rows are already on the new shard.")
}

fn end_split(split: i64) -> String {
    format!(
        "Finish it with CALL shard_split_run({split}, 'finished'). Before its cutover, CALL shard_split_run({split}, 'rolled_back') undoes it."
    )
}

pub fn keyspace_in_split(keyspace: &str, split: i64) -> Failure {
    Failure::new(SqlState::IN_USE, format!("keyspace \"{keyspace}\" is in use by split {split}"))
        .hint(end_split(split))
}

pub fn key_in_split(key: &str, split: i64) -> Failure {
    Failure::new(SqlState::IN_USE, format!("key \"{key}\" is in use by split {split}")).hint(end_split(split))
}

const END_RUN: &str =
    "Wait until it ends, or call shard_misplaced_abandon(). shard_misplaced_runs() lists it.";

pub fn keyspace_in_run(keyspace: &str, run: i64) -> Failure {
    let message = format!("keyspace \"{keyspace}\" is in use by run {run} of misplaced rows");
    Failure::new(SqlState::IN_USE, message).hint(END_RUN)
}

pub fn key_in_run(key: &str, run: i64) -> Failure {
    let message = format!("key \"{key}\" is in use by run {run} of misplaced rows");
    Failure::new(SqlState::IN_USE, message).hint(END_RUN)
}

pub fn holds_no_rows(shard: &str, kind: &str) -> Failure {
    let message = format!("shard \"{shard}\" is of kind \"{kind}\", which holds no rows");
    Failure::new(SqlState::INVALID_VALUE, message)
}

pub fn shard_disabled(shard: &str) -> Failure {
    Failure::new(SqlState::NOT_IN_STATE, format!("shard \"{shard}\" is disabled"))
        .hint("Enable it with shard_set_status(shard_key, 'active').")
}

pub fn no_reference_table(shard: &str, table: &str, why: Option<&str>) -> Failure {
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    let message = format!("shard \"{shard}\" does not have reference table \"{table}\" yet{why}");
    Failure::new(SqlState::NOT_IN_STATE, message)
        .hint("It is filled in the background. SELECT shard_reference_wait() waits for it, shard_reference_tables() shows what it waits for.")
}

pub fn shard_gone(version: i64, shard: &str) -> Failure {
    let message = format!("routing version {version} names a shard that does not exist: \"{shard}\"");
    Failure::new(SqlState::NOT_IN_STATE, message)
}

pub fn moved_since(version: i64, keys: &str) -> Failure {
    let message = format!("keys have been moved by a split since routing version {version}: {keys}");
    Failure::new(SqlState::NOT_IN_STATE, message)
        .hint("Their rows are where they are routed now. Move them back with a split.")
}

pub fn between_shards(keyspace: &str, version: i64, key: &str) -> Failure {
    Failure::new(SqlState::BETWEEN_SHARDS, format!("key \"{key}\" is being moved between two shards"))
        .detail(json!({ "key": key, "keyspace": keyspace, "routing_version": version }).to_string())
        .hint("A split is moving the key. Retry after a moment.")
}

/// The transaction keeps its snapshot, so that waiting would not help.
pub fn end_of_move_unseen(key: &str) -> Failure {
    let message = format!("could not route key \"{key}\" for a write because a split is moving it");
    Failure::new(SqlState::SERIALIZATION_FAILURE, message)
        .hint("The transaction cannot see the end of the move. Retry it.")
}

impl From<UnknownKeyspace> for Failure {
    fn from(unknown: UnknownKeyspace) -> Failure {
        match unknown {
            UnknownKeyspace::Nothing(name) => unknown_keyspace(&name),
            UnknownKeyspace::Lookup { name, of } => is_lookup(&name, &of),
        }
    }
}

impl From<Empty> for Failure {
    fn from(Empty(range): Empty) -> Failure {
        invalid("upper", format!("{range} holds no keys"))
    }
}

impl From<Unsupported> for Failure {
    fn from(Unsupported(name): Unsupported) -> Failure {
        unsupported_key_type(&name)
    }
}

/// Returns a quoted key, shortened: a key may be as long as a page.
fn quoted(name: &str) -> String {
    const SHOWN: usize = 100;
    match name.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("\"{}...\"", &name[..end]),
        None => format!("\"{name}\""),
    }
}

/// Returns the first of some names for a message, quoted.
pub fn name_list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const SHOWN: usize = 5;
    let mut names = names.into_iter();
    let mut list: Vec<String> = names.by_ref().take(SHOWN).map(quoted).collect();
    match names.count() {
        0 => {}
        more => list.push(format!("and {more} more")),
    }
    list.join(", ")
}
