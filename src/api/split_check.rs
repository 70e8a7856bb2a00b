//! The check before a split, for people: its result, and the findings that deserve attention.

use super::row;
use super::rows::RowSet;
use crate::catalog::split;
use crate::catalog::split_state::{self, Goal, Phase};
use crate::error::required;
use crate::split::plan::check;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(volatile, parallel_unsafe, security_definer, requires = ["rows"])]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_split_check(
    split_id: Option<i64>,
    with_ok: default!(Option<bool>, "false"),
) -> Result<RowSet<row::SplitCheck>, ErrorReport> {
    let mut plan = split::load(required(split_id, "split_id")?)?;
    let state = split_state::row::read(plan.id)?;
    if (state.phase, state.goal) == (Phase::RolledBack, Goal::RolledBack) {
        plan.tables = split::policies_anew(plan.id, &plan.keyspace);
    }
    let with_ok = required(with_ok, "with_ok")?;
    let (summary, findings) = check::report(&plan, &state, &split::identity());
    // The summary is not a finding: it does not count among those that are not ok.
    let first = std::iter::once(("summary".to_owned(), None, summary, None, None));
    let shown = findings.into_iter().filter(move |f| with_ok || !f.ok || f.hint.is_some());
    Ok(RowSet::new(first.chain(shown.map(|f| (f.name, Some(f.ok), f.detail, f.hint, f.object)))))
}

extension_sql_file!(
    "../../sql/comments/split_check.sql",
    name = "comments_split_check",
    requires = [shard_split_check]
);
