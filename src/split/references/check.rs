//! The findings of a split's check about foreign keys: rows that cannot be separated, and rows that the target must
//! have. It reads only the moving keys.

use crate::agent::error::{Result, SplitError};
use crate::agent::observed_side::ObservedSide;
use crate::agent::session::Side;
use crate::agent::shape::Column;
use crate::catalog::reference;
use crate::catalog::split::Plan;
use crate::catalog::table_policy::Policy;
use crate::guc;
use crate::remote::Connection;
use crate::remote::copy::Bounds;
use crate::remote::pipe;
use crate::remote::quote::ident;
use crate::split::finding::Finding;
use crate::split::references::{
    InboundFk, Reference, columns_by, found, in_scope, keyless, load, load_all, moves, staying_row,
};
use crate::split::sequences::named_rows::{self, Why};
use crate::split::table::{self, SplitTable, computed};
use std::collections::BTreeSet;

const ACROSS: &str = "source: foreign keys across keys";
const MISSING: &str = "target: referenced rows";

/// Returns the findings, using sessions that are not used afterwards; a server that cannot be reached is reported by
/// the rest of the check. Tables of the plan that may not be read are not queried.
pub fn run(plan: &Plan, source: &mut ObservedSide, target: &mut ObservedSide) -> Result<Vec<Finding>> {
    let ObservedSide { session: source, locked: here, .. } = source;
    let ObservedSide { session: target, locked: there, .. } = target;
    let closed: BTreeSet<usize> = here.closed.union(&there.closed).copied().collect();
    let is_closed = |reference: &Reference| {
        let ends = [reference.from_position, reference.to_position];
        ends.into_iter().flatten().any(|position| closed.contains(&position))
    };
    prepare(plan, source)?;
    let mut references = load(source, plan, Side::Source)?;
    references.retain(|reference| !is_closed(reference));
    let mut findings = Vec::new();
    findings.extend(references.iter().filter_map(follows_common));
    if !references.is_empty() {
        let by = columns_by(source, plan, Side::Source)?;
        // Foreign keys of other tables are refused separately.
        for reference in references.iter().filter(|r| r.from_position.is_some()) {
            if reference.to_position.is_some() {
                reference.require_locked(source.shard(), here)?;
            }
            findings.push(source.undone(|source| across(source, plan, &by, reference))?);
        }
    }
    prepare(plan, target)?;
    findings.extend(named_rows::check(plan, source, target, &parents(plan, &references), Why::Referenced)?);
    findings.extend(promised_by_target(source, target, plan)?);
    let mut theirs = load(target, plan, Side::Target)?;
    theirs.retain(|reference| !is_closed(reference));
    for (side, references) in [(Side::Source, &references), (Side::Target, &theirs)] {
        findings.extend(references.iter().filter_map(|reference| to_global(plan, side, reference)));
    }
    // A referenced table with a policy of its own is checked by that policy.
    let outgoing: Vec<Reference> = theirs
        .into_iter()
        .filter(|r| r.from_position.is_some() && r.is_validated && !r.is_period)
        .filter(|r| keyless(plan, Side::Target, r).is_none())
        .collect();
    if outgoing.is_empty() {
        return Ok(findings);
    }
    // Another finding shows which may not be read, and why.
    if !closed.is_empty() {
        return Ok(findings);
    }
    let tables = table::load(plan, source, target)?;
    let known = columns_by(source, plan, Side::Source)?;
    for (number, reference) in outgoing.iter().enumerate() {
        // The twin shows what it references on the source, by the name of the table.
        let twin = references.iter().find(|r| r.is_twin(reference));
        if reference.can_read {
            reference.require_locked(target.shard(), there)?;
        }
        let values = StayingValues { plan, reference, twin, tables: &tables, by: &known };
        findings
            .extend(source.undone(|source| target.undone(|target| values.missing(source, target, number)))?);
    }
    Ok(findings)
}

