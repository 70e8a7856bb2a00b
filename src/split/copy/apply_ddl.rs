//! Changes that the owner of a table makes on the source are applied to the target as well, if the split's operator
//! has asked for that. They are not applied by the owner's statement, whose text must not be run by another role, but
//! by its result: the earlier columns, as the target knows them, and the current ones. Invariant: a change is made
//! once. It is noted in the commit that makes it, by the columns that it has led to.
//!
//! Only changes are applied that certainly mean the same there, take a moment and destroy nothing: renamed columns,
//! new and empty columns, wider types without a rewrite, dropped NOT NULL. A dropped column stays on the target, where
//! it is no longer filled: the rows there belong to others as well. Other changes are waited for, and so is a type
//! change for which the server would scan rows: a CHECK constraint of that column is checked again, by code that runs
//! as the mover.

use crate::agent::error::{Result, SplitError};
use crate::agent::known_column::KnownColumn;
use crate::agent::session::Side;
use crate::agent::shape::{Column, TableShape};
use crate::agent::state::epoch::Tenure;
use crate::agent::state::{epoch, progress};
use crate::agent::{catalogs, seen};
use crate::catalog::split::{self, Plan};
use crate::error::{Failure, SqlState};
use crate::remote::Connection;
use crate::remote::quote::ident;
use crate::server::txn::transaction;
use crate::server::wait;
use crate::split::copy::compatible_ddl::{has_same_bytes, split_modifier};
use crate::split::engine::locks;
use crate::split::injection_points::{self, reach};
use crate::split::table::SplitTable;
use crate::split::untrusted_code;
use std::time::Duration;

const HELD_BY_ROWS: &str = include_str!("../../../sql/agent/held_by_rows.sql");

/// How often a table is locked for a moment before its clients get a longer pause.
const TRIES: u32 = 20;

/// Type names as `format_type` writes them. A source's own text is never put into a statement: one of these is.
const TYPES: [&str; 24] = [
    "smallint",
    "integer",
    "bigint",
    "numeric",
    "real",
    "double precision",
    "boolean",
    "text",
    "character varying",
    "character",
    "bytea",
    "date",
    "time without time zone",
    "time with time zone",
    "timestamp without time zone",
    "timestamp with time zone",
    "interval",
    "uuid",
    "json",
    "jsonb",
    "inet",
    "cidr",
    "bit",
    "bit varying",
];

/// Applies the changes. Returns whether anything was changed on the target.
pub fn bring_over(
    tenure: &Tenure,
    target: &mut Connection,
    tables: &[SplitTable],
    why: &Failure,
) -> Result<bool> {
    let id = tenure.plan.id;
    let shapes = begin(tenure, target, tables)?;
    let mut progress = progress::read_locked(target, &tenure.plan)?;
    let (mut statements, mut changed) = (Vec::new(), Vec::new());
    for ((table, known), shape) in tables.iter().zip(&mut progress.tables).zip(&shapes) {
        let source = &table.source;
        let now = source.structure();
        let is_known = known.structure.is_empty() || known.structure == now || known.replayed == now;
        let is_own =
            table.policy.maps.is_empty() && source.keeps_key(&known.structure, &table.policy.shard_by);
        let Some(before) = known.columns.as_ref().filter(|_| !is_known && is_own) else { continue };
        let held = held_by_rows(target, shape)?;
        let there = known.target_columns.as_deref().unwrap_or_default();
        let clauses = clauses(before, there, source, shape, &held);
        if !clauses.is_empty() {
            known.replayed = now;
            changed.push(shape.name.as_str());
        }
        statements.extend(clauses.iter().map(|clause| format!("ALTER TABLE {} {clause}", shape.name)));
    }
    if statements.is_empty() {
        target.run("ROLLBACK")?;
        return Ok(false);
    }
    let done = lock(target, &changed)
        .and_then(|()| Ok(target.run(&statements.join("; ")).map(drop)?))
        .and_then(|()| progress::store(target, id, &progress));
    if let Err(error) = done {
        let _ = target.run("ROLLBACK");
        return Err(refused(error, &statements.join("; "), why));
    }
    target.run("COMMIT")?;
    reach(injection_points::RESHAPE_REPLAYED)?;
    tell(&tenure.plan, &statements);
    Ok(true)
}

