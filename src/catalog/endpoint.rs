//! The address and the credentials of a shard, as `shard_set_endpoint` changes them: columns of `shardmaster.shard`.

use super::shard::Shard;
use crate::server::sql;

/// A complete endpoint: a field that is `None` is NULL in the row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub conninfo: Option<String>,
    pub client_conninfo: Option<String>,
    pub read_conninfo: Option<String>,
    pub uri: Option<String>,
    pub auth_kind: String,
    pub credential_alias: Option<String>,
    pub notes: Option<String>,
}

/// Reads and locks the endpoint for a change: no other session changes it before the transaction ends.
pub fn lock(shard: &Shard) -> Option<Endpoint> {
    sql::write_one(
        "SELECT conninfo, client_conninfo, read_conninfo, uri, auth_kind, credential_alias, notes
           FROM shardmaster.shard WHERE id = $1 FOR NO KEY UPDATE",
        &[shard.id.into()],
        |row| Endpoint {
            conninfo: row.get(1),
            client_conninfo: row.get(2),
            read_conninfo: row.get(3),
            uri: row.get(4),
            auth_kind: row.value(5),
            credential_alias: row.get(6),
            notes: row.get(7),
        },
    )
}

/// Locks the endpoint against changes by other sessions until the transaction ends.
pub fn hold(shard: &Shard) {
    sql::write("SELECT FROM shardmaster.shard WHERE id = $1 FOR SHARE", &[shard.id.into()]);
}

pub fn store(shard: &Shard, endpoint: &Endpoint) {
    let text = |value: &Option<String>| value.clone();
    sql::write(
        "UPDATE shardmaster.shard
            SET conninfo = $2, client_conninfo = $3, read_conninfo = $4, uri = $5, auth_kind = $6,
                credential_alias = $7, notes = $8, endpoint_at = clock_timestamp(), updated_at = clock_timestamp()
          WHERE id = $1",
        &[
            shard.id.into(),
            text(&endpoint.conninfo).into(),
            text(&endpoint.client_conninfo).into(),
            text(&endpoint.read_conninfo).into(),
            text(&endpoint.uri).into(),
            endpoint.auth_kind.as_str().into(),
            text(&endpoint.credential_alias).into(),
            text(&endpoint.notes).into(),
        ],
    );
}

/// Records that the endpoint has changed, so that sessions are opened anew.
pub fn touch(shard: &Shard) {
    sql::write(
        "UPDATE shardmaster.shard SET endpoint_at = clock_timestamp() WHERE id = $1",
        &[shard.id.into()],
    );
}
