//! Derived columns: a table that reaches its tenant only through a foreign key gets a column for it, which a trigger
//! fills from the table that the key leads to. The application does not need to know of it.

mod error;
mod fill;
mod identify;
mod install;
mod points;
mod run;
mod shape;

use crate::agent::error::SplitError;
use crate::agent::session;
use crate::catalog::derived_column::{self, DerivedColumn};
use crate::catalog::job::{self, JobKind, JobState};
use crate::catalog::keyspace;
use crate::catalog::shard::{self, Shard};
use crate::catalog::table_policy::{self, TableName};
use crate::error::Failure;
use crate::remote::Connection;
use crate::routing::error::job_of_table;
use install::DerivedNames;
use shape::DerivedShape;
use std::time::Instant;

pub use run::JobTurns;

/// What an operator asks for.
pub struct NewColumn<'a> {
    pub table: &'a str,
    pub column: &'a str,
    pub through: Vec<String>,
    /// The column of the other table with the value. `None`: it has the same name.
    pub value: Option<&'a str>,
    pub keyspace: &'a str,
    pub deadline: Instant,
}

/// Looks at the table on every shard, and starts the job. Returns its id.
pub fn add(new: &NewColumn<'_>) -> Result<i64, Failure> {
    let keyspace = keyspace::find(new.keyspace)?.name;
    let table = TableName::of(new.table).quoted();
    require_free(&keyspace, &table)?;
    let mut column = DerivedColumn {
        id: 0,
        keyspace: keyspace.clone(),
        table_name: table.clone(),
        column: table_policy::parse_column(new.column),
        through: new.through.iter().map(|column| table_policy::parse_column(column)).collect(),
        value: new.value.map(table_policy::parse_column),
        was_there: false,
    };
    if let Some(known) = derived_column::of(&keyspace, &table) {
        let is_same =
            known.column == column.column && known.through == column.through && known.value == column.value;
        if !is_same {
            return Err(error::derived_already(&table, &known.column));
        }
        // Again, for shards that have come since.
        look_at_all(&known, new.deadline)?;
        return Ok(job::insert(JobKind::Derive, &keyspace, &table));
    }
    let looked = look_at_all(&column, new.deadline)?;
    if looked.is_empty() {
        return Err(error::no_table(&table));
    }
    column.was_there = looked.iter().any(|(shape, _)| shape.has_type.is_some());
    derived_column::insert(&column);
    Ok(job::insert(JobKind::Derive, &keyspace, &table))
}

/// Starts the job that gives a table a primary key. Returns its id.
pub fn identify(table: &str, keyspace: &str, deadline: Instant) -> Result<i64, Failure> {
    let keyspace = keyspace::find(keyspace)?.name;
    let table = TableName::of(table).quoted();
    require_free(&keyspace, &table)?;
    let looked = look_at_all(&identify::column(&keyspace, &table), deadline)?;
    if looked.is_empty() {
        return Err(error::no_table(&table));
    }
    if looked.iter().all(|(shape, _)| shape.has_primary_key) {
        return Err(error::has_primary_key(&table));
    }
    Ok(job::insert(JobKind::Identify, &keyspace, &table))
}

/// Starts the job that removes a derived column again. Returns its id.
pub fn drop(table: &str, keyspace: &str, deadline: Instant) -> Result<i64, Failure> {
    let keyspace = keyspace::find(keyspace)?.name;
    let table = TableName::of(table).quoted();
    let column = derived_column::of(&keyspace, &table).ok_or_else(|| error::not_derived(&table))?;
    let registered = table_policy::list(&keyspace);
    if registered.iter().any(|listed| listed.table_name == table && listed.shard_by == column.column) {
        return Err(error::registered(&table, &keyspace));
    }
    let looked = look_at_all(&column, deadline)?;
    let fills = |other: &DerivedColumn| {
        looked.iter().any(|(_, filled)| filled.contains(&DerivedNames::of(other).derive()))
    };
    if let Some(other) = derived_column::all(&keyspace).into_iter().find(fills) {
        return Err(error::fills_others(&table, &column.column, &other.table_name));
    }
    if let Some((id, kind, _)) = job::open_of(&keyspace, &table) {
        match kind {
            JobKind::DeriveDrop => {
                job::set(id, JobState::Running);
                return Ok(id);
            }
            // The one that adds it ends here.
            JobKind::Derive => job::abandon(id),
            JobKind::Identify => return Err(job_of_table(&table, id)),
        }
    }
    Ok(job::insert(JobKind::DeriveDrop, &keyspace, &table))
}

/// Returns how far a job is, for people. None: it is done. It is an error if it has failed, or is paused.
pub fn progress(id: i64) -> Result<Option<String>, Failure> {
    let found = job::read_state(id).ok_or_else(|| error::no_such_job(id))?;
    match found.state {
        JobState::Done => Ok(None),
        JobState::Running => Ok(Some(format!("job {id}: {}", found.place))),
        JobState::Failed => Err(found.failure.unwrap_or_else(|| error::no_such_job(id))),
        JobState::Paused => Err(error::is_paused(id)),
    }
}

/// Holds a job back, or lets it go on.
pub fn set(id: i64, state: JobState) -> Result<(), Failure> {
    if job::set(id, state) { Ok(()) } else { Err(error::no_job(id)) }
}

fn require_free(keyspace: &str, table: &str) -> Result<(), Failure> {
    match job::open_of(keyspace, table) {
        Some((id, ..)) => Err(job_of_table(table, id)),
        None => Ok(()),
    }
}

/// Looks at the table on every shard that has it, with the functions that it fills other tables by.
fn look_at_all(
    column: &DerivedColumn,
    deadline: Instant,
) -> Result<Vec<(DerivedShape, Vec<String>)>, Failure> {
    let shards = shard::all().into_iter().filter(Shard::holds_rows);
    let look = |shard: Shard| {
        let mut session: Connection = session::open(&shard, "jobs")?;
        session.set_deadline(Some(deadline));
        let Some(shape) = shape::look(&mut session, &shard, column)? else { return Ok(None) };
        let filled = shape::filled_by(&mut session, &shape)?;
        Ok(Some((shape, filled)))
    };
    let looked: Result<Vec<_>, SplitError> = shards.filter_map(|shard| look(shard).transpose()).collect();
    looked.map_err(SplitError::into_failure)
}