/// Records what was done in the split's history.
pub fn tell(plan: &Plan, statements: &[String]) {
    let text = format!(
        "applied on shard \"{}\", as on shard \"{}\": {}",
        plan.target.shard_key,
        plan.source.shard_key,
        statements.join("; ")
    );
    transaction(|| split::event(plan.id, None, None, &text));
}

/// Begins a transaction of the target in which its tables are to change: they have nothing that the mover must not
/// run, for example an expression of a constraint, and nothing of the kind is added before its end.
pub fn begin(tenure: &Tenure, target: &mut Connection, tables: &[SplitTable]) -> Result<Vec<TableShape>> {
    epoch::begin_as(target, tenure.plan.id, Side::Target, tenure.generation)?;
    locks::lock_target(target, tables)?;
    let now = seen::look(target, &tenure.plan, Side::Target)?;
    untrusted_code::look_through(target, &tenure.plan, Side::Target, now.code())?;
    Ok(now.tables)
}

fn held_by_rows(target: &mut Connection, shape: &TableShape) -> Result<Vec<String>> {
    let found = catalogs::ask(target, HELD_BY_ROWS, &[shape.oid.as_deref()])?;
    Ok(found.column().collect())
}

/// Locks tables. Readers and writers, also of other keys, queue behind the lock, so it is tried only briefly, and
/// again. What is done under it takes only a moment, even if the worker is stopped.
fn lock(target: &mut Connection, tables: &[&str]) -> Result<()> {
    let tables = tables.join(", ");
    let statement = format!(
        "SAVEPOINT replay; SET LOCAL lock_timeout = '100ms'; SET LOCAL statement_timeout = '300ms';
         LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE;
         SET LOCAL statement_timeout = '2s'; SET LOCAL idle_in_transaction_session_timeout = '5s'"
    );
    let mut tries = 1;
    while let Err(error) = target.run(&statement) {
        if tries == TRIES || !error.is_lock_timeout() && !error.is("57014") {
            return Err(if error.is("57014") {
                SplitError::Retry(format!("a lock on {tables} on shard \"{}\"", target.shard()))
            } else {
                error.into()
            });
        }
        target.run("ROLLBACK TO replay")?;
        tries += 1;
        wait::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// Returns the error of a refused change: the split continues to wait for its operator.
pub fn refused(error: SplitError, statements: &str, why: &Failure) -> SplitError {
    if error.is_transient() {
        return error;
    }
    let found = error.into_failure();
    SplitError::Reshaped(
        Failure::new(
            SqlState::NOT_IN_STATE,
            format!("{}: the source's change was refused on the target: {}", why.message, found.message),
        )
        .detail(statements)
        .hint("Make both sides alike, or undo the change. Then the split continues automatically."),
    )
}

/// Returns the clauses that turn the target's earlier table into what the source's has become, as far as such changes
/// suffice. A column is identified by its number on either side: changes may have been made there that the split has
/// not continued with. `held`: columns whose type stays.
fn clauses(
    before: &[KnownColumn],
    there: &[KnownColumn],
    source: &TableShape,
    target: &TableShape,
    held: &[String],
) -> Vec<String> {
    let mut clauses = Vec::new();
    for known in before {
        let filled = there.iter().find(|column| column.name == known.name);
        let there = filled.map_or_else(|| target.column(&known.name), |filled| now(filled, target));
        if let Some((column, there)) = now(known, source).zip(there) {
            let is_held = held.contains(&there.name);
            clauses.extend(changed(known, column, there, is_held, target));
        }
    }
    for column in source.columns() {
        let is_new = before.iter().all(|known| known.attribute() != KnownColumn::from(column).attribute());
        let has_place = target.column(&column.name).is_none();
        let is_plain = !column.has_default && column.generated.is_none() && column.collation.is_none();
        if let Some(type_name) =
            type_name(column).filter(|_| is_new && has_place && is_plain && !column.not_null)
        {
            clauses.push(format!("ADD COLUMN {} {type_name}", ident(&column.name)));
        }
    }
    clauses
}

fn now<'a>(known: &KnownColumn, shape: &'a TableShape) -> Option<&'a Column> {
    shape.columns().iter().find(|column| KnownColumn::from(*column).attribute() == known.attribute())
}

