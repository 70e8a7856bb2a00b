//! Rows of `shardmaster.split_accepted`: remarks of a split's check that an operator accepts.

use super::local;
use crate::server::sql;

/// A remark: the check that makes it, and the object that it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    pub check: String,
    pub object: String,
    pub by: String,
}

pub fn of(id: i64) -> Vec<Accepted> {
    // The table is not in the catalog of an older version, which the library works with until the update.
    if !local::has_table("split_accepted") {
        return Vec::new();
    }
    sql::read_again(
        "SELECT a.check_name, a.object, a.accepted_by FROM shardmaster.split_accepted a
          WHERE a.split_id = $1 ORDER BY a.check_name, a.object",
        &[id.into()],
        |row| Accepted { check: row.value(1), object: row.value(2), by: row.value(3) },
    )
}

/// Records an accepted remark. Returns false if it was accepted before.
pub fn insert(id: i64, check: &str, object: &str) -> bool {
    sql::write(
        "INSERT INTO shardmaster.split_accepted (split_id, check_name, object) VALUES ($1, $2, $3)
             ON CONFLICT (split_id, check_name, object) DO NOTHING",
        &[id.into(), check.into(), object.into()],
    ) == 1
}
