//! `shardmaster.split_plan` and the tables that refer to it.

use super::naming::{self, Unsaid};
use super::shard::{self, Shard};
use super::split_state::{Phase, row};
use super::table_policy::{self, Keyless, OtherTable};
use super::{keyspace, redirect, sequence, trusted_owner};
use crate::clean;
use crate::error::Failure;
use crate::keys::key_type::KeyType;
use crate::keys::scope::Scope;
use crate::remote::quote::ident;
use crate::server::sql::{self, Row};
use pgrx::prelude::*;

/// The last number of a split: eighteen digits, by which names on shards are found again.
pub const HIGHEST: i64 = 999_999_999_999_999_999;

/// What a split moves, and how. It does not change while the split is active.
#[derive(Clone, Debug)]
pub struct Plan {
    pub id: i64,
    pub keyspace: String,
    pub source: Shard,
    pub target: Shard,
    /// The scope, as names of routing entries.
    pub entries: Vec<String>,
    /// Whether the scope is everything that was routed to the source at planning.
    pub moves_all: bool,
    /// The scope as shards see it.
    pub scope: Scope,
    /// The key type of the keyspace. `None` if it was never set.
    pub key_type: Option<KeyType>,
    /// The token by which shards know the split.
    pub token: String,
    /// The secret by which the split's sessions are known; shards have only its hash.
    pub secret: String,
    pub tables: Vec<PlannedTable>,
    /// Tables of other keyspaces where the split's shards are.
    pub other_tables: Vec<OtherTable>,
    /// Tables of the keyspace of which no row moves.
    pub keyless: Vec<Keyless>,
    /// Sequences that clients draw from by name.
    pub sequences: Vec<sequence::NamedSequence>,
    /// Roles of the source and of the target whose code the mover may run.
    pub trusted: [Vec<String>; 2],
    /// Declarations about the source and the target by roles that have no right to make them in this very database.
    pub unsaid: [Option<Unsaid>; 2],
    /// The split that this one reverses, if it is a reverse split.
    pub reverse_of: Option<i64>,
}

impl Plan {
    /// Returns the plan with some of its tables, for callers that ask about each of many tables separately.
    pub fn of_tables(&self, positions: &[usize]) -> Plan {
        let tables = positions.iter().filter_map(|position| self.tables.get(*position).cloned()).collect();
        Plan { tables, ..self.clone() }
    }
}

/// A table policy as it was at planning.
#[derive(Clone, Debug)]
pub struct PlannedTable {
    pub ordinal: i32,
    /// The name as configured: `name` or `schema.name`.
    pub table_name: String,
    /// `None` means the namespace of the shard.
    pub schema: Option<String>,
    pub name: String,
    pub shard_by: String,
    /// Columns that are computed, or left out.
    pub maps: Vec<ColumnMap>,
}

/// How one column of a table is copied.
#[derive(Clone, Debug)]
pub struct ColumnMap {
    pub column: String,
    /// SQL over a row of the source. `None` if the column is left out.
    pub expression: Option<String>,
}

/// Returns the shards of a split that its operator has declared lost for good. What its reverse split has left is its
/// target. Before a decision is withdrawn, its target is asked whether it has carried it out.
pub fn lost_shards(id: i64) -> Vec<String> {
    sql::read_again(
        "SELECT s.shard FROM shardmaster.split_plan p,
                LATERAL (VALUES (p.source_shard, p.source_lost), (p.target_shard, p.target_lost AND p.phase <> 'completed' OR EXISTS (
                    SELECT FROM shardmaster.split_plan b WHERE b.reverse_of = p.id AND b.source_lost))) s (shard, is_lost)
          WHERE p.id = $1 AND s.is_lost",
        &[id.into()],
        |row| row.value(1),
    )
}

/// Whether changes of the source's tables are applied to the target, too.
pub fn replays_ddl(id: i64) -> bool {
    let query = "SELECT on_ddl = 'replay' FROM shardmaster.split_plan WHERE id = $1";
    sql::read_one(query, &[id.into()], |row| row.value(1)).unwrap_or(false)
}

