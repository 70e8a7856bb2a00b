//! Rows of `shardmaster.split_accepted`: what an operator takes as it is, though the check of a split remarks on it.

use crate::server::sql;

/// A remark by the check that makes it, and by what it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    pub check: String,
    pub object: String,
    pub by: String,
}

/// Nothing of it is in the catalog of an older version, which the library works with until the update.
const IS_THERE: &str = "SELECT true WHERE to_regclass('shardmaster.split_accepted') IS NOT NULL";

pub fn of(id: i64) -> Vec<Accepted> {
    if sql::read_one_again(IS_THERE, &[], |_| ()).is_none() {
        return Vec::new();
    }
    sql::read_again(
        "SELECT a.check_name, a.object, a.accepted_by FROM shardmaster.split_accepted a
          WHERE a.split_id = $1 ORDER BY a.check_name, a.object",
        &[id.into()],
        |row| Accepted { check: row.value(1), object: row.value(2), by: row.value(3) },
    )
}

/// False: it was accepted before.
pub fn insert(id: i64, check: &str, object: &str) -> bool {
    sql::write(
        "INSERT INTO shardmaster.split_accepted (split_id, check_name, object) VALUES ($1, $2, $3)
             ON CONFLICT (split_id, check_name, object) DO NOTHING",
        &[id.into(), check.into(), object.into()],
    ) == 1
}
