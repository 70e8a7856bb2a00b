//! Who may read and write the source's tables, and may not do so on the target.

use crate::agent::catalogs;
use crate::agent::error::Result;
use crate::agent::observe;
use crate::agent::session::Side;
use crate::catalog::split::Plan;
use crate::remote::quote::array_of;
use crate::remote::{Connection, RemoteError};
use std::collections::{BTreeMap, BTreeSet};

const GRANTED: &str = include_str!("../../../../../sql/check/granted.sql");
const LACKING: &str = include_str!("../../../../../sql/check/lacking.sql");

/// A right of a role: the table's position, the role, the right, and its column.
type Right = (usize, String, String, Option<String>);

/// By the table's position, in words.
pub fn missing(
    plan: &Plan,
    (source, given): (&mut Connection, &[String; 2]),
    (target, there): (&mut Connection, &[String; 2]),
) -> Result<Vec<(usize, String)>> {
    let own: BTreeSet<Right> = rights(target, there)?.into_iter().collect();
    let (schemas, names) = observe::table_names(plan, Side::Target);
    let wanted: Vec<Right> =
        rights(source, given)?.into_iter().filter(|right| !own.contains(right)).collect();
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let of = |cell: fn(&Right) -> Option<&str>| array_of(wanted.iter().map(cell));
    let place = |list: &[String]| array_of(wanted.iter().map(|right| list.get(right.0).map(String::as_str)));
    let lists = [
        place(&schemas),
        place(&names),
        of(|right| Some(&right.1)),
        of(|right| Some(&right.2)),
        of(|right| right.3.as_deref()),
    ];
    let lists: Vec<Option<&str>> = lists.iter().map(|list| Some(list.as_str())).collect();
    let mut missing: BTreeMap<(usize, String), BTreeSet<String>> = BTreeMap::new();
    for row in catalogs::ask(target, LACKING, &lists)?.rows {
        let [Some(number), Some(is_there)] = row.as_slice() else { continue };
        let Some((position, role, right, column)) =
            number.parse::<usize>().ok().and_then(|number| wanted.get(number))
        else {
            continue;
        };
        let right = match column {
            Some(column) => format!("{right} of \"{column}\""),
            None => right.clone(),
        };
        let who = if is_there == "t" { role.clone() } else { format!("{role}, which is no role there") };
        missing.entry((*position, who)).or_default().insert(right);
    }
    let text = |((position, role), rights): ((usize, String), BTreeSet<String>)| {
        let rights: Vec<String> = rights.into_iter().collect();
        (position, format!("{} for {role}", rights.join(" and ")))
    };
    Ok(missing.into_iter().map(text).collect())
}

fn rights(session: &mut Connection, lists: &[String; 2]) -> Result<Vec<Right>> {
    let rows = catalogs::ask(session, GRANTED, &[Some(&lists[0]), Some(&lists[1])])?;
    let read = |row: &Vec<Option<String>>| {
        let [Some(position), Some(role), Some(right), column] = row.as_slice() else { return None };
        Some((position.parse().ok()?, role.clone(), right.clone(), column.clone()))
    };
    let rights: Option<Vec<Right>> = rows.rows.iter().map(read).collect();
    Ok(rights.ok_or_else(|| RemoteError::unreadable(session.shard(), "who may read its tables"))?)
}
