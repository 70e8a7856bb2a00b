//! The cutovers that came before one, as this master tells them to the shards of that one: a master that is restored
//! hears of those, too, that the shards which took part in them know no more.

use super::shard_decision;
use crate::server::sql;

/// Cutovers that are told with their keys.
const MOST: i64 = 50;
/// Entries of all of them.
const MOST_KEYS: i64 = 1_000;

/// Those of a keyspace before a routing version, as JSON. None: the library is newer than the catalog.
pub fn before(keyspace: &str, version: i64) -> Option<String> {
    if !shard_decision::is_here() {
        return None;
    }
    sql::read_one_again(
        include_str!("../../sql/restore/earlier.sql"),
        &[keyspace.into(), version.into(), MOST.into(), MOST_KEYS.into()],
        |row| row.get(1),
    )
    .flatten()
}
