//! Possible writers of moving tables that the tables do not call themselves: functions whose texts name a table and
//! write, functions that name these, to any depth, and other tables whose triggers and rules lead to one of them.
//! Numbers that these draw may get into moving rows.

use super::callers::{self, CodePlace, TableCaller};
use super::doings::Doings;
use super::names::{cut, is_part, without_comments};
use super::tokens::tokens;
use super::{draw, statements};
use crate::agent::catalogs;
use crate::agent::error::Result;
use crate::remote::Connection;
use crate::remote::quote::array_of;
use crate::remote::result::Rows;
use std::collections::{BTreeSet, HashMap, HashSet};

const TEXTS: &str = include_str!("../../../sql/sequences/texts.sql");

/// The greatest number of functions that are checked.
pub const MOST: usize = 20_000;
/// The greatest number of characters of all their texts.
const LONGEST: &str = "50000000";

/// Words of a text that writes rows.
const WRITES: [&str; 7] = ["insert", "update", "merge", "delete", "copy", "truncate", "execute"];

/// A function, or a table or view that is written to.
struct WriterNode {
    /// The name in lower case.
    name: String,
    /// The number of a function, or of a table.
    oid: String,
    is_function: bool,
    /// The table's name in SQL.
    shown: String,
}

#[derive(Default)]
struct Nodes {
    all: Vec<WriterNode>,
    by_oid: HashMap<(bool, String), usize>,
    /// The nodes that lead to each node.
    led_from: Vec<Vec<usize>>,
}

impl Nodes {
    fn of(&mut self, is_function: bool, oid: &str, name: &str, shown: &str) -> usize {
        let all = &mut self.all;
        let number = *self.by_oid.entry((is_function, oid.to_owned())).or_insert_with(|| {
            all.push(WriterNode {
                name: name.to_owned(),
                oid: oid.to_owned(),
                is_function,
                shown: shown.to_owned(),
            });
            all.len() - 1
        });
        let node = &mut self.all[number];
        if node.name.is_empty() {
            (node.name, node.shown) = (name.to_owned(), shown.to_owned());
        }
        self.led_from.resize_with(self.all.len(), Vec::new);
        number
    }

    fn lead(&mut self, from: usize, to: usize) {
        self.led_from[to].push(from);
    }

    /// Returns all nodes that lead to some nodes, without these.
    fn leading_to(&self, roots: &[usize]) -> Vec<usize> {
        let mut known: HashSet<usize> = roots.iter().copied().collect();
        let (mut left, mut found) = (roots.to_vec(), Vec::new());
        while let Some(to) = left.pop() {
            for from in &self.led_from[to] {
                if known.insert(*from) {
                    left.push(*from);
                    found.push(*from);
                }
            }
        }
        found.sort_unstable();
        found
    }
}

/// The writers of moving tables.
pub struct Writers {
    pub callers: Vec<TableCaller>,
    /// Whether there are more functions than are checked.
    pub are_cut: bool,
    /// Names by which a table is written to, in lower case, by the table's position.
    pub ways: Vec<BTreeSet<String>>,
    /// Names of tables whose rows functions change and return values of, whatever calls these functions.
    pub counters: BTreeSet<String>,
}

pub fn find(connection: &mut Connection, tables: &[Option<&str>]) -> Result<Writers> {
    let most = (MOST + 1).to_string();
    let texts = catalogs::ask(connection, TEXTS, &[Some(&most), Some(LONGEST)])?;
    let passes = callers::passes(connection, &array_of(tables.iter().copied()))?;
    let (nodes, partitions) = nodes(&texts, &passes, tables);
    let mut found = Writers {
        callers: Vec::new(),
        are_cut: texts.rows.len() > MOST
            || texts.rows.iter().any(|row| row.last().is_none_or(Option::is_none)),
        ways: vec![BTreeSet::new(); tables.len()],
        counters: counters(&texts),
    };
    let mut relations: Vec<(usize, usize)> = Vec::new();
    for (table, oid) in tables.iter().enumerate() {
        pgrx::check_for_interrupts!();
        let root = oid.and_then(|oid| nodes.by_oid.get(&(false, oid.to_owned())).copied());
        let Some(root) = root else { continue };
        for number in nodes.leading_to(&[root]) {
            let node = &nodes.all[number];
            found.ways[table].insert(node.name.clone());
            if node.is_function {
                let function = Some(node.oid.clone());
                found.callers.push(TableCaller::new(table, "a client's call".to_owned(), function));
            } else if !partitions.contains(&number) {
                relations.push((table, number));
            }
        }
        found.ways[table].insert(nodes.all[root].name.clone());
    }
    of_relations(connection, &nodes, &relations, tables, &mut found.callers)?;
    Ok(found)
}

fn counters(texts: &Rows) -> BTreeSet<String> {
    let said = texts.rows.iter().take(MOST).filter_map(|row| row.get(2)?.as_deref());
    let of_text = |text: &str| {
        let text = without_comments(text);
        statements::counters(&tokens(&text), &Doings::of(&text))
    };
    said.filter(|text| text.contains("returning")).flat_map(of_text).collect()
}

