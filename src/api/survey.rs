//! What a database is like before it is sharded.

use super::arguments::{longest_wait, names_of};
use super::row;
use super::rows::RowSet;
use super::{COMMITS, on_primary, outside_transaction};
use crate::catalog::caller::Caller;
use crate::catalog::shard;
use crate::clean;
use crate::error::{Failure, required};
use crate::query::login;
use crate::report;
use crate::survey::adoption::{Adoption, AdoptionStep};
use crate::survey::findings::SurveyLine;
use crate::survey::request::SurveyRequest;
use crate::survey::script;
use pgrx::datum::Interval;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::time::Duration;

/// Connects to the shard as splits do.
#[pg_extern(volatile, parallel_unsafe, security_definer, requires = ["rows"])]
#[search_path(pg_catalog, pg_temp)]
fn shard_survey(
    shard: Option<String>,
    tenant: default!(Option<String>, "NULL"),
    namespaces: default!(Option<Vec<Option<String>>>, "NULL"),
    exact: default!(Option<bool>, "false"),
    timeout: default!(Option<Interval>, "'30 s'"),
) -> Result<RowSet<row::SurveyRow>, ErrorReport> {
    let shard = required(shard, "shard")?;
    let namespaces = namespaces.map(|names| names_of(names, "namespaces")).transpose()?;
    let request = SurveyRequest {
        shard: &shard,
        tenant: tenant.as_deref(),
        namespaces: namespaces.as_deref(),
        exact: required(exact, "exact")?,
        timeout: longest_wait(timeout)?,
    };
    let lines = request.run()?;
    // Texts of a shard are shown to a person at a terminal.
    let text = |text: Option<String>| text.map(|text| clean::printable(&text));
    let row = move |line: SurveyLine| {
        (
            text(line.table_name),
            line.rows,
            line.bytes,
            line.tenant_by.map(str::to_owned),
            line.path.map(|path| path.iter().map(|step| clean::printable(step)).collect::<Vec<_>>()),
            text(line.finding),
            text(line.call),
        )
    };
    Ok(RowSet::new(lines.into_iter().map(row)))
}

/// What an adoption is asked for, with what it borrows.
struct AdoptionArguments {
    shard: String,
    tenant: String,
    target: Option<String>,
    namespaces: Option<Vec<String>>,
    keyspace: String,
    accept: Vec<String>,
    timeout: Duration,
}

impl AdoptionArguments {
    fn new(
        shard: Option<String>,
        tenant: Option<String>,
        target: Option<String>,
        namespaces: Option<Vec<Option<String>>>,
        keyspace: Option<String>,
        accept: Option<Vec<Option<String>>>,
        timeout: Option<Interval>,
    ) -> Result<AdoptionArguments, Failure> {
        Ok(AdoptionArguments {
            shard: required(shard, "shard")?,
            tenant: required(tenant, "tenant")?,
            target,
            namespaces: namespaces.map(|names| names_of(names, "namespaces")).transpose()?,
            keyspace: required(keyspace, "keyspace")?,
            accept: names_of(accept.unwrap_or_default(), "accept")?,
            timeout: longest_wait(timeout)?,
        })
    }

    fn adoption(&self) -> Adoption<'_> {
        Adoption {
            survey: SurveyRequest {
                shard: &self.shard,
                tenant: Some(&self.tenant),
                namespaces: self.namespaces.as_deref(),
                exact: false,
                timeout: self.timeout,
            },
            tenant: &self.tenant,
            target: self.target.as_deref(),
            keyspace: &self.keyspace,
            accept: &self.accept,
        }
    }
}

/// The steps of shard_adopt_database() that are left. SECURITY INVOKER: the later ones need the caller's login.
#[allow(clippy::too_many_arguments)]
#[pg_extern(
    schema = "shardmaster",
    name = "adoption_steps",
    volatile,
    parallel_unsafe,
    requires = ["rows"]
)]
#[search_path(pg_catalog, pg_temp)]
fn adoption_steps(
    shard: Option<String>,
    tenant: Option<String>,
    target: Option<String>,
    namespaces: Option<Vec<Option<String>>>,
    keyspace: Option<String>,
    accept: Option<Vec<Option<String>>>,
    timeout: Option<Interval>,
) -> Result<RowSet<row::AdoptionStepRow>, ErrorReport> {
    on_primary("shard_adopt_database")?;
    outside_transaction("shard_adopt_database", COMMITS)?;
    let arguments = AdoptionArguments::new(shard, tenant, target, namespaces, keyspace, accept, timeout)?;
    let steps = Caller::as_owner(|caller| {
        let role = login::role_of(caller)?;
        for key in std::iter::once(&arguments.shard).chain(&arguments.target) {
            login::known(&role, &shard::by_key(key)?)?;
        }
        arguments.adoption().steps()
    })?;
    let shown = |text: Option<String>| text.map(|text| clean::printable(&text));
    let row = move |step: AdoptionStep| {
        (
            step.kind.as_str().to_owned(),
            step.table,
            step.column,
            Some(step.through),
            step.value,
            Some(step.also),
            step.policy.map(str::to_owned),
            step.key_type.map(str::to_owned),
            shown(step.call),
            shown(step.undo),
            clean::printable(&step.why),
        )
    };
    Ok(RowSet::new(steps.into_iter().map(row)))
}

/// Connects to the shard as splits do.
#[allow(clippy::too_many_arguments)]
#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
fn shard_survey_sql(
    shard: Option<String>,
    tenant: Option<String>,
    target: default!(Option<String>, "NULL"),
    namespaces: default!(Option<Vec<Option<String>>>, "NULL"),
    keyspace: default!(Option<String>, "'default'"),
    accept: default!(Option<Vec<Option<String>>>, "NULL"),
    timeout: default!(Option<Interval>, "'30 s'"),
) -> Result<String, ErrorReport> {
    let arguments = AdoptionArguments::new(shard, tenant, target, namespaces, keyspace, accept, timeout)?;
    let steps = arguments.adoption().steps()?;
    Ok(script::of(&arguments.shard, &arguments.tenant, &steps))
}

/// Connects to the shard as splits do.
#[allow(clippy::too_many_arguments)]
#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
fn shard_survey_report(
    shard: Option<String>,
    tenant: Option<String>,
    target: default!(Option<String>, "NULL"),
    namespaces: default!(Option<Vec<Option<String>>>, "NULL"),
    keyspace: default!(Option<String>, "'default'"),
    accept: default!(Option<Vec<Option<String>>>, "NULL"),
    timeout: default!(Option<Interval>, "'30 s'"),
) -> Result<String, ErrorReport> {
    let arguments = AdoptionArguments::new(shard, tenant, target, namespaces, keyspace, accept, timeout)?;
    Ok(arguments.adoption().look(|surveyed, lines, steps| report::survey::page(surveyed, lines, &steps))?)
}

extension_sql_file!(
    "../../sql/comments/survey.sql",
    name = "comments_survey",
    requires = [shard_survey, shard_survey_sql, shard_survey_report, adoption_steps]
);
extension_sql_file!(
    "../../sql/adopt_database.sql",
    name = "adopt_database",
    requires = ["comments_survey", "own_calls", "rows", "job"]
);
