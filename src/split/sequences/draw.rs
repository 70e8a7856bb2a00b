//! Sequences of one side, and what is known to draw from them.

use super::doings::Doings;
use crate::agent::catalogs;
use crate::agent::error::Result;
use crate::remote::number::index;
use crate::remote::quote::{array_of, text_array};
use crate::remote::result::Rows;
use crate::remote::template::{fill, sql};
use crate::remote::{Connection, RemoteError};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::LazyLock;

static OF_TABLES: LazyLock<String> =
    LazyLock::new(|| with_holds(include_str!("../../../sql/sequences/of_tables.sql")));
static OF_PARTS: LazyLock<String> =
    LazyLock::new(|| with_holds(include_str!("../../../sql/sequences/of_parts.sql")));
const BY_NAME: &str = include_str!("../../../sql/sequences/by_name.sql");
const FACTS: &str = include_str!("../../../sql/sequences/facts.sql");
/// The name of the first query's prepared statement: it is run once more behind the fence.
const PREPARED: &str = "sequences";

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DrawnSequence {
    pub oid: String,
    /// The name, qualified and quoted.
    pub name: String,
    pub schema: String,
    /// The name without its schema, not quoted.
    pub relname: String,
    /// It restarts at its end.
    pub cycles: bool,
    /// The role for which a split would set it, and which may not set it itself.
    pub may_not: Option<String>,
    /// The mover may not read it. This, like the next field, is only read if it is not certain that anything draws
    /// from it.
    pub is_closed: bool,
    /// Its owner, if the mover is no member of that role.
    pub of_others: Option<String>,
}

/// What draws from a sequence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Drawer {
    /// The column is an identity.
    Identity,
    /// A default of the column, its partition's or its domain's.
    Default,
    /// It belongs to the column. Clients may draw from it themselves.
    Owned,
    /// A function of a default or a trigger names it: what calls which function.
    Function(String),
    /// A function may have a number of it, without certainty: what calls which function.
    Perhaps(String),
    /// The operator has named it.
    Said,
    /// Its name contains a moving key.
    Key,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Draw {
    /// The table's position among those that were asked for.
    pub table: Option<usize>,
    /// `None` if it is unknown which column it fills.
    pub column: Option<String>,
    pub by: Drawer,
    pub sequence: DrawnSequence,
    /// Whether an index permits each value of the column once, or this is unknown.
    pub in_unique: bool,
    /// The greatest number that the column holds. `None` if any, or unknown.
    pub holds: Option<i64>,
    /// The role for which it is raised, if no table of it is known.
    pub role: Option<String>,
    /// Columns of the tables that are named by the texts of the functions which draw.
    pub words: Rc<BTreeSet<String>>,
    /// What these texts do.
    pub doings: Rc<Doings>,
}

impl Draw {
    /// Whether PostgreSQL itself knows which column it fills.
    pub fn is_of_column(&self) -> bool {
        match self.by {
            Drawer::Identity | Drawer::Default | Drawer::Owned => true,
            Drawer::Function(_) | Drawer::Perhaps(_) | Drawer::Said | Drawer::Key => false,
        }
    }

    /// Whether a trigger draws, whose text may show which column it fills.
    pub fn is_of_trigger(&self) -> bool {
        matches!(self.by, Drawer::Function(_) | Drawer::Perhaps(_)) && self.column.is_none()
    }

    /// Whether it may fill a column of its table that its text names.
    pub fn may_fill_by_trigger(&self, column: &str) -> bool {
        self.is_of_trigger() && self.words.contains(column)
    }

    pub fn is_sure(&self) -> bool {
        !matches!(self.by, Drawer::Perhaps(_))
    }

    /// Whether a row that omits the column draws from it.
    pub fn is_drawn(&self) -> bool {
        match self.by {
            Drawer::Identity | Drawer::Default => true,
            Drawer::Owned | Drawer::Function(_) | Drawer::Perhaps(_) | Drawer::Said | Drawer::Key => false,
        }
    }
}

fn with_holds(query: &str) -> String {
    fill(query, &[("holds", sql(include_str!("../../../sql/sequences/holds.sql")))])
}

/// Returns the statements that read which sequences columns of tables have, of which one gives rows, to be sent with
/// others.
pub fn question(connection: &mut Connection, tables: &str) -> Result<String> {
    Ok(catalogs::statements(connection, PREPARED, &OF_TABLES, &[Some(tables)])?)
}

/// Reads those of both sides at once.
pub fn of_tables(
    source: &mut Connection,
    target: &mut Connection,
    tables: &[String; 2],
) -> Result<[Vec<Draw>; 2]> {
    let asked = [question(source, &tables[0])?, question(target, &tables[1])?];
    source.send(&asked[0])?;
    target.send(&asked[1])?;
    let (here, there) = (source.finish_for_each(), target.finish_for_each());
    let of = |answers: Vec<Rows>| answers.first().map(read).unwrap_or_default();
    Ok([of(here?), of(there?)])
}

/// Returns those of partitions and domains.
pub fn of_parts(connection: &mut Connection, tables: &str) -> Result<Vec<Draw>> {
    Ok(read(&catalogs::ask(connection, &OF_PARTS, &[Some(tables)])?))
}

