//! Compares and creates the tables of shards.

use super::arguments::{longest_wait, names_of};
use super::on_primary;
use crate::error::required;
use crate::query::run::require_fit;
use crate::schema::copy::SchemaCopy;
use crate::schema::diff;
use crate::schema::plan::SchemaWanted;
use pgrx::datum::Interval;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// SECURITY INVOKER: shards are asked as the caller's login.
#[allow(clippy::type_complexity)]
#[pg_extern(volatile, parallel_unsafe)]
pub fn shard_schema_diff(
    a: Option<String>,
    b: Option<String>,
    keyspace: default!(Option<String>, "'default'"),
    also: default!(Option<Vec<Option<String>>>, "NULL"),
    timeout: default!(Option<Interval>, "'1 min'"),
) -> Result<
    TableIterator<
        'static,
        (
            name!(kind, String),
            name!(object, String),
            name!(in_a, Option<String>),
            name!(in_b, Option<String>),
        ),
    >,
    ErrorReport,
> {
    require_fit("shard_schema_diff")?;
    let (a, b) = (required(a, "a")?, required(b, "b")?);
    let also = names_of(also.unwrap_or_default(), "also")?;
    let lines = diff::run([&a, &b], &required(keyspace, "keyspace")?, &also, longest_wait(timeout)?)?;
    Ok(TableIterator::new(lines.into_iter().map(|line| (line.kind, line.object, line.in_a, line.in_b))))
}

/// SECURITY INVOKER, as above.
#[allow(clippy::too_many_arguments)]
#[allow(clippy::type_complexity)]
#[pg_extern(volatile, parallel_unsafe)]
pub fn shard_schema_copy(
    from: Option<String>,
    to: Option<String>,
    keyspace: default!(Option<String>, "'default'"),
    also: default!(Option<Vec<Option<String>>>, "NULL"),
    secondary: default!(Option<bool>, "true"),
    rights: default!(Option<bool>, "true"),
    dry_run: default!(Option<bool>, "false"),
    timeout: default!(Option<Interval>, "'10 min'"),
) -> Result<
    TableIterator<'static, (name!(kind, String), name!(object, String), name!(statement, Option<String>))>,
    ErrorReport,
> {
    on_primary("shard_schema_copy")?;
    require_fit("shard_schema_copy")?;
    let (from, to, keyspace) =
        (required(from, "from")?, required(to, "to")?, required(keyspace, "keyspace")?);
    let copy = SchemaCopy {
        from: &from,
        to: &to,
        keyspace: &keyspace,
        also: &names_of(also.unwrap_or_default(), "also")?,
        wanted: SchemaWanted {
            secondary: required(secondary, "secondary")?,
            rights: required(rights, "rights")?,
        },
        dry_run: required(dry_run, "dry_run")?,
        timeout: longest_wait(timeout)?,
    };
    let steps = copy.run()?;
    Ok(TableIterator::new(steps.into_iter().map(|step| (step.kind, step.name, step.statement))))
}

extension_sql_file!(
    "../../sql/comments/schema.sql",
    name = "comments_schema",
    requires = [shard_schema_diff, shard_schema_copy]
);
