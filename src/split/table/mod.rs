//! A table of a split, as both sides have it: what is selected of its rows, and how they are written and found again.

use crate::agent::error::{Result, SplitError};
use crate::agent::seen;
use crate::agent::session::Side;
use crate::agent::shape::{Column, TableShape};
use crate::agent::state::queue;
use crate::catalog::split::{Plan, PlannedTable};
use crate::error::SqlState;
use crate::keys::scope::Scope;
use crate::remote::Connection;
use crate::remote::quote::{ident, literal};
use crate::split::table::key_matcher::KeyMatcher;
use columns::{ColumnMapping, ColumnSource};
use std::rc::Rc;

pub mod columns;
pub mod computed;
pub mod key_matcher;
mod steady;
pub mod triggers;

/// One table of the split, as both sides have it.
pub struct SplitTable {
    pub policy: PlannedTable,
    pub source: TableShape,
    pub target: TableShape,
    /// The shard-by column on the source and on the target.
    pub source_by: Column,
    pub target_by: Column,
    pub queue: String,
    /// What fills which column of the target, and the differences that are refused.
    pub pairs: Vec<ColumnMapping>,
    pub differences: Vec<String>,
    /// Columns of the target that can be compared with what fills them.
    pub compared: Vec<usize>,
    /// The encoding of both databases, if it is the same and not UTF-8: texts are not converted.
    pub encoding: Option<String>,
    /// The filter for copied rows. `None` if the target filters.
    pub matcher: Option<Rc<KeyMatcher>>,
    /// The filter for rows that are copied as values. `None` if they are not.
    pub text_matcher: Option<Rc<KeyMatcher>>,
    /// Rows of a window were too large to be copied as values.
    pub has_long_rows: bool,
}

impl SplitTable {
    /// Returns what is selected of a row `t` of the source, for copying and for tailing.
    pub fn select_list(&self) -> String {
        self.pairs.iter().map(ColumnMapping::select).collect::<Vec<_>>().join(", ")
    }

    /// Returns SQL for the stored bytes of a row `t` of the source, without reading values stored out of line.
    pub fn stored_size(&self) -> String {
        let size = |pair: &ColumnMapping| format!("coalesce(pg_column_size({}), 0)", pair.select());
        let sizes: Vec<String> = self.pairs.iter().map(size).collect();
        if sizes.is_empty() { "0".to_owned() } else { sizes.join(" + ") }
    }

    /// Returns the pairs that can be compared.
    pub fn compared(&self) -> impl Iterator<Item = &ColumnMapping> {
        self.compared.iter().filter_map(|position| self.pairs.get(*position))
    }

    /// Returns the target's table without those that inherit from it, whose rows are not the split's.
    pub fn target_only(&self) -> String {
        let only = if self.target.is_partitioned() { "" } else { "ONLY " };
        format!("{only}{}", self.target.name)
    }

    /// Returns the columns of the target that it fills.
    pub fn target_columns(&self) -> String {
        let names: Vec<String> = self.pairs.iter().map(|pair| pair.target.clone()).collect();
        crate::remote::quote::idents("", &names)
    }

    /// Returns the format of rows, for copying and for tailing: binary if every type has one form on all servers, else
    /// text.
    pub fn format(&self) -> String {
        if self.is_binary() { "FORMAT binary".to_owned() } else { self.text_format() }
    }

    pub fn is_binary(&self) -> bool {
        let is_same = |pair: &ColumnMapping| match &pair.source {
            ColumnSource::Expression(_) => false,
            ColumnSource::Column(name) => self.source.column(name).is_some_and(|from| {
                let to = self.target.column(&pair.target);
                from.is_binary() && to.is_some_and(|to| to.is_binary() && to.base == from.base)
            }),
        };
        // Texts within the binary form would be converted all the same.
        self.encoding.is_none() && self.pairs.iter().all(is_same)
    }