/// Returns all of tables that do not move.
pub fn of_other_tables(connection: &mut Connection, tables: &str) -> Result<Vec<Draw>> {
    let mut found = read(&catalogs::ask(connection, &OF_TABLES, &[Some(tables)])?);
    found.extend(of_parts(connection, tables)?);
    Ok(found)
}

/// Reads the rows. A malformed row is left out: the comparison of both sides finds what is missing then.
pub fn read(rows: &Rows) -> Vec<Draw> {
    let draw = |row: &Vec<Option<String>>| {
        let [position, column, how, oid, name, schema, relname, cycles, may_not, in_unique, holds] =
            <[_; 11]>::try_from(row.clone()).ok()?;
        let by = match how.as_deref()? {
            "identity" => Drawer::Identity,
            "default" => Drawer::Default,
            _ => Drawer::Owned,
        };
        Some(Draw {
            table: Some(index(&position?)?),
            column: Some(column?),
            by,
            sequence: DrawnSequence {
                oid: number(oid?)?,
                name: name?,
                schema: schema?,
                relname: relname?,
                cycles: is_true(cycles.as_deref()),
                may_not,
                ..DrawnSequence::default()
            },
            in_unique: is_true(in_unique.as_deref()),
            holds: holds.and_then(|most| most.parse().ok()),
            role: None,
            words: Rc::default(),
            doings: Rc::default(),
        })
    };
    rows.rows.iter().filter_map(draw).collect()
}

/// Returns a number of the catalog in a form that may be written into statements.
fn number(oid: String) -> Option<String> {
    oid.parse::<u32>().is_ok().then_some(oid)
}

fn is_true(cell: Option<&str>) -> bool {
    cell == Some("t")
}

/// The name of a sequence, and its number.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SequenceName {
    pub oid: String,
    pub schema: String,
    pub relname: String,
    pub owner: String,
    /// It restarts at its end.
    pub cycles: bool,
}

/// Returns sequences of some schemas with some names.
pub fn by_name(
    connection: &mut Connection,
    schemas: &[String],
    names: &[String],
) -> Result<Vec<SequenceName>> {
    let lists = [text_array(schemas), text_array(names)];
    Ok(named(&catalogs::ask(connection, BY_NAME, &[Some(&lists[0]), Some(&lists[1]), Some("{}")])?))
}

/// Returns sequences with some numbers.
pub fn by_number(connection: &mut Connection, oids: &[String]) -> Result<Vec<SequenceName>> {
    let oids = text_array(oids);
    Ok(named(&catalogs::ask(connection, BY_NAME, &[Some("{}"), Some("{}"), Some(&oids)])?))
}

pub fn named(rows: &Rows) -> Vec<SequenceName> {
    rows.rows.iter().filter_map(|row| one_named(row)).collect()
}

pub fn one_named(row: &[Option<String>]) -> Option<SequenceName> {
    let [oid, schema, relname, owner, cycles] = <[_; 5]>::try_from(row.to_vec()).ok()?;
    let cycles = is_true(cycles.as_deref());
    Some(SequenceName { oid: number(oid?)?, schema: schema?, relname: relname?, owner: owner?, cycles })
}

/// The role for which a sequence would be set.
pub struct DrawContext<'a> {
    pub oid: &'a str,
    /// The number of the table whose owner must have the right.
    pub table: Option<&'a str>,
    /// The role that must have the right, if there is no table: by its name, if this server has it.
    pub role: Option<&'a str>,
}

/// Returns what is known of sequences, and None for one that is gone.
pub fn facts(connection: &mut Connection, asked: &[DrawContext<'_>]) -> Result<Vec<Option<DrawnSequence>>> {
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    let tables = array_of(asked.iter().map(|asked| asked.table));
    let oids = array_of(asked.iter().map(|asked| Some(asked.oid)));
    let roles = array_of(asked.iter().map(|asked| asked.role));
    let rows = catalogs::ask(connection, FACTS, &[Some(&tables), Some(&oids), Some(&roles)])?.rows;
    let mut found = rows.into_iter().filter_map(|row| {
        let [oid, name, schema, relname, cycles, may_not, is_closed, of_others] =
            <[_; 8]>::try_from(row).ok()?;
        let (cycles, is_closed) = (is_true(cycles.as_deref()), is_true(is_closed.as_deref()));
        let (oid, name, schema, relname) = (oid?, name?, schema?, relname?);
        Some(DrawnSequence { oid, name, schema, relname, cycles, may_not, is_closed, of_others })
    });
    // The answers are in the order of the question, without those that are gone.
    let mut next = found.next();
    let of = asked.iter().map(|asked| match next.take() {
        Some(sequence) if sequence.oid == asked.oid => {
            next = found.next();
            Some(sequence)
        }
        other => {
            next = other;
            None
        }
    });
    Ok(of.collect())
}

/// Returns the error for a sequence whose answers are no numbers.
pub fn no_numbers(connection: &Connection, what: &str, row: &[Option<String>]) -> RemoteError {
    let cells: Vec<&str> = row.iter().map(|cell| cell.as_deref().unwrap_or("nothing")).collect();
    RemoteError::no_number(connection.shard(), what, &cells.join(", "))
}