/// Returns the tables in no keyspace that moving rows refer to.
fn parents(plan: &Plan, references: &[Reference]) -> Vec<(String, String)> {
    let open = references.iter().filter(|r| {
        r.from_position.is_some() && r.to_position.is_none() && keyless(plan, Side::Source, r).is_none()
    });
    let names: BTreeSet<(String, String)> = open.map(|r| (r.to_schema.clone(), r.to_name.clone())).collect();
    names.into_iter().collect()
}

/// Checks foreign keys that the target does not check in a replica's session. One that contains the shard-by column
/// holds there because it holds on the source, which must guarantee the same.
fn promised_by_target(source: &mut Connection, target: &mut Connection, plan: &Plan) -> Result<Vec<Finding>> {
    let theirs = load_all(target, plan, Side::Target, true)?;
    let ours = load_all(source, plan, Side::Source, true)?;
    let bad = theirs
        .iter()
        .filter(|r| r.carries_key && r.is_validated && r.from_position.is_some() && !r.is_promised_by(&ours));
    let unwatched = theirs.iter().filter(|r| is_unwatched_period(r)).map(period_of_its_own);
    Ok(bad
        .map(|r| {
            Finding::new(
                "target: foreign keys of the source",
                false,
                format!(
                    "{} references {} by foreign key \"{}\", which shard \"{}\" lacks, or has not validated",
                    r.from, r.to, r.name, plan.source.shard_key
                ),
                "Rows are copied without checking it. Add the foreign key to the source's table and validate it, or drop it on the target.",
            )
        })
        .chain(unwatched)
        .collect())
}

/// Whether a foreign key references ranges: these are not checked here, so the source's have to be the same.
fn is_unwatched_period(reference: &Reference) -> bool {
    let is_checked = reference.is_validated && reference.from_position.is_some();
    reference.is_period && is_checked && (reference.is_own || !reference.carries_key)
}

fn period_of_its_own(reference: &Reference) -> Finding {
    Finding::new(
        "target: foreign keys with PERIOD",
        false,
        format!("{} references {} by foreign key \"{}\"", reference.from, reference.to, reference.name),
        "It can move only with the shard-by column in it, and without columns that shard_split_map() computes or leaves out. Drop it on the target until the split is finished, or remove the mapping.",
    )
}

/// Returns a finding if moving rows may refer to a reference table that the target does not have yet.
pub fn unfilled(plan: &Plan) -> Option<Finding> {
    let shard = &plan.target.shard_key;
    let unfilled = reference::unfilled(&plan.keyspace, std::slice::from_ref(shard))?;
    let table = unfilled.table_name;
    let why = unfilled.error.map(|why| format!(": {why}")).unwrap_or_default();
    let text = format!("shard \"{shard}\" does not have reference table {table} yet{why}");
    let hint = "It is filled in the background. shard_reference_tables() shows what it waits for.";
    Some(Finding { transient: true, ..Finding::new("target: reference tables", false, text, hint) })
}

/// Returns a finding if moving rows reference rows on the one server that has them, which are not copied.
fn to_global(plan: &Plan, side: Side, reference: &Reference) -> Option<Finding> {
    reference.from_position?;
    let table = keyless(plan, side, reference)?;
    (table.policy == Policy::Global).then(|| {
        Finding::new(
            &format!("{}: foreign keys to global tables", side.as_str()),
            false,
            reference.described(),
            "A global table is on one server only. Drop the foreign key, or make it a reference table: shard_table_drop, then shard_table_add with policy => 'reference'.",
        )
    })
}

/// Returns a finding if a change of a common table changes referencing rows: moved rows that are not deleted yet on
/// the source would change there.
fn follows_common(reference: &Reference) -> Option<Finding> {
    if reference.from_position.is_none() || reference.to_position.is_some() || reference.follows.is_empty() {
        return None;
    }
    let to = &reference.to;
    Some(Finding::note(
        "source: rows that follow a common table",
        format!("{} {}", reference.described(), reference.follows),
        &format!(
            "From the cutover until shard_split_finish, a change of {to} on the source that affects moved rows is refused (SM001, SM002). Make it after that, on both shards."
        ),
    ))
}