/// Returns the clauses for a column that both have and that was changed on the source.
fn changed(
    known: &KnownColumn,
    column: &Column,
    there: &Column,
    is_held: bool,
    target: &TableShape,
) -> Vec<String> {
    let mut clauses = Vec::new();
    let (before, now) = (ident(&there.name), ident(&column.name));
    let is_free = target.column(&column.name).is_none();
    let name = if column.name != known.name && is_free {
        clauses.push(format!("RENAME COLUMN {before} TO {now}"));
        now
    } else {
        before
    };
    let is_of_before = there.type_name == known.type_name || is_wider(&known.type_name, &there.type_name);
    let becomes_wider = is_of_before
        && is_wider(&known.type_name, &column.type_name)
        && is_wider(&there.type_name, &column.type_name)
        && column.collation == there.collation
        && !is_held;
    if let Some(type_name) = type_name(column).filter(|_| becomes_wider) {
        clauses.push(format!("ALTER COLUMN {name} TYPE {type_name}"));
    }
    if known.not_null && !column.not_null && there.not_null {
        clauses.push(format!("ALTER COLUMN {name} DROP NOT NULL"));
    }
    clauses
}

/// Whether no row has to be checked for a type change: the same bytes, and a limit that is at least as high or none.
fn is_wider(before: &str, now: &str) -> bool {
    let [(_, from), (_, to)] = [before, now].map(split_modifier);
    let limits =
        |modifier: &str| -> Vec<u32> { modifier.split(',').filter_map(|n| n.parse().ok()).collect() };
    before != now
        && has_same_bytes(before, now)
        && match (from.map(limits), to.map(limits)) {
            (_, None) => true,
            (None, Some(_)) => false,
            // The number of fractional digits affects each value.
            (Some(from), Some(to)) => from.first() <= to.first() && from.get(1) == to.get(1),
        }
}

