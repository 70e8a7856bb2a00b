//! What tables, views over them and clients use that is no part of the tables: collations, operators, text search,
//! extensions, functions of the tables' schemas. It is found in the inventory that shard_schema_diff() shows.

use crate::agent::error::Result;
use crate::agent::observed_side::ObservedSide;
use crate::agent::shape::TableShape;
use crate::agent::table_names::TableNames;
use crate::catalog::split::Plan;
use crate::remote::Connection;
use crate::remote::quote::ident_as_needed;
use crate::schema::inventory;
use crate::schema::object::Object;
use crate::split::finding::Finding;
use crate::split::remark::Remark;
use std::collections::BTreeMap;

/// Kinds of objects by which values are compared, found and shown.
const USED: [&str; 8] = [
    "type",
    "collation",
    "operator",
    "operator class",
    "aggregate",
    "base type",
    "text search configuration",
    "text search dictionary",
];
const FUNCTIONS: [&str; 4] = ["function", "procedure", "aggregate", "clients' operator"];
/// Extensions that only an administrator's tools use, not clients' statements.
const OF_TOOLS: [&str; 6] =
    ["shardmaster", "pg_stat_statements", "pg_buffercache", "pg_prewarm", "pgstattuple", "pageinspect"];

/// Query for name, version and schema of the extensions.
const VERSIONS: &str =
    "SELECT pg_catalog.quote_ident(e.extname), e.extversion, pg_catalog.quote_ident(n.nspname) FROM pg_catalog.pg_extension e
       JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace ORDER BY 1";

/// Runs the check. `functions`: those over the tables in other schemas, by schema and name; `known`: what other parts
/// have found.
pub fn check(
    plan: &Plan,
    source: &mut ObservedSide,
    target: &mut ObservedSide,
    functions: &[(String, String)],
    known: &[Finding],
) -> Result<Vec<Finding>> {
    let here = of(source, &plan.source.namespace, functions)?;
    let there = of(target, &plan.target.namespace, functions)?;
    let mut findings = Vec::new();
    let remark = |difference: NeedDifference<'_>, use_of: &str| {
        let object = difference.object.text();
        let what = if difference.is_missing { "missing" } else { "different" };
        let detail = format!("{object}, which {use_of}, is {what} on the target");
        Finding::remark_of(plan.reverse_of, Remark::Lacking, &object, detail)
    };
    // Types of columns are compared with the columns.
    let columns = || source.observation.tables.iter().flat_map(TableShape::columns);
    let is_of_column = |object: &Object| {
        object.is(&["type"])
            && columns().any(|column| {
                [&column.type_name, &column.base]
                    .iter()
                    .any(|name| is_name_of(name.trim_end_matches("[]"), &object.name))
            })
    };
    let used = differences(&here, &there, &USED).filter(|difference| !is_of_column(difference.object));
    findings.extend(used.map(|difference| remark(difference, "the tables or views over them use")));
    findings.extend(extensions(plan, &mut source.session, &mut target.session)?);
    let lacking = Remark::Lacking.check_name();
    let named: Vec<&str> = known
        .iter()
        .filter(|found| found.name == lacking)
        .filter_map(|found| found.object.as_deref())
        .collect();
    let is_named = |object: &Object| named.iter().any(|named| is_name_of(named, &object.name));
    let called = differences(&here, &there, &FUNCTIONS).filter(|difference| !is_named(difference.object));
    findings
        .extend(called.map(|difference| remark(difference, "clients may call, or views over the tables")));
    Ok(findings)
}