/// Returns the nodes, and those of them that are tables of the split, or partitions of them.
fn nodes(texts: &Rows, passes: &Rows, tables: &[Option<&str>]) -> (Nodes, HashSet<usize>) {
    let mut nodes = Nodes::default();
    let cell = |row: &[Option<String>], at: usize| row.get(at).cloned().flatten().unwrap_or_default();
    let functions: Vec<(usize, String)> = texts
        .rows
        .iter()
        .take(MOST)
        .map(|row| (nodes.of(true, &cell(row, 0), &cell(row, 1), ""), cell(row, 2)))
        .collect();
    let mut own = HashSet::new();
    let mut told: Vec<(usize, usize, String)> = Vec::new();
    for row in &passes.rows {
        let from = nodes.of(false, &cell(row, 0), &cell(row, 1), &cell(row, 2));
        let (function, relation) = (cell(row, 3), cell(row, 4));
        if !function.is_empty() {
            let to = nodes.of(true, &function, "", "");
            nodes.lead(from, to);
            told.push((from, to, cell(row, 5)));
        } else if !relation.is_empty() {
            let to = nodes.of(false, &relation, "", "");
            nodes.lead(from, to);
            if tables.contains(&Some(relation.as_str())) && cell(row, 5) == "partition" {
                own.insert(from);
            }
        } else {
            own.insert(from);
        }
    }
    let names = WriterNames::of(&nodes.all);
    let mut leads = Vec::new();
    let mut is_writing = HashSet::new();
    for (number, text) in &functions {
        pgrx::check_for_interrupts!();
        let words = words_of(text);
        let writes = WRITES.iter().any(|word| words.contains(word));
        if writes {
            is_writing.insert(*number);
        }
        for to in names.in_text(text, &words) {
            if to != *number && (writes || nodes.all[to].is_function) {
                leads.push((*number, to));
            }
        }
    }
    // A function may write to what a trigger passes to it.
    for (from, function, text) in told {
        for to in names.in_text(&text, &words_of(&text)) {
            if is_writing.contains(&function) && to != from && !nodes.all[to].is_function {
                leads.push((from, to));
            }
        }
    }
    leads.into_iter().for_each(|(from, to)| nodes.lead(from, to));
    (nodes, own)
}

/// Names as texts contain them.
struct WriterNames<'a> {
    all: &'a [WriterNode],
    words: HashMap<&'a str, Vec<usize>>,
    /// Names that are not plain words.
    odd: Vec<(String, usize)>,
}

impl WriterNames<'_> {
    fn of(all: &[WriterNode]) -> WriterNames<'_> {
        let mut names = WriterNames { all, words: HashMap::new(), odd: Vec::new() };
        for (number, node) in all.iter().enumerate().filter(|(_, node)| !node.name.is_empty()) {
            if node.name.chars().all(is_part) {
                names.words.entry(&node.name).or_default().push(number)
            } else {
                names.odd.push((node.name.replace('"', "\"\""), number))
            }
        }
        names
    }

    fn in_text(&self, text: &str, words: &HashSet<&str>) -> Vec<usize> {
        let plain = words.iter().filter_map(|word| self.words.get(word)).flatten().copied();
        let odd = self.odd.iter().filter(|(name, _)| text.contains(name.as_str())).map(|(_, number)| *number);
        let is_meant = |number: &usize| {
            let node = &self.all[*number];
            !node.is_function || is_called(text, &node.name)
        };
        plain.chain(odd).filter(is_meant).collect()
    }
}

/// Whether a text has a name before a parenthesis.
fn is_called(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let rest = text[at + name.len()..].trim_start_matches(|c: char| is_part(c) || c == '"');
        rest.trim_start().starts_with('(')
    })
}

/// Returns the words of a text. The server truncates longer names.
fn words_of(text: &str) -> HashSet<&str> {
    text.split(|c: char| !is_part(c)).map(cut).collect()
}

/// Returns callers of tables that lead to moving ones without being these: their sequences, and what their defaults
/// and triggers call.
fn of_relations(
    connection: &mut Connection,
    nodes: &Nodes,
    relations: &[(usize, usize)],
    tables: &[Option<&str>],
    found: &mut Vec<TableCaller>,
) -> Result<()> {
    let moving: HashSet<&str> = tables.iter().copied().flatten().collect();
    let numbers: BTreeSet<usize> = relations.iter().map(|(_, number)| *number).collect();
    let numbers: Vec<usize> =
        numbers.into_iter().filter(|number| !moving.contains(nodes.all[*number].oid.as_str())).collect();
    if numbers.is_empty() {
        return Ok(());
    }
    let list = array_of(numbers.iter().map(|number| Some(nodes.all[*number].oid.as_str())));
    let mut of: HashMap<usize, Vec<(Option<String>, TableCaller)>> = HashMap::new();
    for caller in callers::of_tables(connection, &list)? {
        of.entry(caller.table).or_default().push((None, caller));
    }
    for draw in draw::of_other_tables(connection, &list)? {
        let Some(table) = draw.table else { continue };
        let mut caller = TableCaller::new(table, String::new(), None);
        caller.sequence = Some(draw.sequence.oid);
        of.entry(table).or_default().push((draw.column, caller));
    }
    for (table, number) in relations {
        let Some(of) = numbers.binary_search(number).ok().and_then(|at| of.get(&at)) else { continue };
        let shown = &nodes.all[*number].shown;
        for (column, caller) in of {
            let what = match column {
                Some(column) => format!("column \"{column}\" of {shown}, writes to which lead to it"),
                None => format!("{} of {shown}, writes to which lead to it", caller.what),
            };
            let (function, text, sequence) =
                (caller.function.clone(), caller.text.clone(), caller.sequence.clone());
            let is_row = column.is_none() && caller.column.is_none();
            let place = if is_row { CodePlace::OtherRow } else { CodePlace::OtherDefault };
            found.push(TableCaller { text, sequence, place, ..TableCaller::new(*table, what, function) });
        }
    }
    Ok(())
}
