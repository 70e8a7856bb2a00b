//! Sequences that functions name: of a column's default, of a domain's, of a trigger, and of what these call.
//! PostgreSQL knows the dependencies of bodies in standard SQL; other texts are searched for names of sequences and
//! functions. Which object a name in a text means, and whether it ever draws, cannot be known: one sequence too many
//! is raised as well, which skips numbers and gives none out twice.

use super::body::{Body, body};
use super::by_table::{self, OfTable};
use super::callers::{self, TableCaller};
use super::doings::Doings;
use super::draw::{self, Draw, DrawContext, Drawer, SequenceName};
use super::reach::{Calls, ReachableSequences, Reached, drawn};
use super::unfollowed::{self, JudgedTexts, TableKeys, Unfollowed, judge};
use super::writers::{self, Writers};
use crate::agent::catalogs;
use crate::agent::error::Result;
use crate::remote::Connection;
use crate::remote::quote::{array_of, text_array};
use std::collections::{BTreeMap, BTreeSet};

const BODIES: &str = include_str!("../../../sql/sequences/bodies.sql");

/// The greatest depth to which calls of functions are followed, and the greatest number of functions.
const DEPTH: usize = 100;
const MOST_FUNCTIONS: usize = 5_000;

/// What functions draw from, and what their texts name.
#[derive(Default)]
pub struct FunctionFindings {
    pub draws: Vec<Draw>,
    pub texts: FunctionTexts,
    /// What a table's writers have called does, by the table's position.
    pub doings: BTreeMap<usize, Doings>,
    /// Sources of keys' values that are not followed.
    pub unfollowed: BTreeSet<Unfollowed>,
    /// Names, among them those of tables that keys are counted by.
    pub counted: BTreeSet<String>,
    pub keys: Vec<TableKeys>,
}

#[derive(Default)]
pub struct FunctionTexts {
    /// All names in the texts.
    pub words: BTreeSet<String>,
    /// The names that are not in comments.
    pub named: BTreeSet<String>,
    /// The names of the functions themselves.
    pub names: BTreeSet<String>,
    /// The numbers of functions that no text calls, but a table's object.
    pub called: BTreeSet<String>,
    /// What all of them do.
    pub doings: Doings,
}

/// Finds them. `tables`: the tables' numbers; `schemas`: where a name without a schema is searched.
pub fn find(
    connection: &mut Connection,
    tables: &[Option<&str>],
    schemas: &[String],
) -> Result<FunctionFindings> {
    let callers = callers::find(connection, tables)?;
    look(connection, tables, schemas, &callers, &[])
}

/// Finds functions that write to the tables without it being known whether they are called: they may draw.
pub fn of_writers(
    connection: &mut Connection,
    tables: &[Option<&str>],
    schemas: &[String],
) -> Result<FunctionFindings> {
    let Writers { callers, are_cut, ways, counters } = writers::find(connection, tables)?;
    let mut found = look(connection, tables, schemas, &callers, &ways)?;
    found.counted.extend(counters);
    if are_cut {
        found.are_more(tables, writers::MOST);
    }
    for draw in &mut found.draws {
        if let Drawer::Function(who) = &draw.by {
            draw.by = Drawer::Perhaps(who.clone());
        }
    }
    Ok(found)
}

/// `ways`: what leads to the tables, if the callers are their writers.
fn look(
    connection: &mut Connection,
    tables: &[Option<&str>],
    schemas: &[String],
    callers: &[TableCaller],
    ways: &[BTreeSet<String>],
) -> Result<FunctionFindings> {
    let keys = unfollowed::keys(callers::keys(connection, tables)?, tables.len());
    let (mut bodies, are_cut) = if callers.is_empty() {
        (BTreeMap::new(), false)
    } else {
        bodies(connection, tables, schemas, callers)?
    };
    let words: BTreeSet<String> = bodies.values().flat_map(|body| body.words.iter().cloned()).collect();
    let listed: Vec<String> = words.iter().cloned().collect();
    // Settings may give a name another meaning as well.
    let paths = callers::search_paths(connection)?;
    let (sequences, of_tables) = named(connection, schemas, &bodies, &words, &listed, &paths)?;
    let perhaps = draw::by_name(connection, &paths, &listed)?;
    let known = ReachableSequences {
        sequences: &sequences,
        perhaps: &perhaps,
        of_tables: &of_tables,
        schemas,
        paths: &paths,
    };
    let columns = callers::columns(connection, tables)?;
    let (mut all, mut all_named) = (Doings::default(), BTreeSet::new());
    for body in bodies.values_mut() {
        all.add(&body.doings);
        all_named.append(&mut body.named);
        body.doings.keep_of(&columns);
    }
    let calls = Calls::new(&bodies);
    let reached = drawn(callers, &columns, &calls, &known);
    let closed = callers::closed(connection, &listed)?;
    let JudgedTexts { unfollowed, counted } = judge(callers, &calls, &known, &keys, ways, closed);
    let mut doings: BTreeMap<usize, Doings> = BTreeMap::new();
    for (table, of) in &reached.doings {
        doings.entry(*table).or_default().add_of_columns(of);
    }
    let draws = describe(connection, tables, reached.draws)?;
    let functions = bodies.into_values().filter(|body| body.oid.is_some());
    let names = functions.map(|body| body.name).filter(|name| !name.is_empty()).collect();
    let called = callers.iter().filter_map(|caller| caller.function.clone()).collect();
    if ways.is_empty() {
        all.changed.extend(counted.iter().cloned());
    }
    let texts = FunctionTexts { words, named: all_named, names, called, doings: all };
    let mut found = FunctionFindings { draws, texts, doings, unfollowed, counted, keys };
    if are_cut {
        found.are_more(tables, MOST_FUNCTIONS);
    }
    Ok(found)
}

