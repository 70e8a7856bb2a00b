//! Invariants of every snapshot of the master: one query each, which returns violations.

use crate::Result;
use postgres::{Client, IsolationLevel};

const LIVE: &str = "status IN ('pending', 'confirmed')";

fn queries() -> Vec<(&'static str, String)> {
    vec![
        (
            "a slot with two live reservations",
            format!(
                "SELECT format('slot %s of shard %s', slot_no, shard_id) FROM shardmaster.shard_reservation
                  WHERE {LIVE} GROUP BY shard_id, slot_no HAVING count(*) > 1"
            ),
        ),
        (
            "slot and reservation disagree",
            format!(
                "SELECT format('slot %s/%s, reservation %s', s.shard_id, s.slot_no, r.id)
                   FROM shardmaster.shard_slots s
                   FULL JOIN (SELECT * FROM shardmaster.shard_reservation WHERE {LIVE}) r ON r.id = s.reservation_id
                  WHERE (s.reservation_id IS NOT NULL OR r.id IS NOT NULL)
                    AND (s.shard_id, s.slot_no, s.tenant_id) IS DISTINCT FROM (r.shard_id, r.slot_no, r.tenant_id)
                     OR s.resource_id IS DISTINCT FROM CASE r.status WHEN 'confirmed' THEN r.resource_id END"
            ),
        ),
        (
            "a shard over its capacity",
            format!(
                "SELECT format('%s holds %s of %s', s.shard_key, count(*), s.capacity)
                   FROM shardmaster.shard s JOIN shardmaster.shard_reservation r ON r.shard_id = s.id
                  WHERE r.{LIVE} GROUP BY s.id HAVING count(*) > s.capacity"
            ),
        ),
        (
            "a quota exceeded",
            format!(
                "SELECT format('%s holds %s of %s', q.tenant_id, count(*), q.max_slots)
                   FROM shardmaster.shard_quota q JOIN shardmaster.shard_reservation r USING (tenant_id, kind)
                  WHERE r.{LIVE} GROUP BY q.tenant_id, q.kind HAVING count(*) > q.max_slots"
            ),
        ),
        (
            "a slot lost",
            "SELECT format('%s has minted %s of %s and has %s slots', s.shard_key, s.next_slot, s.capacity, count(l.*))
               FROM shardmaster.shard s LEFT JOIN shardmaster.shard_slots l ON l.shard_id = s.id
              GROUP BY s.id
             HAVING s.next_slot <> count(l.*) OR s.next_slot > s.capacity OR max(l.slot_no) >= s.next_slot"
                .into(),
        ),
        (
            "room that does not add up",
            format!(
                "SELECT format('%s: room %s, changes %s, held %s', s.shard_key, r.room, c.change, h.held)
                   FROM shardmaster.shard s JOIN shardmaster.shard_room r ON r.shard_id = s.id,
                        LATERAL (SELECT coalesce(sum(change), 0) AS change FROM shardmaster.shard_room_change
                                  WHERE shard_id = s.id) c,
                        LATERAL (SELECT count(*) AS held FROM shardmaster.shard_reservation
                                  WHERE shard_id = s.id AND {LIVE}) h
                  WHERE r.room + c.change <> coalesce(s.capacity, 1::bigint << 62) - h.held"
            ),
        ),
        (
            "a quota that is counted too low",
            format!(
                "SELECT format('%s: counted %s, changes %s, held %s', q.tenant_id, q.held, c.change, h.held)
                   FROM shardmaster.shard_quota q,
                        LATERAL (SELECT coalesce(sum(change), 0) AS change FROM shardmaster.shard_quota_change
                                  WHERE (tenant_id, kind) = (q.tenant_id, q.kind)) c,
                        LATERAL (SELECT count(*) AS held FROM shardmaster.shard_reservation
                                  WHERE (tenant_id, kind) = (q.tenant_id, q.kind) AND {LIVE}) h
                  WHERE q.held + c.change < h.held"
            ),
        ),
        (
            "a history that runs backwards",
            "SELECT format('reservation %s', id) FROM shardmaster.shard_reservation
              WHERE confirmed_at < created_at OR ended_at < created_at OR ended_at < confirmed_at
                 OR confirmed_at > lease_expires_at OR status = 'expired' AND ended_at < lease_expires_at"
                .into(),
        ),
    ]
}

/// Returns all violations in one snapshot.
pub fn violations(client: &mut Client) -> Result<Vec<String>> {
    let mut snapshot =
        client.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true).start()?;
    let mut found = Vec::new();
    for (name, query) in queries() {
        for row in snapshot.query(&query, &[])? {
            found.push(format!("{name}: {}", row.get::<_, String>(0)));
        }
    }
    Ok(found)
}
