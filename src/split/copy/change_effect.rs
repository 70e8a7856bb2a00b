//! What happens to the copies of a table that changed: whether its change can have invalidated one (`harmless`), and
//! the checks on both sides that this may need.

use crate::agent::catalogs;
use crate::agent::error::Result;
use crate::agent::state::progress::TableProgress;
use crate::catalog::split::Plan;
use crate::remote::Connection;
use crate::remote::quote::{ident, text_array};
use crate::split::copy::compatible_ddl::{Looks, TableChange};
use crate::split::table::SplitTable;

const OLD_ROWS: &str = include_str!("../../../sql/agent/old_rows.sql");

/// What has changed, in words, and why the table is copied again. `again` is `None` if it continues.
pub struct ChangeEffect {
    pub words: Vec<String>,
    pub again: Option<String>,
}

/// Judges a change. `known` is the table as it was when its rows were copied; `table` is as both sides have it now.
pub fn of(
    plan: &Plan,
    source: &mut Connection,
    target: &mut Connection,
    table: &SplitTable,
    known: &TableProgress,
) -> Result<ChangeEffect> {
    let change =
        TableChange { known, source: &table.source, target: &table.target, maps: &table.policy.maps };
    let again = match change.judge() {
        Ok(looks) => find_values(plan, source, target, table, &looks)?,
        Err(why) => Some(why),
    };
    Ok(ChangeEffect { words: change.words(), again })
}

/// Returns what earlier rows have in columns that must be NULL in them, or None if they are NULL.
fn find_values(
    plan: &Plan,
    source: &mut Connection,
    target: &mut Connection,
    table: &SplitTable,
    looks: &Looks,
) -> Result<Option<String>> {
    for (session, shape, new) in
        [(source, &table.source, &looks.new_on_source), (&mut *target, &table.target, &looks.new_on_target)]
    {
        if new.is_empty() {
            continue;
        }
        let leaves: Vec<String> = shape.leaves().iter().map(|leaf| leaf.oid.clone()).collect();
        let found = catalogs::ask(session, OLD_ROWS, &[Some(&text_array(&leaves)), Some(&text_array(new))])?;
        if let Some(column) = found.scalar() {
            return Ok(Some(format!("earlier rows have a default in column \"{column}\"")));
        }
    }
    if looks.empty.is_empty() {
        return Ok(None);
    }
    let columns: Vec<String> = looks.empty.iter().map(|name| format!("t.{}", ident(name))).collect();
    let found = target.run_unbounded(&format!(
        "SELECT 1 FROM {} t WHERE {} AND pg_catalog.num_nonnulls({}) > 0 LIMIT 1",
        table.target_only(),
        plan.scope.predicate(&table.target_by, "t"),
        columns.join(", ")
    ))?;
    let text = format!("rows on the target have values in column \"{}\"", looks.empty.join("\", \""));
    Ok(found.scalar().map(|_| text))
}

/// Describes for the split's history which of these tables, by their names, are copied again and which continue.
pub fn told(changed: &[(&str, &ChangeEffect)]) -> Vec<String> {
    let again = changed.iter().filter_map(|(name, effect)| {
        effect.again.as_ref().map(|why| format!("{name} ({}: {why})", effect.words.join(", ")))
    });
    let on = changed.iter().filter(|(_, effect)| effect.again.is_none());
    let on = on.map(|(name, effect)| format!("{name} ({})", effect.words.join(", ")));
    let [again, on] = [again.collect::<Vec<_>>(), on.collect()];
    let mut texts = Vec::new();
    if !again.is_empty() {
        texts.push(format!(
            "tables changed, and both sides are alike: these are copied again: {}",
            again.join("; ")
        ));
    }
    if !on.is_empty() {
        texts.push(format!(
            "tables changed, and both sides are alike: these continue where they were: {}",
            on.join("; ")
        ));
    }
    texts
}
