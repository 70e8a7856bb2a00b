//! What fills a derived column from then on: the column itself, three functions, and their triggers. Each part is made
//! if it is not there, so a worker that begins again does what is left.
//!
//! Invariant: once the triggers are there, every row that is inserted or led elsewhere has its value when it commits.
//! `CREATE TRIGGER` waits for all writers of the table, so no earlier writer is left.

use super::error;
use super::shape::DerivedShape;
use crate::agent::error::Result;
use crate::agent::short_lock::{TableLock, with_short_lock_once};
use crate::catalog::derived_column::DerivedColumn;
use crate::error::Failure;
use crate::remote::Connection;
use crate::remote::quote::{ident, literal};
use crate::remote::template::{TemplateValue, fill, name, sql, text, word};
use xxhash_rust::xxh64::xxh64;

const FUNCTIONS: &str = include_str!("../../sql/derive/functions.sql");
const OWNERSHIP: &str = include_str!("../../sql/derive/ownership.sql");
const BATCH: &str = include_str!("../../sql/derive/batch.sql");
const BATCH_OF_IDENTIFIERS: &str = include_str!("../../sql/derive/batch_of_identifiers.sql");
const NEW_IDENTIFIER: &str = "pg_catalog.gen_random_uuid()";

/// The names of a derived column's objects on the shards. They follow from the table and the column alone: a master that
/// was restored to an earlier time finds the objects that it has forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DerivedNames(String);

impl DerivedNames {
    pub fn of(column: &DerivedColumn) -> DerivedNames {
        let hash = xxh64(format!("{}\0{}", column.table_name, column.column).as_bytes(), 0);
        let kind = if column.is_identifier() { "identify" } else { "derive" };
        DerivedNames(format!("shardmaster_{kind}_{hash:016x}"))
    }

    /// Fills the column of a row.
    pub fn derive(&self) -> String {
        self.0.clone()
    }

    /// Holds a row of the other table whose value changes.
    pub fn hold(&self) -> String {
        format!("{}_hold", self.0)
    }

    /// Passes the new value on.
    pub fn pass(&self) -> String {
        format!("{}_pass", self.0)
    }

    /// Triggers fire in the order of their names: these after those of the application, which may set the key.
    pub fn on_insert(&self) -> String {
        format!("zz_{}_insert", self.derive())
    }

    pub fn on_update(&self) -> String {
        format!("zz_{}_update", self.derive())
    }

    /// After those that may set the value, also where that is derived itself.
    pub fn hold_trigger(&self) -> String {
        format!("zzz_{}", self.hold())
    }

    pub fn pass_trigger(&self) -> String {
        format!("zz_{}", self.pass())
    }

    /// Passes the value of a row on that comes later than those that refer to it.
    pub fn came_trigger(&self) -> String {
        format!("zz_{}_insert", self.pass())
    }

    /// The constraint with which NULL is refused, while the column does not do that itself.
    pub fn check(&self) -> String {
        self.derive()
    }

    pub fn index(&self) -> String {
        format!("{}_index", self.derive())
    }
}

/// Adds the column, if it is not there.
pub fn add_column(session: &mut Connection, shape: &DerivedShape) -> Result<()> {
    if shape.has_type.is_some() && !shape.is_identifier() {
        return Ok(());
    }
    let (table, column) = (shape.table(), ident(shape.column()));
    let mut statement =
        format!("ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {column} {}", shape.definition());
    if shape.is_identifier() {
        // Rows that are there get none: the table is not written anew.
        statement.push_str(&format!(", ALTER COLUMN {column} SET DEFAULT {NEW_IDENTIFIER}"));
    }
    with_short_lock_once(session, TableLock::AccessExclusive, &statement, &table)
}

/// Acts as the owner of the table: what statements call there, such as functions of indexes, then runs with that role's
/// rights. Triggers of the other table may need another owner's rights, which the mover has.
pub fn as_owner(session: &mut Connection, shape: &DerivedShape) -> Result<()> {
    session.run(&format!("SET ROLE {}", ident(&shape.owner)))?;
    Ok(())
}

