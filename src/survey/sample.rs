//! Looks at rows: at some pages of each table, or at all of them. Tables are locked as by a SELECT, and the largest ones
//! come first, because there may not be time for all of them.

use super::sample_query::{SampleQuery, TableSample};
use super::tables::SurveyedDatabase;
use super::tenancy::Tenancy;
use crate::agent::error::SplitError;
use crate::agent::table_names::TableNames;
use crate::agent::{reading, untrusted_code};
use crate::error::Failure;
use crate::remote::result::Rows;
use crate::remote::{Connection, RemoteError};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The number of pages of all tables that are read, 32 MB.
const MOST_PAGES: f64 = 4096.0;
/// The least and the greatest number of pages of one table.
const LEAST: f64 = 16.0;
const MOST: f64 = 256.0;
/// The number of tables that are locked and read at once.
const TOGETHER: usize = 24;
/// How long a lock is waited for, and the time for a statement.
const LOCK: Duration = Duration::from_millis(200);
const STATEMENT: Duration = Duration::from_secs(3);

/// What was found in the rows.
#[derive(Default)]
pub struct Samples {
    pub of: BTreeMap<usize, TableSample>,
    pub queries: BTreeMap<usize, SampleQuery>,
    /// Tables whose rows could not be looked at, with the reason.
    pub skipped: BTreeMap<usize, String>,
    /// Tables for which there was no time.
    pub late: BTreeSet<usize>,
}

/// How rows are looked at.
pub struct SampleLimits<'a> {
    /// Whether all rows are counted.
    pub exact: bool,
    pub until: Instant,
    /// Owners whose code the mover may run.
    pub trusted: &'a [String],
}

impl SampleLimits<'_> {
    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Returns the time for a statement.
    fn of_statement(&self) -> Duration {
        if self.exact { self.left() } else { self.left().min(STATEMENT) }
    }
}

/// Looks at rows of all tables of tenants.
pub fn run(
    session: &mut Connection,
    database: &SurveyedDatabase,
    tenancies: &[Tenancy],
    limits: &SampleLimits<'_>,
) -> Result<Samples, Failure> {
    let mut samples = Samples::default();
    let queries = queries(database, tenancies, limits.exact, &mut samples);
    let together = if limits.exact { 1 } else { TOGETHER };
    let mut waiting: Vec<Vec<SampleQuery>> = queries.chunks(together).map(<[_]>::to_vec).rev().collect();
    let mut patience = LOCK;
    while let Some(batch) = waiting.pop() {
        if limits.left().is_zero() {
            samples.late.extend(batch.iter().map(|query| query.table));
            continue;
        }
        match look(session, database, &batch, limits, patience) {
            Ok(answers) => {
                for (query, rows) in batch.into_iter().zip(&answers) {
                    let Some(table) = database.table(query.table) else { continue };
                    samples.of.insert(query.table, query.read(table, rows));
                    samples.queries.insert(query.table, query);
                }
            }
            Err(SplitError::Remote(error)) if error.sqlstate.is_none() => return Err(error.into()),
            // One of them is in the way of the others. A lock that somebody holds for long is not waited for again.
            Err(_) if batch.len() > 1 => {
                patience = Duration::ZERO;
                let (first, second) = batch.split_at(batch.len() / 2);
                waiting.extend([second.to_vec(), first.to_vec()]);
            }
            Err(error) => refused(&mut samples, &batch, error),
        }
    }
    Ok(samples)
}

fn refused(samples: &mut Samples, batch: &[SampleQuery], error: SplitError) {
    let is_late = matches!(&error, SplitError::Remote(error) if error.is("57014"));
    let why = error.into_failure().message;
    for query in batch {
        if is_late {
            samples.late.insert(query.table);
        } else {
            samples.skipped.insert(query.table, why.clone());
        }
    }
}