/// Returns sequences with names that texts contain, and those of tables.
fn named(
    connection: &mut Connection,
    schemas: &[String],
    bodies: &BTreeMap<String, Body>,
    words: &BTreeSet<String>,
    listed: &[String],
    paths: &[String],
) -> Result<(Vec<SequenceName>, Vec<OfTable>)> {
    // A text may name the schema, too.
    let places: BTreeSet<String> = schemas.iter().chain(listed).cloned().collect();
    let near: Vec<String> = places.iter().cloned().collect();
    let mut sequences = draw::by_name(connection, &near, listed)?;
    let known: Vec<String> = bodies.values().flat_map(|body| body.sequences.iter().cloned()).collect();
    if !known.is_empty() {
        sequences.extend(draw::by_number(connection, &known)?);
    }
    if !by_table::may_draw(|word| words.contains(word)) {
        return Ok((sequences, Vec::new()));
    }
    let far: BTreeSet<String> = places.iter().chain(paths).cloned().collect();
    let of_tables = by_table::find(connection, &far.into_iter().collect::<Vec<_>>(), listed)?;
    Ok((sequences, of_tables))
}

impl FunctionFindings {
    fn are_more(&mut self, tables: &[Option<&str>], most: usize) {
        let of_keys = self.keys.iter().map(TableKeys::columns).enumerate();
        let cut = of_keys.filter(|(table, _)| tables.get(*table).is_some_and(Option::is_some));
        self.unfollowed.extend(cut.map(|(table, columns)| Unfollowed::of_more(table, columns, most)));
    }
}

/// Returns the called functions and those that these may call, by their numbers, and tables and views that they name,
/// whose triggers, defaults and rules call others.
fn bodies(
    connection: &mut Connection,
    tables: &[Option<&str>],
    schemas: &[String],
    callers: &[TableCaller],
) -> Result<(BTreeMap<String, Body>, bool)> {
    let unnamed = callers::unnamed(connection)?.rows;
    let mut found: BTreeMap<String, Body> = BTreeMap::new();
    for caller in callers.iter().filter(|caller| caller.text.is_some() || caller.sequence.is_some()) {
        let body = found.entry(caller.key()).or_default();
        body.read(caller.text.as_deref().unwrap_or_default());
        body.sequences.extend(caller.sequence.clone());
    }
    let mut oids: Vec<String> = callers.iter().filter_map(|caller| caller.function.clone()).collect();
    oids.extend(found.values_mut().flat_map(|body| body.runs_unnamed(&unnamed)).collect::<Vec<_>>());
    let mut asked: BTreeSet<String> = found.values().flat_map(|body| body.words.iter().cloned()).collect();
    let mut names: Vec<String> = asked.iter().cloned().collect();
    let texts = found.len();
    let moving = array_of(tables.iter().copied());
    for _ in 0..DEPTH {
        let lists = [text_array(&oids), text_array(&names)];
        let mut rows = catalogs::ask(connection, BODIES, &catalogs::given(&lists))?.rows;
        // A text may name the schema, too.
        let places: BTreeSet<String> = schemas.iter().chain(&asked).cloned().collect();
        let places = text_array(&places.into_iter().collect::<Vec<_>>());
        let lists = [&places, &lists[1], &moving];
        rows.extend(callers::relations(connection, &lists)?.rows);
        let mut new: Vec<(String, Body)> =
            rows.into_iter().filter_map(body).filter(|(key, _)| !found.contains_key(key)).collect();
        if new.is_empty() {
            return Ok((found, false));
        }
        if found.len() - texts > MOST_FUNCTIONS {
            break;
        }
        new.iter_mut().for_each(|(_, body)| drop(body.runs_unnamed(&unnamed)));
        oids = new.iter().flat_map(|(_, body)| body.functions.iter().cloned()).collect();
        names = new
            .iter()
            .flat_map(|(_, body)| body.words.iter().cloned())
            .filter(|name| asked.insert(name.clone()))
            .collect();
        found.extend(new);
    }
    Ok((found, true))
}

fn describe(
    connection: &mut Connection,
    tables: &[Option<&str>],
    found: Vec<Reached<'_>>,
) -> Result<Vec<Draw>> {
    let asked: Vec<DrawContext<'_>> = found
        .iter()
        .map(|reached| DrawContext {
            oid: &reached.sequence.oid,
            table: tables.get(reached.caller.table).copied().flatten(),
            role: None,
        })
        .collect();
    let facts = draw::facts(connection, &asked)?;
    let draws = found.into_iter().zip(facts).filter_map(|(reached, sequence)| {
        let Reached { caller, signature, words, is_sure, doings, .. } = reached;
        let who = if signature.is_empty() {
            caller.what.clone()
        } else {
            format!("{}, by {signature}", caller.what)
        };
        Some(Draw {
            words,
            table: Some(caller.table),
            column: caller.column.clone(),
            by: if is_sure { Drawer::Function(who) } else { Drawer::Perhaps(who) },
            sequence: sequence?,
            in_unique: true,
            holds: None,
            role: None,
            doings,
        })
    });
    Ok(draws.collect())
}
