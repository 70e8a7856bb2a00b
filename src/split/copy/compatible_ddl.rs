//! The changes of a table that do not invalidate what was copied of it.
//!
//! A step commits only if both tables have the columns of its progress, under locks that ALTER TABLE waits for: so up
//! to the last step, with its snapshot P, every row below the cursors was read and written in these columns. The rows
//! that differ from P now are in the next window, and are read anew; this includes writes to a new column, since it
//! cannot be written before it is committed. What must be shown is that in every other row the target's columns have
//! the values that would be copied into them now.
//!
//! It is shown by bytes. A side whose file is unchanged has each of these rows as it was, byte by byte: a rewrite, and
//! every ALTER TYPE that computes a value, makes another file. A column is identified by its number, which is never
//! reused: a column that was dropped and added again is another one. So
//!
//! - a column that both numbers still fill, by types that read the same bytes as the same text, is unchanged, whatever
//!   its name, constraints, default or statistics are;
//! - a new column of the source, without a value for earlier rows, is NULL in all of them; so must be the column that
//!   it fills: one that is new as well, or one that a check has shown to be NULL;
//! - a column of the target that nothing fills is the target's own, and a dropped one needs nothing.
//!
//! Everything else is copied again: a default for earlier rows, whose values are in the catalog and not in the rows;
//! columns that are generated or computed; types that are not the server's own and are made of something else now.

use crate::agent::known_column::{self, KnownColumn};
use crate::agent::shape::{Column, TableShape};
use crate::agent::state::progress::TableProgress;
use crate::catalog::split::ColumnMap;
use crate::split::table::columns::{self, ColumnSource};

/// The checks that remain before a table continues: columns by their current names.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Looks {
    /// New columns on either side, which must have no value for earlier rows.
    pub new_on_source: Vec<String>,
    pub new_on_target: Vec<String>,
    /// Columns that were the target's own until now, which must be NULL in every row of the scope.
    pub empty: Vec<String>,
}

/// Types whose values have the same bytes and the same text, with or without a length or precision.
const SAME_BYTES: [&[&str]; 7] = [
    &["text", "character varying"],
    &["numeric"],
    &["bit varying"],
    &["timestamp without time zone"],
    &["timestamp with time zone"],
    &["time without time zone"],
    &["time with time zone"],
];

/// A table as it was when rows were copied, and as it is.
pub struct TableChange<'a> {
    pub known: &'a TableProgress,
    pub source: &'a TableShape,
    pub target: &'a TableShape,
    pub maps: &'a [ColumnMap],
}

