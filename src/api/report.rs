//! The report for people.

use super::status;
use crate::report;
use crate::report::section::ReportItem;
use pgrx::prelude::*;

/// Returns everything as one page of HTML.
#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
fn shard_report() -> String {
    let standing = |(name, value, is_ok)| ReportItem { name, value, is_ok };
    let standing: Vec<ReportItem> = status::items().into_iter().map(standing).collect();
    report::page(&standing)
}

extension_sql_file!("../../sql/comments/report.sql", name = "comments_report", requires = [shard_report]);
