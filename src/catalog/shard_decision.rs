//! Decided cutovers that shards know and this master does not (`shardmaster.shard_decision`), those that it has taken
//! over (`adopted_decision`), and which shards were asked (`shard_asked`).

use super::split_state::IS_OVER;
use crate::keys::strategy::Strategy;
use crate::server::{index_scan, instance, sql};
use crate::words::counted;
use pgrx::pg_sys;

/// A decided cutover, as one shard knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    pub keyspace: String,
    pub split_id: i64,
    pub token: String,
    pub version: i64,
    pub from_shard: String,
    pub to_shard: String,
    /// What kind of entries it moved, as shards call it.
    pub entries: String,
    /// The side of the cutover that the shard was.
    pub side: String,
    /// The record by which the shard knows it.
    pub said_by: String,
    /// The number of keys, for a decision whose keys are not known.
    pub key_count: i64,
    /// The routing entries. `None` if the shard no longer knows them.
    pub keys: Option<Vec<String>>,
    /// When the keyspace of the keys was made. `None` if the shard does not know it.
    pub keyspace_made: Option<i64>,
    /// The tables then, as the master named them. `None` if the shard does not know them.
    pub tables: Option<Vec<String>>,
}

impl Decision {
    pub fn is_of_same_split(&self, other: &Decision) -> bool {
        (self.split_id, &self.token) == (other.split_id, &other.token)
    }

    /// Takes from another record what only a note contains: the type of a directory's keys, and their keyspace.
    pub fn learn_keyspace(&mut self, other: &Decision) {
        self.keyspace_made = self.keyspace_made.or(other.keyspace_made);
        self.tables = self.tables.take().or_else(|| other.tables.clone());
        if Strategy::keys_of(&self.entries).is_none() && Strategy::keys_of(&other.entries).is_some() {
            self.entries.clone_from(&other.entries);
        }
    }
}

impl Decision {
    /// Returns the decision in words: "split 7 has moved 3 keys from ...".
    pub fn told(&self) -> String {
        let count = self.keys.as_ref().map_or(usize::try_from(self.key_count).unwrap_or(0), Vec::len);
        let entries = if count > 0 { counted(count, "entry", "entries") } else { "entries".to_owned() };
        format!(
            "split {} has moved {entries} of keyspace \"{}\" from shard \"{}\" to \"{}\" with routing version {}",
            self.split_id, self.keyspace, self.from_shard, self.to_shard, self.version
        )
    }
}

/// Describes the last of several decisions in words, and mentions that there are others.
pub fn told_shortly(decisions: &[Decision]) -> Option<String> {
    let last = decisions.iter().max_by_key(|decision| decision.version)?;
    let mut others: Vec<(i64, &str)> =
        decisions.iter().map(|other| (other.split_id, &*other.token)).collect();
    others.sort_unstable();
    others.dedup();
    Some(match others.len() {
        1 => last.told(),
        all => format!("{}, and {}", last.told(), counted(all - 1, "earlier cutover", "earlier cutovers")),
    })
}

/// Returns the plan of this master that the decision belongs to, if the plan has not ended.
pub fn plan_of(decision: &Decision) -> Option<i64> {
    sql::read_one(
        &format!("SELECT id FROM shardmaster.split_plan WHERE id = $1 AND token = $2 AND NOT {IS_OVER}"),
        &[decision.split_id.into(), decision.token.as_str().into()],
        |row| row.value(1),
    )
}

/// Whether the plan of a decision has installed its capture, or its split has done so for it. Such a plan takes over
/// the decision when it continues.
pub fn is_of_begun_plan(decision: &Decision) -> bool {
    let query = "SELECT true FROM shardmaster.split_plan WHERE id = $1 AND (phase <> 'planning' OR reverse_of IS NOT NULL)";
    plan_of(decision).is_some_and(|id| sql::exists(query, &[id.into()]))
}

/// An entry that a split of this master has moved last.
pub struct MovedHere {
    pub key: String,
    pub split: i64,
    /// Whether it was moved with a later version.
    pub is_later: bool,
    /// Whether it was moved from where the decision led, so that the move came after the decision.
    pub is_behind: bool,
}

