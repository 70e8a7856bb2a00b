//! What the worker of jobs does, turn by turn: one piece of the oldest job that is due, on one shard after the other.

use super::fill::{self, Pass};
use super::identify;
use super::install::{self, DerivedNames};
use super::points;
use super::shape::{self, DerivedShape};
use crate::agent::error::{Result, SplitError};
use crate::agent::{blocks, session};
use crate::catalog::derived_column::{self, DerivedColumn};
use crate::catalog::job::{self, Job, JobKind, JobPlace};
use crate::catalog::shard::{self, Shard};
use crate::catalog::table_policy::TableName;
use crate::named_enum::named_enum;
use crate::remote::Connection;
use crate::server::injection::reach;
use crate::server::retry::Backoff;
use crate::server::txn::transaction;
use crate::server::wait;
use std::collections::HashMap;
use std::time::{Duration, Instant};

named_enum! {
    /// The steps on one shard, in their order.
    enum DeriveStep {
        Begin = "begin",
        Column = "column",
        Triggers = "triggers",
        Rows = "rows",
        NotNull = "not_null",
        Index = "index",
    }
}

/// How often it is recorded how far a step is.
const RECORDED: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(1);

/// A job's session on the shard that it is at.
struct JobShard {
    shard_key: String,
    session: Connection,
    shape: DerivedShape,
    leaves: Vec<String>,
    pass: Pass,
}

/// What the worker remembers of a job between its turns.
#[derive(Default)]
struct OfJob {
    at: Option<JobShard>,
    place: Option<JobPlace>,
    recorded: Option<Instant>,
    errors: Backoff,
}

#[derive(Default)]
pub struct JobTurns {
    jobs: HashMap<i64, OfJob>,
}

impl JobTurns {
    /// Takes one turn. Returns how long nothing is due, or None if no job goes on, or the catalog does not exist any
    /// more.
    pub fn take(&mut self, catalog_exists: fn() -> bool) -> Option<Duration> {
        let running = transaction(|| if catalog_exists() { job::running() } else { Vec::new() });
        self.jobs.retain(|id, _| running.iter().any(|job| job.id == *id));
        if running.is_empty() {
            return None;
        }
        let mut longest = LONGEST;
        for job in running {
            longest = longest.min(self.serve(&job));
        }
        Some(longest)
    }

    fn serve(&mut self, job: &Job) -> Duration {
        let of = self.jobs.entry(job.id).or_default();
        if let Some(left) = of.errors.left() {
            return left;
        }
        match of.turn(job) {
            Ok(pause) => {
                of.errors.succeeded();
                pause
            }
            Err(error) => {
                let is_transient = error.is_transient();
                (of.at, of.place) = (None, None);
                of.errors.failed();
                let failure = error.into_failure();
                transaction(|| {
                    if is_transient {
                        job::waits(job.id, &failure.in_one_line())
                    } else {
                        job::failed(job.id, &failure.cleaned())
                    }
                });
                of.errors.left().unwrap_or_default()
            }
        }
    }
}

