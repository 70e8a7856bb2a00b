//! Reference tables: the sets of them, and the progress of each shard.

use super::keyspace::LockedKeyspace;
use super::local;
use super::naming::{self, Unsaid};
use super::shard::{self, Shard};
use super::table_policy::TableName;
use super::trusted_owner;
use crate::clean;
use crate::error::Failure;
use crate::named_enum::named_enum;
use crate::server::sql;
use pgrx::datum::{Interval, TimestampWithTimeZone};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

named_enum! {
    /// The progress of a shard with a set.
    pub enum ReferenceState {
        /// The copy does not have all tables as a whole yet.
        Filling = "filling",
        Following = "following",
        /// The shard does not answer.
        Away = "away",
        /// An operator must act.
        Failed = "failed",
    }
}

/// A reference table with its number in the set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub ordinal: i32,
    pub name: TableName,
    /// The token by which shards know that the table was taken out. `None` if the library is newer than the catalog.
    pub token: Option<String>,
}

impl Member {
    /// Returns the table's schema on a shard.
    pub fn schema(&self, shard: &Shard) -> String {
        self.name.schema.clone().unwrap_or_else(|| shard.namespace.clone())
    }
}

/// A shard, the roles whose code the mover may run there, and declarations about it by a role that has no right to
/// make them in this very database.
#[derive(Clone, Debug)]
pub struct ReferencePlace {
    pub shard: Shard,
    pub trusted: Vec<String>,
    pub unsaid: Option<Unsaid>,
}

impl ReferencePlace {
    /// Whether sessions to both are opened in the same way.
    fn is_as(&self, before: &ReferencePlace) -> bool {
        let by = |place: &ReferencePlace| {
            (place.shard.conninfo.clone(), place.shard.namespace.clone(), place.trusted.clone())
        };
        by(self) == by(before) && self.unsaid.is_some() == before.unsaid.is_some()
    }
}

/// Reference tables of a keyspace with one origin.
#[derive(Clone, Debug)]
pub struct ReferenceSet {
    pub id: i64,
    pub keyspace: String,
    pub origin: ReferencePlace,
    pub token: String,
    pub secret: String,
    pub tables: Vec<Member>,
    /// Tables that were taken out of the keyspace; shards may still have something of them.
    pub dropped: Vec<Member>,
    /// The shards that have copies, or will have them.
    pub copies: Vec<ReferencePlace>,
    /// The numbers of the tables that copies have had as a whole, as far as this master knows.
    pub filled: BTreeMap<String, Vec<i32>>,
}

impl ReferenceSet {
    /// Returns the tables of the set that a copy has had as a whole, as this master remembers it.
    pub fn remembered(&self, shard_key: &str) -> Vec<Member> {
        let filled = self.filled.get(shard_key).map(Vec::as_slice).unwrap_or_default();
        self.tables.iter().filter(|member| filled.contains(&member.ordinal)).cloned().collect()
    }

    /// Whether all its shards are where they were, with the same declarations about them.
    pub fn is_where(&self, before: &ReferenceSet) -> bool {
        let places = |set: &ReferenceSet| -> Vec<ReferencePlace> {
            std::iter::once(&set.origin).chain(&set.copies).cloned().collect()
        };
        let known = places(before);
        places(self).iter().all(|place| {
            known
                .iter()
                .find(|before| before.shard.shard_key == place.shard.shard_key)
                .is_none_or(|b| place.is_as(b))
        })
    }
}

/// Adds a table to a set, which has none of this name.
pub fn add(keyspace: &LockedKeyspace, origin: &str, table: &TableName) {
    sql::write(
        "WITH s AS (SELECT encode(sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')), 'hex') AS secret)
         INSERT INTO shardmaster.reference_set (keyspace, origin, token, secret)
         SELECT $1, $2, encode(sha256(convert_to(s.secret, 'UTF8')), 'hex'), s.secret FROM s
         ON CONFLICT (keyspace, origin) DO NOTHING",
        &[keyspace.name.as_str().into(), origin.into()],
    );
    let has_tokens = local::has_column("reference_table", "token");
    let (column, token) = if has_tokens { (", token", ", gen_random_uuid()::text") } else { ("", "") };
    sql::write(
        &format!(
            "INSERT INTO shardmaster.reference_table (set_id, ordinal, table_name{column})
             SELECT s.id, coalesce((SELECT max(t.ordinal) FROM shardmaster.reference_table t WHERE t.set_id = s.id), 0) + 1, $3{token}
               FROM shardmaster.reference_set s WHERE s.keyspace = $1 AND s.origin = $2"
        ),
        &[keyspace.name.as_str().into(), origin.into(), table.quoted().into()],
    );
}

