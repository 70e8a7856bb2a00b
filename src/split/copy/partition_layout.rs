//! Partitions that the source has and the target lacks are created there as well, if the split's operator has asked
//! for that (`on_ddl => 'apply'`). Invariant: what is made is empty, and made only where no partition of the target
//! takes what it is for; so it takes no row from another one, and its existence is all that has to be known to make it
//! once.
//!
//! A partition is identified by its bound below the same table, whatever its name is: the root, or a partition that
//! both sides have, partitioned alike. It gets the source's name in the schema of the table above it, and that table's
//! owner, columns, constraints and indexes; the source partition's other properties (rights, its own indexes and
//! defaults, a tablespace) are left to the owner. If the target has a default partition, every row has a place, and a
//! scan of it under an exclusive lock would be needed: nothing is made. What the source has detached or dropped stays
//! on the target, without rows of the split.

use crate::agent::catalogs;
use crate::agent::error::{Result, SplitError};
use crate::agent::session::Side;
use crate::agent::state::epoch::Tenure;
use crate::agent::table_names::TableNames;
use crate::catalog::split;
use crate::remote::Connection;
use crate::remote::quote::{ident, idents, qualified};
use crate::server::txn::transaction;
use crate::split::copy::apply_ddl;
use crate::split::copy::bound::CopyBound;
use crate::split::engine::sessions::EngineSessions;
use crate::split::injection_points::{self, reach};
use crate::split::table::SplitTable;
use std::collections::{BTreeMap, BTreeSet};

const TREE: &str = include_str!("../../../sql/agent/partition_tree.sql");

/// A table of a side, or one below it.
#[derive(Clone, Debug, Default)]
struct TreeNode {
    position: usize,
    oid: String,
    above: Option<String>,
    schema: String,
    name: String,
    bound: Option<String>,
    /// What it is partitioned by, as the server writes it. `None` if it holds rows.
    by: Option<String>,
    strategy: Option<String>,
    /// `None` if it is partitioned by more than columns.
    columns: Option<Vec<String>>,
    owner: Option<String>,
}

/// The target's table that corresponds to a table of the source.
#[derive(Clone, Debug)]
struct TargetPlace {
    /// `None` if it is to be made.
    oid: Option<String>,
    schema: String,
    name: String,
    owner: Option<String>,
}

/// Makes what is missing: all of it, or what is above these leaves of the source. Returns whether anything was made.
/// The session of the target is in no transaction, before and afterwards.
pub fn bring_over(
    tenure: &Tenure,
    sessions: &mut EngineSessions,
    tables: &[SplitTable],
    leaves: Option<&BTreeSet<String>>,
) -> Result<bool> {
    let here = tree(&mut sessions.control, &TableNames::of(&tenure.plan, Side::Source))?;
    if here.is_empty() {
        return Ok(false);
    }
    apply_ddl::begin(tenure, &mut sessions.target, tables)?;
    let there = tree(&mut sessions.target, &TableNames::of(&tenure.plan, Side::Target))?;
    let is_plain = |position: usize| tenure.plan.tables.get(position).is_some_and(|t| t.maps.is_empty());
    let wanted = leaves.map(|leaves| with_parents(&here, leaves));
    let is_wanted =
        |node: &TreeNode| is_plain(node.position) && wanted.as_ref().is_none_or(|w| w.contains(&node.oid));
    let statements = missing(&here, &there, is_wanted);
    if statements.is_empty() {
        sessions.target.run("ROLLBACK")?;
        return Ok(false);
    }
    // Writers of a table that this one references may queue behind the lock, so it is tried only briefly, and again.
    let made = sessions.target.run(&format!(
        "SET LOCAL lock_timeout = '100ms'; SET LOCAL statement_timeout = '2s';
         SET LOCAL idle_in_transaction_session_timeout = '5s'; {}",
        statements.join("; ")
    ));
    if let Err(error) = made {
        let _ = sessions.target.run("ROLLBACK");
        return Err(error.into());
    }
    sessions.target.run("COMMIT")?;
    reach(injection_points::RESHAPE_PLACED)?;
    apply_ddl::tell(&tenure.plan, &statements);
    Ok(true)
}

