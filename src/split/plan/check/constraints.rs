//! CHECK constraints of the target: COPY checks every one of them, so the source must have guaranteed the same for
//! each copied row, even for old ones. And columns that the target generates: its functions must give the values that
//! the source's have given.

use crate::agent::deparsed::in_schema;
use crate::agent::error::Result;
use crate::agent::named::NamedThings;
use crate::agent::observed_side::ObservedSide;
use crate::agent::shape::TableShape;
use crate::agent::table_names::TableNames;
use crate::agent::{catalogs, plain, untrusted_code};
use crate::catalog::split::{Plan, PlannedTable};
use crate::remote::Connection;
use crate::remote::quote::ident;
use crate::split::finding::Finding;
use crate::split::table::computed;
use std::collections::{BTreeMap, BTreeSet};

const CONSTRAINTS: &str = include_str!("../../../../sql/check/constraints.sql");
const GENERATED: &str = include_str!("../../../../sql/check/generated.sql");
const DOMAINS: &str = include_str!("../../../../sql/check/domains.sql");

const NAME: &str = "target: CHECK constraints";

/// What a side guarantees about the rows of a table.
struct RowPromise {
    position: usize,
    table: String,
    name: String,
    /// The bounds of a partition; empty for all rows.
    of: String,
    says: String,
    functions: String,
    columns: BTreeSet<String>,
    is_valid: bool,
    is_inherited: bool,
    /// The schema of the table, as the server writes it.
    schema: String,
}

pub fn check(plan: &Plan, source: &mut ObservedSide, target: &mut ObservedSide) -> Result<Vec<Finding>> {
    let mut findings = domains(plan, source)?;
    findings.extend(generated(plan, source, target)?);
    let given = promises(source)?;
    for wanted in promises(target)?.iter().filter(|wanted| !wanted.is_inherited) {
        let (Some(policy), Some(from), Some(to)) = (
            plan.tables.get(wanted.position),
            source.observation.tables.get(wanted.position),
            target.observation.tables.get(wanted.position),
        ) else {
            continue;
        };
        // A table that may not be read has a finding of its own.
        if to.oid.is_none() {
            continue;
        }
        let text = format!("{}: constraint \"{}\": CHECK ({})", wanted.table, wanted.name, wanted.says);
        if let Some(column) = computed(policy, from, &wanted.columns) {
            let hint = "A row that breaks it stops the split (23514).";
            findings.push(Finding::note(NAME, format!("{text}: column \"{column}\" is computed"), hint));
            continue;
        }
        let mut reason = "the source has no such constraint".to_owned();
        // A constraint in other words is about the same columns.
        let alike = given.iter().filter(|promise| {
            promise.position == wanted.position
                && (promise.of.is_empty() || promise.of == wanted.of)
                && promise.columns == wanted.columns
        });
        for promise in alike {
            match is_same(plan, &mut target.session, to, promise, wanted)? {
                Same::Yes => {}
                Same::No => continue,
                Same::Unread(why) => {
                    reason = format!("that of the source has another text, which cannot be compared: {why}");
                    continue;
                }
            }
            if promise.functions != wanted.functions {
                reason = "a function that it calls is different on the target".to_owned();
            } else if promise.is_valid {
                reason = String::new();
                break;
            } else {
                reason = format!(
                    "that of the source, \"{}\", is NOT VALID, and old rows may break it",
                    promise.name
                );
            }
        }
        if !reason.is_empty() {
            let hint = "The target enforces it. Add it to the source and validate it there, or drop it on the target and add it again after the split.";
            findings.push(Finding::new(NAME, false, format!("{text}: {reason}"), hint));
        }
    }
    Ok(findings)
}

/// Returns a column of a constraint that is not copied as it is. Its author has then decided how.
fn computed<'a>(
    policy: &PlannedTable,
    from: &TableShape,
    columns: &'a BTreeSet<String>,
) -> Option<&'a String> {
    columns.iter().find(|column| from.column(column).is_none() || computed::is_own(policy, column))
}

/// Whether two constraints have the same meaning.
enum Same {
    Yes,
    No,
    /// An object that its text names on the target could run code of others.
    Unread(String),
}