/// Finds missing extensions, and those of another version.
fn extensions(plan: &Plan, source: &mut Connection, target: &mut Connection) -> Result<Vec<Finding>> {
    let (here, there) = (versions(source)?, versions(target)?);
    // With another major version the server brings other versions of its extensions.
    let is_one_major = source.server_version() / 10_000 == target.server_version() / 10_000;
    let remark = |object: String, detail: String| {
        Finding::remark_of(plan.reverse_of, Remark::Lacking, &object, detail)
    };
    let finding = |(name, (version, _)): (&String, &(String, String))| {
        let Some((other, _)) = there.get(name) else {
            let object = format!("extension {name}");
            let detail = format!("{object} is missing on the target");
            return Some(remark(object, detail));
        };
        let detail =
            format!("extension {name} is of version {version} on the source and {other} on the target");
        let hint =
            format!("ALTER EXTENSION {name} UPDATE makes them alike, if both servers have that version.");
        (other != version).then(|| {
            if is_one_major {
                remark(format!("version of extension {name}"), format!("{detail}: {hint}"))
            } else {
                Finding::note(Remark::Lacking.check_name(), detail, &hint)
            }
        })
    };
    // Whether clients find a name without a schema depends on their search_path.
    let elsewhere = |(name, (_, schema)): (&String, &(String, String))| {
        let (_, other) = there.get(name)?;
        let is_own = *schema == ident_as_needed(&plan.source.namespace);
        let is_there = other == schema || is_own && *other == ident_as_needed(&plan.target.namespace);
        let detail =
            format!("extension {name} is in schema {schema} on the source and in {other} on the target");
        (!is_there).then(|| remark(format!("schema of extension {name}"), detail))
    };
    let of_clients = || here.iter().filter(|(name, _)| !OF_TOOLS.contains(&name.as_str()));
    Ok(of_clients().filter_map(finding).chain(of_clients().filter_map(elsewhere)).collect())
}

/// Whether a function that is named with its schema, and perhaps without its arguments, is this one, which may have no
/// schema.
fn is_name_of(named: &str, function: &str) -> bool {
    let function =
        if named.contains('(') { function } else { function.split('(').next().unwrap_or_default() };
    let begins = named.len().checked_sub(function.len());
    named.ends_with(function) && begins.is_some_and(|at| at == 0 || named[..at].ends_with('.'))
}

struct NeedDifference<'a> {
    object: &'a Object,
    is_missing: bool,
}

/// Returns objects of these kinds that the source has, and the target does not have, or has with another definition.
fn differences<'a>(
    here: &'a [Object],
    there: &'a [Object],
    kinds: &'a [&str],
) -> impl Iterator<Item = NeedDifference<'a>> {
    // Which of a schema's functions are needed, and so shown completely, differs between the sides.
    let mut known: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for object in there {
        known.entry((&object.kind, &object.name)).or_default().push(&object.definition);
    }
    here.iter().filter(|object| object.is(kinds)).filter_map(move |object| {
        let same = known.get(&(object.kind.as_str(), object.name.as_str()));
        match same {
            None => Some(NeedDifference { object, is_missing: true }),
            Some(same) if !same.contains(&object.definition.as_str()) => {
                Some(NeedDifference { object, is_missing: false })
            }
            Some(_) => None,
        }
    })
}

/// Returns version and schema by the extension's name.
fn versions(session: &mut Connection) -> Result<BTreeMap<String, (String, String)>> {
    let rows = session.run(VERSIONS)?.rows;
    let version = |row: Vec<Option<String>>| {
        let [name, version, schema] = <[_; 3]>::try_from(row).ok()?;
        Some((name?, (version?, schema?)))
    };
    Ok(rows.into_iter().filter_map(version).collect())
}

fn of(side: &mut ObservedSide, namespace: &str, functions: &[(String, String)]) -> Result<Vec<Object>> {
    let TableNames { schemas, names } = side.names.clone();
    let tables: Vec<(String, String)> = schemas.into_iter().zip(names).collect();
    Ok(inventory::beside(&mut side.session, namespace, &tables, functions)?)
}

#[cfg(test)]
mod tests {
    use super::is_name_of;

    #[test]
    fn one_of_a_name_does_not_stand_for_all() {
        assert!(is_name_of("public.f(text)", "f(text)") && is_name_of("public.f", "f(text)"));
        assert!(is_name_of("log.f(text)", "log.f(text)"));
        for (named, function) in
            [("public.f(text)", "f(bigint)"), ("public.if(text)", "f(text)"), ("f", "g()")]
        {
            assert!(!is_name_of(named, function), "{named} {function}");
        }
    }
}
