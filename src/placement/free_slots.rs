//! The number of free slots of a shard: a row for each shard, and separate changes that nobody had to wait to make.

use crate::server::sql::{self, Prepared};
use pgrx::pg_sys;
use std::cell::Cell;

/// The number from which an unlimited shard counts down.
pub const UNLIMITED: i64 = 1 << 62;

/// The number of changes above which a reservation adds some up.
const CROWD: i64 = 32;
/// The number of changes above which it does so for other shards too.
const CROWD_OF_ALL: i64 = 512;
/// The number of calls for which a session remembers that it has met another one.
const REMEMBERED: u32 = 16;

const ARGS: &[pg_sys::Oid] = &[pg_sys::INT8OID, pg_sys::TEXTOID, pg_sys::INT8OID];

thread_local! {
    static CONTENDED: Cell<u32> = const { Cell::new(0) };
    static ADD: Prepared = const {
        Prepared::new(
            "UPDATE shardmaster.shard_room SET room = room + $3
              WHERE shard_id = (SELECT shard_id FROM shardmaster.shard_room
                                 WHERE shard_id = $1 AND kind = $2 FOR NO KEY UPDATE SKIP LOCKED) RETURNING 1",
            ARGS,
        )
    };
    static LEAVE: Prepared = const {
        Prepared::new(
            "INSERT INTO shardmaster.shard_room_change (kind, shard_id, change) VALUES ($2, $1, $3)",
            ARGS,
        )
    };
    static ADD_UP: Prepared = const {
        Prepared::new(include_str!("../../sql/placement/change_room.sql"), ARGS)
    };
}

/// Adds to a shard's free slots without waiting for anybody: if another transaction has locked the row, the change is
/// stored beside it. `entries` is the number of stored changes.
pub fn change(shard_id: i64, kind: &str, by: i64, entries: i64) {
    let args = [shard_id.into(), kind.into(), by.into()];
    let run = |query| sql::write_prepared(query, &args, |_| ()).len();
    if sql::keeps_its_snapshot() {
        // The row may be newer than the snapshot: that would raise 40001 without need.
        run(&LEAVE);
        return;
    }
    if entries >= CROWD || entries > 0 && !is_contended() {
        run(&ADD_UP);
    } else if is_contended() {
        run(&LEAVE);
    } else if run(&ADD) == 0 {
        run(&LEAVE);
        CONTENDED.set(REMEMBERED);
    }
    CONTENDED.set(CONTENDED.get().saturating_sub(1));
    if entries >= CROWD_OF_ALL {
        settle(CROWD_OF_ALL as i32);
    }
}

/// Whether other sessions are taking slots of the same shards at the moment.
pub fn is_contended() -> bool {
    CONTENDED.get() > 0
}

/// Adds up stored changes of other sessions, where nobody has locked the rows.
pub fn settle(entries: i32) {
    sql::write(include_str!("../../sql/placement/settle_room.sql"), &[entries.into()]);
}

/// Returns the exact number of free slots of a shard, with all that is committed: an older snapshot of this
/// transaction would miss slots that were taken since. The caller holds the shard's lock exclusively, so nobody else
/// claims. This locks no row: if no slot is free, the caller continues with another shard.
pub fn exact(shard_id: i64) -> i64 {
    sql::read_one_latest(
        "SELECT r.room + coalesce((SELECT sum(c.change)::bigint FROM shardmaster.shard_room_change c
                                    WHERE c.kind = r.kind AND c.shard_id = r.shard_id), 0)
           FROM shardmaster.shard_room r WHERE r.shard_id = $1",
        &[shard_id.into()],
        |row| row.value(1),
    )
    .unwrap_or(0)
}
