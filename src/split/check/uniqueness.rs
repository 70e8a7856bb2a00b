//! In a replica's session a deferrable constraint is not checked: the target's holds for the
//! rows that come if the source has the same. (One without the shard-by column is refused
//! by itself: other keys' rows are on no side.)

use super::Finding;
use crate::catalog::split::Plan;
use crate::split::engine;
use crate::split::error::Result;
use crate::split::session::{self, Side};

const CONSTRAINTS: &str = include_str!("../../../sql/check/uniqueness.sql");

/// What a side promises of two rows of a table.
struct Promise {
    position: String,
    name: String,
    says: String,
    is_deferrable: bool,
}

pub fn check(plan: &Plan) -> Result<Vec<Finding>> {
    let ours = promises(plan, Side::Source)?;
    let theirs = promises(plan, Side::Target)?;
    let is_kept = |p: &Promise| ours.iter().any(|o| o.position == p.position && o.says == p.says);
    let bad = theirs.iter().filter(|promise| promise.is_deferrable && !is_kept(promise));
    Ok(bad
        .map(|promise| {
            let table = promise.position.parse::<usize>().ok().and_then(|at| plan.tables.get(at));
            let table = table.map_or("", |table| &table.table_name);
            Finding::new(
                "target: deferrable constraints of the source",
                false,
                format!("{table}: the source has no constraint like \"{}\"", promise.name),
                "Make it NOT DEFERRABLE, or add it to the source: it is not checked for rows that are copied.",
            )
        })
        .collect())
}

fn promises(plan: &Plan, side: Side) -> Result<Vec<Promise>> {
    let shard = match side {
        Side::Source => &plan.source,
        Side::Target => &plan.target,
    };
    let mut connection = session::open(shard, &format!("split {} check of constraints", plan.id))?;
    let (schemas, names) = engine::table_names(plan, side);
    let lists = [schemas, names].map(|list| engine::text_array(&list));
    let rows = connection.query(CONSTRAINTS, &[Some(&lists[0]), Some(&lists[1])])?;
    Ok(rows
        .rows
        .into_iter()
        .filter_map(|row| match row.as_slice() {
            [Some(position), Some(name), Some(says), deferrable] => Some(Promise {
                position: position.clone(),
                name: name.clone(),
                says: says.clone(),
                is_deferrable: deferrable.as_deref() == Some("t"),
            }),
            _ => None,
        })
        .collect())
}