impl TableChange<'_> {
    /// Returns the conditions under which the table continues where it was, or why it is copied again.
    pub fn judge(&self) -> Result<Looks, String> {
        if self.known.leaves.is_empty() {
            // Nothing is copied yet.
            return Ok(Looks::default());
        }
        let (Some(from), Some(to)) = (&self.known.columns, &self.known.target_columns) else {
            return Err("its former columns are not known".to_owned());
        };
        if self.maps.iter().any(|map| map.expression.is_some()) {
            return Err("some of its columns are computed".to_owned());
        }
        self.require_files()?;
        require_meaning(from, self.source)?;
        require_meaning(to, self.target)?;
        self.looks(from, to)
    }

    /// Checks that every row is where it was, as it was.
    fn require_files(&self) -> Result<(), String> {
        let is_there = |leaves: &TableShape, oid: &str, filenode: Option<&str>| {
            let leaf = leaves.leaves().iter().find(|leaf| leaf.oid == oid);
            filenode.is_some() && leaf.is_some_and(|leaf| leaf.filenode.as_deref() == filenode)
        };
        let mut from = self.known.leaves.iter();
        if !from.all(|known| is_there(self.source, &known.oid, Some(&known.filenode))) {
            return Err("it was rewritten or truncated, or has lost a partition".to_owned());
        }
        let mut to = self.known.target_leaves.iter().flatten();
        if self.known.target_leaves.is_none()
            || !to.all(|known| is_there(self.target, &known.oid, known.filenode.as_deref()))
        {
            return Err("on the target it was rewritten or truncated, or has lost a partition".to_owned());
        }
        Ok(())
    }

    /// Compares what fills each column of the target now with what did before.
    fn looks(&self, from: &[KnownColumn], to: &[KnownColumn]) -> Result<Looks, String> {
        let filled = columns::pair(&shape(from), &shape(to), self.maps, &[]).pairs;
        let mut looks = Looks::default();
        for pair in columns::pair(self.source, self.target, self.maps, &[]).pairs {
            let ColumnSource::Column(name) = &pair.source else {
                return Err("some of its columns are computed".to_owned());
            };
            let again = || Err(format!("column \"{}\" was filled by another one", pair.target));
            let (Some(source), Some(target)) = (self.source.column(name), self.target.column(&pair.target))
            else {
                return again();
            };
            match (before(from, source), before(to, target)) {
                (Some(source), Some(target)) => {
                    let same = ColumnSource::Column(source.name.clone());
                    if !filled.iter().any(|pair| pair.target == target.name && pair.source == same) {
                        return again();
                    }
                }
                (None, Some(target)) if filled.iter().any(|pair| pair.target == target.name) => {
                    return again();
                }
                (None, Some(_)) => {
                    looks.new_on_source.push(name.clone());
                    looks.empty.push(pair.target);
                }
                (None, None) => {
                    looks.new_on_source.push(name.clone());
                    looks.new_on_target.push(pair.target);
                }
                (Some(_), None) => {
                    return Err(format!("column \"{}\" is different on the target", pair.target));
                }
            }
        }
        Ok(looks)
    }

    /// Returns what has changed, in words.
    pub fn words(&self) -> Vec<String> {
        let on = |known: &Option<Vec<KnownColumn>>, shape| {
            known.as_ref().map_or_else(Vec::new, |known| differences(known, shape))
        };
        let source = on(&self.known.columns, self.source);
        let target = on(&self.known.target_columns, self.target);
        let both = source.iter().filter(|text| target.contains(text)).cloned();
        let here =
            source.iter().filter(|text| !target.contains(text)).map(|text| format!("{text} on the source"));
        let there =
            target.iter().filter(|text| !source.contains(text)).map(|text| format!("{text} on the target"));
        both.chain(here).chain(there).collect()
    }
}

/// Returns the same column at the earlier time, whatever its name was.
fn before<'a>(known: &'a [KnownColumn], column: &Column) -> Option<&'a KnownColumn> {
    let now = KnownColumn::from(column);
    known.iter().find(|known| known.attribute() == now.attribute())
}

/// Checks that each existing column is read from the same bytes as the same text.
fn require_meaning(known: &[KnownColumn], shape: &TableShape) -> Result<(), String> {
    for column in shape.columns() {
        let now = KnownColumn::from(column);
        let is_same = match before(known, column) {
            None => now.generated.is_none(),
            Some(known) => {
                known.number == now.number
                    && known.meaning == now.meaning
                    && known.generated == now.generated
                    && has_same_bytes(&known.type_name, &now.type_name)
            }
        };
        if !is_same {
            return Err(format!("column \"{}\" is generated or has another meaning", now.name));
        }
    }
    Ok(())
}

pub fn has_same_bytes(one: &str, other: &str) -> bool {
    let [(plain, _), (others, _)] = [one, other].map(split_modifier);
    one == other || SAME_BYTES.iter().any(|types| types.contains(&&*plain) && types.contains(&&*others))
}

/// Splits a type's name and its length or precision: `timestamp with time zone` and `3` for `timestamp(3) with time
/// zone`.
pub fn split_modifier(text: &str) -> (String, Option<&str>) {
    match (text.find('('), text.find(')')) {
        (Some(from), Some(to)) if from < to => {
            (format!("{}{}", &text[..from], &text[to + 1..]), Some(&text[from + 1..to]))
        }
        _ => (text.to_owned(), None),
    }
}

