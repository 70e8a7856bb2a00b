//! All that is known of both sides' sequences: which of the target's must be past which of the source's, what the
//! target lacks, and what prevents a split from giving out each number once.

use super::by_key::{self, ByKey};
use super::called::{CallKind, TOLD};
use super::doings::Doings;
use super::doubts::{self, Doubts, SequenceDoubt};
use super::draw::{self, Draw, DrawContext, Drawer, DrawnSequence, SequenceName};
use super::functions::{self, FunctionFindings, FunctionTexts};
use super::pair::{self, Places, SequencePair, SequenceProblem, WantedSequence};
use super::unfollowed::{TableKeys, Unfollowed};
use crate::agent::catalogs;
use crate::agent::error::Result;
use crate::agent::session::Side;
use crate::agent::table_names::TableNames;
use crate::catalog::shard;
use crate::catalog::split::{ColumnMap, Plan};
use crate::remote::Connection;
use crate::remote::quote::{array_of, qualified, text_array};
use crate::server::txn::in_one;
use crate::split::table::SplitTable;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

const ALONE: &str = include_str!("../../../sql/sequences/alone.sql");

/// The numbers of a plan's tables on both sides. A number is `None` if there is no such table.
pub struct TableNumbers<'a> {
    pub source: Vec<Option<&'a str>>,
    pub target: Vec<Option<&'a str>>,
}