/// Makes partitions that were just added on the source. If the target refuses one, this is reported and left to its
/// operator, since it is unknown whether a row needs it.
pub fn bring_new(
    tenure: &Tenure,
    sessions: &mut EngineSessions,
    tables: &[SplitTable],
    leaves: &BTreeSet<String>,
) -> Result<()> {
    match bring_over(tenure, sessions, tables, Some(leaves)) {
        Ok(_) => Ok(()),
        Err(SplitError::Remote(error)) if !error.is_transient() => {
            let text = format!("partitions added on the source were refused on the target: {error}");
            transaction(|| split::event_again(tenure.plan.id, &text));
            Ok(())
        }
        Err(other) => Err(other),
    }
}

fn with_parents(here: &[TreeNode], leaves: &BTreeSet<String>) -> BTreeSet<String> {
    let mut wanted = leaves.clone();
    // In reverse order each table comes after what is below it.
    for node in here.iter().rev().filter(|node| leaves.contains(&node.oid) || node.by.is_some()) {
        if wanted.contains(&node.oid) {
            wanted.extend(node.above.clone());
        }
    }
    wanted
}

/// Returns statements for the target, those for a table before those for what is below it.
fn missing(here: &[TreeNode], there: &[TreeNode], is_wanted: impl Fn(&TreeNode) -> bool) -> Vec<String> {
    let mut places: BTreeMap<&str, (&TreeNode, TargetPlace)> = BTreeMap::new();
    let mut statements = Vec::new();
    for node in here {
        let place = match node.above.as_deref() {
            None => there
                .iter()
                .find(|root| root.above.is_none() && root.position == node.position && root.by == node.by)
                .map(TargetPlace::of),
            Some(above) => places.get(above).cloned().and_then(|(parent, place)| {
                let below = |other: &&TreeNode| place.oid.is_some() && other.above == place.oid;
                if let Some(same) = there.iter().filter(below).find(|other| other.bound == node.bound) {
                    return (same.by == node.by).then(|| TargetPlace::of(same));
                }
                let takes_all =
                    there.iter().filter(below).any(|other| other.bound.as_deref() == Some("DEFAULT"));
                let made = (!takes_all && is_wanted(node)).then(|| make(node, parent, &place)).flatten()?;
                statements.extend(made);
                Some(TargetPlace { oid: None, name: node.name.clone(), ..place })
            }),
        };
        if let Some(place) = place {
            places.insert(&node.oid, (node, place));
        }
    }
    statements
}

impl TargetPlace {
    fn of(node: &TreeNode) -> TargetPlace {
        let TreeNode { oid, schema, name, owner, .. } = node.clone();
        TargetPlace { oid: Some(oid), schema, name, owner }
    }

    fn sql(&self) -> String {
        qualified(&self.schema, &self.name)
    }
}

/// Returns statements for one partition. It is attached afterwards, which waits for no reader or writer of the table
/// above, unlike CREATE TABLE .. PARTITION OF.
fn make(node: &TreeNode, parent: &TreeNode, above: &TargetPlace) -> Option<Vec<String>> {
    let bound = CopyBound::parse(node.bound.as_deref()?)?;
    let new = TargetPlace { oid: None, name: node.name.clone(), ..above.clone() };
    let by = match (&node.by, &node.strategy, &node.columns) {
        (None, ..) => String::new(),
        (Some(_), Some(strategy), Some(columns)) => {
            let strategy = ["RANGE", "LIST", "HASH"].into_iter().find(|known| known == strategy)?;
            format!(" PARTITION BY {strategy} ({})", idents("", columns))
        }
        (Some(_), ..) => return None,
    };
    if node.schema != parent.schema {
        return None;
    }
    let (name, above_name) = (new.sql(), above.sql());
    let mut statements = vec![
        format!(
            "CREATE TABLE {name} (LIKE {above_name} INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING GENERATED INCLUDING STORAGE){by}"
        ),
        format!("ALTER TABLE {above_name} ATTACH PARTITION {name} {}", bound.sql()),
    ];
    statements
        .extend(above.owner.iter().map(|owner| format!("ALTER TABLE {name} OWNER TO {}", ident(owner))));
    Some(statements)
}