/// Loads the plan with its shards and tables.
pub fn load(id: i64) -> Result<Plan, Failure> {
    let head = sql::read_one(
        "SELECT keyspace, source_shard, target_shard, tenants, token, scope_kind = 'all', secret, reverse_of
           FROM shardmaster.split_plan WHERE id = $1",
        &[id.into()],
        |row| {
            (
                row.value::<String>(1),
                row.value::<String>(2),
                row.value::<String>(3),
                row.value::<Vec<String>>(4),
                row.value::<String>(5),
                row.value::<bool>(6),
                row.get::<String>(7).unwrap_or_default(),
                row.get::<i64>(8),
            )
        },
    );
    let (keyspace, source, target, entries, token, moves_all, secret, reverse_of) =
        head.ok_or_else(|| row::unknown(id))?;
    let of = keyspace::find(&keyspace)?;
    let (source_key, target_key) = (source, target);
    let (source, target) = (shard::by_key(&source_key)?, shard::by_key(&target_key)?);
    Ok(Plan {
        id,
        scope: of.strategy.scope(&entries),
        key_type: of.key_type,
        entries,
        moves_all,
        token,
        secret,
        tables: policies(id),
        other_tables: table_policy::of_other_keyspaces(&keyspace, [&source_key, &target_key]),
        keyless: table_policy::keyless(&keyspace),
        sequences: sequence::of(&keyspace),
        trusted: [&source, &target].map(trusted_owner::of),
        unsaid: [(&source, &target), (&target, &source)]
            .map(|(shard, other)| naming::unsaid(&keyspace, shard, other)),
        source,
        target,
        keyspace,
        reverse_of,
    })
}

/// What is left of a finished split: where its redirect is, and how it is known there. Its target may be gone.
pub struct FinishedSplit {
    pub id: i64,
    pub keyspace: String,
    pub source: Shard,
    pub token: String,
    pub key_type: Option<KeyType>,
}

impl FinishedSplit {
    pub fn by(&self) -> redirect::RedirectOwner<'_> {
        redirect::RedirectOwner { split: self.id, token: &self.token }
    }
}

pub fn left(id: i64) -> Result<FinishedSplit, Failure> {
    let head = sql::read_one(
        "SELECT keyspace, source_shard, token FROM shardmaster.split_plan WHERE id = $1",
        &[id.into()],
        |row| (row.value::<String>(1), row.value::<String>(2), row.value::<String>(3)),
    );
    let (keyspace, source, token) = head.ok_or_else(|| row::unknown(id))?;
    let key_type = keyspace::find(&keyspace)?.key_type;
    Ok(FinishedSplit { id, keyspace, source: shard::by_key(&source)?, token, key_type })
}

/// Stores how a column of one of the split's tables is copied. Returns false if the split has no such table.
pub fn set_map(id: i64, table: &str, map: &ColumnMap) -> bool {
    let is_itself = |text: &String| *text == map.column || *text == ident(&map.column);
    if map.expression.as_ref().is_some_and(is_itself) {
        sql::write(
            "DELETE FROM shardmaster.split_map WHERE split_id = $1 AND table_name = $2 AND column_name = $3",
            &[id.into(), table.into(), map.column.as_str().into()],
        );
        return policies(id).iter().any(|policy| policy.table_name == table);
    }
    sql::write(
        "INSERT INTO shardmaster.split_map (split_id, table_name, column_name, expression)
         SELECT $1, table_name, $3, $4 FROM shardmaster.split_table WHERE split_id = $1 AND table_name = $2
         ON CONFLICT (split_id, table_name, column_name) DO UPDATE SET expression = EXCLUDED.expression",
        &[id.into(), table.into(), map.column.as_str().into(), map.expression.clone().into()],
    ) == 1
}

/// Removes a table, with its column maps, from a plan that has not begun.
pub fn forget_table(id: i64, table: &str) {
    for of in ["split_map", "split_table"] {
        let query = format!("DELETE FROM shardmaster.{of} WHERE split_id = $1 AND table_name = $2");
        sql::write(&query, &[id.into(), table.into()]);
    }
    event(id, None, None, &format!("table {table} is not in the keyspace, and not in this plan"));
}

/// Returns the first of its tables of which a column is computed or left out.
pub fn mapped_table(id: i64) -> Option<String> {
    let query = "SELECT min(table_name) FROM shardmaster.split_map WHERE split_id = $1";
    sql::read_optional::<String>(query, &[id.into()])
}

fn maps(id: i64, table: &str) -> Vec<ColumnMap> {
    sql::read(
        "SELECT column_name, expression FROM shardmaster.split_map WHERE split_id = $1 AND table_name = $2
          ORDER BY column_name",
        &[id.into(), table.into()],
        |row| ColumnMap { column: row.value(1), expression: row.get(2) },
    )
}

