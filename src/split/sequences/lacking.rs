//! What functions of defaults and triggers name, the source has, and the target does not: the first insert after the cutover fails
//! where one writes to a table that is not there. What is asked for is what the texts were read for already.

use super::pair::Places;
use crate::agent::catalogs;
use crate::agent::error::Result;
use crate::catalog::split::Plan;
use crate::remote::Connection;
use crate::remote::quote::{ident_as_needed, text_array};
use crate::split::finding::Finding;
use crate::split::remark::Remark;
use std::collections::BTreeSet;

const NAMED: &str = include_str!("../../../sql/check/named.sql");

/// A kind, a schema and a name.
type Thing = (String, String, String);

/// `words`: all names that are in these texts.
pub fn check(
    plan: &Plan,
    source: &mut Connection,
    target: &mut Connection,
    schemas: &[String],
    words: &BTreeSet<String>,
) -> Result<Vec<Finding>> {
    if words.is_empty() {
        return Ok(Vec::new());
    }
    let words: Vec<String> = words.iter().cloned().collect();
    let places = Places { source: &plan.source.namespace, target: &plan.target.namespace };
    let there: Vec<String> = schemas.iter().map(|schema| places.there(schema)).collect();
    let own: BTreeSet<Thing> = things(target, &there, &words)?.into_iter().collect();
    let lacks = |(kind, schema, name): &Thing| {
        let is_there = |kind: &str| own.contains(&(kind.to_owned(), places.there(schema), name.clone()));
        // A view may stand for a table.
        match kind.as_str() {
            "function" => !is_there("function"),
            _ => !["table", "view", "materialized view"].iter().any(|kind| is_there(kind)),
        }
    };
    let finding = |(kind, schema, name): Thing| {
        let object = format!("{}.{}", ident_as_needed(&schema), ident_as_needed(&name));
        let detail = format!(
            "{kind} {object}, which the target lacks, is named by functions that writes to the moving tables call"
        );
        Finding::remark_of(plan.reverse_of, Remark::Lacking, &object, detail)
    };
    let found = things(source, schemas, &words)?;
    Ok(found.into_iter().filter(lacks).map(finding).collect())
}

fn things(session: &mut Connection, schemas: &[String], words: &[String]) -> Result<Vec<Thing>> {
    let lists = [text_array(schemas), text_array(words)];
    let rows = catalogs::ask(session, NAMED, &[Some(&lists[0]), Some(&lists[1])])?.rows;
    let thing = |row: Vec<Option<String>>| {
        let [kind, schema, name] = <[_; 3]>::try_from(row).ok()?;
        Some((kind?, schema?, name?))
    };
    Ok(rows.into_iter().filter_map(thing).collect())
}