/// Takes a table out of its set. The worker tells the shards.
pub fn remove(keyspace: &LockedKeyspace, table: &TableName) {
    sql::write(
        "UPDATE shardmaster.reference_table t SET dropped = true
           FROM shardmaster.reference_set s
          WHERE s.id = t.set_id AND s.keyspace = $1 AND t.table_name = $2 AND NOT t.dropped",
        &[keyspace.name.as_str().into(), table.quoted().into()],
    );
}

/// Whether there is any set, so that a worker is needed.
pub fn any() -> bool {
    sql::exists("SELECT 1 FROM shardmaster.reference_set LIMIT 1", &[])
}

/// Whether the token is that of a set of this master.
pub fn is_known(token: &str) -> bool {
    let query = "SELECT 1 FROM shardmaster.reference_set WHERE token = $1";
    sql::exists(query, &[token.into()])
}

/// Whether a keyspace has a set, even one that is about to be removed.
pub fn any_of_keyspace(keyspace: &str) -> bool {
    let query = "SELECT 1 FROM shardmaster.reference_set WHERE keyspace = $1 LIMIT 1";
    sql::exists(query, &[keyspace.into()])
}

/// Returns a keyspace that has a set whose origin is this shard.
pub fn keyspace_of_origin(shard_key: &str) -> Option<String> {
    let query = "SELECT keyspace FROM shardmaster.reference_set WHERE origin = $1 ORDER BY keyspace LIMIT 1";
    sql::read_one(query, &[shard_key.into()], |row| row.value(1))
}

/// Returns the reference tables that a shard may have copies of.
pub fn copied_to(shard_key: &str) -> Vec<String> {
    sql::read_again(
        "SELECT t.table_name FROM shardmaster.reference_copy c JOIN shardmaster.reference_table t ON t.set_id = c.set_id
          WHERE c.shard_key = $1 GROUP BY t.table_name ORDER BY t.table_name COLLATE \"C\"",
        &[shard_key.into()],
        |row| row.value(1),
    )
}

/// Returns all sets. Shards that were added since get a row of each set first.
pub fn sets() -> Result<Vec<ReferenceSet>, Failure> {
    add_copies();
    let heads = sql::read(
        "SELECT id, keyspace, origin, token, secret FROM shardmaster.reference_set ORDER BY id",
        &[],
        |row| (row.value::<i64>(1), row.value(2), row.value::<String>(3), row.value(4), row.value(5)),
    );
    let set = |(id, keyspace, origin, token, secret): (i64, String, String, String, String)| {
        let (dropped, tables) = members(id).into_iter().partition::<Vec<_>, _>(|(_, dropped)| *dropped);
        let only = |list: Vec<(Member, bool)>| list.into_iter().map(|(member, _)| member).collect();
        let (tables, dropped) = (only(tables), only(dropped));
        let origin = shard::by_key(&origin)?;
        let filled: BTreeMap<String, Vec<i32>> = filled_of(id).into_iter().collect();
        let copies = filled.keys().map(|key| Ok(place(&keyspace, shard::by_key(key)?, &origin)));
        let copies = copies.collect::<Result<Vec<ReferencePlace>, Failure>>()?;
        // Rows that are copied there come from this origin.
        let other = copies.first().map_or_else(|| origin.clone(), |copy| copy.shard.clone());
        let origin = place(&keyspace, origin, &other);
        Ok(ReferenceSet { id, keyspace, origin, token, secret, tables, dropped, copies, filled })
    };
    heads.into_iter().map(set).collect()
}

/// SQL: the missing rows. Reading them first keeps a transaction that writes nothing from taking a transaction id.
const LACKING: &str = "FROM shardmaster.reference_set r, shardmaster.shard s
          WHERE s.kind = $1 AND s.status <> 'disabled' AND s.shard_key <> r.origin
            AND EXISTS (SELECT 1 FROM shardmaster.reference_table t WHERE t.set_id = r.id AND NOT t.dropped)
            AND NOT EXISTS (SELECT 1 FROM shardmaster.reference_copy c WHERE c.set_id = r.id AND c.shard_key = s.shard_key)";