impl OfJob {
    /// Does one piece of the job, and returns how long to rest.
    fn turn(&mut self, job: &Job) -> Result<Duration> {
        let (column, shards) = transaction(|| (column_of(job), shard::all()));
        let shards: Vec<Shard> = shards.into_iter().filter(Shard::holds_rows).collect();
        let Some(column) = column else {
            transaction(|| job::done(job.id));
            return Ok(Duration::ZERO);
        };
        let mut place = self.place.take().unwrap_or_else(|| job.place.clone());
        let is_gone = |key: &String| shards.iter().all(|shard| shard.shard_key != *key);
        if place.shard_key.as_ref().is_some_and(is_gone) {
            // The shard was dropped meanwhile. Each step can be repeated on the others.
            place = start();
        }
        let Some(shard) = next_shard(&shards, &place) else {
            transaction(|| {
                if job.kind == JobKind::DeriveDrop {
                    derived_column::delete(column.id);
                }
                job::done(job.id);
            });
            return Ok(Duration::ZERO);
        };
        let mut place = JobPlace { shard_key: Some(shard.shard_key.clone()), ..place };
        wait::report(&format!(
            "{} of table \"{}\" on shard \"{}\"",
            job.kind.as_str(),
            job.object,
            shard.shard_key
        ));
        let began = Instant::now();
        let names = DerivedNames::of(&column);
        if place.step == DeriveStep::Begin.as_str()
            && let Some(first) =
                self.at(shard, &column)?.and_then(|at| comes_first(&at.shape, shard, &column))
        {
            return Err(SplitError::Retry(format!(
                "job {first}, which fills the column that its values come from"
            )));
        }
        let piece = match (self.at(shard, &column)?, job.kind) {
            // shard_schema_copy() starts the job again.
            (None, _) => {
                place = behind(&shards, shard);
                Piece::recorded(true)
            }
            (Some(at), JobKind::Derive | JobKind::Identify) => derive(at, &names, &mut place)?,
            (Some(at), JobKind::DeriveDrop) => {
                install::remove(&mut at.session, &at.shape, &names, column.was_there)?;
                place = behind(&shards, shard);
                Piece::recorded(true)
            }
        };
        if place.step == "next" {
            place = behind(&shards, shard);
        }
        let is_due = self.recorded.is_none_or(|recorded| recorded.elapsed() >= RECORDED);
        if piece.is_recorded || is_due {
            self.recorded = Some(Instant::now());
            let goes_on = transaction(|| job::reached(job.id, &place, piece.waits_for.as_deref()));
            if !goes_on {
                (self.at, self.place) = (None, None);
                return Ok(Duration::ZERO);
            }
        }
        self.place = Some(place);
        Ok(if piece.waits_for.is_some() { LONGEST } else { fill::rest(began.elapsed()) })
    }

    /// Opens the session on a shard, and looks at the table there. Returns None if it does not have the table.
    fn at(&mut self, shard: &Shard, column: &DerivedColumn) -> Result<Option<&mut JobShard>> {
        if self.at.as_ref().is_none_or(|at| at.shard_key != shard.shard_key) {
            let mut session = session::open(shard, "jobs")?;
            session.run("SET session_replication_role = replica; SET row_security = off")?;
            let Some(shape) = shape::look(&mut session, shard, column)? else { return Ok(None) };
            install::as_owner(&mut session, &shape)?;
            let leaves = leaves_of(&mut session, &shape)?;
            let pass = Pass::default();
            self.at = Some(JobShard { shard_key: shard.shard_key.clone(), session, shape, leaves, pass });
        }
        Ok(self.at.as_mut())
    }
}

/// Returns the column that a job is about. None: it was removed meanwhile.
fn column_of(job: &Job) -> Option<DerivedColumn> {
    match job.kind {
        JobKind::Identify => Some(identify::column(&job.keyspace, &job.object)),
        JobKind::Derive | JobKind::DeriveDrop => derived_column::of(&job.keyspace, &job.object),
    }
}

/// Returns the job that fills the other table's column: rows get no value that is not there yet.
fn comes_first(shape: &DerivedShape, shard: &Shard, column: &DerivedColumn) -> Option<i64> {
    transaction(|| {
        let others = derived_column::all(&column.keyspace).into_iter().filter(|other| other.id != column.id);
        others
            .filter(|other| {
                let (schema, name) = TableName::of(&other.table_name).on(&shard.namespace);
                shape.leads_to(&schema, &name)
            })
            .find_map(|other| job::open_of(&other.keyspace, &other.table_name))
            .filter(|(_, kind, _)| *kind == JobKind::Derive)
            .map(|(id, ..)| id)
    })
}

/// Returns the shard that a job is at. None: it has been at all of them.
fn next_shard<'a>(shards: &'a [Shard], place: &JobPlace) -> Option<&'a Shard> {
    match &place.shard_key {
        Some(key) => shards.iter().find(|shard| shard.shard_key == *key),
        None if place.step == DeriveStep::Begin.as_str() => shards.first(),
        None => None,
    }
}

/// Returns the place at which a job starts.
fn start() -> JobPlace {
    let step = DeriveStep::Begin.as_str().to_owned();
    JobPlace { shard_key: None, step, position: String::new(), done: 0, total: None }
}

/// Returns the place behind a shard: the beginning of the next one.
fn behind(shards: &[Shard], shard: &Shard) -> JobPlace {
    let at = shards.iter().position(|one| one.shard_key == shard.shard_key);
    let next = at.and_then(|at| shards.get(at + 1)).map(|next| next.shard_key.clone());
    let step = if next.is_some() { DeriveStep::Begin.as_str() } else { "end" };
    JobPlace { shard_key: next, step: step.to_owned(), position: String::new(), done: 0, total: None }
}