impl<'a> TableNumbers<'a> {
    pub fn of(tables: &'a [SplitTable]) -> TableNumbers<'a> {
        TableNumbers {
            source: tables.iter().map(|table| table.source.oid.as_deref()).collect(),
            target: tables.iter().map(|table| table.target.oid.as_deref()).collect(),
        }
    }

    /// Returns the numbers as SQL arrays.
    pub fn lists(&self) -> [String; 2] {
        [&self.source, &self.target].map(|oids| array_of(oids.iter().copied()))
    }
}

#[derive(Default)]
pub struct Survey {
    /// What each side's columns have according to PostgreSQL itself: it is read again behind the fence.
    pub of_columns: [Vec<Draw>; 2],
    pub pairs: Vec<SequencePair>,
    /// Sequences of moving keys that the target lacks, and that are created there.
    pub to_make: Vec<WantedSequence>,
    pub problems: Vec<SequenceProblem>,
    /// What deserves attention.
    pub remarks: Vec<SequenceProblem>,
    /// Sequences that may be drawn from and are not raised.
    pub doubts: Doubts,
    /// Sequences of the target with a smaller step than the source's.
    pub by_less: Vec<SequenceDoubt>,
    /// Sequences of the source without a known user.
    pub unknown: Vec<SequenceName>,
    /// Those of them whose names functions may compose of keys that cannot be distinguished from other words.
    pub undecided: Vec<SequenceName>,
    /// The texts of the source's functions.
    pub texts: FunctionTexts,
    /// Sources of keys' values that are not followed, on either side.
    pub unfollowed: Vec<Unfollowed>,
    /// Names, among them those of tables that keys of the source are counted by.
    pub counted: BTreeSet<String>,
    /// What functions of either side draw from and do.
    pub read: [SurveyRead; 2],
    /// Columns of the target that sequences fill, and what of the source fills them.
    pub fills: Vec<FilledColumn>,
    /// The numbers that those of the target will give out once they are raised, by their oids.
    pub to_come: BTreeMap<String, NumbersToCome>,
}

#[derive(Default)]
pub struct SurveyRead {
    pub draws: Vec<Draw>,
    /// By the table's position.
    pub doings: BTreeMap<usize, Doings>,
}

impl SurveyRead {
    fn of(found: &[&FunctionFindings]) -> SurveyRead {
        let mut read = SurveyRead::default();
        for of in found {
            read.draws.extend(of.draws.iter().cloned());
            for (table, doings) in &of.doings {
                read.doings.entry(*table).or_default().add_of_columns(doings);
            }
        }
        read
    }
}

impl FunctionFindings {
    pub fn into_read(self) -> SurveyRead {
        SurveyRead { draws: self.draws, doings: self.doings }
    }
}

/// A column of the source whose values a sequence of the target would give out for another column, or the same.
pub struct FilledColumn {
    pub table: usize,
    pub column: String,
    pub to: DrawnSequence,
    /// A function fills it: the index that has the column is unknown.
    pub by_function: bool,
}

/// The range from the next number to the end, in whichever direction it counts.
#[derive(Clone, Copy)]
pub struct NumbersToCome {
    pub range: [i64; 2],
    pub is_up: bool,
    /// What is beyond the source's sequence is beyond this one, too.
    pub is_as_of_source: bool,
    /// The number from which on another sequence of the column continues.
    pub of_others: Option<i64>,
}

pub fn survey(
    plan: &Plan,
    source: &mut Connection,
    target: &mut Connection,
    tables: &TableNumbers<'_>,
) -> Result<Survey> {
    let maps: Vec<&[ColumnMap]> = plan.tables.iter().map(|table| table.maps.as_slice()).collect();
    let places = Places::of(plan);
    let lists = tables.lists();
    let of_columns = draw::of_tables(source, target, &lists)?;
    let mut here = of_columns[0].clone();
    here.extend(draw::of_parts(source, &lists[0])?);
    let schemas = schemas(plan, Side::Source);
    let mut of_functions = functions::find(source, &tables.source, &schemas)?;
    let mut of_writers = functions::of_writers(source, &tables.source, &schemas)?;
    let keys = [&mut of_functions, &mut of_writers].map(|found| std::mem::take(&mut found.unfollowed));
    let mut unfollowed = not_followed(plan, &of_functions.keys, keys.into_iter().flatten());
    let counted = &of_functions.texts.doings.counted() | &of_writers.counted;
    let read = SurveyRead::of(&[&of_functions, &of_writers]);
    let mut doings = of_functions.texts.doings.clone();
    doings.add(&of_writers.texts.doings);
    here.extend(of_functions.draws);
    here.extend(of_writers.draws);
    let mut there = of_columns[1].clone();
    there.extend(draw::of_parts(target, &lists[1])?);
    let of_functions_there = functions::find(target, &tables.target, &self::schemas(plan, Side::Target))?;
    let of_target = of_functions_there.unfollowed.iter().cloned();
    let mut there_alone = not_followed(plan, &of_functions_there.keys, of_target);
    there_alone.retain(|one| !unfollowed.contains(one));
    unfollowed.extend(there_alone);
    let read = [read, SurveyRead::of(&[&of_functions_there])];
    there.extend(of_functions_there.draws);

    let mut found = Survey { of_columns, read, unfollowed, counted, ..Survey::default() };
    found.fills = fills(&there, &maps);
    [&mut here, &mut there].into_iter().for_each(doubts::settle);
    found.doubts.set_closed_aside(&mut here);
    here.extend(said(plan, source, &mut found)?);
    let is_named = |named: &SequenceName| {
        let words = &of_functions.texts.words;
        schemas.contains(&named.schema) || words.contains(&named.schema) || begins_as(named, words)
    };
    let of_keys = by_keys(plan, source, &is_named, &here, &mut found)?;
    found.set_unknown_keys_aside(plan, &of_keys, &of_functions.texts.words, &doings);
    found.leave_out_names_of_keys(plan, !of_keys.is_empty());
    here.extend(of_keys);
    doubts::settle(&mut here);
    let pairing = pair::pair(&here, &there, &maps, places);
    found.pairs = pairing.pairs;
    found.problems.extend(pairing.problems);
    found.remarks.extend(pairing.remarks);
    look_for(target, tables, pairing.wanted, &mut found)?;
    found.texts = of_functions.texts;
    if plan.source.conninfo == plan.target.conninfo {
        found.leave_out_what_both_share();
    }
    found.doubts.set_pairs_aside(&mut found.pairs);
    found.leave_out_what_begins_anew();
    Ok(found)
}

/// Returns those of columns of keys, except the routing key, whose values are the tenant's own.
fn not_followed(plan: &Plan, keys: &[TableKeys], found: impl Iterator<Item = Unfollowed>) -> Vec<Unfollowed> {
    let own = |mut one: Unfollowed| {
        let shard_by = plan.tables.get(one.table)?.shard_by.as_str();
        one.columns.remove(shard_by);
        if one.kind == CallKind::Counted {
            // With the shard-by column in the index, only each shard's own rows count.
            let indexes = keys.get(one.table)?.of_indexes.values();
            let alone: Vec<&BTreeSet<String>> = indexes.filter(|of| !of.contains(shard_by)).collect();
            one.columns.retain(|column| alone.iter().any(|of| of.contains(column)));
        }
        (!one.columns.is_empty()).then_some(one)
    };
    found.filter_map(own).collect()
}

fn fills(there: &[Draw], maps: &[&[ColumnMap]]) -> Vec<FilledColumn> {
    let mut found: Vec<FilledColumn> = Vec::new();
    for draw in there.iter().filter(|draw| draw.is_sure() && draw.in_unique && !draw.sequence.cycles) {
        let by_function = matches!(draw.by, Drawer::Function(_));
        let (Some(table), true) = (draw.table, draw.is_drawn() || by_function) else { continue };
        let of_table = maps.get(table).copied().unwrap_or_default();
        // A trigger that draws for a journal names other columns, too.
        let is_filled =
            |column: &&String| draw.is_of_trigger() && draw.doings.draws_for(column, &draw.sequence.relname);
        let named = draw.column.iter().chain(draw.words.iter().filter(is_filled));
        for column in named.filter_map(|column| pair::plainly_filled(of_table, column)) {
            let is_known = |fill: &FilledColumn| {
                (fill.table, &fill.column, &fill.to.oid) == (table, &column, &draw.sequence.oid)
            };
            if !found.iter().any(is_known) {
                let to = draw.sequence.clone();
                found.push(FilledColumn { table, column, to, by_function });
            }
        }
    }
    found
}

/// Returns the schemas of a side's tables.
pub fn schemas(plan: &Plan, side: Side) -> Vec<String> {
    TableNames::of(plan, side).schemas.into_iter().collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns the sequences of the source that the operator has named.
fn said(plan: &Plan, source: &mut Connection, found: &mut Survey) -> Result<Vec<Draw>> {
    let mut draws = Vec::new();
    for name in &plan.sequences {
        let schema = name.schema.as_ref().unwrap_or(&plan.source.namespace).clone();
        let named = draw::by_name(source, &[schema], std::slice::from_ref(&name.name))?;
        match named.into_iter().next() {
            // In the master's own database the role must have the right to set it. Elsewhere roles differ.
            Some(_) if plan.target.conninfo.is_none() && name.role.is_none() => {
                found.remarks.push(SequenceProblem {
                    table: None,
                    text: format!(
                        "sequence {} was added by role {}, which no longer exists",
                        name.quoted(),
                        name.named_by
                    ),
                    hint:
                        "It is not raised. Call shard_sequence_drop() and shard_sequence_add() with its name."
                            .to_owned(),
                })
            }
            Some(named) => {
                let role = name.role.clone().filter(|_| plan.target.conninfo.is_none());
                draws.push(of_nothing(Drawer::Said, named, role));
            }
            None => found.remarks.push(SequenceProblem {
                table: None,
                text: format!("sequence {} of the keyspace does not exist on the source", name.quoted()),
                hint: "It is not raised. If it no longer exists, SELECT shard_sequence_drop() with its name."
                    .to_owned(),
            }),
        }
    }
    Ok(draws)
}

/// Returns the draw of a sequence without a known table.
fn of_nothing(
    by: Drawer,
    SequenceName { oid, schema, relname, cycles, .. }: SequenceName,
    role: Option<String>,
) -> Draw {
    let name = qualified(&schema, &relname);
    let sequence = DrawnSequence { oid, name, schema, relname, cycles, ..DrawnSequence::default() };
    Draw {
        table: None,
        column: None,
        by,
        sequence,
        in_unique: true,
        holds: None,
        role,
        words: Rc::default(),
        doings: Rc::default(),
    }
}

/// Whether texts of functions contain the beginning of its name: the rest is composed.
fn begins_as(named: &SequenceName, words: &BTreeSet<String>) -> bool {
    const SHORTEST: usize = 4;
    words.iter().any(|word| word.len() >= SHORTEST && named.relname.starts_with(word.as_str()))
}

/// Adds those whose names contain a moving key, if the tables are there or functions name them; the others are
/// recorded as without a known user.
fn by_keys(
    plan: &Plan,
    source: &mut Connection,
    is_named: &dyn Fn(&SequenceName) -> bool,
    known: &[Draw],
    found: &mut Survey,
) -> Result<Vec<Draw>> {
    let (most, others) =
        (by_key::MOST.to_string(), text_array(&in_one(|| shard::schemas_of_others(&plan.source))));
    let alone = draw::named(&catalogs::ask(source, ALONE, &[Some(&others), Some(&most)])?);
    let oids = |is_sure: bool| -> BTreeSet<&str> {
        let draws = known.iter().filter(|draw| draw.is_sure() == is_sure);
        draws.map(|draw| draw.sequence.oid.as_str()).collect()
    };
    let (is_known, may_be) = (oids(true), oids(false));
    let alone = alone.into_iter().filter(|named| !is_known.contains(named.oid.as_str())).collect();
    let [of_keys, mut unknown] = ByKey::new(&plan.scope).split(alone);
    unknown.retain(|named| !may_be.contains(named.oid.as_str()));
    let (of_keys, elsewhere): (Vec<SequenceName>, Vec<SequenceName>) =
        of_keys.into_iter().partition(is_named);
    // Those that are more likely the tenant's are named first.
    unknown.splice(0..0, elsewhere);
    found.unknown = unknown;
    // A role that owns it there, or may set it, has it raised here.
    let draw = |named: SequenceName| {
        let owner = named.owner.clone();
        of_nothing(Drawer::Key, named, Some(owner))
    };
    Ok(of_keys.into_iter().map(draw).collect())
}

/// Searches the target for sequences that must be there by their names.
fn look_for(
    target: &mut Connection,
    tables: &TableNumbers<'_>,
    wanted: Vec<WantedSequence>,
    found: &mut Survey,
) -> Result<()> {
    if wanted.is_empty() {
        return Ok(());
    }
    let unique = |of: &dyn Fn(&WantedSequence) -> &String| -> Vec<String> {
        wanted.iter().map(|wanted| of(wanted).clone()).collect::<BTreeSet<_>>().into_iter().collect()
    };
    let (schemas, names) =
        (unique(&|wanted| &wanted.schema), unique(&|wanted| &wanted.from.sequence.relname));
    let there: BTreeMap<(String, String), String> = draw::by_name(target, &schemas, &names)?
        .into_iter()
        .map(|named| ((named.schema, named.relname), named.oid))
        .collect();
    let oid_of =
        |wanted: &WantedSequence| there.get(&(wanted.schema.clone(), wanted.from.sequence.relname.clone()));
    let (present, missing): (Vec<WantedSequence>, Vec<WantedSequence>) =
        wanted.into_iter().partition(|wanted| oid_of(wanted).is_some());
    let asked: Vec<DrawContext<'_>> = present
        .iter()
        .map(|wanted| DrawContext {
            oid: oid_of(wanted).map_or("0", String::as_str),
            table: wanted.from.table.and_then(|table| tables.target.get(table).copied().flatten()),
            role: wanted.from.role.as_deref(),
        })
        .collect();
    let facts = draw::facts(target, &asked)?;
    let pairs = present.iter().zip(facts).filter_map(|(wanted, to)| {
        let from = vec![wanted.from.sequence.clone()];
        let Draw { table, in_unique, .. } = wanted.from;
        Some(SequencePair { from, to: to?, table, in_unique, is_sure: wanted.from.is_sure(), holds: None })
    });
    let pairs = found.pairs.drain(..).chain(pairs).collect();
    found.pairs = pair::merged(pairs);
    for wanted in missing {
        found.lacks(wanted);
    }
    Ok(())
}

impl Survey {
    /// Removes unfollowed names that functions compose of keys, or of arguments: these are the names of the sequences
    /// that are known by their keys.
    fn leave_out_names_of_keys(&mut self, plan: &Plan, are_known: bool) {
        let are_known = are_known || !self.undecided.is_empty();
        self.unfollowed.retain(|one| match &one.kind {
            CallKind::Made(words) => {
                let shard_by = plan.tables.get(one.table).map_or("", |table| table.shard_by.as_str());
                !are_known || !words.contains(shard_by) && !words.contains(TOLD)
            }
            CallKind::Open | CallKind::Told | CallKind::Counted => true,
        });
    }

    /// Sets sequences aside if functions compose names: what is left may belong to a moving key, unless its name
    /// contains another key.
    fn set_unknown_keys_aside(
        &mut self,
        plan: &Plan,
        of_keys: &[Draw],
        words: &BTreeSet<String>,
        doings: &Doings,
    ) {
        if ByKey::new(&plan.scope).is_blind() {
            let (begin_so, unknown) =
                std::mem::take(&mut self.unknown).into_iter().partition(|named| begins_as(named, words));
            (self.undecided, self.unknown) = (begin_so, unknown);
        }
        if !self.undecided.is_empty() || !doings.draws_by_made_names() {
            return;
        }
        let keys: BTreeSet<&str> = plan.tables.iter().map(|table| table.shard_by.as_str()).collect();
        // A number in a name may be a child's as well.
        if doings.draws_by_others(&keys) {
            self.undecided = std::mem::take(&mut self.unknown);
            return;
        }
        let names = of_keys.iter().map(|draw| draw.sequence.relname.as_str());
        let others = by_key::OtherKeys::of(plan, names, &self.unknown);
        (self.unknown, self.undecided) =
            std::mem::take(&mut self.unknown).into_iter().partition(|named| others.have(named));
    }

    fn lacks(&mut self, wanted: WantedSequence) {
        let (name, why) = (wanted.name(), wanted.why());
        let table = wanted.from.table;
        if wanted.from.by == Drawer::Key && wanted.from.sequence.cycles {
            self.problems.push(begins_anew(table, "source", &wanted.from.sequence.name));
        } else if wanted.from.by == Drawer::Key {
            self.to_make.push(wanted);
        } else if !wanted.from.is_sure() {
            self.remarks.push(SequenceProblem {
                table,
                text: format!("sequence {name} is missing on the target; {why}"),
                hint: format!("Create {name} on the target if numbers of it are in rows that move."),
            });
        } else if wanted.is_old {
            self.remarks.push(SequenceProblem {
                table,
                text: format!(
                    "sequence {name} is missing on the target; {why}, which another sequence fills"
                ),
                hint: format!("Create {name} on the target if clients still use it by its name."),
            });
        } else {
            self.problems.push(SequenceProblem {
                table,
                text: format!("sequence {name} is missing on the target; {why}"),
                hint: format!("Create {name} on the target. Clients that use it would fail there."),
            });
        }
    }

    /// Removes shared sequences: two namespaces of one database may draw from one sequence, which gives out nothing
    /// twice. If it was raised past itself, numbers would be lost at each cutover.
    fn leave_out_what_both_share(&mut self) {
        for pair in &mut self.pairs {
            pair.from.retain(|from| from.oid != pair.to.oid);
        }
        self.pairs.retain(|pair| !pair.from.is_empty());
    }

    /// Removes sequences that restart at their end: what one gives out next has been given out before. If nothing
    /// prevents repeated numbers, none is raised; otherwise it is unknown where it is safe.
    fn leave_out_what_begins_anew(&mut self) {
        let cycles = |pair: &SequencePair| pair.to.cycles || pair.from.iter().any(|from| from.cycles);
        let (anew, pairs): (Vec<SequencePair>, Vec<SequencePair>) = self.pairs.drain(..).partition(cycles);
        self.pairs = pairs;
        for pair in anew.into_iter().filter(|pair| pair.in_unique) {
            let (side, sequence) = match pair.from.iter().find(|from| from.cycles) {
                Some(from) => ("source", &from.name),
                None => ("target", &pair.to.name),
            };
            self.problems.push(begins_anew(pair.table, side, sequence));
        }
    }
}

fn begins_anew(table: Option<usize>, side: &str, sequence: &str) -> SequenceProblem {
    SequenceProblem {
        table,
        text: format!(
            "sequence {sequence} of the {side} starts again at its end (CYCLE), so that it does not show which numbers rows have"
        ),
        hint: format!(
            "ALTER SEQUENCE {sequence} NO CYCLE on the {side}, with a MAXVALUE that is far enough. Or remove the column from all unique indexes."
        ),
    }
}
