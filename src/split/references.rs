//! Foreign keys that do not contain the shard-by column on both ends. The mover writes in replica role, in which the
//! server checks none. So it is checked here that no copied row references a row that its new shard does not have, and
//! that no row that stays loses what it references.

use crate::agent::error::{Result, SplitError};
use crate::agent::reading::LockedTables;
use crate::agent::seen;
use crate::agent::session::Side;
use crate::agent::shape::{Column, TableShape};
use crate::agent::table_names::TableNames;
use crate::catalog::split::{Plan, PlannedTable};
use crate::catalog::table_policy::Keyless;
use crate::error::SqlState;
use crate::remote::copy::Bounds;
use crate::remote::quote::{ident, literal};
use crate::remote::result::Rows;
use crate::remote::{Connection, RemoteError};
use crate::split::table::{SplitTable, computed};
use serde::Deserialize;
use std::collections::BTreeSet;

pub mod check;
pub mod inbound_fks;

const FOREIGN_KEYS: &str = include_str!("../../sql/check/foreign_keys.sql");

/// A foreign key. Those that contain the shard-by column connect rows of one key only.
#[derive(Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    pub name: String,
    /// The referencing table, qualified and quoted.
    pub from: String,
    /// Its position among the plan's tables. `None` for a table outside of the keyspace.
    pub from_position: Option<usize>,
    pub to: String,
    pub to_position: Option<usize>,
    /// The schema of `to`, not quoted.
    pub to_schema: String,
    pub to_name: String,
    pub columns: Vec<ReferenceColumn>,
    /// The last column of both is a range, which must be contained rather than equal.
    pub is_period: bool,
    pub is_validated: bool,
    /// Whether the shard-by columns of both tables are part of it.
    pub carries_key: bool,
    /// What happens to referencing rows when the referenced one changes, if anything does.
    pub follows: String,
    /// The match type as in pg_constraint, which determines the meaning of NULLs.
    #[serde(rename = "match")]
    pub match_type: String,
    /// Whether the role may read both tables: otherwise they cannot be locked, and code could be added to them after a
    /// check.
    pub can_read: bool,
    /// Whether the role may lock referenced rows.
    pub can_lock: bool,
    /// Whether a column of it is computed: then none of its values is reported.
    #[serde(skip)]
    pub is_computed: bool,
    /// Whether a column of either end is not the source's, or the source has no such foreign key: that rows of both
    /// tables move then proves nothing.
    #[serde(skip)]
    pub is_own: bool,
}

#[derive(Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct ReferenceColumn {
    pub from: String,
    pub to: String,
    /// The operator that compares a referenced with a referencing value, qualified.
    pub operator: String,
    /// The types that it compares. `None` if those of the columns suffice.
    pub operands: Option<(String, String)>,
}

/// A row that a foreign key connects to another one, across the split.
pub struct InboundFk {
    pub reference: Reference,
    /// The referencing values as text.
    pub value: String,
}

impl InboundFk {
    /// Describes for messages which key of which table it is, with a value.
    pub fn text(&self) -> String {
        self.reference.text(&self.value)
    }
}

impl Reference {
    /// Returns the join condition: `p.a = t.x AND ...`
    pub fn join(&self, referenced: &str, referencing: &str) -> String {
        let equal = |c: &ReferenceColumn| {
            let [left, right] = match &c.operands {
                Some((left, right)) => [left, right].map(|name| format!("::{name}")),
                None => <[String; 2]>::default(),
            };
            let (to, from) = (ident(&c.to), ident(&c.from));
            format!("{referenced}.{to}{left} {} {referencing}.{from}{right}", c.operator)
        };
        self.columns.iter().map(equal).collect::<Vec<_>>().join(" AND ")
    }

    /// Returns the condition that a row references one: with MATCH FULL if any value is set, otherwise if all are.
    pub fn references(&self, row: &str) -> String {
        let present = |c: &ReferenceColumn| format!("{row}.{} IS NOT NULL", ident(&c.from));
        let by = if self.match_type == "f" { " OR " } else { " AND " };
        format!("({})", self.columns.iter().map(present).collect::<Vec<_>>().join(by))
    }

    pub fn value(&self, row: &str) -> String {
        let texts: Vec<String> =
            self.columns.iter().map(|c| format!("{row}.{}::text", ident(&c.from))).collect();
        format!("concat_ws(', ', {})", texts.join(", "))
    }

    fn described(&self) -> String {
        format!("{} references {}, foreign key \"{}\"", self.from, self.to, self.name)
    }

    /// Returns the columns of the referencing table, for messages.
    pub fn column_names(&self) -> String {
        let names: Vec<&str> = self.columns.iter().map(|c| c.from.as_str()).collect();
        names.join(", ")
    }

    pub fn text(&self, value: &str) -> String {
        let value = if self.is_computed { "a computed value" } else { value };
        format!(
            "table {}, foreign key \"{}\" to {}: ({})=({value})",
            self.from,
            self.name,
            self.to,
            self.column_names()
        )
    }
}

