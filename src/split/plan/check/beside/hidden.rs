//! Objects that hide moving tables from a role: search_path begins with "$user", so a name without a schema is
//! searched there first.

use crate::agent::catalogs;
use crate::agent::error::Result;
use crate::agent::observed_side::ObservedSide;
use crate::catalog::split::Plan;
use crate::split::finding::Finding;
use crate::split::remark::Remark;
use std::collections::BTreeSet;

const HIDING: &str = include_str!("../../../../../sql/check/hiding.sql");

/// The positions of tables, each with what hides it.
type Hiding = BTreeSet<(usize, String)>;

pub fn check(plan: &Plan, source: &mut ObservedSide, target: &mut ObservedSide) -> Result<Vec<Finding>> {
    let (here, own) = (find(source)?, find(target)?);
    let finding = |remark: Remark, (position, text): &(usize, String), what: &str| {
        let table = &plan.tables.get(*position)?.table_name;
        let detail =
            format!("{what} {text}: a role's schema comes first in its search_path, and it hides {table}");
        Some(Finding::remark_of(plan.reverse_of, remark, &format!("{table}: {text}"), detail))
    };
    let lacking = here.difference(&own);
    let mut findings: Vec<Finding> =
        lacking.filter_map(|it| finding(Remark::Lacking, it, "the target lacks")).collect();
    let alone = own.difference(&here);
    findings.extend(alone.filter_map(|it| finding(Remark::Alone, it, "the target alone has")));
    Ok(findings)
}

fn find(side: &mut ObservedSide) -> Result<Hiding> {
    let hiding = catalogs::ask(&mut side.session, HIDING, &catalogs::given(&side.names.lists()))?;
    Ok(hiding.pairs().filter_map(|(position, text)| Some((position.parse().ok()?, text))).collect())
}
