//! The cutovers before a given one, which this master reports to that cutover's shards. A restored master can learn
//! from them of cutovers that the shards which took part no longer know.

use crate::catalog::shard_decision;
use crate::server::sql;

/// The greatest number of cutovers that are reported with their keys.
const MOST: i64 = 50;
/// The greatest number of entries that all of them have together.
const MOST_KEYS: i64 = 1_000;

/// Returns the cutovers of a keyspace before a routing version, as JSON. Returns None if the library is newer than the
/// catalog.
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