fn policies(id: i64) -> Vec<PlannedTable> {
    let query = "SELECT ordinal, table_name, parse_ident(table_name), shard_by
                   FROM shardmaster.split_table WHERE split_id = $1 ORDER BY ordinal";
    with_maps(id, sql::read(query, &[id.into()], policy))
}

/// Returns the tables that a rolled-back plan would have if it began again: those that its keyspace has now.
pub fn policies_anew(id: i64, keyspace: &str) -> Vec<PlannedTable> {
    let query =
        "SELECT row_number() OVER (ORDER BY table_name)::int, table_name, parse_ident(table_name), shard_by
                   FROM shardmaster.table_policy WHERE keyspace = $1 AND policy = 'sharded' ORDER BY 1";
    with_maps(id, sql::read(query, &[keyspace.into()], policy))
}

fn policy(row: Row<'_>) -> PlannedTable {
    let mut parts = row.value::<Vec<String>>(3);
    let name = parts.pop().unwrap_or_default();
    let (ordinal, table_name, shard_by) = (row.value(1), row.value(2), row.value(4));
    PlannedTable { ordinal, table_name, schema: parts.pop(), name, shard_by, maps: Vec::new() }
}

fn with_maps(id: i64, policies: Vec<PlannedTable>) -> Vec<PlannedTable> {
    let of = |policy: PlannedTable| PlannedTable { maps: maps(id, &policy.table_name), ..policy };
    policies.into_iter().map(of).collect()
}

/// Adds a line to a split's history.
pub fn event(id: i64, from: Option<Phase>, to: Option<Phase>, detail: &str) {
    let detail = clean::printable(detail);
    sql::write(
        "INSERT INTO shardmaster.split_event (split_id, from_phase, to_phase, detail) VALUES ($1, $2, $3, $4)",
        &[id.into(), from.map(Phase::as_str).into(), to.map(Phase::as_str).into(), detail.as_str().into()],
    );
    let line = serde_json::json!({
        "shardmaster": "split",
        "split_id": id,
        "from": from.map(Phase::as_str),
        "to": to.map(Phase::as_str),
        "detail": detail,
    });
    pgrx::log!("{line}");
}

/// Adds a line to a split's history unless the last line is the same and less than a minute old: clients of a shard
/// can cause such an event repeatedly, for example by TRUNCATE.
pub fn event_again(id: i64, detail: &str) {
    let is_told = "SELECT true FROM (SELECT at, detail FROM shardmaster.split_event WHERE split_id = $1 ORDER BY id DESC LIMIT 1) e
                    WHERE e.detail = $2 AND e.at BETWEEN clock_timestamp() - interval '1 min' AND clock_timestamp()";
    let detail = clean::printable(detail);
    if !sql::exists(is_told, &[id.into(), detail.as_str().into()]) {
        event(id, None, None, &detail);
    }
}

/// Notifies listeners when the transaction commits.
pub fn notify(id: i64, phase: &str, status: &str) {
    super::event::notify(
        &serde_json::json!({"event": "split", "split_id": id, "phase": phase, "status": status}),
    );
}

/// Makes sure that the next plan's number is above this one.
pub fn number_after(number: i64) {
    sql::write(
        "SELECT setval('shardmaster.split_plan_id_seq', $1) FROM shardmaster.split_plan_id_seq s
          WHERE s.last_value < $1 OR s.last_value = $1 AND NOT s.is_called",
        &[number.into()],
    );
}

/// Makes sure that the next plan's number is above one that shards know. A number that no master can have given out is
/// ignored, so that it does not use up the numbers.
pub fn pass(number: i64) {
    if number <= HIGHEST / 2 {
        number_after(number);
    }
}

/// Returns the first of these numbers that no split of this master has.
pub fn unknown_of(ids: &[i64]) -> Option<i64> {
    sql::read_one(
        "SELECT i.id FROM unnest($1::bigint[]) AS i (id)
          WHERE NOT EXISTS (SELECT 1 FROM shardmaster.split_plan p WHERE p.id = i.id) ORDER BY 1 LIMIT 1",
        &[ids.to_vec().into()],
        |row| row.value(1),
    )
}

/// Returns the identity of this master as the shards remember it. Another database or another server with the same
/// catalog is another master.
pub fn identity() -> String {
    sql::read_one(
        "SELECT format('%s/%s/%s', i.id, c.system_identifier, d.oid)
           FROM shardmaster.installation i, pg_control_system() c, pg_database d
          WHERE d.datname = current_database()",
        &[],
        |row| row.value::<String>(1),
    )
    .unwrap_or_else(|| error!("shardmaster.installation is empty"))
}
