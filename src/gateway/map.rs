//! The input of a configuration.

use crate::catalog::gateway::GatewayBackend;
use crate::catalog::keyspace::Keyspace;
use std::fmt::Write;

/// A keyspace with its entries and the places that they name.
pub struct KeyspaceMap {
    pub keyspace: Keyspace,
    pub version: i64,
    pub backends: Vec<GatewayBackend>,
    /// The words for the Lua module `shardmaster.route`.
    pub entries: Vec<String>,
}

/// Returns the name of a shard's group of replicas. nginx ignores the case of such names, so it contains no capitals.
pub fn upstream(keyspace: &Keyspace, place: &GatewayBackend) -> String {
    let mut name = String::from("shardmaster_");
    for byte in keyspace.name.bytes() {
        if byte.is_ascii_lowercase() || byte.is_ascii_digit() {
            name.push(char::from(byte));
        } else {
            let _ = write!(name, "_{byte:02x}");
        }
    }
    format!("{name}_{}", place.index)
}
