//! What rows of the scope are told by is what it was when they were copied.
//!
//! Rows are found by the name of the shard-by column, and keys of an enum by the names of its labels. Both can be given to
//! another one, and then the same words mean rows that nobody has moved. Whatever deletes rows of the scope asks first whether
//! they mean what they meant. A lock on the table keeps its columns as they are, and nothing keeps labels: so it asks again
//! behind each DELETE, in its transaction. What was renamed before the DELETE is seen then, and what is renamed later, that
//! one did not see.

use crate::agent::error::Result;
use crate::agent::known_column::KnownColumn;
use crate::agent::session::Side;
use crate::agent::shape::{Column, TableShape};
use crate::agent::state::progress::{Progress, TableProgress};
use crate::keys::scope::Scope;
use crate::remote::Connection;
use crate::remote::quote::{array_literal, literal};

/// So many keys are written into a query; of more, each label counts.
const LISTED_KEYS: usize = 1000;

/// What was stored of a side's tables, by their oids: a plan may be without some of them by now.
#[derive(Default)]
pub struct Meant {
    tables: Vec<(String, Vec<KnownColumn>)>,
    /// None: each label counts.
    keys: Option<Vec<String>>,
}

impl Meant {
    /// What a version has stored that did not look is not judged.
    pub fn stored(progress: &Progress, scope: &Scope, side: Side) -> Meant {
        let keys = match scope {
            Scope::Keys(keys) if keys.len() <= LISTED_KEYS => Some(keys.clone()),
            _ => None,
        };
        Meant { tables: progress.tables.iter().filter_map(|table| known(table, side)).collect(), keys }
    }

    fn of(&self, shape: &TableShape, shard_by: &str) -> Option<&KnownColumn> {
        let oid = shape.oid.as_deref()?;
        let (_, columns) = self.tables.iter().find(|(table, _)| table == oid)?;
        columns.iter().find(|column| column.name == shard_by)
    }

    /// What has become of a table's shard-by column; None: it is what it was.
    pub fn change(&self, shape: &TableShape, shard_by: &str) -> Option<String> {
        let known = self.of(shape, shard_by)?;
        let name = &known.name;
        let Some(column) = shape.column(name) else {
            return Some(format!("it has no column \"{name}\" any more"));
        };
        if KnownColumn::from(column).attribute() != known.attribute() {
            return Some(format!("its column \"{name}\" is another one than it was"));
        }
        self.changed_label(known, column)
            .map(|label| format!("label \"{label}\" of its column \"{name}\" is called otherwise"))
    }

    fn changed_label(&self, known: &KnownColumn, now: &Column) -> Option<String> {
        let Some(before) = &known.labels else {
            // Nobody has noted which label is which: a name that has come or gone may be another's.
            let has_changed = now.is_enum && known.meaning != KnownColumn::from(now).meaning;
            return has_changed.then(|| known.type_name.clone());
        };
        let labels = now.labels.as_ref();
        let now_called = |oid: &String| {
            labels.and_then(|labels| labels.iter().find(|(_, other)| *other == oid)).map(|(label, _)| label)
        };
        let is_key = |label: &String| self.keys.as_ref().is_none_or(|keys| keys.contains(label));
        let is_other = |(label, oid): &(&String, &String)| {
            let now = now_called(oid);
            now != Some(*label) && (is_key(label) || now.is_some_and(is_key))
        };
        before.iter().find(is_other).map(|(label, _)| label.clone())
    }

    /// Whether all of that holds, as a condition.
    pub fn still(&self, shape: &TableShape, shard_by: &str) -> String {
        let (Some(known), Some(oid)) = (self.of(shape, shard_by), &shape.oid) else {
            return "true".to_owned();
        };
        let mut conditions = vec![format!(
            "EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = {}::oid AND a.attname = {} AND a.attnum = {}::int2
                        AND NOT a.attisdropped)",
            literal(oid),
            literal(&known.name),
            literal(known.attribute())
        )];
        if let Some(labels) = known.labels.as_ref().filter(|labels| !labels.is_empty()) {
            let (names, oids): (Vec<String>, Vec<String>) = labels.clone().into_iter().unzip();
            let of_keys = self.keys.as_ref().map_or_else(String::new, |keys| {
                let keys = array_literal(keys);
                format!(" AND (k.label = ANY ({keys}::text[]) OR e.enumlabel = ANY ({keys}::text[]))")
            });
            conditions.push(format!(
                "NOT EXISTS (SELECT FROM unnest({}::text[], {}::oid[]) AS k (label, oid) LEFT JOIN pg_catalog.pg_enum e ON e.oid = k.oid
                              WHERE e.enumlabel IS DISTINCT FROM k.label{of_keys})",
                array_literal(&names),
                array_literal(&oids)
            ));
        }
        conditions.join(" AND ")
    }

    /// Asked behind a DELETE, before its transaction ends.
    pub fn is_still(&self, connection: &mut Connection, shape: &TableShape, shard_by: &str) -> Result<bool> {
        let rows = connection.run(&format!("SELECT {}", self.still(shape, shard_by)))?;
        Ok(rows.scalar() == Some("t"))
    }
}

/// The oid of a table, and its columns as they were.
fn known(table: &TableProgress, side: Side) -> Option<(String, Vec<KnownColumn>)> {
    let (structure, columns) = match side {
        Side::Source => (&table.structure, &table.columns),
        Side::Target => (&table.target_structure, &table.target_columns),
    };
    let oid = structure.strip_prefix("oid ")?.split(',').next()?;
    Some((oid.to_owned(), columns.clone()?))
}
