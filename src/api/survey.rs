//! What a database is like before it is sharded.

use super::arguments::{longest_wait, names_of};
use super::row;
use super::rows::RowSet;
use crate::clean;
use crate::error::required;
use crate::survey::findings::SurveyLine;
use crate::survey::request::SurveyRequest;
use pgrx::datum::Interval;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

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

extension_sql_file!("../../sql/comments/survey.sql", name = "comments_survey", requires = [shard_survey]);
