//! `shard_survey()`: what it is asked for, and the order of its questions.

use super::candidates;
use super::error;
use super::findings::{self, SurveyLine, Surveyed};
use super::sample::{self, SampleLimits};
use super::tables::{self, SurveyTable, SurveyedDatabase, TenantColumn, TypeClass};
use super::tenancy;
use super::whole;
use crate::agent::session;
use crate::catalog::shard::{self, Shard};
use crate::catalog::trusted_owner;
use crate::error::Failure;
use crate::remote::quote::text_array;
use crate::remote::{Connection, RemoteError};
use std::time::{Duration, Instant};

const SIMILAR: &str = include_str!("../../sql/survey/similar.sql");

/// The time for rows of each table, and the least and the greatest for all of them, unless all rows are counted.
const OF_A_TABLE: Duration = Duration::from_millis(5);
const LEAST: Duration = Duration::from_secs(6);
const MOST: Duration = Duration::from_secs(12);

pub struct SurveyRequest<'a> {
    pub shard: &'a str,
    /// The column that holds the tenant. `None`: columns are proposed.
    pub tenant: Option<&'a str>,
    /// The schemas. `None`: all of the application.
    pub namespaces: Option<&'a [String]>,
    /// Whether all rows are counted.
    pub exact: bool,
    /// The limit for all of it.
    pub timeout: Duration,
}

impl SurveyRequest<'_> {
    pub fn run(&self) -> Result<Vec<SurveyLine>, Failure> {
        let Some(tenant) = self.tenant else {
            let (mut session, _, database, _) = self.begin()?;
            return Ok(candidates::lines(&mut session, &database)?);
        };
        self.of_tenant(tenant, |surveyed, namespace| {
            let mut lines = findings::of_tables(surveyed);
            lines.extend(whole::lines(surveyed, namespace));
            lines
        })
    }

    /// Connects, and reads the tables.
    fn begin(&self) -> Result<(Connection, Shard, SurveyedDatabase, Instant), Failure> {
        let shard = shard::by_key(self.shard)?;
        shard.require_server()?;
        if self.namespaces.is_some_and(<[String]>::is_empty) {
            return Err(error::empty_list());
        }
        let deadline = Instant::now() + self.timeout;
        let mut session = session::open_within(&shard, "survey", self.timeout)?;
        session.set_deadline(Some(deadline));
        self.require_schemas(&mut session)?;
        let others = shard::schemas_of_others(&shard);
        let database = tables::read(&mut session, &shard.namespace, self.namespaces, &others)?;
        self.require_tables(&session, &database)?;
        Ok((session, shard, database, deadline))
    }

    /// Surveys a database whose tenant is in a column, and writes the answer, given the shard's namespace as well.
    pub fn of_tenant<T>(
        &self,
        tenant: &str,
        write: impl FnOnce(&Surveyed<'_>, &str) -> T,
    ) -> Result<T, Failure> {
        let (mut session, shard, mut database, deadline) = self.begin()?;
        let (session, database) = (&mut session, &mut database);
        tables::read_columns(session, database, tenant)?;
        let column = self.require_column(session, database, tenant)?;
        tables::read_objects(session, database)?;
        let root = tenancy::find_root(database, tenant);
        let tenancies = tenancy::decide(database);
        let trusted = trusted_owner::of(&shard);
        let limits =
            SampleLimits { exact: self.exact, until: self.until(database, deadline), trusted: &trusted };
        let samples = sample::run(session, database, &tenancies, &limits)?;
        let analyzed = database.tables.iter().filter(|table| table.is_analyzed).count();
        let surveyed = Surveyed {
            shard: self.shard,
            mover: &session.user(),
            database,
            tenancies: &tenancies,
            tenant: &column,
            root,
            samples: &samples,
            is_analyzed: analyzed * 2 >= database.tables.len(),
        };
        Ok(write(&surveyed, &shard.namespace))
    }

    /// Returns until when rows are looked at. The answer has to be there before the deadline.
    fn until(&self, database: &SurveyedDatabase, deadline: Instant) -> Instant {
        let now = Instant::now();
        let left = deadline.saturating_duration_since(now);
        if self.exact {
            return now + left.mul_f64(0.95);
        }
        let tables = u32::try_from(database.tables.len()).unwrap_or(u32::MAX);
        now + OF_A_TABLE.saturating_mul(tables).clamp(LEAST, MOST).min(left.mul_f64(0.5))
    }

    fn require_schemas(&self, session: &mut Connection) -> Result<(), Failure> {
        let Some(names) = self.namespaces else { return Ok(()) };
        let unknown = session.query(
            "SELECT w.name FROM unnest($1::text[]) WITH ORDINALITY w (name, at)
              WHERE NOT EXISTS (SELECT FROM pg_namespace n WHERE n.nspname = w.name) ORDER BY w.at",
            &[Some(text_array(names).as_str())],
        )?;
        let unknown: Vec<String> = unknown.column().collect();
        if unknown.is_empty() { Ok(()) } else { Err(error::no_schema(self.shard, &unknown)) }
    }

    fn require_tables(&self, session: &Connection, database: &SurveyedDatabase) -> Result<(), Failure> {
        if database.tables.is_empty() {
            return Err(error::no_tables(self.shard));
        }
        if database.tables.iter().any(|table| table.may_read) {
            return Ok(());
        }
        Err(error::cannot_read(self.shard, &session.user()))
    }

    /// Returns the tenant's column as most tables have it.
    fn require_column(
        &self,
        session: &mut Connection,
        database: &SurveyedDatabase,
        tenant: &str,
    ) -> Result<TenantColumn, Failure> {
        let found = database.tables.iter().filter_map(|table| Some((table, table.column.as_ref()?)));
        let found: Vec<(&SurveyTable, &TenantColumn)> = found.collect();
        if found.is_empty() {
            return Err(self.missing(session, database, tenant)?);
        }
        let mut families: Vec<(String, Vec<String>)> = Vec::new();
        for (table, column) in &found {
            let family = family(column).ok_or_else(|| error::no_key_type(tenant, &column.type_name))?;
            match families.iter_mut().find(|(known, _)| *known == family) {
                Some((_, tables)) => tables.push(table.shown.clone()),
                None => families.push((family, vec![table.shown.clone()])),
            }
        }
        if families.len() > 1 {
            for (_, tables) in &mut families {
                tables.truncate(5);
            }
            return Err(error::two_types(self.shard, tenant, &families));
        }
        let count =
            |one: &TenantColumn| found.iter().filter(|(_, other)| other.type_name == one.type_name).count();
        let most = found.iter().map(|(_, column)| *column).max_by_key(|column| count(column));
        most.cloned().ok_or_else(|| error::no_column(self.shard, tenant, &[]))
    }

    /// Returns the error for a column that no table has.
    fn missing(
        &self,
        session: &mut Connection,
        database: &SurveyedDatabase,
        tenant: &str,
    ) -> Result<Failure, RemoteError> {
        let rows = session.query(SIMILAR, &[Some(database.oids().as_str()), Some(tenant)])?;
        let (mut views, mut similar) = (Vec::new(), Vec::new());
        for row in rows.rows {
            let [Some(kind), Some(relation), Some(column)] = row.as_slice() else { continue };
            if kind == "view" && column == tenant {
                views.push(relation.clone());
            } else if kind == "table" && !similar.contains(column) && is_similar(tenant, column) {
                similar.push(column.clone());
            }
        }
        views.truncate(5);
        similar.truncate(5);
        Ok(match views.is_empty() {
            true => error::no_column(self.shard, tenant, &similar),
            false => error::only_in_views(self.shard, tenant, &views),
        })
    }
}

