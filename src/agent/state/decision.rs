//! The table `decision`: the last decided cutover of each namespace and keyspace that the database has taken part in,
//! and earlier ones of the keyspace, of any shards, as the master knew them: another master may no longer know them.
//! It stays after everything else of the splits was removed, so that a master that was restored to an earlier time
//! learns of them. A side notes the decision in the commit that opens or closes it to clients.

use super::{LONGEST, MANY, ask, has};
use crate::agent::error::{Result, SplitError};
use crate::agent::session::Side;
use crate::catalog::shard_decision::Decision;
use crate::catalog::split::Plan;
use crate::catalog::{earlier_decisions, keyspace};
use crate::clean;
use crate::keys::key_type::KeyType;
use crate::remote::Connection;
use crate::remote::quote::{array_literal, literal};
use crate::remote::result::Rows;
use crate::server::txn::with_lock_timeout;

/// The table's definition, which is safe to run again.
pub const TABLE: &str = include_str!("../../../sql/agent/decision.sql");

/// The greatest number of entries whose names are kept; beyond it only the number is kept.
const KEPT: usize = 1_000;

/// A decided cutover, as its sides note it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decided<'a> {
    /// The routing version.
    pub version: i64,
    /// The routing entries that moved.
    pub entries: &'a [String],
    /// The type of the keys. `None` if it was never set.
    pub key_type: Option<KeyType>,
    /// The decisions before it.
    pub earlier: &'a EarlierDecisions,
}

/// What is noted with a decision besides: earlier decisions of the keyspace, as JSON, and when the keyspace was made.
/// A field is `None` if the master could not be asked in time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EarlierDecisions {
    decisions: Option<String>,
    keyspace_made: Option<i64>,
    /// The keyspace's tables whose rows move.
    tables: Vec<String>,
}

impl EarlierDecisions {
    /// Reads the decisions before a version. Writers wait meanwhile, so a lock on the master's tables is not waited
    /// for.
    pub fn before(plan: &Plan, version: i64) -> EarlierDecisions {
        let read = with_lock_timeout(|| {
            Ok::<_, SplitError>((
                earlier_decisions::before(&plan.keyspace, version),
                keyspace::made(&plan.keyspace),
            ))
        });
        let (decisions, keyspace_made) = read.and_then(Result::ok).unwrap_or_default();
        let tables = plan.tables.iter().map(|table| table.table_name.clone()).collect();
        EarlierDecisions { decisions, keyspace_made, tables }
    }
}

impl<'a> Decided<'a> {
    pub fn of(plan: &'a Plan, version: i64, earlier: &'a EarlierDecisions) -> Decided<'a> {
        Decided { version, entries: &plan.entries, key_type: plan.key_type, earlier }
    }
}

/// Creates the table or its missing columns: an earlier version may have installed the split without them.
pub fn ensure(connection: &mut Connection) -> Result<()> {
    let is_whole = connection.run(
        "SELECT count(*) = 3 FROM pg_catalog.pg_attribute
          WHERE attrelid = to_regclass('shardmaster_agent.decision') AND attname IN ('earlier', 'keyspace_made', 'tables') AND NOT attisdropped",
    )?;
    if is_whole.is_true() {
        return Ok(());
    }
    let states = ["23505", "42P07", "42701"];
    connection.run(TABLE).map(drop).map_err(|error| SplitError::of_another_split(error, states))
}

/// Returns the statement that notes a decision if the side has reached this state. A decision that is older than the
/// noted one changes nothing.
pub fn note(split: i64, side: Side, state: &str, decided: Decided<'_>) -> String {
    let Decided { version, entries, key_type, earlier } = decided;
    // For hashed or ordered entries, the side's own name of the entries contains the type.
    let of_type = key_type.map_or_else(String::new, |key_type| format!(" of {}", key_type.as_str()));
    let of_type = literal(&of_type);
    let tables = array_literal(&earlier.tables);
    let made = earlier.keyspace_made.map_or_else(|| "NULL".to_owned(), |made| made.to_string());
    let earlier = earlier.decisions.as_deref().map_or_else(|| "NULL".to_owned(), literal);
    let keys = if entries.len() <= KEPT { array_literal(entries) } else { "NULL".to_owned() };
    format!(
        "INSERT INTO shardmaster_agent.decision AS d
                (namespace, keyspace, split_id, token, side, version, other, entries, key_count, keys, earlier, keyspace_made, tables)
         SELECT namespace, keyspace, split_id, token, side, version, other_shard,
                entries || CASE WHEN entries = 'keys' THEN {of_type} ELSE '' END, {}, {keys}::text[], {earlier}::jsonb, {made}::int8, {tables}::text[]
           FROM shardmaster_agent.side
          WHERE split_id = {split} AND side = {} AND state = {} AND version = {version}
         ON CONFLICT (namespace, keyspace) DO UPDATE
            SET split_id = EXCLUDED.split_id, token = EXCLUDED.token, side = EXCLUDED.side, version = EXCLUDED.version,
                other = EXCLUDED.other, entries = EXCLUDED.entries, key_count = EXCLUDED.key_count, keys = EXCLUDED.keys,
                earlier = EXCLUDED.earlier, keyspace_made = EXCLUDED.keyspace_made, tables = EXCLUDED.tables, decided_at = EXCLUDED.decided_at
          WHERE d.version <= EXCLUDED.version",
        entries.len(),
        literal(side.as_str()),
        literal(state)
    )
}