/// Returns those of the keys that a decision has moved and a split of this master has moved last.
pub fn moved_here(decision: &Decision, keys: &[String]) -> Vec<MovedHere> {
    sql::read(
        "SELECT e.key, v.split_id, e.valid_from > $3, e.valid_from > $3 AND (p.source_shard = $4 OR EXISTS (
                    SELECT FROM shardmaster.routing_entry past
                     WHERE past.key = e.key AND past.keyspace = e.keyspace AND past.write_shard = $4 AND past.valid_to > $3))
           FROM shardmaster.routing_entry e
           JOIN shardmaster.routing_version v ON v.keyspace = e.keyspace AND v.version = e.valid_from
           JOIN shardmaster.split_plan p ON p.id = v.split_id
          WHERE e.keyspace = $1 AND e.key = ANY ($2) AND e.valid_to IS NULL",
        &[
            decision.keyspace.as_str().into(),
            keys.to_vec().into(),
            decision.version.into(),
            decision.to_shard.as_str().into(),
        ],
        |row| MovedHere { key: row.value(1), split: row.value(2), is_later: row.value(3), is_behind: row.value(4) },
    )
}

/// Returns decisions after this version that were taken over with their keys, in their order.
pub fn adopted_after(keyspace: &str, version: i64) -> Vec<Decision> {
    sql::read(
        "SELECT split_id, token, version, from_shard, to_shard, keys FROM shardmaster.adopted_decision
          WHERE keyspace = $1 AND version > $2 AND keys IS NOT NULL AND to_shard IS NOT NULL AND NOT routes_kept
          ORDER BY version, split_id",
        &[keyspace.into(), version.into()],
        |row| Decision {
            keyspace: keyspace.to_owned(),
            split_id: row.value(1),
            token: row.value(2),
            version: row.value(3),
            from_shard: row.value(4),
            to_shard: row.value(5),
            keys: row.get(6),
            ..Decision::default()
        },
    )
}

/// Whether the operator has decided that the routes of its keys stay.
pub fn are_routes_kept(split: i64, token: &str) -> bool {
    is_here()
        && sql::exists(
            "SELECT true FROM shardmaster.adopted_decision WHERE split_id = $1 AND token = $2 AND routes_kept",
            &[split.into(), token.into()],
        )
}

/// Whether the shards know the keys of none of the unknown decisions of the keyspace. These decisions then do not
/// reverse a route that the operator sets by force.
pub fn keys_are_unknown(keyspace: &str) -> bool {
    let query = "SELECT true FROM shardmaster.lost_decision WHERE keyspace = $1 AND keys IS NOT NULL LIMIT 1";
    !sql::exists(query, &[keyspace.into()])
}

/// Whether the catalog has these tables: the library may be newer.
pub fn is_here() -> bool {
    relation().is_some()
}

/// Returns the number of their table, which distinguishes an installation from another one in this database.
pub fn relation() -> Option<u32> {
    index_scan::relation_of_catalog(c"lost_decision").map(pg_sys::Oid::to_u32)
}

/// Returns for each decision, in order, whether this master knows it.
pub fn known_of(decisions: &[&Decision]) -> Vec<bool> {
    let ids: Vec<i64> = decisions.iter().map(|d| d.split_id).collect();
    let tokens: Vec<String> = decisions.iter().map(|d| d.token.clone()).collect();
    let adopted = if is_here() {
        "EXISTS (SELECT FROM shardmaster.adopted_decision a WHERE a.token = d.token AND a.split_id = d.id)"
    } else {
        "false"
    };
    sql::read_column(
        &format!(
            "SELECT {adopted} OR EXISTS (SELECT FROM shardmaster.split_plan p
                                          WHERE p.id = d.id AND p.token = d.token
                                            AND (p.phase = 'completed'
                                                 OR EXISTS (SELECT FROM shardmaster.split_plan back
                                                             WHERE back.reverse_of = p.id AND back.phase = 'completed')))
               FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY d (id, token, at) ORDER BY d.at"
        ),
        &[ids.into(), tokens.into()])
}