fn add_copies() {
    let kind = || [shard::POSTGRES.into()];
    if !sql::exists(&format!("SELECT 1 {LACKING} LIMIT 1"), &kind()) {
        return;
    }
    let add = format!(
        "INSERT INTO shardmaster.reference_copy (set_id, shard_key) SELECT r.id, s.shard_key {LACKING} ON CONFLICT DO NOTHING"
    );
    sql::write(&add, &kind());
}

fn place(keyspace: &str, shard: Shard, other: &Shard) -> ReferencePlace {
    ReferencePlace {
        trusted: trusted_owner::of(&shard),
        unsaid: naming::unsaid(keyspace, &shard, other),
        shard,
    }
}

fn members(id: i64) -> Vec<(Member, bool)> {
    let rows = sql::read(
        // A row of 0.1.0 has none, and gets the same one in each copy of it.
        "SELECT t.ordinal, t.table_name, t.dropped,
                CASE WHEN to_jsonb(t) ? 'token'
                     THEN coalesce(to_jsonb(t) ->> 'token',
                                   encode(sha256(convert_to(concat_ws(':', s.token, t.ordinal, t.table_name), 'UTF8')), 'hex')) END
           FROM shardmaster.reference_table t JOIN shardmaster.reference_set s ON s.id = t.set_id
          WHERE t.set_id = $1 ORDER BY t.ordinal",
        &[id.into()],
        |row| (row.value::<i32>(1), row.value::<String>(2), row.value::<bool>(3), row.get::<String>(4)),
    );
    let member = |(ordinal, name, dropped, token): (i32, String, bool, Option<String>)| {
        Some((Member { ordinal, name: TableName::parse(&name)?, token }, dropped))
    };
    rows.into_iter().filter_map(member).collect()
}

fn filled_of(id: i64) -> Vec<(String, Vec<i32>)> {
    sql::read(
        "SELECT shard_key, filled FROM shardmaster.reference_copy WHERE set_id = $1",
        &[id.into()],
        |row| (row.value(1), row.value(2)),
    )
}

/// A reference table of a keyspace.
pub struct FollowedTable {
    pub keyspace: String,
    pub name: TableName,
    pub origin: String,
    /// The table was taken out, though its worker may not know it yet.
    pub is_dropped: bool,
}

pub fn all_tables() -> Vec<FollowedTable> {
    let rows = sql::read(
        "SELECT s.keyspace, t.table_name, s.origin, t.dropped
           FROM shardmaster.reference_set s JOIN shardmaster.reference_table t ON t.set_id = s.id
          ORDER BY t.dropped, s.id, t.ordinal",
        &[],
        |row| (row.value(1), row.value::<String>(2), row.value(3), row.value(4)),
    );
    let parsed = |(keyspace, name, origin, is_dropped): (String, String, String, bool)| {
        Some(FollowedTable { keyspace, name: TableName::parse(&name)?, origin, is_dropped })
    };
    rows.into_iter().filter_map(parsed).collect()
}

/// Takes the next generation of all sets, for a worker that begins.
pub fn next_generation() -> i64 {
    sql::write_returning(
        "WITH next AS (SELECT coalesce(max(generation), 0) + 1 AS number FROM shardmaster.reference_set)
         UPDATE shardmaster.reference_set SET generation = next.number FROM next RETURNING generation",
        &[],
        |row| row.value::<i64>(1),
    )
    .into_iter()
    .max()
    .unwrap_or(0)
}

/// Raises the generation to one that a shard knows, after this master was restored from before it. The next worker
/// comes after both.
pub fn catch_up_generation(set: i64, generation: i64) {
    sql::write(
        "UPDATE shardmaster.reference_set SET generation = $2 WHERE id = $1 AND generation < $2",
        &[set.into(), generation.into()],
    );
}

/// What a worker reports of a shard.
pub struct Report<'a> {
    pub state: ReferenceState,
    /// The numbers of tables that the shard has as a whole. `None` if this was not read.
    pub filled: Option<&'a [i32]>,
    /// When the copy was equal to its origin, by this server's clock. `None` keeps the earlier value.
    pub as_of: Option<SystemTime>,
    pub failure: Option<&'a Failure>,
}

