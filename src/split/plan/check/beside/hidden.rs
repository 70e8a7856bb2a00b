//! Objects that hide moving tables from a role: search_path begins with "$user", so a name without a schema is
//! searched there first.

use crate::agent::catalogs;
use crate::agent::error::Result;
use crate::catalog::split::Plan;
use crate::remote::Connection;
use crate::split::finding::Finding;
use crate::split::remark::Remark;
use std::collections::BTreeSet;

const HIDING: &str = include_str!("../../../../../sql/check/hiding.sql");

/// The positions of tables, each with what hides it.
type Hiding = BTreeSet<(usize, String)>;

pub fn check(
    plan: &Plan,
    (source, given): (&mut Connection, &[String; 2]),
    (target, there): (&mut Connection, &[String; 2]),
) -> Result<Vec<Finding>> {
    let (here, own) = (find(source, given)?, find(target, there)?);
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

fn find(session: &mut Connection, lists: &[String; 2]) -> Result<Hiding> {
    let hiding = catalogs::ask(session, HIDING, &catalogs::given(lists))?;
    Ok(hiding.pairs().filter_map(|(position, text)| Some((position.parse().ok()?, text))).collect())
}
