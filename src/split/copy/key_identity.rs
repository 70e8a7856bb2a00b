//! Checks that rows of the scope are still identified by what identified them when they were copied.
//!
//! Rows are found by the name of the shard-by column, and keys of an enum by the names of its labels. Both names can
//! be given to another column or label, and then the same words select rows that were never moved. Code that deletes
//! rows of the scope first checks that the names have kept their meaning. A lock on the table keeps its columns as
//! they are, but nothing locks labels: so the check is repeated after each DELETE, in its transaction. It sees what
//! was renamed before the DELETE, and a later renaming was not visible to the DELETE.

use crate::agent::error::Result;
use crate::agent::known_column::KnownColumn;
use crate::agent::session::Side;
use crate::agent::shape::{Column, TableShape, oid_of};
use crate::agent::state::progress::{CopyProgress, TableProgress};
use crate::keys::scope::Scope;
use crate::remote::Connection;
use crate::remote::quote::{array_literal, literal};

/// The greatest number of keys that are written into a query; if there are more, each label counts.
const LISTED_KEYS: usize = 1000;

/// What was stored of a side's tables, by their oids: a plan may have lost some of them by now.
#[derive(Default)]
pub struct KeyIdentity {
    tables: Vec<(String, Vec<KnownColumn>)>,
    /// `None` if each label counts.
    keys: Option<Vec<String>>,
}

impl KeyIdentity {
    /// Returns what is stored. A progress of a version that did not note labels is not judged.
    pub fn stored(progress: &CopyProgress, scope: &Scope, side: Side) -> KeyIdentity {
        let keys = match scope {
            Scope::Keys(keys) if keys.len() <= LISTED_KEYS => Some(keys.clone()),
            _ => None,
        };
        KeyIdentity { tables: progress.tables.iter().filter_map(|table| known(table, side)).collect(), keys }
    }

    fn of(&self, shape: &TableShape, shard_by: &str) -> Option<&KnownColumn> {
        let oid = shape.oid.as_deref()?;
        let (_, columns) = self.tables.iter().find(|(table, _)| table == oid)?;
        columns.iter().find(|column| column.name == shard_by)
    }

    /// Returns what has happened to a table's shard-by column, or None if it is unchanged.
    pub fn change(&self, shape: &TableShape, shard_by: &str) -> Option<String> {
        let known = self.of(shape, shard_by)?;
        let name = &known.name;
        let Some(column) = shape.column(name) else {
            return Some(format!("it no longer has a column \"{name}\""));
        };
        if KnownColumn::from(column).attribute() != known.attribute() {
            return Some(format!("its column \"{name}\" was replaced by another"));
        }
        if column.generated != known.generated {
            return Some(format!("its column \"{name}\" is generated in another way"));
        }
        self.changed_label(known, column)
            .map(|label| format!("label \"{label}\" of its column \"{name}\" has another name"))
    }