/// Compares two constraints. A text that was dumped and read by another server is the same in other words: then both
/// are read again, on the target, for one table.
fn is_same(
    plan: &Plan,
    target: &mut Connection,
    to: &TableShape,
    promise: &RowPromise,
    wanted: &RowPromise,
) -> Result<Same> {
    let promised = in_schema(&promise.says, &promise.schema, &wanted.schema);
    if promised == wanted.says {
        return Ok(Same::Yes);
    }
    // The source has written it, and the target would read it with the mover's rights.
    let known = plain::known_names(&wanted.says);
    if !plain::is_expression(&promised, |name| known.contains(name)) {
        return Ok(Same::No);
    }
    // The best match for a name there need not be what the constraint was made of.
    let named = [&promised, &wanted.says].map(|text| plain::qualified(text));
    let [Some(promised_names), Some(wanted_names)] = named else { return Ok(Same::No) };
    let named = NamedThings::of(&[promised_names, wanted_names].concat());
    let code = untrusted_code::find_in(target, &TableNames::default(), &plan.trusted[1], &named)?.code;
    if let Some(code) = code.first() {
        return Ok(Same::Unread(code.what().to_owned()));
    }
    let base = plan.tables.get(wanted.position).map_or_else(String::new, |policy| ident(&policy.name));
    let statements = [
        format!("CREATE TEMPORARY TABLE {base} (LIKE {})", to.name),
        format!("ALTER TABLE pg_temp.{base} ADD CHECK ({promised}), ADD CHECK ({})", wanted.says),
    ];
    let distinct = target.undone(|target| {
        statements.iter().try_for_each(|statement| target.query(statement, &[]).map(|_| ()))?;
        target.query(
            "SELECT count(DISTINCT pg_get_expr(conbin, conrelid)) FROM pg_constraint WHERE conrelid = $1::regclass AND contype = 'c'",
            &[Some(&format!("pg_temp.{base}"))],
        )
    });
    match distinct {
        Ok(rows) if rows.scalar() == Some("1") => Ok(Same::Yes),
        Ok(_) => Ok(Same::No),
        // A constraint that cannot be read there is not the same.
        Err(error) if error.is_verdict() => Ok(Same::No),
        Err(error) => Err(error.into()),
    }
}

fn promises(side: &mut ObservedSide) -> Result<Vec<RowPromise>> {
    let rows = catalogs::ask(&mut side.session, CONSTRAINTS, &catalogs::given(&side.names.lists()))?;
    Ok(rows
        .rows
        .into_iter()
        .map(|row| {
            let cell = |n: usize| row.get(n).cloned().flatten().unwrap_or_default();
            RowPromise {
                position: cell(0).parse().unwrap_or(usize::MAX),
                table: cell(1),
                name: cell(2),
                of: cell(3),
                says: cell(4),
                functions: cell(5),
                columns: serde_json::from_str::<BTreeSet<String>>(&cell(6)).unwrap_or_default(),
                is_valid: cell(7) == "t",
                is_inherited: cell(8) == "t",
                schema: cell(9),
            }
        })
        .collect())
}

/// Checks that a column that both sides generate has the values of the target's functions there.
fn generated(plan: &Plan, source: &mut ObservedSide, target: &mut ObservedSide) -> Result<Vec<Finding>> {
    let here = functions(source)?;
    let mut findings = Vec::new();
    for ((position, column), made_of) in functions(target)? {
        let (Some(policy), Some(from), Some(to)) = (
            plan.tables.get(position),
            source.observation.tables.get(position),
            target.observation.tables.get(position),
        ) else {
            continue;
        };
        let is_generated = from.column(&column).is_some_and(|column| column.generated.is_some());
        if computed::is_own(policy, &column)
            || !is_generated
            || here.get(&(position, column.clone())) == Some(&made_of)
        {
            continue;
        }
        let detail =
            format!("{}: column \"{column}\" is generated by other functions than on the source", to.name);
        let hint =
            "Give both sides the same functions, or leave the column out with shard_split_map(): NULL.";
        findings.push(Finding::new("target: generated columns", false, detail, hint));
    }
    Ok(findings)
}

/// Returns what the generated columns of a side are made of, by table and name.
fn functions(side: &mut ObservedSide) -> Result<BTreeMap<(usize, String), String>> {
    let rows = catalogs::ask(&mut side.session, GENERATED, &catalogs::given(&side.names.lists()))?;
    let known = |row: &Vec<Option<String>>| {
        let [Some(position), Some(column), Some(made_of)] = row.as_slice() else { return None };
        Some(((position.parse().ok()?, column.clone()), made_of.clone()))
    };
    Ok(rows.rows.iter().filter_map(known).collect())
}

/// Checks domains. Both sides have the same ones, or `columns` reports it; but the source may have values from before
/// a constraint.
fn domains(plan: &Plan, source: &mut ObservedSide) -> Result<Vec<Finding>> {
    let rows = catalogs::ask(&mut source.session, DOMAINS, &catalogs::given(&source.names.lists()))?;
    let mut findings = Vec::new();
    for row in &rows.rows {
        let [Some(position), Some(column), Some(domain), Some(name)] = row.as_slice() else { continue };
        let Some(policy) = position.parse::<usize>().ok().and_then(|at| plan.tables.get(at)) else {
            continue;
        };
        // The column is computed, or left out.
        if computed::is_own(policy, column) {
            continue;
        }
        let detail = format!(
            "{}: column \"{column}\": constraint \"{name}\" of domain {domain} is NOT VALID, and old values may break it",
            policy.table_name
        );
        let hint = format!("ALTER DOMAIN {domain} VALIDATE CONSTRAINT {}, on the source", ident(name));
        findings.push(Finding::new("source: constraints of domains", false, detail, &hint));
    }
    Ok(findings)
}
