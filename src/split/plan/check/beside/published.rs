//! Tables in a publication: PostgreSQL refuses to change rows that it could not report to a subscriber. The finish
//! deletes the source's rows, and the target's change with those of the source.

use crate::agent::catalogs;
use crate::agent::error::Result;
use crate::agent::observed_side::ObservedSide;
use crate::agent::session::Side;
use crate::catalog::split::Plan;
use crate::remote::quote::{array_of, ident};
use crate::split::finding::Finding;
use crate::words::some_of;
use std::collections::BTreeSet;

/// Query for tables with published changes. $1: numbers of tables that hold rows.
const PUBLISHED: &str = "SELECT l.oid::text FROM unnest($1::oid[]) l (oid)
    WHERE ARRAY(SELECT l.oid UNION ALL SELECT a.relid FROM pg_partition_ancestors(l.oid) a)
       && ARRAY(SELECT g.relid::oid FROM pg_publication p CROSS JOIN pg_get_publication_tables(p.pubname) g)";

/// Query for publications by table. $1: schemas, $2: tables.
const BY_NAME: &str = "WITH told AS MATERIALIZED (
        SELECT p.pubname, g.relid FROM pg_publication p CROSS JOIN LATERAL pg_get_publication_tables(p.pubname) g)
    SELECT DISTINCT w.position - 1, p.pubname FROM unnest($1::text[], $2::text[]) WITH ORDINALITY w (nsp, rel, position)
      JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
     CROSS JOIN LATERAL (SELECT c.oid UNION SELECT t.relid FROM pg_partition_tree(c.oid) t) l (oid)
      JOIN told p ON p.relid = l.oid
     ORDER BY 1, 2";

/// Finds publications of the source only: their subscribers get no more changes of the keys once these have moved,
/// only their deletion.
pub fn of_source_alone(
    plan: &Plan,
    source: &mut ObservedSide,
    target: &mut ObservedSide,
) -> Result<Option<Finding>> {
    let (here, own) = (by_name(source)?, by_name(target)?);
    let lacking = here.difference(&own).filter_map(|(at, name)| {
        let table = plan.tables.get(at.parse::<usize>().ok()?)?;
        Some(format!("\"{name}\" of {}", table.table_name))
    });
    let lacking: Vec<String> = lacking.collect();
    let text = format!("publications of the source that the target lacks: {}", some_of(&lacking));
    let hint = "Their subscribers receive the deletion on the source and nothing from the target. Publish the tables there, too, and subscribe to both.";
    Ok((!lacking.is_empty()).then(|| Finding::note("source: publications", text, hint)))
}

fn by_name(side: &mut ObservedSide) -> Result<BTreeSet<(String, String)>> {
    let lists = side.names.lists();
    Ok(catalogs::ask(&mut side.session, BY_NAME, &catalogs::given(&lists))?.pairs().collect())
}

pub fn check(side: Side, observed: &mut ObservedSide) -> Result<Vec<Finding>> {
    let ObservedSide { session, observation, .. } = observed;
    let leaves =
        || observation.tables.iter().flat_map(|table| table.leaves().iter().map(move |leaf| (table, leaf)));
    let numbers = array_of(leaves().map(|(_, leaf)| Some(leaf.oid.as_str())));
    let rows = catalogs::ask(session, PUBLISHED, &[Some(&numbers)])?.rows;
    let mut findings = Vec::new();
    for (table, leaf) in leaves() {
        if !rows.iter().any(|row| row.first().and_then(Option::as_ref) == Some(&leaf.oid)) {
            continue;
        }
        let key = table.key().first().map(|name| ident(name)).unwrap_or_default();
        let mut statements = vec![format!("EXPLAIN DELETE FROM {} WHERE ctid = '(0,0)'", leaf.name)];
        if side == Side::Target {
            statements.push(format!("EXPLAIN UPDATE {} SET {key} = {key} WHERE ctid = '(0,0)'", leaf.name));
        }
        for statement in statements {
            match session.undone(|session| session.query(&statement, &[])) {
                Ok(_) => {}
                Err(error) if error.is_verdict() => {
                    let hint = format!(
                        "ALTER TABLE {name} REPLICA IDENTITY DEFAULT, or FULL if its publication filters rows by columns that are in no key. Or remove the table from the publication.",
                        name = leaf.name
                    );
                    findings.push(Finding::new(
                        &format!("{}: publications", side.as_str()),
                        false,
                        format!("{}: {}", leaf.name, error.message),
                        &hint,
                    ));
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(findings)
}