/// Returns the family of a key's type: values of one family can be the same key. None if the type holds no key.
pub fn family(column: &TenantColumn) -> Option<String> {
    let family = match (column.class, column.base.as_str()) {
        (TypeClass::Enum, _) => return Some(column.base.clone()),
        (TypeClass::Builtin, "smallint" | "integer" | "bigint") => "integer",
        (TypeClass::Builtin, "numeric") => "numeric",
        (TypeClass::Builtin, "text" | "character varying" | "character") => "text",
        (TypeClass::Builtin, "uuid") => "uuid",
        _ => return None,
    };
    Some(family.to_owned())
}

/// Whether two names differ in two letters at most.
fn is_similar(one: &str, other: &str) -> bool {
    let (one, other): (Vec<char>, Vec<char>) =
        (one.to_lowercase().chars().collect(), other.to_lowercase().chars().collect());
    if one.len().abs_diff(other.len()) > 2 || one.len().min(other.len()) < 3 {
        return false;
    }
    let mut before: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.iter().enumerate() {
        let mut now = vec![at + 1];
        for (place, own) in other.iter().enumerate() {
            let changed = before[place] + usize::from(letter != own);
            now.push(changed.min(before[place + 1] + 1).min(now[place] + 1));
        }
        before = now;
    }
    before.last().is_some_and(|distance| *distance <= 2)
}

#[cfg(test)]
mod tests {
    use super::is_similar;

    #[test]
    fn a_typo_is_similar_and_another_name_is_not() {
        for (one, other) in
            [("tennant_id", "tenant_id"), ("organisation_id", "organization_id"), ("Tenant", "tenant")]
        {
            assert!(is_similar(one, other), "{one} {other}");
        }
        for (one, other) in [("tenant", "owner"), ("id", "no"), ("tenant", "tenant_id")] {
            assert!(!is_similar(one, other), "{one} {other}");
        }
    }
}