pub fn report(set: i64, shard_key: &str, report: &Report<'_>) {
    let failure = report.failure.map(Failure::cleaned);
    let hint = failure.as_ref().and_then(|failure| failure.hint.clone());
    sql::write(
        "UPDATE shardmaster.reference_copy
            SET state = $3,
                filled = coalesce($4, filled),
                as_of = coalesce(to_timestamp($5), as_of), error = $6, hint = $7
          WHERE set_id = $1 AND shard_key = $2",
        &[
            set.into(),
            shard_key.into(),
            report.state.as_str().into(),
            report.filled.map(<[i32]>::to_vec).into(),
            report.as_of.and_then(seconds).into(),
            failure.map(|failure| clean::printable(&failure.message)).into(),
            hint.into(),
        ],
    );
}

/// Returns seconds since 1970, rounded down.
fn seconds(time: SystemTime) -> Option<f64> {
    let whole = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(whole.saturating_sub(Duration::from_micros(1)).as_secs_f64())
}

/// Records that nothing is known to be on a shard any more, of one set or of all: the shard is another server, or was
/// restored to an earlier time.
pub fn nothing_is_there(set: Option<i64>, shard_key: &str) {
    sql::write(
        "UPDATE shardmaster.reference_copy SET filled = '{}', state = 'filling', as_of = NULL
          WHERE shard_key = $2 AND ($1 IS NULL OR set_id = $1) AND (filled <> '{}' OR as_of IS NOT NULL)",
        &[set.into(), shard_key.into()],
    );
}

/// Records why shards still have something of a set's dropped tables.
pub fn report_dropped(set: i64, waits_for: &Failure) {
    sql::write(
        "UPDATE shardmaster.reference_table SET waits_for = $2
          WHERE set_id = $1 AND dropped AND waits_for IS DISTINCT FROM $2",
        &[set.into(), clean::printable(&waits_for.cleaned().message).into()],
    );
}

/// A table that was taken out of a keyspace and of which shards still have something.
pub struct DroppedReference {
    pub keyspace: String,
    pub table_name: String,
    pub waits_for: Option<String>,
}

pub fn dropped() -> Vec<DroppedReference> {
    sql::read_again(
        "SELECT s.keyspace, t.table_name, t.waits_for
           FROM shardmaster.reference_set s JOIN shardmaster.reference_table t ON t.set_id = s.id AND t.dropped
          ORDER BY s.keyspace COLLATE \"C\", t.table_name COLLATE \"C\", s.id, t.ordinal",
        &[],
        |row| DroppedReference { keyspace: row.value(1), table_name: row.value(2), waits_for: row.get(3) },
    )
}

/// Forgets dropped tables of which no shard has anything any more; the set goes with its last one. The number may be
/// given to another table.
pub fn forget(set: i64, ordinals: &[i32]) {
    sql::write(
        "UPDATE shardmaster.reference_copy
            SET filled = ARRAY(SELECT f FROM unnest(filled) AS f WHERE f <> ALL ($2))
          WHERE set_id = $1 AND filled && $2",
        &[set.into(), ordinals.to_vec().into()],
    );
    sql::write(
        "DELETE FROM shardmaster.reference_table WHERE set_id = $1 AND ordinal = ANY ($2) AND dropped",
        &[set.into(), ordinals.to_vec().into()],
    );
    sql::write(
        "DELETE FROM shardmaster.reference_set s
          WHERE s.id = $1 AND NOT EXISTS (SELECT 1 FROM shardmaster.reference_table t WHERE t.set_id = s.id)",
        &[set.into()],
    );
}

/// A reference table that a shard does not have as a whole yet.
pub struct UnfilledReference {
    pub table_name: String,
    pub shard: String,
    pub error: Option<String>,
}

/// Returns one of the keyspace that one of these shards does not have as a whole yet.
pub fn unfilled(keyspace: &str, shards: &[String]) -> Option<UnfilledReference> {
    sql::read_one(
        "SELECT t.table_name, w.shard_key, c.error
           FROM shardmaster.reference_set s
           JOIN shardmaster.reference_table t ON t.set_id = s.id AND NOT t.dropped
          CROSS JOIN unnest($2) AS w (shard_key)
           LEFT JOIN shardmaster.reference_copy c ON c.set_id = s.id AND c.shard_key = w.shard_key
          WHERE s.keyspace = $1 AND w.shard_key <> s.origin AND coalesce(t.ordinal <> ALL (c.filled), true)
          ORDER BY w.shard_key COLLATE \"C\", t.ordinal LIMIT 1",
        &[keyspace.into(), shards.to_vec().into()],
        |row| UnfilledReference { table_name: row.value(1), shard: row.value(2), error: row.get(3) },
    )
}

