//! The check before a split, for people.

use crate::catalog::split;
use crate::error::required;
use crate::split::plan::check;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
#[allow(clippy::type_complexity)]
pub fn shard_split_check(
    split_id: Option<i64>,
) -> Result<
    TableIterator<
        'static,
        (name!(check_name, String), name!(ok, bool), name!(detail, String), name!(hint, Option<String>)),
    >,
    ErrorReport,
> {
    let plan = split::load(required(split_id, "split_id")?)?;
    let findings = check::run(&plan, &split::identity());
    Ok(TableIterator::new(findings.into_iter().map(|f| (f.name, f.ok, f.detail, f.hint))))
}

extension_sql_file!(
    "../../sql/comments/split_check.sql",
    name = "comments_split_check",
    requires = [shard_split_check]
);
