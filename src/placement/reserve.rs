//! Reserves a slot.

use super::choose::{self, PlacementStrategy};
use super::locks::{self, Mode};
use super::slot::{self, SlotRequest};
use super::{error, free_slots, quota, settle, sweep_clock};
use crate::catalog::shard;
use crate::error::Failure;
use crate::server::sql::{self, Prepared};
use pgrx::datum::TimestampWithTimeZone;
use pgrx::pg_sys;

/// The greatest number of leases that have run out and that a reservation ends itself while no worker does so.
const ON_THE_WAY: i32 = 4;

/// A live reservation.
pub struct Reservation {
    pub id: i64,
    pub shard_key: String,
    pub slot_no: i64,
    pub status: String,
    /// `None` if the reservation is confirmed.
    pub lease_expires_at: Option<TimestampWithTimeZone>,
}

thread_local! {
    static LOOK: Prepared = const {
        Prepared::new(
            include_str!("../../sql/placement/look.sql"),
            &[pg_sys::TEXTOID, pg_sys::TEXTOID, pg_sys::TEXTOID, pg_sys::BOOLOID],
        )
    };
}

/// The live reservation of the key.
struct Live {
    id: i64,
    tenant: String,
    shard_id: i64,
    slot_no: i64,
    status: String,
    lease_expires_at: Option<TimestampWithTimeZone>,
    is_overdue: bool,
}

struct ReserveLook {
    live: Option<Live>,
    overdue: bool,
    has_quota: bool,
}

fn look(request: &SlotRequest<'_>) -> ReserveLook {
    // This session ends leases that have run out if nobody else does.
    let asked = !sweep_clock::is_kept();
    let args = [request.kind.into(), request.key.into(), request.tenant.into(), asked.into()];
    sql::read_one_prepared(&LOOK, &args, |row| ReserveLook {
        live: row.get(1).map(|id| Live {
            id,
            tenant: row.value(2),
            shard_id: row.value(3),
            slot_no: row.value(4),
            status: row.value(5),
            lease_expires_at: row.get(6),
            is_overdue: row.get(7).unwrap_or(false),
        }),
        overdue: row.get(8).unwrap_or(false),
        has_quota: row.value(9),
    })
    .unwrap_or(ReserveLook { live: None, overdue: false, has_quota: false })
}

impl From<Live> for Reservation {
    fn from(live: Live) -> Reservation {
        Reservation {
            id: live.id,
            shard_key: shard::by_id(live.shard_id).map(|shard| shard.shard_key).unwrap_or_default(),
            slot_no: live.slot_no,
            lease_expires_at: live.lease_expires_at.filter(|_| live.status == "pending"),
            status: live.status,
        }
    }
}

/// Ends the key's reservation if its lease has run out. If another session renews or confirms it first, it is read
/// again.
fn look_past_expired(request: &SlotRequest<'_>) -> ReserveLook {
    loop {
        let found = look(request);
        match &found.live {
            Some(live) if live.is_overdue => {
                if settle::expire_one(live.id) {
                    return ReserveLook { live: None, ..found };
                }
            }
            _ => return found,
        }
    }
}

/// Returns the live reservation of the key, or a new one.
pub fn reserve(request: &SlotRequest<'_>, strategy: PlacementStrategy) -> Result<Reservation, Failure> {
    locks::logical_key(request.kind, request.key);
    locks::tenant(request.tenant, request.kind, Mode::Shared);
    let found = look_past_expired(request);
    if let Some(live) = found.live {
        return if live.tenant == request.tenant {
            Ok(live.into())
        } else {
            Err(error::key_of_another_tenant(request.kind, request.key))
        };
    }
    if found.overdue {
        settle::expire(request.kind, ON_THE_WAY);
    }
    if found.has_quota {
        quota::take(request.tenant, request.kind)?;
    }
    let claimed = choose::until_taken(request.kind, request.key, strategy, |choice| {
        let claimed = slot::claim(choice, request);
        if claimed.is_some() {
            free_slots::change(choice.shard_id, request.kind, -1, choice.entries);
        }
        Ok(claimed)
    })?;
    if let Some(at) = claimed.lease_expires_at {
        sweep_clock::sweep_on_commit(at);
    }
    Ok(Reservation {
        id: claimed.id,
        shard_key: claimed.shard_key,
        slot_no: claimed.slot_no,
        status: "pending".into(),
        lease_expires_at: claimed.lease_expires_at,
    })
}