/// The outcome of one piece of work.
struct Piece {
    /// Its end must be recorded at once.
    is_recorded: bool,
    waits_for: Option<String>,
}

impl Piece {
    fn recorded(is_recorded: bool) -> Piece {
        Piece { is_recorded, waits_for: None }
    }
}

/// Does one piece on a shard.
fn derive(at: &mut JobShard, names: &DerivedNames, place: &mut JobPlace) -> Result<Piece> {
    let JobShard { session, shape, leaves, pass, .. } = at;
    let step = DeriveStep::from_name(&place.step).unwrap_or(DeriveStep::Begin);
    let next = match step {
        DeriveStep::Begin if shape.has_primary_key && shape.is_identifier() => {
            place.step = "next".to_owned();
            return Ok(Piece::recorded(true));
        }
        DeriveStep::Begin if shape.unique_key.is_some() && shape.is_identifier() => DeriveStep::Index,
        DeriveStep::Begin => DeriveStep::Column,
        DeriveStep::Column => {
            install::add_column(session, shape)?;
            reach(points::COLUMN)?;
            if shape.is_identifier() {
                place.total = Some(blocks_of(session, leaves)?);
                DeriveStep::Rows
            } else {
                DeriveStep::Triggers
            }
        }
        DeriveStep::Triggers => {
            install::install(session, shape, names)?;
            reach(points::TRIGGERS)?;
            place.total = Some(blocks_of(session, leaves)?);
            DeriveStep::Rows
        }
        DeriveStep::Rows => {
            if fill::step(session, shape, names, leaves, place, pass)? {
                reach(points::BATCH)?;
                return Ok(Piece::recorded(false));
            }
            let [is_incomplete, has_null] = install::is_incomplete(session, shape)?;
            reach(points::ROWS)?;
            if is_incomplete {
                // Another pass fills rows that were locked, or that have changed or come with a partition meanwhile.
                (place.position, place.done) = (String::new(), 0);
                *leaves = leaves_of(session, shape)?;
                let waits_for = (std::mem::take(pass).filled() == 0)
                    .then(|| format!("rows of {} that transactions have locked", shape.shown()));
                return Ok(Piece { is_recorded: true, waits_for });
            }
            if !shape.is_identifier()
                && let Some(failure) = install::differing(session, shape)?
            {
                return Err(failure.into());
            }
            if has_null || !shape.is_always_set() { DeriveStep::Index } else { DeriveStep::NotNull }
        }
        DeriveStep::NotNull => {
            install::refuse_null(session, shape, names)?;
            reach(points::NOT_NULL)?;
            DeriveStep::Index
        }
        DeriveStep::Index => {
            if shape.is_identifier() {
                identify::add_key(session, shape, names, leaves)?;
            } else {
                install::index(session, shape, names, leaves)?;
            }
            reach(points::INDEX)?;
            place.step = "next".to_owned();
            return Ok(Piece::recorded(true));
        }
    };
    (place.step, place.position) = (next.as_str().to_owned(), String::new());
    Ok(Piece::recorded(true))
}

/// Returns the names of the table's leaves.
fn leaves_of(session: &mut Connection, shape: &DerivedShape) -> Result<Vec<String>> {
    let query = "SELECT format('%I.%I', n.nspname, c.relname)
                   FROM pg_partition_tree($1::oid::regclass) t JOIN pg_class c ON c.oid = t.relid JOIN pg_namespace n ON n.oid = c.relnamespace
                  WHERE t.isleaf AND c.relkind = 'r' ORDER BY c.oid";
    let found = session.query(query, &[Some(&shape.oid)])?;
    let leaves: Vec<String> = found.rows.into_iter().flatten().flatten().collect();
    Ok(if leaves.is_empty() { vec![shape.table()] } else { leaves })
}

fn blocks_of(session: &mut Connection, leaves: &[String]) -> Result<i64> {
    let names: Vec<&str> = leaves.iter().map(String::as_str).collect();
    Ok(blocks::of_leaves(session, &names)?.iter().map(|extent| extent.blocks).sum())
}