    /// Returns the filter for its copied rows, or None if the key's bytes do not suffice.
    fn matcher(&self, scope: &Scope) -> Option<KeyMatcher> {
        let position = self.pairs.iter().position(|pair| pair.target == self.target_by.name)?;
        KeyMatcher::new(scope, &self.target_by, position)
    }

    /// Returns the format of a window's keys.
    pub fn text_format(&self) -> String {
        match &self.encoding {
            Some(encoding) => format!("FORMAT text, ENCODING {}", literal(encoding)),
            None => "FORMAT text".to_owned(),
        }
    }

    /// Whether the equality of each column of the key is that of its bytes.
    pub fn has_plain_key(&self) -> bool {
        let is_plain = |name: &String| self.source.column(name).is_some_and(Column::is_plain_key);
        self.source.key().iter().all(is_plain)
    }

    /// Returns the keys of a window, each image once: a type's own equality could merge two that differ on the other
    /// side.
    pub fn window(&self, condition: &str) -> String {
        let keys = queue::keys(&self.source).join(", ");
        let from = format!("FROM {} WHERE op <> 'T' AND {condition}", self.queue);
        if self.has_plain_key() {
            format!("SELECT DISTINCT {keys} {from}")
        } else {
            format!(
                "SELECT DISTINCT ON (ROW({keys})) {keys} {from} ORDER BY ROW({keys}) USING OPERATOR(pg_catalog.*<)"
            )
        }
    }

    /// Returns the rows `t` of the source whose keys are in a window, each once; one more condition may follow.
    pub fn changed_rows(&self, condition: &str) -> String {
        let name = &self.source.name;
        format!(
            "{name} t WHERE EXISTS (SELECT FROM {} k WHERE k.op <> 'T' AND {condition} AND {})",
            self.queue,
            key_join(&self.source, "k", &queue::keys(&self.source))
        )
    }

    /// Returns the condition that the rows `t` of the target are those of the keys `k` of a window.
    pub fn target_join(&self) -> String {
        key_join(&self.target, "k", &queue::keys(&self.source))
    }

    /// Returns the condition that the rows `t` of the source are those of some keys `k`.
    pub fn source_join(&self) -> String {
        key_join(&self.source, "k", &queue::keys(&self.source))
    }

    /// Returns statements that delete the window's rows on the target: by key and scope, since by key alone they would
    /// remove another tenant's row. The planner does not know the window's size before; in a large one it finds rows
    /// in their physical order, which takes three quarters of the time of a deletion in the order of the keys.
    pub fn delete_changed(&self, scope: &Scope) -> [String; 2] {
        let window = self.window_table();
        let delete = format!(
            "DELETE FROM {} t WHERE EXISTS (SELECT FROM {window} k WHERE {}) AND {}",
            self.target_only(),
            self.target_join(),
            scope.filter(&self.target_by, "t"),
        );
        [format!("ANALYZE {window}"), delete]
    }

    /// Returns a statement that deletes rows by keys in a list of values, whose number the planner knows.
    pub fn delete_listed(&self, scope: &Scope, values: &str) -> String {
        format!(
            "DELETE FROM {} t USING (VALUES {values}) k ({}) WHERE {} AND {}",
            self.target_only(),
            queue::keys(&self.source).join(", "),
            self.target_join(),
            scope.filter(&self.target_by, "t"),
        )
    }

    /// Returns the types of the target's key, without domains.
    pub fn key_types(&self) -> Vec<&str> {
        let of = |name: &String| self.target.column(name).map_or("text", |column| column.base.as_str());
        self.target.key().iter().map(of).collect()
    }

    /// Returns a join that selects of rows `t` of the target those that the step's window has changed.
    pub fn changed_on_target(&self) -> String {
        format!("JOIN {} k ON {}", self.window_table(), self.target_join())
    }

    /// Returns the condition that a noted key `g` of the target is a key `k` of the window.
    pub fn changed_join(&self) -> String {
        queue::keys(&self.source)
            .iter()
            .zip(self.target.key_equality())
            .map(|(key, equality)| equality.of(&format!("g.{key}"), &format!("k.{key}")))
            .collect::<Vec<_>>()
            .join(" AND ")
    }