/// SQL expression over the table's row `d`: when the keyspace was made. An older row has no such column.
const MADE: &str = "left(to_jsonb(d) ->> 'keyspace_made', 20)";

/// SQL expression over the table's row `d`: the keyspace's tables, as JSON.
const TABLES: &str = "left(to_jsonb(d) ->> 'tables', 1000000)";

/// A decision as the row has it, without the shard's own name.
pub struct Noted {
    pub side: Side,
    pub other: String,
    pub decision: Decision,
}

/// Returns the noted decisions of a namespace.
pub fn all(connection: &mut Connection, namespace: &str) -> Result<Vec<Noted>> {
    let rows = ask(
        connection,
        "decision",
        &format!(
            "SELECT left(keyspace, {LONGEST}), split_id, left(token, {LONGEST}), side, version, left(other, {LONGEST}),
                    left(entries, {LONGEST}), key_count, {MADE}, {TABLES}
               FROM shardmaster_agent.decision d WHERE namespace = $1 ORDER BY keyspace LIMIT {MANY}"
        ),
        &[Some(namespace)],
    )?;
    let noted = |row: Vec<Option<String>>| {
        let [keyspace, split, token, side, version, other, entries, count, made, tables] =
            <[_; 10]>::try_from(row).ok()?;
        let decision = decision([keyspace, split, token, version, entries, count, made, tables])?;
        Some(Noted { side: Side::named(&side?), other: clean::message(&other?), decision })
    };
    Ok(rows.rows.into_iter().filter_map(noted).collect())
}

/// Returns the parts that any noted decision has.
fn decision(cells: [Option<String>; 8]) -> Option<Decision> {
    let [keyspace, split, token, version, entries, count, made, tables] = cells;
    Some(Decision {
        keyspace: clean::message(&keyspace?),
        split_id: split?.parse().ok()?,
        token: clean::message(&token?),
        version: version?.parse().ok()?,
        entries: clean::message(&entries?),
        key_count: count?.parse().ok()?,
        keyspace_made: made.and_then(|made| made.parse().ok()),
        tables: tables.and_then(|tables| names(&tables)),
        ..Decision::default()
    })
}

/// Returns names from JSON, or None if the JSON is not a list of names.
fn names(json: &str) -> Option<Vec<String>> {
    let names: Vec<String> = serde_json::from_str(json).ok()?;
    Some(names.iter().map(|name| clean::message(name)).collect())
}

/// Returns the entries that moved with a decision. Returns None if they are more than are kept.
pub fn keys(connection: &mut Connection, namespace: &str, keyspace: &str) -> Result<Option<Vec<String>>> {
    let rows = ask(
        connection,
        "decision",
        &format!(
            "SELECT key FROM shardmaster_agent.decision d CROSS JOIN LATERAL unnest(d.keys) key
              WHERE namespace = $1 AND keyspace = $2 LIMIT {KEPT} + 1"
        ),
        &[Some(namespace), Some(keyspace)],
    )?;
    Ok(kept(rows))
}

/// SQL: a row for each earlier decision, whatever was written there; the table's row is `d`. An older row has no such
/// column.
const EARLIER: &str = "CROSS JOIN LATERAL (SELECT to_jsonb(d) -> 'earlier') j (list)
    CROSS JOIN LATERAL (SELECT l.e FROM jsonb_array_elements(CASE WHEN jsonb_typeof(j.list) = 'array' THEN j.list ELSE '[]' END)
                          WITH ORDINALITY l (e, n) WHERE l.n <= 51) l";