/// Stores the answer of a shard. It replaces earlier answers.
pub fn store(shard_key: &str, decisions: &[Decision]) {
    let has_some = "SELECT true FROM shardmaster.shard_decision WHERE shard_key = $1 LIMIT 1";
    // Each statement that changes the table makes sessions forget their routes, so no needless one is run.
    if sql::exists(has_some, &[shard_key.into()]) {
        sql::write("DELETE FROM shardmaster.shard_decision WHERE shard_key = $1", &[shard_key.into()]);
    }
    // Another session may have stored the same answer meanwhile.
    for d in decisions {
        sql::write(
            "INSERT INTO shardmaster.shard_decision
                    (shard_key, split_id, token, keyspace, version, side, from_shard, to_shard, said_by, key_count, keys, entries, keyspace_made, tables)
             SELECT s.shard_key, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14 FROM shardmaster.shard s WHERE s.shard_key = $1
             ON CONFLICT DO NOTHING",
            &[
                shard_key.into(),
                d.split_id.into(),
                d.token.as_str().into(),
                d.keyspace.as_str().into(),
                d.version.into(),
                d.side.as_str().into(),
                d.from_shard.as_str().into(),
                d.to_shard.as_str().into(),
                d.said_by.as_str().into(),
                d.key_count.into(),
                d.keys.clone().into(),
                d.entries.as_str().into(),
                d.keyspace_made.into(),
                d.tables.clone().into(),
            ],
        );
    }
}

/// Records that a shard was asked, and the problem with its answer, if there is one.
pub fn asked(shard_key: &str, problem: Option<&str>) {
    sql::write(
        "INSERT INTO shardmaster.shard_asked AS a (shard_key, run, problem)
         SELECT s.shard_key, CASE WHEN $3 IS NULL THEN $2 END, $3 FROM shardmaster.shard s WHERE s.shard_key = $1
         ON CONFLICT (shard_key) DO UPDATE SET run = EXCLUDED.run, problem = EXCLUDED.problem, asked_at = clock_timestamp()",
        &[shard_key.into(), instance::current().into(), problem.into()],
    );
}

/// Returns shards that must be asked now: they existed before this run of the server, or of its coordinator, and have
/// not answered in it. A shard that did not answer is not asked again for a while.
pub fn to_ask() -> Vec<String> {
    sql::read_column(
        "SELECT s.shard_key
           FROM shardmaster.shard s LEFT JOIN shardmaster.shard_asked a ON a.shard_key = s.shard_key
          WHERE s.kind = 'postgres' AND s.status <> 'disabled' AND a.run IS DISTINCT FROM $1
            AND (a.problem IS NULL OR a.asked_at < clock_timestamp() - interval '20 seconds')
            AND (a.shard_key IS NOT NULL OR s.created_at > clock_timestamp()
                 OR s.created_at < (SELECT max(greatest(i.created_at, p.backend_start)) FROM shardmaster.installation i
                      LEFT JOIN pg_stat_activity p ON p.datname = current_database()
                            AND p.backend_type = 'shardmaster coordinator'))
          ORDER BY a.asked_at NULLS FIRST, s.shard_key",
        &[instance::current().into()])
}

/// Marks a shard to be asked again: a shard that was disabled may be another one by now, or know more.
pub fn forget_asked(shard_key: &str) {
    sql::write(
        "INSERT INTO shardmaster.shard_asked AS a (shard_key, run, problem) VALUES ($1, NULL, NULL)
         ON CONFLICT (shard_key) DO UPDATE SET run = NULL, problem = NULL",
        &[shard_key.into()],
    );
}

/// How long the worker that asks shards may take to notice a restored dump.
const NEW: &str = "30 seconds";

