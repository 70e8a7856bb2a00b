//! The errors of a routing call.

use crate::catalog::keyspace::{Keyspace, UnknownKeyspace};
use crate::catalog::outdated::{self, Outdated};
use crate::error::{Failure, SqlState};
use crate::keys::interval::Empty;
use crate::keys::key_type::Unsupported;
use crate::words::of_split;
use serde_json::json;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum RoutingError {
    #[error("keyspace \"{0}\" does not exist")]
    UnknownKeyspace(String),
    #[error("keyspace \"{keyspace}\" is a lookup index of keyspace \"{of}\"")]
    IsLookup { keyspace: String, of: String },
    #[error(transparent)]
    Outdated(#[from] Outdated),
    #[error("keyspace \"{0}\" is not a lookup index")]
    NoLookup(String),
    #[error("key \"{key}\" is not in lookup index \"{lookup}\"")]
    UnknownInLookup { key: String, lookup: String },
    #[error(
        "key \"{key}\" is not in lookup index \"{lookup}\" yet, which is not filled from shard \"{shard}\""
    )]
    NotFilled { key: String, lookup: String, shard: String },
    #[error("keyspace \"{0}\" already exists")]
    KeyspaceExists(String),
    #[error("keyspace \"{keyspace}\" is of strategy \"{strategy}\"")]
    OtherStrategy { keyspace: String, strategy: &'static str },
    #[error("invalid value for \"{argument}\": {problem}")]
    Invalid { argument: &'static str, problem: String },
    #[error("type {0} cannot be the type of a key")]
    KeyType(String),
    #[error("keys of keyspace \"{keyspace}\" are of type {is}, not {wanted}")]
    OtherKeyType { keyspace: String, is: &'static str, wanted: &'static str },
    #[error("key \"{key}\" is assigned in keyspace \"{keyspace}\", but as {key_type} it is \"{canonical}\"")]
    KeyNotCanonical { key: String, keyspace: String, key_type: &'static str, canonical: String },
    #[error("keyspace \"default\" cannot be dropped")]
    DefaultKeyspace,
    #[error("keyspace \"{keyspace}\" is in use: {by}")]
    KeyspaceInUse { keyspace: String, by: String },
    #[error("keyspace \"{keyspace}\" is in use by split {split}")]
    KeyspaceInSplit { keyspace: String, split: i64 },
    #[error("table \"{table}\" is already in keyspace \"{keyspace}\"")]
    TableExists { table: String, keyspace: String },
    #[error("table \"{table}\" is already in keyspace \"{keyspace}\", as \"{known}\"")]
    TableElsewhere { table: String, known: String, keyspace: String },
    #[error("table \"{table}\" is not in keyspace \"{keyspace}\"")]
    UnknownTable { table: String, keyspace: String },
    #[error("table \"{table}\" of keyspace \"{keyspace}\" is redirected by splits {splits}")]
    TableRedirected { table: String, keyspace: String, splits: String },
    #[error("table \"{table}\" of keyspace \"{keyspace}\" is guarded on shards {shards}")]
    TableGuarded { table: String, keyspace: String, shards: String },
    #[error("column \"{column}\" of table \"{table}\" does not exist")]
    UnknownColumn { column: String, table: String },
    #[error("key \"{key}\" is not assigned in keyspace \"{keyspace}\"")]
    UnknownKey { key: String, keyspace: String },
    #[error("keys {keys} are not assigned in keyspace \"{keyspace}\"")]
    UnknownKeys { keys: String, keyspace: String },
    #[error("bucket {bucket} of keyspace \"{keyspace}\" does not exist")]
    UnknownBucket { bucket: String, keyspace: String, buckets: u32 },
    #[error("range {range} of keyspace \"{keyspace}\" is not assigned")]
    UnknownRange { range: String, keyspace: String },
    #[error("routing version {version} of keyspace \"{keyspace}\" does not exist")]
    UnknownVersion { version: i64, keyspace: String },
    #[error("key \"{key}\" was not assigned in routing version {version} of keyspace \"{keyspace}\"")]
    UnknownKeyAt { key: String, keyspace: String, version: i64 },
    #[error("keys must not be NULL")]
    NullKey,
    #[error("keys are given more than once: {0}")]
    DuplicateKeys(String),
    #[error("keys are routed to another shard: {0}")]
    RoutedElsewhere(String),
    #[error("key \"{key}\" is in use by split {split}")]
    KeyInSplit { key: String, split: i64 },
    #[error("key \"{key}\" is in use by run {run} of misplaced rows")]
    KeyInRun { key: String, run: i64 },
    #[error("keyspace \"{keyspace}\" is in use by run {run} of misplaced rows")]
    KeyspaceInRun { keyspace: String, run: i64 },
    #[error("shard \"{shard}\" is of kind \"{kind}\", which holds no rows")]
    HoldsNoRows { shard: String, kind: String },
    #[error("shard \"{shard}\" does not have reference table \"{table}\" yet{}", .why.as_ref().map(|why| format!(": {why}")).unwrap_or_default())]
    Unfilled { table: String, shard: String, why: Option<String> },
    #[error("shard \"{0}\" is disabled")]
    ShardDisabled(String),
    #[error("routing version {version} names a shard that does not exist: \"{shard}\"")]
    ShardGone { shard: String, version: i64 },
    #[error("keys have been moved by a split since routing version {version}: {keys}")]
    MovedSince { version: i64, keys: String },
    #[error("key \"{key}\" is being moved between two shards")]
    BetweenShards { key: String, keyspace: String, version: i64 },
    #[error("could not route key \"{0}\" for a write because a split is moving it")]
    Serialization(String),
}

/// The SQLSTATE of a table without the column, as the server itself raises it.
const UNDEFINED_COLUMN: SqlState = SqlState(*b"42703");

impl RoutingError {
    /// Returns the error of a call that is for keyspaces of another strategy.
    pub fn other_strategy(keyspace: &Keyspace) -> RoutingError {
        RoutingError::OtherStrategy { keyspace: keyspace.name.clone(), strategy: keyspace.strategy.name() }
    }
}

impl From<UnknownKeyspace> for RoutingError {
    fn from(unknown: UnknownKeyspace) -> RoutingError {
        match unknown {
            UnknownKeyspace::Nothing(name) => RoutingError::UnknownKeyspace(name),
            UnknownKeyspace::Lookup { name, of } => RoutingError::IsLookup { keyspace: name, of },
        }
    }
}

impl From<UnknownKeyspace> for Failure {
    fn from(unknown: UnknownKeyspace) -> Failure {
        RoutingError::from(unknown).into()
    }
}

impl From<Empty> for RoutingError {
    fn from(Empty(range): Empty) -> RoutingError {
        RoutingError::Invalid { argument: "upper", problem: format!("{range} holds no keys") }
    }
}

impl From<Empty> for Failure {
    fn from(empty: Empty) -> Failure {
        RoutingError::from(empty).into()
    }
}

impl From<Unsupported> for RoutingError {
    fn from(Unsupported(name): Unsupported) -> RoutingError {
        RoutingError::KeyType(name)
    }
}

impl From<RoutingError> for Failure {
    fn from(error: RoutingError) -> Failure {
        let failure = Failure::new(sqlstate(&error), error.to_string());
        let failure = match &error {
            RoutingError::BetweenShards { key, keyspace, version } => failure
                .detail(json!({ "key": key, "keyspace": keyspace, "routing_version": version }).to_string()),
            RoutingError::KeyType(_) => {
                failure.detail("Keys are compared as text, so that equal values must have the same text.")
            }
            RoutingError::IsLookup { keyspace, of } => failure.hint(format!(
                "Its keys lead to keys of keyspace \"{of}\", which are routed and moved. Name that keyspace. shard_route(), shard_of() and shard_lookup() accept \"{keyspace}\"."
            )),
            _ => failure,
        };
        match (hint(&error), &error) {
            (
                Some(hint),
                RoutingError::KeyspaceInSplit { split, .. } | RoutingError::KeyInSplit { split, .. },
            ) => failure.hint(of_split(hint, *split)),
            (Some(hint), _) => failure.hint(hint),
            (None, _) => failure,
        }
    }
}

fn sqlstate(error: &RoutingError) -> SqlState {
    use RoutingError as E;
    match error {
        E::UnknownKeyspace(_)
        | E::UnknownTable { .. }
        | E::UnknownKey { .. }
        | E::UnknownKeys { .. }
        | E::UnknownRange { .. }
        | E::UnknownVersion { .. }
        | E::UnknownInLookup { .. }
        | E::UnknownKeyAt { .. } => SqlState::UNDEFINED_OBJECT,
        E::IsLookup { .. } => SqlState::UNSUPPORTED,
        E::UnknownColumn { .. } => UNDEFINED_COLUMN,
        E::KeyspaceExists(_) | E::TableExists { .. } | E::TableElsewhere { .. } => SqlState::DUPLICATE_OBJECT,
        E::Invalid { .. }
        | E::NoLookup(_)
        | E::OtherStrategy { .. }
        | E::UnknownBucket { .. }
        | E::KeyType(_)
        | E::OtherKeyType { .. }
        | E::DuplicateKeys(_)
        | E::HoldsNoRows { .. } => SqlState::INVALID_VALUE,
        E::NullKey => SqlState::NULL_NOT_ALLOWED,
        E::DefaultKeyspace
        | E::Outdated(_)
        | E::NotFilled { .. }
        | E::KeyNotCanonical { .. }
        | E::RoutedElsewhere(_)
        | E::ShardDisabled(_)
        | E::Unfilled { .. }
        | E::ShardGone { .. }
        | E::MovedSince { .. } => SqlState::NOT_IN_STATE,
        E::KeyspaceInUse { .. }
        | E::KeyspaceInSplit { .. }
        | E::KeyInSplit { .. }
        | E::KeyspaceInRun { .. }
        | E::KeyInRun { .. }
        | E::TableGuarded { .. }
        | E::TableRedirected { .. } => SqlState::IN_USE,
        E::BetweenShards { .. } => SqlState::BETWEEN_SHARDS,
        E::Serialization(_) => SqlState::SERIALIZATION_FAILURE,
    }
}

fn hint(error: &RoutingError) -> Option<&'static str> {
    use RoutingError as E;
    Some(match error {
        E::Outdated(_) => outdated::ADOPT,
        E::UnknownKeyspace(_) => "Create it with shard_keyspace_add().",
        E::OtherStrategy { strategy: "hash", .. } => {
            "Its keys are in buckets. See shard_assign_bucket(), and shard_split_plan() with the numbers of buckets."
        }
        E::OtherStrategy { strategy: "range", .. } => {
            "Its keys are in ranges. See shard_assign_range() and shard_split_plan_range()."
        }
        E::OtherStrategy { .. } => {
            "Its keys are assigned one by one. See shard_assign() and shard_split_plan()."
        }
        E::UnknownBucket { .. } => "Buckets are numbered from 0. shard_entries() lists them.",
        E::UnknownRange { .. } => "Assign a range with shard_assign_range(). shard_entries() lists them.",
        E::KeyType(_) => {
            "Use smallint, integer, bigint, numeric, text, varchar, char, uuid or an enum. Use text for another type."
        }
        E::OtherKeyType { .. } => "Tables with keys of another type need a keyspace of their own.",
        E::KeyNotCanonical { .. } => "Remove it with shard_unassign(), then assign it again.",
        E::TableElsewhere { .. } => {
            "The rows of a table move by one key. A name without a schema means the namespace of each shard. Remove the other one with shard_table_drop()."
        }
        E::TableRedirected { .. } => {
            "Its old shards refuse the keys that left, in any keyspace. End that with shard_split_redirect_drop() for each of the splits, or wait for shardmaster.redirect_retention."
        }
        E::TableGuarded { .. } => {
            "Its triggers there would still refuse rows by this keyspace's routes. First remove the guard with shard_guard_remove() on each of the shards."
        }
        E::UnknownTable { .. } => "shard_tables() lists the tables of a keyspace.",
        E::UnknownColumn { .. } => {
            "If the key has another name in the table, give that name as it is written there. If the table has no such column, add and fill it. If its rows belong to no key, pass NULL for shard_by and policy => 'reference' or 'global'."
        }
        E::UnknownKey { .. } | E::UnknownKeys { .. } => {
            "Assign it with shard_assign(), shard_assign_bucket() or shard_assign_range(), depending on the keyspace's strategy."
        }
        E::UnknownInLookup { .. } => {
            "No row of the table has it, or the row is newer than the index. shard_lookups() shows how old the index is."
        }
        E::NotFilled { .. } => {
            "It may be there. Retry after a moment. shard_lookups() shows how far the lookup index is."
        }
        E::NoLookup(_) => "Its keys are routed themselves. See shard_of() and shard_route().",
        E::UnknownVersion { .. } | E::UnknownKeyAt { .. } => "shard_routing_history() lists the versions.",
        E::RoutedElsewhere(_) => {
            "A split moves the rows, an assignment does not. Use shard_split_plan(), or force => true if the rows are already on the new shard."
        }
        E::KeyspaceInSplit { .. } | E::KeyInSplit { .. } => {
            "Finish it with CALL shard_split_run({id}, 'finished'). Before its cutover, CALL shard_split_run({id}, 'rolled_back') undoes it."
        }
        E::KeyspaceInRun { .. } | E::KeyInRun { .. } => {
            "Wait until it ends, or call shard_misplaced_abandon(). shard_misplaced_runs() lists it."
        }
        E::Unfilled { .. } => {
            "It is filled in the background. SELECT shard_reference_wait() waits for it, shard_reference_tables() shows what it waits for."
        }
        E::TableExists { .. } => {
            "shard_tables() shows its column. To use another one, remove it with shard_table_drop() and add it again."
        }
        E::ShardDisabled(_) => "Enable it with shard_set_status(shard_key, 'active').",
        E::MovedSince { .. } => "Their rows are where they are routed now. Move them back with a split.",
        E::DuplicateKeys(_) => "Name each key once. Keys are compared in their canonical form.",
        E::BetweenShards { .. } => "A split is moving the key. Retry after a moment.",
        E::Serialization(_) => "The transaction cannot see the end of the move. Retry it.",
        E::KeyspaceExists(_)
        | E::IsLookup { .. }
        | E::Invalid { .. }
        | E::DefaultKeyspace
        | E::KeyspaceInUse { .. }
        | E::NullKey
        | E::HoldsNoRows { .. }
        | E::ShardGone { .. } => return None,
    })
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