/// Returns the policy of the referenced table, if it is a table of the keyspace without a key.
pub fn keyless<'a>(plan: &'a Plan, side: Side, reference: &Reference) -> Option<&'a Keyless> {
    let namespace = &side.shard(plan).namespace;
    let is_it = |table: &&Keyless| {
        table.name.name == reference.to_name
            && table.name.schema.as_ref().unwrap_or(namespace) == &reference.to_schema
    };
    plan.keyless.iter().find(is_it)
}

/// Returns the foreign keys of a side's tables that do not contain the shard-by column.
pub fn load(connection: &mut Connection, plan: &Plan, side: Side) -> Result<Vec<Reference>> {
    load_all(connection, plan, side, false)
}

/// Returns the foreign keys of a side's tables; `with_key` includes those that contain the shard-by column.
fn load_all(connection: &mut Connection, plan: &Plan, side: Side, with_key: bool) -> Result<Vec<Reference>> {
    let question = asking(connection, plan, side, with_key)?;
    let rows = connection.run(&question)?;
    read(connection.shard(), plan, side, &rows)
}

/// Returns the statement that reads those that do not contain the shard-by column, to be sent with others.
pub fn question(connection: &mut Connection, plan: &Plan, side: Side) -> Result<String> {
    asking(connection, plan, side, false)
}

fn asking(connection: &mut Connection, plan: &Plan, side: Side, with_key: bool) -> Result<String> {
    connection.prepare("foreign_keys", FOREIGN_KEYS)?;
    let lists = TableNames::keyed_lists(plan, side).map(|list| literal(&list));
    Ok(format!("EXECUTE foreign_keys({}, {with_key})", lists.join(", ")))
}

/// Reads the shard's answer.
pub fn read(shard: &str, plan: &Plan, side: Side, rows: &Rows) -> Result<Vec<Reference>> {
    let read = serde_json::from_str(rows.scalar().unwrap_or("[]"));
    let mut references: Vec<Reference> = read.map_err(|error| RemoteError::unreadable(shard, error))?;
    for reference in references.iter_mut().filter(|_| side == Side::Target) {
        let policy = |position: Option<usize>| position.and_then(|position| plan.tables.get(position));
        let (from, to) = (policy(reference.from_position), policy(reference.to_position));
        let is = |ends: fn(&PlannedTable, &str) -> bool| {
            reference.columns.iter().any(|column| {
                from.is_some_and(|from| ends(from, &column.from)) || to.is_some_and(|to| ends(to, &column.to))
            })
        };
        (reference.is_computed, reference.is_own) = (is(computed::is_computed), is(computed::is_own));
    }
    Ok(references)
}

/// Returns the condition that a row of one of the plan's tables moves; rows of other tables do not.
pub fn moves(plan: &Plan, by: &[Option<Column>], position: Option<usize>, row: &str) -> String {
    let column = position.and_then(|position| by.get(position)).and_then(Option::as_ref);
    column.map_or("false".to_owned(), |column| {
        format!("coalesce({}, false)", plan.scope.predicate(column, row))
    })
}

/// Returns this condition for the rows that are searched, in a form that an index can use.
fn in_scope(plan: &Plan, by: &[Option<Column>], position: usize, row: &str) -> Option<String> {
    by.get(position).and_then(Option::as_ref).map(|column| plan.scope.predicate(column, row))
}

/// Returns the shard-by columns of a side's tables.
fn columns_by(connection: &mut Connection, plan: &Plan, side: Side) -> Result<Vec<Option<Column>>> {
    Ok(columns_of(plan, &seen::look(connection, plan, side)?.tables))
}

fn columns_of(plan: &Plan, tables: &[TableShape]) -> Vec<Option<Column>> {
    let by = plan.tables.iter().zip(tables);
    by.map(|(policy, shape)| shape.column(&policy.shard_by).cloned()).collect()
}

fn found(connection: &mut Connection, reference: &Reference, query: &str) -> Result<Option<InboundFk>> {
    let rows = connection.run_within(query, Bounds::unlimited().stall)?;
    Ok(rows.scalar().map(|value| InboundFk { reference: reference.clone(), value: value.to_owned() }))
}

/// Returns a row that stays on the source, of a table of the keyspace or of another one, and references a row of the
/// scope: deleting that one would leave it dangling, or with ON DELETE CASCADE delete it, too. Finish must not delete
/// while there is such a row; the check uses it, too. The session must be able to evaluate the scope (a mover's can).
/// The scope's referenced rows are searched.
pub fn staying_rows(
    source: &mut Connection,
    plan: &Plan,
    locked: &LockedTables,
) -> Result<Option<InboundFk>> {
    let references = load(source, plan, Side::Source)?;
    let by = columns_by(source, plan, Side::Source)?;
    for reference in references.iter().filter(|r| !r.is_period && r.to_position.is_some()) {
        reference.require_locked(source.shard(), locked)?;
        if let Some(inbound_fk) = staying_row(source, plan, &by, reference)? {
            return Ok(Some(inbound_fk));
        }
    }
    Ok(None)
}

