//! Reserving a slot.

use super::PlacementError;
use super::choose::{self, Strategy};
use super::locks::{self, Mode};
use super::slot::{self, Request};
use super::{quota, room, settle};
use crate::sql::{self, Prepared};
use crate::worker::wake;
use pgrx::datum::TimestampWithTimeZone;
use pgrx::pg_sys;

/// Leases that have run out and that a reservation ends on its way, while no worker does.
const ON_THE_WAY: i32 = 16;
/// The same, before it says that there is no room.
const BEFORE_REFUSAL: i32 = 200;

/// A live reservation.
pub struct Reservation {
    pub id: i64,
    pub shard_key: String,
    pub slot_no: i64,
    pub status: String,
    /// None: confirmed.
    pub lease_expires_at: Option<TimestampWithTimeZone>,
}

thread_local! {
    static LOOK: Prepared = const {
        Prepared::new(
            include_str!("../../sql/placement/look.sql"),
            &[pg_sys::TEXTOID, pg_sys::TEXTOID, pg_sys::TEXTOID],
        )
    };
}

struct Look {
    /// With its tenant, and whether its lease has run out.
    live: Option<(Reservation, String, bool)>,
    overdue: bool,
    has_quota: bool,
}

fn look(request: &Request<'_>) -> Look {
    let args = [request.kind.into(), request.key.into(), request.tenant.into()];
    sql::read_prepared(&LOOK, &args, |row| Look {
        live: row.get(1).map(|id| {
            let status: String = row.value(5);
            let lease_expires_at = if status == "pending" { row.get(6) } else { None };
            let reservation =
                Reservation { id, shard_key: row.value(3), slot_no: row.value(4), status, lease_expires_at };
            (reservation, row.value(2), row.get::<bool>(7).unwrap_or(false))
        }),
        overdue: row.value(8),
        has_quota: row.value(9),
    })
    .into_iter()
    .next()
    .unwrap_or(Look { live: None, overdue: false, has_quota: false })
}

/// The live reservation of the key, or a new one.
pub fn reserve(request: &Request<'_>, strategy: Strategy) -> Result<Reservation, PlacementError> {
    locks::logical_key(request.kind, request.key);
    locks::tenant(request.tenant, request.kind, Mode::Shared);
    let found = look(request);
    if let Some((reservation, tenant, overdue)) = found.live {
        if !overdue {
            return if tenant == request.tenant {
                Ok(reservation)
            } else {
                Err(PlacementError::SomebodyElses { kind: request.kind.into(), key: request.key.into() })
            };
        }
        settle::expire_one(reservation.id);
    }
    if found.overdue {
        settle::expire(request.kind, ON_THE_WAY);
    }
    if found.has_quota {
        quota::take(request.tenant, request.kind)?;
    }
    let claimed = place(request, strategy)?;
    if let Some(at) = claimed.lease_expires_at {
        wake::sweep_on_commit(at);
    }
    Ok(Reservation {
        id: claimed.id,
        shard_key: claimed.shard_key,
        slot_no: claimed.slot_no,
        status: "pending".into(),
        lease_expires_at: claimed.lease_expires_at,
    })
}

/// Tries one shard after the other. One whose last slots others are just taking is not
/// waited for.
fn place(request: &Request<'_>, strategy: Strategy) -> Result<slot::Claimed, PlacementError> {
    let mut tried = Vec::new();
    loop {
        let Some(choice) = choose::next(request.kind, request.key, strategy, &tried) else {
            if settle::expire(request.kind, BEFORE_REFUSAL) > 0 {
                tried.clear();
                continue;
            }
            return Err(choose::no_capacity(request.kind));
        };
        if let Some(claimed) = slot::claim(&choice, request) {
            room::change(choice.shard_id, request.kind, -1, choice.entries);
            return Ok(claimed);
        }
        tried.push(choice.shard_id);
    }
}