/// Creates what the scope's condition calls, and sets a time limit whose error can be recognized.
fn prepare(plan: &Plan, connection: &mut Connection) -> Result<()> {
    if let Some(functions) = plan.scope.functions("pg_temp") {
        connection.run(&functions)?;
    }
    let limit = guc::remote_timeout().as_millis() * 4 / 5;
    connection.run(&format!("SET statement_timeout = '{limit}ms'"))?;
    Ok(())
}

/// Finds rows of a moving and of a staying key that reference each other.
fn across(
    source: &mut Connection,
    plan: &Plan,
    by: &[Option<Column>],
    reference: &Reference,
) -> Result<Finding> {
    let text = reference.described();
    if reference.is_period {
        let hint = "A foreign key with PERIOD can move only with the shard-by column in it.";
        return Ok(Finding::new(ACROSS, false, text, hint));
    }
    let inbound_fk = match staying_row(source, plan, by, reference) {
        Ok(None) => moving_row(source, plan, by, reference),
        other => other,
    };
    let Some(inbound_fk) = bounded(inbound_fk)? else { return Ok(too_long(ACROSS, reference)) };
    Ok(match inbound_fk {
        None => Finding::new(ACROSS, true, text, ""),
        Some(inbound_fk) => Finding::new(
            ACROSS,
            false,
            inbound_fk.text(),
            "Rows on two shards cannot reference each other. Move both keys, or remove the reference.",
        ),
    })
}

/// Returns a row of the scope that references a row of another key. A row without a key belongs to all keys.
fn moving_row(
    source: &mut Connection,
    plan: &Plan,
    by: &[Option<Column>],
    reference: &Reference,
) -> Result<Option<InboundFk>> {
    let (Some(from), Some(to)) = (reference.from_position, reference.to_position) else { return Ok(None) };
    let (Some(scope), Some(Some(column))) = (in_scope(plan, by, from, "t"), by.get(to)) else {
        return Ok(None);
    };
    let query = format!(
        "SELECT {} FROM {} t JOIN {} p ON {} WHERE {scope} AND p.{} IS NOT NULL AND NOT {} LIMIT 1",
        reference.value("t"),
        reference.from,
        reference.to,
        reference.join("p", "t"),
        ident(&column.name),
        moves(plan, by, Some(to), "p")
    );
    found(source, reference, &query)
}

/// Returns None if the query took too long, which is no fault of the connection.
fn bounded<T>(outcome: Result<T>) -> Result<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(SplitError::Remote(error)) if error.is("57014") => Ok(None),
        Err(other) => Err(other),
    }
}

fn too_long(name: &str, reference: &Reference) -> Finding {
    let limit = guc::remote_timeout().as_secs_f64() * 0.8;
    Finding::new(
        name,
        false,
        format!("{}: not answered within {limit} s", reference.described()),
        &format!(
            "Create an index on {} ({}), or raise shardmaster.remote_timeout.",
            reference.from,
            reference.column_names()
        ),
    )
}

fn may_not_read(reference: &Reference, text: &str) -> Finding {
    let hint = "Grant the mover SELECT on the referenced table.";
    Finding::new(MISSING, false, format!("{}: {text}", reference.to), hint)
}

/// The values by which the scope's rows reference rows that do not move.
struct StayingValues<'a> {
    plan: &'a Plan,
    reference: &'a Reference,
    twin: Option<&'a Reference>,
    tables: &'a [SplitTable],
    /// The shard-by columns of the source.
    by: &'a [Option<Column>],
}

