//! The result of looking up a route.

use super::error;
use crate::catalog::shard::{self, ShardStatus};
use crate::error::Failure;
use crate::named_enum::named_enum;

named_enum! {
    pub enum Intent {
        Read = "read",
        Write = "write",
    }
}

impl Intent {
    pub fn parse(text: &str) -> Result<Intent, Failure> {
        Intent::from_name(text)
            .ok_or_else(|| error::invalid("intent", format!("\"{text}\" is not one of {}", Intent::names())))
    }
}

/// The connection string for clients, of a shard `s` and a routing entry `e`. Readers of a key that a split moves stay
/// with the primary: no standby is waited for at a cutover.
macro_rules! client_conninfo {
    (read) => {
        "coalesce(CASE WHEN s.read_conninfo IS NOT NULL AND NOT EXISTS (
                            SELECT FROM shardmaster.split_key y WHERE y.key = e.key AND y.keyspace = e.keyspace AND y.active)
                       THEN s.read_conninfo END, s.client_conninfo)"
    };
    (write) => {
        "s.client_conninfo"
    };
}

/// Whether `client_conninfo` is the same for all entries of a shard.
macro_rules! same_for_all {
    (read) => {
        "s.read_conninfo IS NULL"
    };
    (write) => {
        "true"
    };
}
pub(super) use {client_conninfo, same_for_all};

/// The place of a key.
pub struct FoundRoute {
    pub shard_key: String,
    pub namespace: String,
    pub version: i64,
    /// The connection string for clients. `None` if they use the connection that they have.
    pub conninfo: Option<String>,
}

/// The contents of an entry and its shard.
#[derive(PartialEq, Eq)]
pub struct FoundEntry {
    pub version: i64,
    pub disabled: bool,
    pub shard_key: String,
    pub shard_status: ShardStatus,
    pub namespace: String,
    pub conninfo: Option<String>,
    pub client_conninfo: Option<String>,
}

impl FoundEntry {
    /// Whether a split holds writes back.
    pub fn is_held(&self, intent: Intent) -> bool {
        self.disabled && intent == Intent::Write
    }

    pub fn require_enabled(&self) -> Result<(), Failure> {
        match self.shard_status {
            ShardStatus::Disabled => Err(error::shard_disabled(&self.shard_key)),
            ShardStatus::Active | ShardStatus::Draining => Ok(()),
        }
    }

    pub fn route(&self) -> Result<FoundRoute, Failure> {
        let conninfo =
            shard::conninfo_for_clients(self.conninfo.as_deref(), self.client_conninfo.as_deref())?;
        Ok(FoundRoute {
            conninfo,
            shard_key: self.shard_key.clone(),
            namespace: self.namespace.clone(),
            version: self.version,
        })
    }
}