/// Returns the earlier decisions that are noted for a namespace.
pub fn earlier(connection: &mut Connection, namespace: &str) -> Result<Vec<Decision>> {
    let rows = ask(
        connection,
        "decision",
        &format!(
            "SELECT left(d.keyspace, {LONGEST}), left(d.entries, {LONGEST}), left(l.e ->> 'split', {LONGEST}), left(l.e ->> 'token', {LONGEST}),
                    left(l.e ->> 'version', {LONGEST}), left(l.e ->> 'from', {LONGEST}), left(l.e ->> 'to', {LONGEST}),
                    coalesce(left(l.e ->> 'count', {LONGEST}), '0'), {MADE}, {TABLES}
               FROM shardmaster_agent.decision d {EARLIER} WHERE d.namespace = $1 ORDER BY d.keyspace LIMIT {MANY}"
        ),
        &[Some(namespace)],
    )?;
    let told = |row: Vec<Option<String>>| {
        let [keyspace, entries, split, token, version, from, to, count, made, tables] =
            <[_; 10]>::try_from(row).ok()?;
        Some(Decision {
            from_shard: clean::message(&from?),
            to_shard: clean::message(&to?),
            ..decision([keyspace, split, token, version, entries, count, made, tables])?
        })
    };
    Ok(rows.rows.into_iter().filter_map(told).collect())
}

/// Returns the entries that moved with one of them. Returns None if the shard was not told them.
pub fn earlier_keys(
    connection: &mut Connection,
    namespace: &str,
    keyspace: &str,
    split: i64,
    token: &str,
) -> Result<Option<Vec<String>>> {
    let rows = ask(
        connection,
        "decision",
        &format!(
            "SELECT k FROM shardmaster_agent.decision d {EARLIER}
              CROSS JOIN LATERAL jsonb_array_elements_text(CASE WHEN jsonb_typeof(l.e -> 'keys') = 'array' THEN l.e -> 'keys' ELSE '[]' END) k
              WHERE d.namespace = $1 AND d.keyspace = $2 AND l.e ->> 'split' = $3 AND l.e ->> 'token' = $4 LIMIT {KEPT} + 1"
        ),
        &[Some(namespace), Some(keyspace), Some(&split.to_string()), Some(token)],
    )?;
    Ok(kept(rows))
}

/// Returns None if there are no entries, or more than are kept.
fn kept(rows: Rows) -> Option<Vec<String>> {
    let keys: Vec<String> = rows.rows.into_iter().flatten().flatten().collect();
    (!keys.is_empty() && keys.len() <= KEPT).then_some(keys)
}

/// Returns the version with which a split has taken its keys from here, if it was the last split of its keyspace, or
/// one of those that the master has reported with a later one.
pub fn version_of(source: &mut Connection, plan: &Plan) -> Result<Option<i64>> {
    let is_it = |decision: &&Decision| decision.split_id == plan.id && decision.token == plan.token;
    let noted = all(source, &plan.source.namespace)?;
    let mut of_source = noted.iter().filter(|noted| noted.side == Side::Source).map(|noted| &noted.decision);
    if let Some(decision) = of_source.find(is_it) {
        return Ok(Some(decision.version));
    }
    let told = earlier(source, &plan.source.namespace)?;
    Ok(told.iter().find(is_it).map(|told| told.version))
}

/// Whether the source has taken part in a decision of the keyspace that is later than this one.
pub fn is_past(source: &mut Connection, plan: &Plan, version: i64) -> Result<bool> {
    let noted = all(source, &plan.source.namespace)?;
    Ok(noted
        .iter()
        .any(|Noted { decision, .. }| decision.keyspace == plan.keyspace && decision.version > version))
}

/// Returns the highest split number that is noted.
pub fn highest_split(connection: &mut Connection) -> Result<Option<i64>> {
    let rows = ask(connection, "decision", "SELECT max(split_id) FROM shardmaster_agent.decision", &[])?;
    Ok(rows.scalar().and_then(|id| id.parse().ok()))
}

/// Deletes the notes of a namespace.
pub fn forget(connection: &mut Connection, namespace: &str) -> Result<()> {
    if has(connection, "decision")? {
        connection
            .query("DELETE FROM shardmaster_agent.decision WHERE namespace = $1", &[Some(namespace)])?;
    }
    Ok(())
}