/// Makes the functions and triggers.
pub fn install(session: &mut Connection, shape: &DerivedShape, names: &DerivedNames) -> Result<()> {
    let values = values(shape, names);
    session.run(&format!("BEGIN; {}; {}; COMMIT", fill(FUNCTIONS, &values), fill(OWNERSHIP, &values)))?;
    let (table, parent) = (shape.table(), shape.parent_table());
    let schema = ident(shape.schema());
    let [derive, hold, pass] =
        [names.derive(), names.hold(), names.pass()].map(|function| format!("{schema}.{function}()"));
    // A column in SET alone would not count: a trigger before may set another one. So each looks at what has changed.
    let is_led = format!("NOT {}", shape.is_same("NEW", "OLD"));
    let has_changed = format!("NOT {}", shape.is_same_value("NEW", "OLD"));
    let insert = create_trigger(&names.on_insert(), "BEFORE INSERT", &table, "", &derive);
    make(session, &table, &insert, [&names.on_insert(), &derive])?;
    let update = create_trigger(&names.on_update(), "BEFORE UPDATE", &table, &is_led, &derive);
    make(session, &table, &update, [&names.on_update(), &derive])?;
    session.run("RESET ROLE")?;
    let of_hold = create_trigger(&names.hold_trigger(), "BEFORE UPDATE", &parent, &has_changed, &hold);
    make(session, &parent, &of_hold, [&names.hold_trigger(), &hold])?;
    let of_pass = create_trigger(&names.pass_trigger(), "AFTER UPDATE", &parent, &has_changed, &pass);
    make(session, &parent, &of_pass, [&names.pass_trigger(), &pass])?;
    if shape.is_deferrable {
        let came = create_trigger(&names.came_trigger(), "AFTER INSERT", &parent, "", &pass);
        make(session, &parent, &came, [&names.came_trigger(), &pass])?;
    }
    as_owner(session, shape)
}

fn create_trigger(trigger: &str, event: &str, table: &str, condition: &str, function: &str) -> String {
    let when = if condition.is_empty() { String::new() } else { format!(" WHEN ({condition})") };
    format!("CREATE TRIGGER {trigger} {event} ON {table} FOR EACH ROW{when} EXECUTE FUNCTION {function}")
}

/// Makes a trigger that is not there. Another one of its name makes this fail.
fn make(
    session: &mut Connection,
    table: &str,
    statement: &str,
    [trigger, function]: [&str; 2],
) -> Result<()> {
    let query = "SELECT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = to_regclass($1) AND tgname = $2
                                   AND tgfoid = to_regprocedure($3) AND tgenabled IN ('O', 'A'))";
    if session.query(query, &[Some(table), Some(trigger), Some(function)])?.is_true() {
        return Ok(());
    }
    with_short_lock_once(session, TableLock::ShareRowExclusive, statement, table)
}

fn has_trigger(session: &mut Connection, table: &str, trigger: &str) -> Result<bool> {
    let query = "SELECT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = to_regclass($1) AND tgname = $2)";
    Ok(session.query(query, &[Some(table), Some(trigger)])?.is_true())
}

/// Returns the statement that fills the column in some rows `t` of a leaf.
pub fn batch(shape: &DerivedShape, names: &DerivedNames, leaf: &str, span: &str) -> String {
    if shape.is_identifier() {
        let values = [
            ("leaf", sql(leaf)),
            ("span", sql(span)),
            ("column", name(shape.column())),
            ("value", sql(NEW_IDENTIFIER)),
        ];
        return fill(BATCH_OF_IDENTIFIERS, &values);
    }
    let mut values = values(shape, names);
    values.retain(|(key, _)| !matches!(*key, "is_unset" | "leads_there"));
    values.extend([
        ("leaf", sql(leaf)),
        ("span", sql(span)),
        ("is_unset", sql(shape.is_unset("t"))),
        ("leads_there", sql(shape.joined("p", "c"))),
    ]);
    fill(BATCH, &values)
}