/// Returns a table with only what is needed to pair columns.
fn shape(known: &[KnownColumn]) -> TableShape {
    let column = |known: &KnownColumn| Column {
        name: known.name.clone(),
        generated: known.generated.clone(),
        ..Column::default()
    };
    TableShape { columns: Some(known.iter().map(column).collect()), ..TableShape::default() }
}

fn differences(known: &[KnownColumn], shape: &TableShape) -> Vec<String> {
    let now = known_column::of(shape);
    let mut texts = Vec::new();
    for column in &now {
        let name = &column.name;
        let Some(before) = known.iter().find(|known| known.attribute() == column.attribute()) else {
            texts.push(format!("column \"{name}\" was added"));
            continue;
        };
        if before.name != *name {
            texts.push(format!("column \"{}\" is now \"{name}\"", before.name));
        }
        if before.type_name != column.type_name {
            texts.push(format!("column \"{name}\" was {} and is {}", before.type_name, column.type_name));
        }
        if before.not_null != column.not_null {
            let text = if column.not_null { "is" } else { "is not" };
            texts.push(format!("column \"{name}\" {text} NOT NULL"));
        }
        if before.generated != column.generated {
            texts.push(format!("column \"{name}\" is generated in another way"));
        }
        if (&before.number, &before.meaning) != (&column.number, &column.meaning) {
            texts.push(format!("the type or the collation of column \"{name}\" has changed"));
        }
    }
    let is_gone = |known: &&KnownColumn| !now.iter().any(|column| column.attribute() == known.attribute());
    texts.extend(known.iter().filter(is_gone).map(|known| format!("column \"{}\" was dropped", known.name)));
    texts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::shape::Leaf;
    use crate::agent::state::progress::{LeafProgress, TargetLeaf};

    fn column(number: &str, name: &str, type_name: &str) -> Column {
        let [number, name, type_name] = [number, name, type_name].map(str::to_owned);
        Column { number, name, type_name, is_validated: true, ..Column::default() }
    }

    fn table(columns: &[Column]) -> TableShape {
        let leaf = Leaf {
            oid: "16384".into(),
            name: "t".into(),
            filenode: Some("16385".into()),
            blocks: 7,
            persistence: "p".into(),
            kind: "r".into(),
            triggers: None,
            captured: true,
        };
        TableShape { columns: Some(columns.to_vec()), leaves: Some(vec![leaf]), ..TableShape::default() }
    }

    fn copied(source: &TableShape, target: &TableShape) -> TableProgress {
        let leaf = |leaf: &Leaf| TargetLeaf {
            oid: leaf.oid.clone(),
            triggers: String::new(),
            filenode: leaf.filenode.clone(),
        };
        TableProgress {
            columns: Some(known_column::of(source)),
            target_columns: Some(known_column::of(target)),
            leaves: source.leaves().iter().map(LeafProgress::copied).collect(),
            target_leaves: Some(target.leaves().iter().map(leaf).collect()),
            ..TableProgress::default()
        }
    }

    /// Judges a table of these columns on both sides, which become others.
    fn judged(
        before: &[Column],
        source: &[Column],
        target: &[Column],
        maps: &[ColumnMap],
    ) -> Result<Looks, String> {
        let known = copied(&table(before), &table(before));
        TableChange { known: &known, source: &table(source), target: &table(target), maps }.judge()
    }

    #[test]
    fn a_column_is_what_its_number_says() {
        let before = [column("1", "a", "text"), column("2", "b", "text")];
        let swapped = [column("1", "b", "text"), column("2", "a", "text")];
        assert_eq!(judged(&before, &swapped, &swapped, &[]), Ok(Looks::default()));
        assert!(judged(&before, &swapped, &before, &[]).is_err());
        assert!(judged(&before, &before, &swapped, &[]).is_err());
        let again = [column("1", "a", "text"), column("3", "b", "text")];
        let looks = judged(&before, &again, &again, &[]).unwrap();
        assert_eq!((looks.new_on_source, looks.new_on_target), (vec!["b".to_owned()], vec!["b".to_owned()]));
        assert!(judged(&before, &again, &before, &[]).is_err());
        assert!(judged(&before, &before, &again, &[]).is_err());
        assert_eq!(judged(&before, &before[..1], &before[..1], &[]), Ok(Looks::default()));
    }

    #[test]
    fn what_the_target_had_for_itself_is_looked_at() {
        let before = [column("1", "a", "text")];
        let more = [column("1", "a", "text"), column("2", "b", "text")];
        assert_eq!(judged(&before, &before, &more, &[]), Ok(Looks::default()));
        let known = copied(&table(&before), &table(&more));
        let change = TableChange { known: &known, source: &table(&more), target: &table(&more), maps: &[] };
        assert_eq!(change.judge().unwrap().empty, ["b"]);
        // It has what the source's column of that name had.
        let known = copied(&table(&more), &table(&more));
        let again = [column("1", "a", "text"), column("3", "b", "text")];
        assert!(TableChange { known: &known, source: &table(&again), ..change }.judge().is_err());
    }

    #[test]
    fn a_type_is_the_same_where_its_bytes_are() {
        let becomes = |from: &Column, to: &Column| {
            let [from, to] = [from, to].map(std::slice::from_ref);
            judged(from, to, to, &[]).is_ok()
        };
        for (from, to) in [
            ("character varying(20)", "character varying(40)"),
            ("character varying(20)", "text"),
            ("numeric(8,2)", "numeric"),
            ("timestamp(3) with time zone", "timestamp with time zone"),
        ] {
            assert!(becomes(&column("1", "a", from), &column("1", "a", to)), "{from} {to}");
        }
        for (from, to) in [
            ("integer", "bigint"),
            ("timestamp without time zone", "timestamp with time zone"),
            ("character(3)", "text"),
            ("character varying(20)[]", "text[]"),
            ("public.text", "text"),
        ] {
            assert!(!becomes(&column("1", "a", from), &column("1", "a", to)), "{from} {to}");
        }
        let a = column("1", "a", "public.pair");
        let others = [
            Column { signature: Some("enum ('a', 'b')".into()), ..a.clone() },
            Column { collation: Some("pg_catalog.\"C\"".into()), ..a.clone() },
            Column { generated: Some("(b + 1)".into()), ..a.clone() },
            // One more attribute of the type is not one of the table.
            column("1 of 1 2", "a", "public.pair"),
        ];
        for other in &others {
            assert!(!becomes(&a, other) && !becomes(other, &a), "{other:?}");
        }
        assert!(becomes(&a, &Column { not_null: true, has_default: true, ..a.clone() }));
    }

    #[test]
    fn rows_are_where_they_were() {
        let columns = [column("1", "a", "text")];
        let there = table(&columns);
        let mut moved = there.clone();
        moved.leaves.iter_mut().flatten().for_each(|leaf| leaf.filenode = Some("16390".into()));
        let known = copied(&there, &there);
        let judge = |known: &TableProgress, source: &TableShape, target: &TableShape| {
            TableChange { known, source, target, maps: &[] }.judge().is_ok()
        };
        assert!(judge(&known, &there, &there));
        assert!(!judge(&known, &moved, &there) && !judge(&known, &there, &moved));
        let unseen = TableProgress { target_leaves: None, ..known.clone() };
        let of_before = TableProgress { columns: None, ..known.clone() };
        assert!(!judge(&unseen, &there, &there) && !judge(&of_before, &there, &there));
        // Nothing is copied yet.
        let begins = TableProgress { leaves: Vec::new(), ..known };
        assert!(judge(&begins, &moved, &moved));
        let map = ColumnMap { column: "c".into(), expression: Some("a || 'x'".into()) };
        assert!(judged(&columns, &columns, &columns, &[map]).is_err());
    }
}