    /// Returns the temporary table on the target for the keys of a window.
    pub fn window_table(&self) -> String {
        format!("pg_temp.window_{}", self.policy.ordinal)
    }
}

/// Returns `t.key = k.k1 AND ...`, each with the equality of the key's own index.
fn key_join(shape: &TableShape, window: &str, keys: &[String]) -> String {
    shape
        .key()
        .iter()
        .zip(shape.key_equality())
        .zip(keys)
        .map(|((column, equality), key)| {
            equality.of(&format!("t.{}", ident(column)), &format!("{window}.{key}"))
        })
        .collect::<Vec<_>>()
        .join(" AND ")
}

/// Observes both sides and pairs their tables.
pub fn load(plan: &Plan, source: &mut Connection, target: &mut Connection) -> Result<Vec<SplitTable>> {
    let on_source = seen::look(source, plan, Side::Source)?;
    let on_target = seen::look(target, plan, Side::Target)?;
    let is_same = on_source.encoding == on_target.encoding && on_source.encoding != "UTF8";
    let is_utf8 = on_source.encoding == "UTF8" && on_target.encoding == "UTF8";
    let encoding = is_same.then_some(on_source.encoding);
    plan.tables
        .iter()
        .zip(on_source.tables.into_iter().zip(on_target.tables))
        .map(|(policy, (on_source, on_target))| {
            let mut table =
                SplitTable { encoding: encoding.clone(), ..pair(plan, policy, on_source, on_target)? };
            let matcher = table.matcher(&plan.scope).map(Rc::new);
            // A message of values is converted as a whole: which table a text that cannot be converted belongs to
            // would be unknown.
            table.text_matcher = matcher.clone().filter(|_| is_utf8);
            table.matcher = matcher.filter(|_| table.is_binary());
            for (position, pair) in table.pairs.iter().enumerate() {
                if steady::is_steady(source, &table.source.name, pair)? {
                    table.compared.push(position);
                }
            }
            Ok(table)
        })
        .collect()
}

fn pair(plan: &Plan, policy: &PlannedTable, source: TableShape, target: TableShape) -> Result<SplitTable> {
    let missing = |shard: &str, what: &str| {
        SplitError::failed(
            SqlState::parse("42P01"),
            format!("table {}: {what} on shard \"{shard}\"", policy.table_name),
            format!("SELECT * FROM shard_split_check({}) lists all problems.", plan.id),
        )
    };
    for (shape, shard) in [(&source, &plan.source.shard_key), (&target, &plan.target.shard_key)] {
        if shape.oid.is_none() {
            return Err(missing(shard, "does not exist"));
        }
        if shape.key().is_empty() {
            return Err(missing(shard, "has no primary key"));
        }
    }
    let by = |shape: &TableShape, shard: &str| {
        shape
            .column(&policy.shard_by)
            .cloned()
            .ok_or_else(|| missing(shard, &format!("has no column \"{}\"", policy.shard_by)))
    };
    let source_by = by(&source, &plan.source.shard_key)?;
    let target_by = by(&target, &plan.target.shard_key)?;
    let queue = queue::qualified(plan.id, policy.ordinal);
    let pairing = columns::pair(&source, &target, &policy.maps, &columns::fixed(&target, policy));
    let mut differences = pairing.refused();
    if source.key() != target.key() {
        differences.push(format!(
            "primary key ({}) on the source, ({}) on the target",
            source.key().join(", "),
            target.key().join(", ")
        ));
    }
    Ok(SplitTable {
        policy: policy.clone(),
        source,
        target,
        source_by,
        target_by,
        queue,
        pairs: pairing.pairs,
        differences,
        compared: Vec::new(),
        encoding: None,
        matcher: None,
        text_matcher: None,
        has_long_rows: false,
    })
}
