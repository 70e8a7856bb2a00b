//! What both sides' tables have besides their columns. Applications miss after the cutover what the source has and the
//! target lacks: policies that hide other tenants' rows, triggers, keys, rights. Copied rows may violate what only the
//! target has. Indexes that refuse no rows are the target's own concern, and shard_schema_diff() shows them.

mod alone;
mod columns;
mod fact;
mod hidden;
mod keys;
mod lacks;
mod named_tables;
mod needed;
mod pair;
mod partitions;
mod published;
pub mod rights;
mod settings;
mod texts;

use crate::agent::error::Result;
use crate::agent::observed_side::ObservedSide;
use crate::agent::session::Side;
use crate::catalog::split::Plan;
use crate::remote::Connection;
use crate::remote::quote::literal;
use crate::split::finding::Finding;
use crate::split::remark::Remark;
use crate::words::some_of;
use fact::Fact;
use pair::TablePair;
use rights::MissingRights;

/// Runs the check. `known`: what other parts have found.
pub fn check(
    plan: &Plan,
    source: &mut ObservedSide,
    target: &mut ObservedSide,
    known: &[Finding],
) -> Result<Vec<Finding>> {
    let given = fact::of(&mut source.session, &source.names.lists())?;
    let there = fact::of(&mut target.session, &target.names.lists())?;
    let missing = rights::missing(plan, source, target)?;
    let mut findings = of_roles(plan, &missing);
    let shapes = source.observation.tables.iter().zip(&target.observation.tables);
    for (position, (policy, (from, to))) in plan.tables.iter().zip(shapes).enumerate() {
        // A table that is missing, or may not be read, has a finding of its own.
        if from.oid.is_none() || to.oid.is_none() {
            continue;
        }
        let pair = TablePair { position, policy, from, to };
        let copies = format!(
            "SELECT * FROM shard_schema_copy({}, {}, {}) creates what it can",
            literal(&plan.source.shard_key),
            literal(&plan.target.shard_key),
            literal(&plan.keyspace)
        );
        let lacks = lacks::find(&pair, &given, &there).into_iter().map(|text| (text, copies.as_str()));
        let rights = of_table(&missing.rights, position).map(|text| (text.to_owned(), "GRANT it there"));
        findings.extend(lacks.chain(rights).map(|(text, remedy)| {
            let detail = format!("{}: the target lacks {text}; {remedy}", to.name);
            remark(plan, Remark::Lacking, &policy.table_name, &text, detail)
        }));
        findings.extend(of_table(&missing.alone, position).map(|text| {
            let detail = format!(
                "{}: the target alone has {text}: roles can reach rows that they cannot reach on the source",
                to.name
            );
            remark(plan, Remark::Alone, &policy.table_name, text, detail)
        }));
        findings.extend(alone::keys(&pair, &given, &there));
        findings.extend(alone::others(&pair, &given, &there).into_iter().map(|text| {
            let detail = format!(
                "{}: the target alone has {text}: a row may fail for it, in the split or later",
                to.name
            );
            remark(plan, Remark::Alone, &policy.table_name, &text, detail)
        }));
    }
    let used = texts::find(&mut source.session, &plan.source, &source.names.lists())?;
    let read = settings::read(source, target, &used, &missing.settings)?;
    findings.extend(read.iter().map(|text| of_setting(plan, text)));
    findings.extend(needed::check(plan, source, target, &used.functions, known)?);
    findings.extend(rights_of_used(plan, source, &mut target.session, &used, known)?);
    findings.extend(named_tables::check(plan, source, target, &used.called, known)?);
    findings.extend(hidden::check(plan, source, target)?);
    findings.extend(stale(plan, &there));
    findings.extend(published::of_source_alone(plan, source, target)?);
    findings.extend(published::check(Side::Source, source)?);
    findings.extend(published::check(Side::Target, target)?);
    Ok(findings)
}

fn of_table(rights: &[(Option<usize>, String)], position: usize) -> impl Iterator<Item = &str> {
    rights.iter().filter(move |(at, _)| *at == Some(position)).map(|(_, text)| text.as_str())
}

/// Returns one remark for each thing, so that a later one is not accepted with it.
fn remark(plan: &Plan, remark: Remark, of: &str, text: &str, detail: String) -> Finding {
    Finding::remark_of(plan.reverse_of, remark, &format!("{of}: {text}"), detail)
}

/// Returns what belongs to no table: the roles that log in, and the settings that sessions begin with.
fn of_roles(plan: &Plan, missing: &MissingRights) -> Vec<Finding> {
    let rights = missing.rights.iter().filter(|(at, _)| at.is_none()).map(|(_, text)| {
        let detail = format!("of roles that use the tables, the target lacks {text}");
        remark(plan, Remark::Lacking, "login roles", text, detail)
    });
    let alone = missing.alone.iter().filter(|(at, _)| at.is_none()).map(|(_, text)| {
        let detail = format!("of roles that use the tables, the target alone has {text}");
        remark(plan, Remark::Alone, "login roles", text, detail)
    });
    rights.chain(alone).chain(missing.settings.iter().map(|text| of_setting(plan, text))).collect()
}

fn of_setting(plan: &Plan, text: &str) -> Finding {
    let detail = format!("different on the target: {text}");
    remark(plan, Remark::Lacking, "database settings", text, detail)
}

/// Checks what functions over the tables need, and what clients do besides statements over them. `known`: what other
/// parts have found.
fn rights_of_used(
    plan: &Plan,
    source: &mut ObservedSide,
    target: &mut Connection,
    used: &texts::Used,
    known: &[Finding],
) -> Result<Vec<Finding>> {
    let lacking = Remark::Lacking.check_name();
    let is_known = |right: &str| {
        let of = right.strip_prefix("EXECUTE of function ");
        known.iter().any(|found| found.name == lacking && found.object.as_deref() == of && of.is_some())
    };
    let missing = rights::of_used(plan, source, target, used)?;
    let missing = missing.into_iter().filter(|(right, _)| !is_known(right));
    let finding = |(right, role): (String, String)| {
        let detail =
            format!("functions over the tables, or clients, need it: the target lacks {right} for {role}");
        remark(plan, Remark::Lacking, "rights", &format!("{right} for {role}"), detail)
    };
    Ok(missing.map(finding).collect())
}

/// Returns a finding about materialized views of the target, which keep their contents until they are refreshed.
fn stale(plan: &Plan, there: &[Fact]) -> Option<Finding> {
    let views = there.iter().filter(|fact| fact.is(&["materialized view"]));
    let names: Vec<String> = views.map(|fact| fact.name.clone()).collect();
    let text = format!(
        "materialized views over the tables show the copied rows only after a refresh: {}",
        some_of(&names)
    );
    let shard = &plan.target.shard_key;
    let hint = format!(
        "REFRESH MATERIALIZED VIEW on shard {} after the cutover; on the source after the finish.",
        literal(shard)
    );
    (!names.is_empty()).then(|| Finding::note("target: materialized views", text, &hint))
}