/// Whether each shard that existed before the server's start, or came with a dump that was restored since, was asked,
/// even without success. Also true if no worker asks shards, although one would have begun by now.
pub fn are_asked() -> bool {
    let query = format!(
        "SELECT NOT EXISTS (SELECT FROM shardmaster.shard s LEFT JOIN shardmaster.shard_asked a ON a.shard_key = s.shard_key
                         WHERE s.kind = 'postgres' AND s.status <> 'disabled' AND s.created_at < i.since
                           AND (a.asked_at IS NULL OR a.asked_at < i.since))
            OR NOT EXISTS (SELECT FROM pg_stat_activity p
                            WHERE (p.backend_start > clock_timestamp() - interval '5 seconds'
                                   OR i.made > clock_timestamp() - interval '{NEW}')
                              AND (p.backend_type = 'shardmaster launcher'
                                   OR p.backend_type = 'shardmaster coordinator' AND p.datname = current_database()))
           FROM (SELECT greatest(pg_postmaster_start_time(), max(created_at)), max(created_at) FROM shardmaster.installation) i (since, made)"
    );
    sql::read_one_latest(&query, &[], |row| row.value(1)).unwrap_or(true)
}

/// Returns the shards that are asked at all.
pub fn askable() -> Vec<String> {
    let query = "SELECT shard_key FROM shardmaster.shard WHERE kind = 'postgres' AND status <> 'disabled'";
    sql::read_column(query, &[])
}

/// Returns shards whose decisions are unknown, each with the reason.
pub fn not_answered() -> Vec<(String, String)> {
    sql::read(
        "SELECT shard_key, problem FROM shardmaster.shard_asked WHERE problem IS NOT NULL ORDER BY shard_key",
        &[],
        |row| (row.value(1), row.value(2)),
    )
}

fn from_row(row: &sql::Row<'_>) -> Decision {
    Decision {
        keyspace: row.value(2),
        split_id: row.value(3),
        token: row.value(4),
        version: row.value(5),
        from_shard: row.value(6),
        to_shard: row.value(7),
        side: row.value(8),
        said_by: row.value(9),
        key_count: row.value(10),
        keys: row.get(11),
        entries: row.value(12),
        keyspace_made: row.get(13),
        tables: row.get(14),
    }
}

/// Returns decisions that shards know and this master does not, each with its shard, in the order of the decisions.
pub fn lost() -> Vec<(String, Decision)> {
    sql::read(
        "SELECT shard_key, keyspace, split_id, token, version, from_shard, to_shard, side, said_by, key_count, keys, entries, keyspace_made, tables
           FROM shardmaster.lost_decision ORDER BY keyspace, version, split_id, shard_key",
        &[],
        |row| (row.value(1), from_row(&row)),
    )
}

/// Returns the last such decision of a keyspace, with its shard, if the catalog has the tables.
pub fn lost_of(keyspace: &str) -> Option<(String, Decision)> {
    sql::read_one_again(
        "SELECT shard_key, keyspace, split_id, token, version, from_shard, to_shard, side, said_by, key_count, NULL::text[], entries, keyspace_made, tables
           FROM shardmaster.lost_decision WHERE keyspace = $1 ORDER BY version DESC, split_id, shard_key LIMIT 1",
        &[keyspace.into()],
        |row| (row.value(1), from_row(&row)),
    )
}

/// Whether the shard may know a decision: a split of this master was there, or this master has taken over decisions.
pub fn had_part(shard_key: &str) -> bool {
    let adopted = if is_here() { "EXISTS (SELECT FROM shardmaster.adopted_decision)" } else { "false" };
    sql::read_one(
        &format!("SELECT {adopted} OR EXISTS (SELECT FROM shardmaster.split_ledger WHERE shard_key = $1)"),
        &[shard_key.into()],
        |row| row.value(1),
    )
    .unwrap_or(false)
}

/// Records that a decision is this master's from now on. `routes_kept`: the operator has decided that the routes stay.
pub fn adopted(decision: &Decision, routes_kept: bool) {
    sql::write(
        "INSERT INTO shardmaster.adopted_decision
                (token, split_id, keyspace, version, from_shard, to_shard, key_count, keys, routes_kept)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING",
        &[
            decision.token.as_str().into(),
            decision.split_id.into(),
            decision.keyspace.as_str().into(),
            decision.version.into(),
            decision.from_shard.as_str().into(),
            decision.to_shard.as_str().into(),
            decision.key_count.into(),
            decision.keys.clone().into(),
            routes_kept.into(),
        ],
    );
    sql::write(
        "DELETE FROM shardmaster.shard_decision WHERE token = $1 AND split_id = $2",
        &[decision.token.as_str().into(), decision.split_id.into()],
    );
}
