//! Events for programs that LISTEN: JSON on the channel `shardmaster`, sent when the
//! transaction commits.

use crate::server::sql;
use serde_json::{Value, json};

pub fn notify(event: &Value) {
    sql::write("SELECT pg_catalog.pg_notify('shardmaster', $1)", &[event.to_string().into()]);
}

pub fn topology_changed() {
    notify(&json!({ "event": "topology" }));
}

pub fn routing_changed(keyspace: &str, version: i64) {
    notify(&json!({ "event": "routing", "keyspace": keyspace, "version": version }));
}
