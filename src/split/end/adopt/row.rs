//! The rows of `shard_adopt()`.

use super::merge::Lost;

/// What shards have reported, and what happens to it.
pub struct AdoptRow {
    /// The shards that know it.
    pub said_by: String,
    pub keyspace: Option<String>,
    pub key: Option<String>,
    pub routed_to: Option<String>,
    pub moved_to: Option<String>,
    pub split_id: Option<i64>,
    pub version: Option<i64>,
    pub action: String,
}

impl AdoptRow {
    /// Returns the row of a shard itself.
    pub fn of_shard(shard_key: &str, action: String) -> AdoptRow {
        AdoptRow {
            said_by: shard_key.to_owned(),
            keyspace: None,
            key: None,
            routed_to: None,
            moved_to: None,
            split_id: None,
            version: None,
            action,
        }
    }

    /// Returns the row of a decision.
    pub fn of(lost: &Lost, action: &str) -> AdoptRow {
        let decision = &lost.decision;
        AdoptRow {
            keyspace: Some(decision.keyspace.clone()),
            moved_to: Some(decision.to_shard.clone()),
            split_id: Some(decision.split_id),
            version: Some(decision.version),
            ..AdoptRow::of_shard(&lost.said_by.join(", "), action.to_owned())
        }
    }
}