fn tree(connection: &mut Connection, tables: &TableNames) -> Result<Vec<TreeNode>> {
    let rows = catalogs::ask(connection, TREE, &catalogs::given(&tables.lists()))?;
    let node = |row: &Vec<Option<String>>| {
        let cell = |n: usize| row.get(n).cloned().flatten();
        Some(TreeNode {
            position: cell(0)?.parse().ok()?,
            oid: cell(1)?,
            above: cell(2),
            schema: cell(3)?,
            name: cell(4)?,
            bound: cell(5),
            by: cell(6),
            strategy: cell(7),
            columns: cell(8).and_then(|list| serde_json::from_str(&list).ok()),
            owner: cell(9),
        })
    };
    Ok(rows.rows.iter().filter_map(node).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(oid: &str, above: Option<&str>, name: &str, bound: &str, by: Option<&str>) -> TreeNode {
        TreeNode {
            oid: oid.to_owned(),
            above: above.map(str::to_owned),
            schema: "public".to_owned(),
            name: name.to_owned(),
            bound: above.map(|_| bound.to_owned()),
            by: by.map(str::to_owned),
            strategy: by.map(|_| "RANGE".to_owned()),
            columns: by.map(|_| vec!["id".to_owned()]),
            ..TreeNode::default()
        }
    }

    const BY: Option<&str> = Some("RANGE (id)");

    /// Returns a root with one partition, which is partitioned in turn.
    fn tree_of(first: &str) -> Vec<TreeNode> {
        vec![
            node(first, None, "items", "", BY),
            node("1", Some(first), "items_1", "FOR VALUES FROM (0) TO (10)", BY),
            node("11", Some("1"), "items_11", "FOR VALUES FROM (0) TO (5)", None),
        ]
    }

    fn all(here: &[TreeNode], there: &[TreeNode]) -> Vec<String> {
        missing(here, there, |_| true)
    }

    #[test]
    fn what_is_missing_is_made_from_above() {
        assert!(all(&tree_of("9"), &tree_of("8")).is_empty());
        let made = all(&tree_of("9"), &tree_of("8")[..1]);
        assert_eq!(made.len(), 4);
        assert!(
            made[0].starts_with("CREATE TABLE \"public\".\"items_1\" (LIKE \"public\".\"items\" "),
            "{made:?}"
        );
        assert!(made[0].ends_with(" PARTITION BY RANGE (\"id\")"), "{made:?}");
        assert!(
            made[3].contains("ALTER TABLE \"public\".\"items_1\" ATTACH PARTITION \"public\".\"items_11\"")
        );
        let leaves = BTreeSet::from(["11".to_owned()]);
        assert_eq!(with_parents(&tree_of("9"), &leaves).len(), 3);
    }

    #[test]
    fn a_place_that_is_there_in_another_way_is_left() {
        let mut other = tree_of("8");
        other[0].by = Some("LIST (id)".to_owned());
        assert!(all(&tree_of("9"), &other[..1]).is_empty());
        // It holds rows there.
        let leaf = node("1", Some("8"), "items_1", "FOR VALUES FROM (0) TO (10)", None);
        assert!(all(&tree_of("9"), &[tree_of("8")[0].clone(), leaf]).is_empty());
        let takes_all = node("1", Some("8"), "items_d", "DEFAULT", None);
        assert!(all(&tree_of("9"), &[tree_of("8")[0].clone(), takes_all]).is_empty());
        let mut elsewhere = tree_of("9");
        elsewhere[1].schema = "other".to_owned();
        assert!(all(&elsewhere, &tree_of("8")[..1]).is_empty());
        let mut hostile = tree_of("9");
        hostile[1].bound = Some("FOR VALUES IN (f())".to_owned());
        assert!(all(&hostile, &tree_of("8")[..1]).is_empty());
    }
}