/// Returns the queries, those of the largest tables first.
fn queries(
    database: &SurveyedDatabase,
    tenancies: &[Tenancy],
    exact: bool,
    samples: &mut Samples,
) -> Vec<SampleQuery> {
    let of_tenants = tenancies.iter().enumerate().filter_map(|(number, tenancy)| {
        let table = database.table(number).filter(|table| table.pages > 0)?;
        Some((number, table, tenancy, tenancy.path.as_ref()?))
    });
    let mut of_tenants: Vec<_> = of_tenants.collect();
    of_tenants.sort_by_key(|(number, table, ..)| (std::cmp::Reverse(table.pages), *number));
    let all: i64 = of_tenants.iter().map(|(_, table, ..)| table.pages).sum();
    let mut queries = Vec::new();
    for (number, table, tenancy, path) in of_tenants {
        let pages = table.pages as f64;
        let wanted = (MOST_PAGES * pages / (all as f64).max(1.0)).clamp(LEAST, MOST);
        let part = if exact { 1.0 } else { (wanted / pages).min(1.0) };
        match SampleQuery::new(database, number, path, others(database, tenancies, number, tenancy), part) {
            Ok(query) => queries.push(query),
            Err(why) => drop(samples.skipped.insert(number, why)),
        }
    }
    queries
}

/// Returns the other paths from a table to a tenant. Those of a table that holds the tenant lead through its keys that
/// do not contain the tenant.
fn others(
    database: &SurveyedDatabase,
    tenancies: &[Tenancy],
    number: usize,
    tenancy: &Tenancy,
) -> Vec<Vec<usize>> {
    if tenancy.path.as_ref().is_some_and(|path| !path.is_empty()) {
        return tenancy.others.clone();
    }
    keys_without_tenant(database, tenancies, number)
        .filter_map(|key| {
            let rest = tenancies.get(database.keys.get(key)?.to?)?.path.as_ref()?;
            // A path that comes back says nothing.
            let passes =
                rest.iter().filter_map(|key| database.keys.get(*key)?.to).any(|table| table == number);
            (!passes).then(|| std::iter::once(key).chain(rest.iter().copied()).collect())
        })
        .collect()
}

/// Returns the foreign keys from a table that holds the tenant to other tables of tenants that do not compare the
/// tenants.
pub fn keys_without_tenant<'a>(
    database: &'a SurveyedDatabase,
    tenancies: &'a [Tenancy],
    number: usize,
) -> impl Iterator<Item = usize> + 'a {
    let own = database.table(number).and_then(|table| table.column.as_ref());
    database.keys.iter().enumerate().filter_map(move |(at, key)| {
        let to = key.to.filter(|_| key.from == number)?;
        tenancies.get(to)?.path.as_ref()?;
        let column = database.table(to)?.column.as_ref();
        let compares = key.columns.iter().any(|pair| {
            own.is_some_and(|own| own.name == pair.from)
                && column.is_some_and(|column| column.name == pair.to)
        });
        (!compares).then_some(at)
    })
}

/// Runs some queries under the locks of their tables. Nobody else's code is run with the mover's rights.
fn look(
    session: &mut Connection,
    database: &SurveyedDatabase,
    batch: &[SampleQuery],
    limits: &SampleLimits<'_>,
    patience: Duration,
) -> Result<Vec<Rows>, SplitError> {
    let numbers: BTreeSet<usize> = batch.iter().flat_map(|query| query.tables(database)).collect();
    let tables = numbers.iter().filter_map(|number| database.table(*number));
    let names: TableNames = tables.map(|table| (table.schema.clone(), table.name.clone())).collect();
    untrusted_code::refuse(session, &names, limits.trusted)?;
    let locked = reading::begin(session, &names, patience)?;
    let outcome = match untrusted_code::refuse(session, &names, limits.trusted) {
        Ok(()) if locked.closed.is_empty() => ask(session, database, batch, limits).map_err(SplitError::from),
        Ok(()) => Err(SplitError::Retry("a right that was revoked".to_owned())),
        Err(failure) => Err(SplitError::Failed(failure)),
    };
    reading::end(session, outcome)
}

fn ask(
    session: &mut Connection,
    database: &SurveyedDatabase,
    batch: &[SampleQuery],
    limits: &SampleLimits<'_>,
) -> Result<Vec<Rows>, RemoteError> {
    // Rows lead to others by unique indexes, in the order in which the joins are written. Compiling a query that reads
    // some pages takes longer than the query.
    session.run("SET LOCAL join_collapse_limit = 1; SET LOCAL jit = off")?;
    let mut answers = Vec::new();
    for query in batch {
        let limit = limits.of_statement();
        let statement = query.statement(database).unwrap_or_default();
        let message = format!("SET LOCAL statement_timeout = {}; {statement}", limit.as_millis().max(1));
        answers.push(session.run_unbounded(&message)?);
    }
    Ok(answers)
}