/// Returns a type of the server's own, with its length or precision.
fn type_name(column: &Column) -> Option<String> {
    let (plain, modifier) = split_modifier(&column.type_name);
    let known = *TYPES.iter().find(|known| **known == plain)?;
    let Some(modifier) = modifier else { return Some(known.to_owned()) };
    let is_number =
        |part: &str| !part.is_empty() && part.len() < 9 && part.bytes().all(|b| b.is_ascii_digit());
    let is_modifier = modifier.split(',').count() <= 2 && modifier.split(',').all(is_number);
    let at = column.type_name.find('(').filter(|at| *at <= known.len())?;
    is_modifier.then(|| format!("{}({modifier}){}", &known[..at], &known[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::known_column;

    fn column(number: &str, name: &str, type_name: &str) -> Column {
        let [number, name, type_name] = [number, name, type_name].map(str::to_owned);
        Column { number, name, type_name, ..Column::default() }
    }

    fn table(columns: &[Column]) -> TableShape {
        TableShape { columns: Some(columns.to_vec()), ..TableShape::default() }
    }

    fn replayed(before: &[Column], source: &[Column], target: &[Column]) -> Vec<String> {
        clauses(&known_column::of(&table(before)), &[], &table(source), &table(target), &[])
    }

    #[test]
    fn the_target_becomes_what_the_source_has_become() {
        let before = [column("1", "a", "integer"), column("2", "b", "character varying(9)")];
        let there = [column("7", "a", "integer"), column("8", "b", "character varying(9)")];
        let added = [before[0].clone(), before[1].clone(), column("3", "c d", "timestamp(3) with time zone")];
        assert_eq!(replayed(&before, &added, &there), ["ADD COLUMN \"c d\" timestamp(3) with time zone"]);
        // Nothing on the target is destroyed.
        assert_eq!(replayed(&before, &before[..1], &there), [""; 0]);
        assert_eq!(replayed(&before, &[before[0].clone(), column("3", "b", "text")], &there), [""; 0]);
        let wider = [before[0].clone(), column("2", "b", "text")];
        let known = known_column::of(&table(&before));
        assert!(clauses(&known, &[], &table(&wider), &table(&there), &["b".into()]).is_empty());
        let strict = |columns: &[Column]| -> Vec<Column> {
            columns.iter().map(|column| Column { not_null: true, ..column.clone() }).collect()
        };
        let mut other = before.clone();
        other[1] = column("2", "e", "text");
        assert_eq!(
            replayed(&before, &other, &there),
            [r#"RENAME COLUMN "b" TO "e""#, r#"ALTER COLUMN "e" TYPE text"#]
        );
        assert_eq!(
            replayed(&strict(&before), &before, &strict(&there)),
            [r#"ALTER COLUMN "a" DROP NOT NULL"#, r#"ALTER COLUMN "b" DROP NOT NULL"#]
        );
        assert_eq!(replayed(&before, &strict(&before), &there), [""; 0]);
        assert_eq!(replayed(&before, &other, &[there[0].clone(), column("8", "e", "text")]), [""; 0]);
    }

    /// A part was done already when the source has changed once more.
    #[test]
    fn what_was_done_there_already_is_gone_on_with() {
        let before = known_column::of(&table(&[column("1", "a", "character varying(9)")]));
        let there = known_column::of(&table(&[column("7", "a", "character varying(9)")]));
        let of =
            |now: &[Column], target: Column| clauses(&before, &there, &table(now), &table(&[target]), &[]);
        let now = [column("1", "c", "text")];
        let renamed = column("7", "b", "character varying(20)");
        assert_eq!(of(&now, renamed), [r#"RENAME COLUMN "b" TO "c""#, r#"ALTER COLUMN "c" TYPE text"#]);
        assert_eq!(of(&now, column("7", "c", "text")), [""; 0]);
        // This has another column of that name, and one that its operator has named first there.
        assert_eq!(of(&now, column("8", "a", "character varying(9)")), [""; 0]);
        let wider = [column("1", "a", "text")];
        assert_eq!(of(&wider, column("7", "b", "character varying(9)")), [r#"ALTER COLUMN "b" TYPE text"#]);
    }

    #[test]
    fn no_row_is_looked_at_for_a_wider_type() {
        for (before, now) in [
            ("character varying(9)", "character varying(20)"),
            ("character varying(9)", "text"),
            ("numeric(8,2)", "numeric(10,2)"),
            ("numeric(8,2)", "numeric"),
            ("timestamp(3) without time zone", "timestamp without time zone"),
        ] {
            assert!(is_wider(before, now) && !is_wider(now, before), "{before}, {now}");
        }
        for (before, now) in [("integer", "bigint"), ("numeric(8,2)", "numeric(10,3)"), ("text", "text")] {
            assert!(!is_wider(before, now), "{before}, {now}");
        }
    }

    #[test]
    fn what_does_not_mean_the_same_is_left() {
        let before = [column("1", "a", "integer")];
        let with = |new: Column| replayed(&before, &[before[0].clone(), new], &before);
        let plain = column("2", "b", "text");
        assert_eq!(with(plain.clone()), [r#"ADD COLUMN "b" text"#]);
        for new in [
            Column { has_default: true, ..plain.clone() },
            Column { not_null: true, ..plain.clone() },
            Column { generated: Some("a + 1".into()), ..plain.clone() },
            Column { collation: Some("pg_catalog.\"C\"".into()), ..plain.clone() },
            column("2", "b", "public.mood"),
            column("2", "b", "integer, DROP COLUMN a"),
            column("2", "b", "numeric(1); DROP TABLE t"),
            column("2", "b", "numeric(1,2,3)"),
            column("2", "b", "text DEFAULT now()"),
            column("2", "b", "text)("),
        ] {
            assert_eq!(with(new.clone()), [""; 0], "{new:?}");
        }
    }
}
