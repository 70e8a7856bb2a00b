//! How full shards are, and what tenants use.

use crate::server::sql;
use pgrx::AnyNumeric;
use pgrx::datum::TimestampWithTimeZone;

pub struct Capacity {
    pub shard_key: String,
    pub status: String,
    pub capacity: Option<i64>,
    pub minted: i64,
    pub free: i64,
    pub leased: i64,
    pub confirmed: i64,
    pub available: Option<i64>,
    pub kind: String,
}

/// Returns the capacity of the shards of one kind, or of all kinds for `None`.
pub fn capacity(kind: Option<&str>) -> Vec<Capacity> {
    sql::read(include_str!("../../sql/placement/capacity.sql"), &[kind.into()], |row| Capacity {
        shard_key: row.value(1),
        status: row.value(2),
        capacity: row.get(3),
        minted: row.value(4),
        free: row.value(5),
        leased: row.value(6),
        confirmed: row.value(7),
        available: row.get(8),
        kind: row.value(9),
    })
}

pub struct Usage {
    pub kind: String,
    pub leased: i64,
    pub confirmed: i64,
    pub quota: Option<i64>,
    pub slot_seconds: AnyNumeric,
    pub tenant_id: String,
}

pub fn usage(
    tenant: Option<&str>,
    since: Option<TimestampWithTimeZone>,
    until: Option<TimestampWithTimeZone>,
) -> Vec<Usage> {
    let args = [tenant.into(), since.into(), until.into()];
    sql::read(include_str!("../../sql/placement/usage.sql"), &args, |row| Usage {
        kind: row.value(1),
        leased: row.value(2),
        confirmed: row.value(3),
        quota: row.get(4),
        slot_seconds: row.value(5),
        tenant_id: row.value(6),
    })
}
