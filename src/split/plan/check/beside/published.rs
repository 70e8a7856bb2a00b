//! Tables in a publication: PostgreSQL refuses to change rows that it could not tell a subscriber about. The source's are
//! deleted by the finish, and the target's changed as they change on the source.

use crate::agent::catalogs;
use crate::agent::error::Result;
use crate::agent::session::Side;
use crate::agent::shape::Observation;
use crate::remote::Connection;
use crate::remote::quote::{array_of, ident};
use crate::split::finding::Finding;

/// $1: tables that hold rows, by their numbers.
const PUBLISHED: &str = "SELECT l.oid::text FROM unnest($1::oid[]) l (oid)
    WHERE ARRAY(SELECT l.oid UNION ALL SELECT a.relid FROM pg_partition_ancestors(l.oid) a)
       && ARRAY(SELECT g.relid::oid FROM pg_publication p CROSS JOIN pg_get_publication_tables(p.pubname) g)";

pub fn check(session: &mut Connection, side: Side, shapes: &Observation) -> Result<Vec<Finding>> {
    let leaves =
        || shapes.tables.iter().flat_map(|table| table.leaves().iter().map(move |leaf| (table, leaf)));
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
                    let hint =
                        "ALTER TABLE .. REPLICA IDENTITY DEFAULT, or take the table out of the publication.";
                    findings.push(Finding::new(
                        &format!("{}: publications", side.as_str()),
                        false,
                        format!("{}: {}", leaf.name, error.message),
                        hint,
                    ));
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(findings)
}