fn values(shape: &DerivedShape, names: &DerivedNames) -> Vec<(&'static str, TemplateValue)> {
    let (table, parent) = (shape.table(), shape.parent_table());
    let about = format!(
        "Fills column {} of {} from column {} of {}. Made by shard_table_derive().",
        shape.column(),
        shape.shown(),
        shape.value(),
        shape.parent_shown()
    );
    vec![
        ("schema", name(shape.schema())),
        ("derive", word(names.derive())),
        ("hold", word(names.hold())),
        ("pass", word(names.pass())),
        ("about", text(about)),
        ("column", name(shape.column())),
        ("value", name(shape.value())),
        ("value_text", text(shape.value())),
        ("parent_text", text(shape.parent_shown())),
        ("hint", text("Run the statement in a transaction with that level.")),
        ("only", sql(shape.only())),
        ("parent", sql(&parent)),
        ("child", sql(&table)),
        ("is_unset", sql(shape.is_unset("NEW"))),
        ("leads_there", sql(shape.joined("p", "NEW"))),
        ("is_old", sql(shape.same_key("p", "OLD"))),
        ("comes_here", sql(shape.joined("NEW", "c"))),
    ]
}

/// Removes the triggers and functions, and the column unless it was there before.
pub fn remove(
    session: &mut Connection,
    shape: &DerivedShape,
    names: &DerivedNames,
    keeps_column: bool,
) -> Result<()> {
    let (table, parent) = (shape.table(), shape.parent_table());
    session.run("RESET ROLE")?;
    for (on, trigger) in [
        (&parent, names.came_trigger()),
        (&parent, names.pass_trigger()),
        (&parent, names.hold_trigger()),
        (&table, names.on_insert()),
        (&table, names.on_update()),
    ] {
        if has_trigger(session, on, &trigger)? {
            let statement = format!("DROP TRIGGER IF EXISTS {trigger} ON {on}");
            with_short_lock_once(session, TableLock::AccessExclusive, &statement, on)?;
        }
    }
    as_owner(session, shape)?;
    let schema = ident(shape.schema());
    for function in [names.derive(), names.hold(), names.pass()] {
        session.run(&format!("DROP FUNCTION IF EXISTS {schema}.{function}()"))?;
    }
    if keeps_column || shape.has_type.is_none() {
        return Ok(());
    }
    let statement = format!("ALTER TABLE {table} DROP COLUMN IF EXISTS {}", ident(shape.column()));
    with_short_lock_once(session, TableLock::AccessExclusive, &statement, &table)
}

/// Returns whether some row that leads somewhere has no value yet, and some row that leads nowhere has none.
pub fn is_incomplete(session: &mut Connection, shape: &DerivedShape) -> Result<[bool; 2]> {
    let (table, column) = (shape.table(), ident(shape.column()));
    if shape.is_identifier() {
        let query = format!("SELECT EXISTS (SELECT FROM {table} t WHERE t.{column} IS NULL)");
        return Ok([session.run_unbounded(&query)?.is_true(), false]);
    }
    let joined = shape.joined("p", "t");
    let query = format!(
        "SELECT EXISTS (SELECT FROM {table} t WHERE t.{column} IS NULL AND EXISTS (SELECT FROM {} {} p WHERE {joined} AND p.{} IS NOT NULL)),
                EXISTS (SELECT FROM {table} t WHERE t.{column} IS NULL)",
        shape.only(),
        shape.parent_table(),
        ident(shape.value())
    );
    let row = session.run_unbounded(&query)?.rows.into_iter().next().unwrap_or_default();
    let is = |at: usize| row.get(at).and_then(Option::as_deref) == Some("t");
    Ok([is(0), is(1)])
}

/// Returns an error if some row has another value than the row that it leads to: the column was there before.
pub fn differing(session: &mut Connection, shape: &DerivedShape) -> Result<Option<Failure>> {
    let (column, value) = (ident(shape.column()), ident(shape.value()));
    let query = format!(
        "SELECT EXISTS (SELECT FROM {} t JOIN {} {} p ON {} WHERE t.{column} IS NOT NULL AND p.{value} IS NOT NULL
                           AND NOT record_image_eq(ROW(t.{column}), ROW(p.{value})))",
        shape.table(),
        shape.only(),
        shape.parent_table(),
        shape.joined("p", "t")
    );
    let differs = session.run_unbounded(&query)?.is_true();
    Ok(differs.then(|| error::differs(shape.column(), &shape.parent_shown(), shape.value())))
}