/// Returns the error for such a row: deleted in replica role, a row leaves those that reference it dangling.
pub fn stays_bound(plan: &Plan, side: Side, inbound_fk: &InboundFk) -> SplitError {
    let bound = inbound_fk.text();
    let (text, hint) = match side {
        Side::Source => (
            format!(
                "a row that stays on shard \"{}\" references one that has moved: {bound}",
                plan.source.shard_key
            ),
            "Remove the reference, then call shard_split_finish again. Otherwise the moved row cannot be deleted here."
                .to_owned(),
        ),
        Side::Target => (
            format!("a row on shard \"{}\" references a copied one: {bound}", plan.target.shard_key),
            format!(
                "Writers of the source are served. Remove the reference, then SELECT shard_split_rollback({}). Otherwise the copy cannot be deleted here.",
                plan.id
            ),
        ),
    };
    SplitError::failed(SqlState::parse("23503"), text, hint)
}

fn staying_row(
    source: &mut Connection,
    plan: &Plan,
    by: &[Option<Column>],
    reference: &Reference,
) -> Result<Option<InboundFk>> {
    let Some(scope) = reference.to_position.and_then(|to| in_scope(plan, by, to, "p")) else {
        return Ok(None);
    };
    let query = format!(
        "SELECT {} FROM {} p JOIN {} t ON {} WHERE {scope} AND NOT {} LIMIT 1",
        reference.value("t"),
        reference.to,
        reference.from,
        reference.join("p", "t"),
        moves(plan, by, reference.from_position, "t")
    );
    found(source, reference, &query)
}

/// The target's foreign keys that bind rows of the scope, as a worker keeps them.
pub struct WatchedReferences {
    pub references: Vec<Reference>,
    /// The shard-by columns of the plan's tables.
    pub by: Vec<Option<Column>>,
}

impl WatchedReferences {
    /// Returns the tables that are searched for referenced rows, qualified and quoted.
    pub fn referenced(&self) -> BTreeSet<String> {
        self.references.iter().map(|reference| reference.to.clone()).collect()
    }

    /// Whether rows of a table, by its position, are checked for what they reference.
    pub fn is_from(&self, position: usize) -> bool {
        self.references.iter().any(|reference| reference.from_position == Some(position))
    }

    /// Reads the foreign keys to watch. One that contains the shard-by column holds on the target because it holds on
    /// the source, which must guarantee the same for columns that are copied as they are. Otherwise it is checked like
    /// the others: it may have been added on the target, or dropped on the source, since the check.
    pub fn load(
        source: &mut Connection,
        target: &mut Connection,
        plan: &Plan,
        tables: &[SplitTable],
    ) -> Result<WatchedReferences> {
        let mut references = load_all(target, plan, Side::Target, true)?;
        // The server does not guarantee a foreign key that is not validated either.
        references.retain(|r| r.from_position.is_some() && r.is_validated && !r.is_period);
        if references.iter().any(|r| r.carries_key) {
            let given = load_all(source, plan, Side::Source, true)?;
            references.iter_mut().for_each(|r| r.is_own |= r.carries_key && !r.is_promised_by(&given));
        }
        references.retain(|r| !r.carries_key || r.is_own);
        Ok(WatchedReferences {
            references,
            by: tables.iter().map(|table| Some(table.target_by.clone())).collect(),
        })
    }
}

impl Reference {
    /// Requires that both ends were checked under their locks.
    pub fn require_locked(&self, shard: &str, locked: &LockedTables) -> Result<()> {
        if locked.has(&self.from) && locked.has(&self.to) {
            return Ok(());
        }
        self.require_readable(shard)?;
        Err(SplitError::Retry(format!("a foreign key of {} that was just added", self.from)))
    }

    /// Requires that the tables may be read: a table that may not be read is not locked, and code could be added to it
    /// after a check.
    pub fn require_readable(&self, shard: &str) -> Result<()> {
        if self.can_read {
            Ok(())
        } else {
            Err(SplitError::failed(
                SqlState::parse("42501"),
                format!("permission denied for table {} or {} on shard \"{shard}\"", self.from, self.to),
                format!(
                    "To check foreign key \"{}\", grant the mover SELECT on both tables, and USAGE on their schemas. Then make the same call again.",
                    self.name
                ),
            ))
        }
    }

    /// Whether a foreign key of the other side guarantees the same for each row.
    fn is_promised_by(&self, others: &[Reference]) -> bool {
        others.iter().any(|other| {
            other.is_twin(self)
                && other.is_validated
                && (other.match_type == self.match_type || other.match_type == "f")
        })
    }

    /// Whether it is the other side's foreign key of the same columns; its name may differ.
    fn is_twin(&self, other: &Reference) -> bool {
        let columns =
            |r: &Reference| r.columns.iter().map(|c| (c.from.clone(), c.to.clone())).collect::<Vec<_>>();
        self.from_position == other.from_position
            && self.to_position == other.to_position
            && columns(self) == columns(other)
            && (self.to_position.is_some() || base_name(&self.to) == base_name(&other.to))
    }
}

/// Returns a table's name without its schema, which may be a shard's own.
fn base_name(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(_, base)| base)
}