impl StayingValues<'_> {
    /// Returns a value that the target's referenced table does not have.
    fn missing(
        &self,
        source: &mut Connection,
        target: &mut Connection,
        number: usize,
    ) -> Result<Option<Finding>> {
        let reference = self.reference;
        if !reference.can_read {
            let text = format!("permission denied for table {}", reference.to);
            return Ok(Some(may_not_read(reference, &text)));
        }
        let Some(out) = self.query() else { return Ok(None) };
        let columns: Vec<String> = reference.columns.iter().map(|c| ident(&c.from)).collect();
        let values = format!("pg_temp.referenced_{number}");
        target.run(&format!(
            "CREATE TEMPORARY TABLE referenced_{number} AS SELECT {} FROM {} WITH NO DATA",
            columns.join(", "),
            reference.from
        ))?;
        let piped = pipe::statements(
            source,
            &format!("COPY ({out}) TO STDOUT (FORMAT text)"),
            target,
            &format!("COPY {values} FROM STDIN (FORMAT text)"),
            Bounds { stall: guc::remote_timeout(), ..Bounds::unlimited() },
        );
        let policy = reference.from_position.and_then(|position| self.plan.tables.get(position));
        let without_values = |error| match policy {
            Some(policy) => computed::without_values(error, &reference.from, policy),
            None => error,
        };
        if bounded(piped.map_err(without_values).map_err(SplitError::from))?.is_none() {
            return Ok(Some(too_long(MISSING, reference)));
        }
        let query = format!(
            "SELECT {} FROM {values} t WHERE NOT EXISTS (SELECT 1 FROM {} p WHERE {}{}) LIMIT 1",
            reference.value("t"),
            reference.to,
            reference.join("p", "t"),
            self.only_common()
        );
        Ok(Some(match bounded(found(target, reference, &query)) {
            Ok(Some(inbound_fk)) => self.finding(inbound_fk),
            Ok(None) => too_long(MISSING, reference),
            Err(SplitError::Remote(error)) if error.is("42501") => may_not_read(reference, &error.message),
            Err(other) => return Err(other),
        }))
    }

    fn finding(&self, inbound_fk: Option<InboundFk>) -> Finding {
        let reference = self.reference;
        match inbound_fk {
            None => {
                let text =
                    format!("{} has rows that moving rows of {} reference", reference.to, reference.from);
                Finding::new(MISSING, true, text, "")
            }
            Some(inbound_fk) => Finding::new(
                MISSING,
                false,
                format!("{} does not exist", inbound_fk.text()),
                "Copy the referenced rows to the target, add the referenced table to the keyspace, or drop the foreign key on the target.",
            ),
        }
    }

    /// Returns a condition: of a table in the keyspace only a row without a key is on both sides.
    fn only_common(&self) -> String {
        let column =
            self.reference.to_position.and_then(|to| self.tables.get(to)).map(|table| &table.target_by);
        column.map_or(String::new(), |column| format!(" AND p.{} IS NULL", ident(&column.name)))
    }

    /// Returns a query for the distinct values on the source. Returns None if the columns are left to the target.
    fn query(&self) -> Option<String> {
        let from = self.reference.from_position?;
        let table = self.tables.get(from)?;
        let values: Option<Vec<String>> = self
            .reference
            .columns
            .iter()
            .map(|column| {
                table.pairs.iter().find(|pair| pair.target == column.from).map(|pair| pair.select())
            })
            .collect();
        let values = values?;
        let names: Vec<String> = (1..=values.len()).map(|n| format!("v{n}")).collect();
        let present: Vec<String> = values.iter().map(|value| format!("{value} IS NOT NULL")).collect();
        Some(format!(
            "SELECT DISTINCT {} FROM {} t WHERE {} AND {}{}",
            values
                .iter()
                .zip(&names)
                .map(|(value, name)| format!("{value} AS {name}"))
                .collect::<Vec<_>>()
                .join(", "),
            table.source.name,
            in_scope(self.plan, self.by, from, "t")?,
            present.join(" AND "),
            self.without_moving()
        ))
    }

    /// Returns a condition that excludes references to moving rows, which will be there.
    fn without_moving(&self) -> String {
        let (Some(to), Some(twin)) = (self.reference.to_position, self.twin) else { return String::new() };
        format!(
            " AND NOT EXISTS (SELECT 1 FROM {} p WHERE {} AND {})",
            twin.to,
            twin.join("p", "t"),
            moves(self.plan, self.by, Some(to), "p")
        )
    }
}