/// Makes the column refuse NULL, without a long lock: the rows are checked for a constraint beside writers.
pub fn refuse_null(session: &mut Connection, shape: &DerivedShape, names: &DerivedNames) -> Result<()> {
    let (table, column, check) = (shape.table(), ident(shape.column()), names.check());
    let query = "SELECT a.attnotnull, EXISTS (SELECT FROM pg_constraint k WHERE k.conrelid = a.attrelid AND k.conname = $3)
                   FROM pg_attribute a WHERE a.attrelid = to_regclass($1) AND a.attname = $2 AND NOT a.attisdropped";
    let answer = session.query(query, &[Some(&table), Some(shape.column()), Some(&check)])?;
    let row = answer.rows.into_iter().next().unwrap_or_default();
    let is = |at: usize| row.get(at).and_then(Option::as_deref) == Some("t");
    let (refuses, is_checked) = (is(0), is(1));
    if !refuses && !is_checked {
        let statement =
            format!("ALTER TABLE {table} ADD CONSTRAINT {check} CHECK ({column} IS NOT NULL) NOT VALID");
        with_short_lock_once(session, TableLock::AccessExclusive, &statement, &table)?;
    }
    if !refuses {
        session.run_unbounded(&format!("ALTER TABLE {table} VALIDATE CONSTRAINT {check}"))?;
        let statement = format!(
            "ALTER TABLE {table} ALTER COLUMN {column} SET NOT NULL; ALTER TABLE {table} DROP CONSTRAINT {check}"
        );
        return with_short_lock_once(session, TableLock::AccessExclusive, &statement, &table);
    }
    if is_checked {
        let statement = format!("ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {check}");
        with_short_lock_once(session, TableLock::AccessExclusive, &statement, &table)?;
    }
    Ok(())
}

/// Makes an index that leads with the column, on each leaf, beside writers.
pub fn index(
    session: &mut Connection,
    shape: &DerivedShape,
    names: &DerivedNames,
    leaves: &[String],
) -> Result<()> {
    let column = ident(shape.column());
    for (number, leaf) in leaves.iter().enumerate() {
        let index = format!("{}_{number}", names.index());
        match state_of_index(session, shape, leaf, &index)?.as_str() {
            "there" => continue,
            "invalid" => {
                let schema = ident(shape.schema());
                session.run_unbounded(&format!("DROP INDEX CONCURRENTLY IF EXISTS {schema}.{index}"))?;
            }
            _ => {}
        }
        session.run_unbounded(&format!("CREATE INDEX CONCURRENTLY {index} ON {leaf} ({column})"))?;
    }
    if shape.is_partitioned() && state_of_index(session, shape, &shape.table(), "")? != "there" {
        // It takes the leaves' indexes for its own, and builds none.
        let table = shape.table();
        let statement = format!("CREATE INDEX {} ON {table} ({column})", names.index());
        with_short_lock_once(session, TableLock::ShareRowExclusive, &statement, &table)?;
    }
    Ok(())
}

/// Returns "there" if a valid index leads with the column, "invalid" if one of ours was not built to its end.
fn state_of_index(
    session: &mut Connection,
    shape: &DerivedShape,
    table: &str,
    index: &str,
) -> Result<String> {
    let query = format!(
        "SELECT coalesce(max(CASE WHEN i.indisvalid AND a.attname = {} THEN 'there' END),
                         max(CASE WHEN NOT i.indisvalid AND c.relname = {} THEN 'invalid' END), 'none')
           FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
           LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
          WHERE i.indrelid = to_regclass({}) AND i.indpred IS NULL",
        literal(shape.column()),
        literal(index),
        literal(table)
    );
    Ok(session.run(&query)?.scalar().unwrap_or_default().to_owned())
}