    fn changed_label(&self, known: &KnownColumn, now: &Column) -> Option<String> {
        let Some(before) = &known.labels else {
            // Labels were not noted: a name that was added or removed may be another label's.
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

    /// Returns a condition that all of that holds.
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
        if let Some(expression) = &known.generated {
            conditions.push(format!(
                "EXISTS (SELECT FROM pg_catalog.pg_attrdef d WHERE d.adrelid = {}::oid AND d.adnum = {}::int2
                            AND pg_catalog.pg_get_expr(d.adbin, d.adrelid) = {})",
                literal(oid),
                literal(known.attribute()),
                literal(expression)
            ));
        }
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

    /// Checks the condition after a DELETE, before its transaction ends.
    pub fn is_still(&self, connection: &mut Connection, shape: &TableShape, shard_by: &str) -> Result<bool> {
        let rows = connection.run(&format!("SELECT {}", self.still(shape, shard_by)))?;
        Ok(rows.is_true())
    }
}

/// Returns the oid of a table, and its columns as they were.
fn known(table: &TableProgress, side: Side) -> Option<(String, Vec<KnownColumn>)> {
    let (structure, columns) = match side {
        Side::Source => (&table.structure, &table.columns),
        Side::Target => (&table.target_structure, &table.target_columns),
    };
    Some((oid_of(structure)?.to_owned(), columns.clone()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(number: &str, name: &str) -> Column {
        Column { number: number.into(), name: name.into(), is_validated: true, ..Column::default() }
    }

    fn of_labels(labels: &[(&str, &str)]) -> Column {
        let labels = labels.iter().map(|(label, oid)| ((*label).to_owned(), (*oid).to_owned())).collect();
        Column { is_enum: true, labels: Some(labels), ..column("1", "mood") }
    }

    fn table(columns: &[Column]) -> TableShape {
        TableShape { oid: Some("7".into()), columns: Some(columns.to_vec()), ..TableShape::default() }
    }

    /// Returns what has happened to the column `mood` of a table, whose keys are `x`.
    fn change(before: &[Column], now: &[Column]) -> Option<String> {
        let known = TableProgress {
            target_structure: table(before).structure(),
            target_columns: Some(crate::agent::known_column::of(&table(before))),
            ..TableProgress::default()
        };
        let progress = CopyProgress { tables: vec![known], ..CopyProgress::default() };
        let scope = Scope::Keys(vec!["x".into()]);
        KeyIdentity::stored(&progress, &scope, Side::Target).change(&table(now), "mood")
    }

    #[test]
    fn a_column_is_its_number() {
        let before = [column("1", "mood"), column("2", "other")];
        assert_eq!(change(&before, &before), None);
        assert_eq!(change(&before, &[column("1", "mood")]), None);
        let exchanged = [column("1", "other"), column("2", "mood")];
        assert_eq!(
            change(&before, &exchanged).as_deref(),
            Some("its column \"mood\" was replaced by another")
        );
        let renamed = [column("1", "kind")];
        assert_eq!(change(&before, &renamed).as_deref(), Some("it no longer has a column \"mood\""));
    }

    #[test]
    fn a_column_is_what_it_is_made_of() {
        let by = |expression: &str| [Column { generated: Some(expression.into()), ..column("1", "mood") }];
        assert_eq!(change(&by("a"), &by("a")), None);
        assert!(change(&by("a"), &by("b")).is_some());
        assert!(change(&by("a"), &[column("1", "mood")]).is_some());
    }

    #[test]
    fn a_label_is_its_oid_where_a_key_is_called_so() {
        let before = of_labels(&[("x", "10"), ("y", "12"), ("z", "14")]);
        for (now, is_same) in [
            (of_labels(&[("x", "10"), ("y", "12"), ("z", "14"), ("w", "15")]), true),
            (of_labels(&[("x", "10"), ("z", "12"), ("y", "14")]), true),
            (of_labels(&[("x", "10"), ("q", "12"), ("z", "14")]), true),
            (of_labels(&[("y", "10"), ("x", "12"), ("z", "14")]), false),
            (of_labels(&[("q", "10"), ("y", "12"), ("z", "14")]), false),
            // A label was added under the name that another one had.
            (of_labels(&[("q", "10"), ("y", "12"), ("z", "14"), ("x", "16")]), false),
        ] {
            assert_eq!(change(&[before.clone()], &[now.clone()]).is_none(), is_same, "{:?}", now.labels);
        }
        // The key was no label's name until another label got it.
        let before = of_labels(&[("y", "12")]);
        assert!(change(&[before.clone()], &[of_labels(&[("x", "12")])]).is_some());
        assert!(change(&[before], &[of_labels(&[("y", "12"), ("x", "13")])]).is_none());
    }

    /// The progress was stored by a version that did not note labels, so any other type counts as a change.
    #[test]
    fn labels_that_nobody_has_noted_must_be_the_same() {
        let signed =
            |text: &str| Column { signature: Some(text.into()), is_enum: true, ..column("1", "mood") };
        assert_eq!(change(&[signed("enum (x, y)")], &[signed("enum (x, y)")]), None);
        assert!(change(&[signed("enum (x, y)")], &[signed("enum (y, x)")]).is_some());
    }
}