/// A line of `shard_reference_tables()`.
pub struct ListedReference {
    pub keyspace: String,
    pub table_name: String,
    pub origin: String,
    pub shard: String,
    pub state: String,
    pub lag: Option<Interval>,
    pub error: Option<String>,
    pub hint: Option<String>,
}

pub fn list(keyspace: Option<&str>) -> Vec<ListedReference> {
    sql::read_again(
        "SELECT s.keyspace, t.table_name, s.origin, c.shard_key,
                CASE WHEN t.ordinal <> ALL (c.filled) AND c.state = 'following' THEN 'filling' ELSE c.state END,
                clock_timestamp() - c.as_of, c.error, c.hint
           FROM shardmaster.reference_set s
           JOIN shardmaster.reference_table t ON t.set_id = s.id AND NOT t.dropped
           JOIN shardmaster.reference_copy c ON c.set_id = s.id
          WHERE $1 IS NULL OR s.keyspace = $1
          ORDER BY s.keyspace COLLATE \"C\", t.table_name COLLATE \"C\", c.shard_key COLLATE \"C\"",
        &[keyspace.into()],
        |row| ListedReference {
            keyspace: row.value(1),
            table_name: row.value(2),
            origin: row.value(3),
            shard: row.value(4),
            state: row.value(5),
            lag: row.get(6),
            error: row.get(7),
            hint: row.get(8),
        },
    )
}

/// A copy that a caller waits for.
pub struct CopyBehind {
    pub shard: String,
    pub state: String,
    pub failure: Option<(String, Option<String>)>,
}

/// SQL condition on a set `s` and its copy `c`: the copy lacks a table that was added, or is not known to be as its
/// origin was by then. A worker records when the copy was last equal for the tables that it knew of.
fn lacks(by: &str) -> String {
    format!(
        "EXISTS (SELECT 1 FROM shardmaster.reference_table t
                  WHERE t.set_id = s.id AND NOT t.dropped
                    AND (coalesce(c.as_of < {by}, true) OR t.ordinal <> ALL (c.filled)))"
    )
}

/// Returns why one shard is not known to have what was committed on the origins by then.
pub fn holds_up(keyspace: &str, shard_key: &str, by: TimestampWithTimeZone) -> Option<String> {
    sql::read_one_again(
        &format!(
            "SELECT concat('shard \"', $2, '\" to have its reference tables as of now', ': ' || c.error)
           FROM shardmaster.reference_set s
           LEFT JOIN shardmaster.reference_copy c ON c.set_id = s.id AND c.shard_key = $2
          WHERE s.keyspace = $1 AND s.origin <> $2 AND {}
          ORDER BY s.id LIMIT 1",
            lacks("$3")
        ),
        &[keyspace.into(), shard_key.into(), by.into()],
        |row| row.value(1),
    )
}

/// Returns the first shard that is not known to have what was committed on an origin by then. One that has failed
/// comes first.
pub fn behind(keyspace: &str, by: TimestampWithTimeZone) -> Option<CopyBehind> {
    sql::read_one_again(
        &format!(
            "SELECT w.shard_key, coalesce(c.state, 'filling'), c.error, c.hint
           FROM shardmaster.reference_set s
           JOIN shardmaster.shard w ON w.kind = $3 AND w.status <> 'disabled' AND w.shard_key <> s.origin
           LEFT JOIN shardmaster.reference_copy c ON c.set_id = s.id AND c.shard_key = w.shard_key
          WHERE s.keyspace = $1 AND {}
          ORDER BY c.state IS NOT DISTINCT FROM 'failed' DESC, w.shard_key COLLATE \"C\" LIMIT 1",
            lacks("$2")
        ),
        &[keyspace.into(), by.into(), shard::POSTGRES.into()],
        |row| CopyBehind {
            shard: row.value(1),
            state: row.value(2),
            failure: row.get::<String>(3).map(|text| (text, row.get(4))),
        },
    )
}

pub fn now() -> Option<TimestampWithTimeZone> {
    sql::read_one("SELECT clock_timestamp()", &[], |row| row.value(1))
}
