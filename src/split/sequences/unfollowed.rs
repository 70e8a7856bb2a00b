//! Values of keys whose origin is not followed: a text that a function composes and runs, a sequence by a name that no
//! text contains, a function whose text cannot be read here. What is followed is raised on the target; for the rest it
//! is unknown what the target gives out, so the operator gets a remark before anything moves.
//!
//! If a statement sets a key's column only to constants, columns of the row and what is made of them, nothing else is
//! checked. For any other statement all texts are checked that it reaches: everything in them that may give out
//! numbers is known, or is remarked on.

use super::body::Body;
use super::called::{CallKind, Context, drawn};
use super::callers::{CodePlace, TableCaller};
use super::names::without_comments;
use super::reach::{Calls, ReachableSequences};
use super::statements::{
    DRAWS, KNOWN_TRIGGERS, OF_SERVER, PLAIN_WORDS, counters, counting, gifts, is_literal, is_run,
    may_insert_into, set_columns,
};
use super::tokens::TextToken::{self, Sign, Word};
use super::tokens::{MOST_WORDS, RECORD, argument, before_name, bounds, fields, listed, tokens, words};
use crate::remote::number;
use crate::remote::result::Rows;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A column's values, and their origin.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Unfollowed {
    pub table: usize,
    pub columns: BTreeSet<String>,
    /// What sets them: a function, or a default.
    pub who: String,
    pub why: String,
    pub kind: CallKind,
}

struct TextDoubt {
    why: String,
    kind: CallKind,
}

/// A moving table's keys, and what sets their columns.
#[derive(Default, Debug)]
pub struct TableKeys {
    /// The names of the table and of its partitions, in lower case.
    names: BTreeSet<String>,
    columns: BTreeSet<String>,
    /// The columns of each index.
    pub of_indexes: BTreeMap<String, BTreeSet<String>>,
    defaults: Vec<(String, String)>,
    /// Functions of triggers that may change a row.
    triggers: BTreeSet<String>,
    closed: Vec<(String, String)>,
}

impl TableKeys {
    pub fn columns(&self) -> &BTreeSet<String> {
        &self.columns
    }
}

impl Unfollowed {
    /// Returns a remark that there are more functions than are checked.
    pub fn of_more(table: usize, columns: &BTreeSet<String>, most: usize) -> Unfollowed {
        let (who, why) = (
            "functions".to_owned(),
            format!("are more than {most} or very long, so that not all of them are read"),
        );
        Unfollowed { table, columns: columns.clone(), who, why, kind: CallKind::Open }
    }
}

pub fn keys(rows: Rows, tables: usize) -> Vec<TableKeys> {
    let mut keys: Vec<TableKeys> = Vec::new();
    keys.resize_with(tables, TableKeys::default);
    for row in rows.rows {
        let Ok([Some(position), Some(what), Some(name), text]) = <[_; 4]>::try_from(row) else { continue };
        let Some(key) = number::index(&position).and_then(|index| keys.get_mut(index)) else { continue };
        let text = text.unwrap_or_default();
        match what.as_str() {
            "name" => drop(key.names.insert(name)),
            "key" => {
                key.columns.insert(name.clone());
                key.of_indexes.entry(text).or_default().insert(name);
            }
            "default" => key.defaults.push((name, text)),
            "trigger" => drop(key.triggers.insert(name)),
            _ => key.closed.push((name, text)),
        }
    }
    keys
}

/// The result of reading a text, which is done once.
struct TextRead {
    tokens: Vec<TextToken>,
    doubts: Vec<TextDoubt>,
    /// Tables that it counts by.
    counters: BTreeSet<String>,
    /// It takes values of rows that it writes.
    reads_back: bool,
}

pub struct Judge<'a> {
    pub calls: &'a Calls<'a>,
    /// The sequences that each text names.
    pub named: &'a [BTreeSet<String>],
    pub closed: BTreeSet<String>,
    /// Names of functions whose texts are read here.
    pub own: BTreeSet<&'a str>,
    pub keys: &'a [TableKeys],
    /// The names that lead to tables, for writers only.
    pub ways: &'a [BTreeSet<String>],
}

/// The result for all texts.
pub struct JudgedTexts {
    pub unfollowed: BTreeSet<Unfollowed>,
    /// Names, among them those of tables by which keys' columns are counted.
    pub counted: BTreeSet<String>,
}

/// A text that may set values: the number of its body, and its kind.
pub struct Start<'a> {
    pub table: usize,
    pub number: usize,
    /// The text that calls it.
    pub told: Option<usize>,
    pub who: &'a str,
    pub what: TextKind,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TextKind {
    /// A default of a column.
    Default(String),
    /// A function of a trigger that may change a row, or a function that writes.
    Text,
    /// A rule, or a function of a trigger, of a view.
    View,
    /// A text that sets a column of a view, or of another table that leads to a moving one: which key column that
    /// fills is unknown.
    Elsewhere,
    /// A function of such a table's trigger.
    Row,
}

impl<'a> Judge<'a> {
    pub fn judge(&self, starts: &[Start<'_>]) -> JudgedTexts {
        let read: Vec<TextRead> = (0..self.calls.bodies.len()).map(|number| self.read(number)).collect();
        let mut judged = JudgedTexts { unfollowed: BTreeSet::new(), counted: BTreeSet::new() };
        let mut columns: Vec<BTreeSet<String>> = self.keys.iter().map(|key| key.columns.clone()).collect();
        if self.ways.is_empty() {
            self.widen(&read, starts, &mut columns);
            self.of_defaults(&columns, &mut judged);
        }
        for start in starts {
            pgrx::check_for_interrupts!();
            let Some(columns) = columns.get(start.table).filter(|columns| !columns.is_empty()) else {
                continue;
            };
            let given = match &start.what {
                TextKind::Default(column) => columns.get(column).cloned().into_iter().collect(),
                TextKind::Elsewhere => columns.clone(),
                TextKind::Text | TextKind::View => self.given(start, &read[start.number], columns),
                TextKind::Row => {
                    let TextRead { tokens, .. } = &read[start.number];
                    let body = self.calls.bodies[start.number];
                    let is_given = gifts(tokens)
                        .into_iter()
                        .any(|(_, range)| !self.is_plain(&tokens[range], body, start));
                    if is_given { columns.clone() } else { BTreeSet::new() }
                }
            };
            if !given.is_empty() {
                self.look_behind(start, &read, given, &mut judged);
            }
        }
        judged
    }

    /// Adds columns of a row that key columns are made of: they are checked like these.
    fn widen(&self, read: &[TextRead], starts: &[Start<'_>], columns: &mut [BTreeSet<String>]) {
        const ROUNDS: usize = 8;
        for _ in 0..ROUNDS {
            let before: usize = columns.iter().map(BTreeSet::len).sum();
            for start in starts.iter().filter(|start| self.is_of_row(start)) {
                let Some(columns) = columns.get_mut(start.table) else { continue };
                let tokens = &read[start.number].tokens;
                let of_row: Vec<String> = gifts(tokens)
                    .into_iter()
                    .filter(|(name, _)| name == RECORD || columns.contains(name))
                    .flat_map(|(_, range)| fields(&tokens[range]))
                    .collect();
                columns.extend(of_row);
            }
            if before == columns.iter().map(BTreeSet::len).sum::<usize>() {
                return;
            }
        }
    }

    fn is_of_row(&self, start: &Start<'_>) -> bool {
        let oid = self.calls.bodies[start.number].oid.as_ref();
        let key = self.keys.get(start.table);
        oid.zip(key).is_some_and(|(oid, key)| key.triggers.contains(oid))
    }

    fn of_defaults(&self, columns: &[BTreeSet<String>], judged: &mut JudgedTexts) {
        for (table, (key, columns)) in self.keys.iter().zip(columns).enumerate() {
            for (column, text) in key.defaults.iter().filter(|(column, _)| columns.contains(column)) {
                let who = format!("the default of column \"{column}\"");
                let all = BTreeSet::from([column.clone()]);
                let none = (BTreeSet::new(), BTreeSet::new());
                let context = Context { named: &none.0, by_server: true, args: &none.1, text };
                let doubts = self.doubts(&tokens(text), &context);
                // A sequence that its text names, or passes to a function, is checked with what draws.
                let doubts = doubts.into_iter().filter(|doubt| !matches!(doubt.kind, CallKind::Told));
                judged.unfollowed.extend(doubts.map(|TextDoubt { why, kind }| Unfollowed {
                    table,
                    columns: all.clone(),
                    who: who.clone(),
                    why,
                    kind,
                }));
            }
            let of_closed = key.closed.iter().filter_map(|(name, text)| {
                let named = words(&tokens(text));
                let mut columns = columns.clone();
                if !text.is_empty() {
                    columns.retain(|column| named.contains(column));
                }
                let is_known = KNOWN_TRIGGERS.contains(&name.as_str()) || columns.is_empty();
                let why = "is written in a language that is not read here".to_owned();
                (!is_known).then(|| Unfollowed {
                    table,
                    columns,
                    who: format!("function {name}()"),
                    why,
                    kind: CallKind::Open,
                })
            });
            judged.unfollowed.extend(of_closed);
        }
    }

    /// Returns the key columns that a text sets to values that are not plain.
    fn given(&self, start: &Start<'_>, read: &TextRead, columns: &BTreeSet<String>) -> BTreeSet<String> {
        let body = self.calls.bodies[start.number];
        let TextRead { tokens, .. } = read;
        let own = |name: &str| {
            if name == RECORD { columns.clone() } else { columns.get(name).cloned().into_iter().collect() }
        };
        let mut given = BTreeSet::new();
        let mut add = |columns: BTreeSet<String>, range: Range<usize>| {
            if !columns.is_subset(&given) && !self.is_plain(&tokens[range], body, start) {
                given.extend(columns);
            }
        };
        if self.is_of_row(start) {
            for (name, range) in gifts(tokens) {
                add(own(&name), range);
            }
        }
        for at in 0..tokens.len() {
            if let Some(written) = self.written(start, tokens, at, columns) {
                add(written, bounds(tokens, at));
            }
        }
        given
    }

    /// Returns the key columns that are written, or passed to something that writes, where a word is.
    fn written(
        &self,
        start: &Start<'_>,
        tokens: &[TextToken],
        at: usize,
        columns: &BTreeSet<String>,
    ) -> Option<BTreeSet<String>> {
        let (word, table) = (tokens[at].word()?, start.table);
        let key = self.keys.get(table)?;
        let is_way = self.is_way(table, word);
        let rest = tokens.get(at + 1..).unwrap_or_default();
        let range = bounds(tokens, at);
        // A trigger of the table itself that runs such a text writes a journal.
        let is_for_it = !self.ways.is_empty() || start.what == TextKind::View;
        if is_for_it && word == "execute" && is_run(tokens, at) && !is_literal(rest) {
            let is_it = |name: &str| key.names.contains(name) || self.is_way(table, name);
            return may_insert_into(&tokens[range], is_it).then(|| columns.clone());
        }
        if !is_way && !key.names.contains(word) {
            return None;
        }
        let set = set_columns(&tokens[range], columns);
        match before_name(tokens, at) {
            ("insert", "into") => {
                let listed = listed(rest).map(|listed| &listed & columns);
                Some(listed.map_or_else(|| columns.clone(), |listed| &listed | &set))
            }
            ("merge", "into") => Some(columns.clone()),
            (_, "update") => Some(set),
            _ if is_way && !key.names.contains(word) && rest.first() == Some(&Sign('(')) => {
                Some(columns.clone())
            }
            _ => None,
        }
    }

    fn is_way(&self, table: usize, name: &str) -> bool {
        self.ways.get(table).is_some_and(|ways| ways.contains(name))
    }

    /// Checks all that a text reaches: each doubt in it, and what it counts by.
    fn look_behind(
        &self,
        start: &Start<'_>,
        read: &[TextRead],
        given: BTreeSet<String>,
        judged: &mut JudgedTexts,
    ) {
        let [mut reached, behind] = self.calls.reached([start.number].into_iter());
        if reached.iter().any(|number| read[*number].reads_back) {
            reached.extend(behind);
        }
        let is_told = start.told.iter().chain(&reached).any(|number| !self.named[*number].is_empty());
        for number in &reached {
            let body = self.calls.bodies[*number];
            let who = if body.signature.is_empty() { start.who } else { &body.signature };
            for TextDoubt { why, kind } in &read[*number].doubts {
                if *kind != CallKind::Told || !is_told {
                    judged.unfollowed.insert(Unfollowed {
                        table: start.table,
                        columns: given.clone(),
                        who: who.to_owned(),
                        why: why.clone(),
                        kind: kind.clone(),
                    });
                }
            }
            judged.counted.extend(read[*number].counters.iter().cloned());
        }
        let names = self.keys.get(start.table).map(|key| &key.names);
        for words in counting(&read[start.number].tokens) {
            if names.is_some_and(|names| !names.is_disjoint(&words)) {
                judged.unfollowed.insert(Unfollowed {
                    table: start.table,
                    columns: given.clone(),
                    who: self.calls.bodies[start.number].signature.clone(),
                    why: "counts the existing rows, as each shard does for itself".to_owned(),
                    kind: CallKind::Counted,
                });
            }
            judged.counted.extend(words);
        }
    }

    fn read(&self, number: usize) -> TextRead {
        pgrx::check_for_interrupts!();
        const LONGEST: usize = 200_000;
        let body = self.calls.bodies[number];
        let tokens = tokens(&without_comments(&body.text));
        let (named, args) = (&self.named[number], &body.args);
        let context = Context { named, by_server: body.oid.is_none(), args, text: &body.text };
        let mut doubts = self.doubts(&tokens, &context);
        let mut open = |why: &str| doubts.push(TextDoubt { why: why.to_owned(), kind: CallKind::Open });
        if body.language.as_deref().is_some_and(|language| !["sql", "plpgsql"].contains(&language)) {
            open("is written in a language that is not read here");
        }
        if body.text.len() >= LONGEST {
            open("is too long to be read here");
        }
        if body.text.contains("U&\"") || body.text.contains("u&\"") {
            open("calls something by a name with escapes (U&)");
        }
        let counters = counters(&tokens, &body.doings);
        let reads_back = tokens.iter().any(|token| token.is("returning"));
        TextRead { tokens, doubts, counters, reads_back }
    }

    /// Returns what in a text may give out values and is not followed.
    fn doubts(&self, tokens: &[TextToken], context: &Context<'_>) -> Vec<TextDoubt> {
        let named = context.named;
        let mut found = Vec::new();
        let sets = tokens.iter().any(|token| token.is("set_config"));
        for (at, token) in tokens.iter().enumerate() {
            let Word(word) = token else { continue };
            let rest = tokens.get(at + 1..).unwrap_or_default();
            let is_called = rest.first() == Some(&Sign('('));
            let open = |why: String| Some(TextDoubt { why, kind: CallKind::Open });
            let doubt = match word.as_str() {
                "execute" if is_run(tokens, at) && !is_literal(rest) => {
                    let all = words(&tokens[bounds(tokens, at)]);
                    let why = "runs a text that it builds (EXECUTE)".to_owned();
                    let kind = if all.contains("nextval") { CallKind::Made(all) } else { CallKind::Open };
                    Some(TextDoubt { why, kind })
                }
                word if is_called && DRAWS.contains(&word) => {
                    let why = format!("calls {word}() by a name that is not found in it");
                    drawn(argument(rest), context).map(|kind| TextDoubt { why, kind })
                }
                "lastval" if is_called && named.is_empty() => open("calls lastval()".to_owned()),
                "pg_sequences" | "pg_sequence" if named.is_empty() => open(format!("reads {word}")),
                "current_setting" if is_called && sets => open("counts by a setting (set_config)".to_owned()),
                word if is_called && (OF_SERVER.contains(&word) || self.closed.contains(word)) => {
                    open(format!("calls {word}(), whose values are not followed"))
                }
                _ => None,
            };
            found.extend(doubt);
        }
        found
    }

    /// Whether a statement uses only constants, columns of the row, and what is made of them.
    fn is_plain(&self, tokens: &[TextToken], body: &Body, start: &Start<'_>) -> bool {
        // A longer statement is not read completely.
        let Some(key) = self.keys.get(start.table).filter(|_| tokens.len() < MOST_WORDS) else {
            return false;
        };
        let ways = self.ways.get(start.table);
        tokens.iter().enumerate().all(|(at, token)| {
            let Word(word) = token else { return true };
            let is_called = tokens.get(at + 1) == Some(&Sign('('));
            let is_number = word.starts_with(|c: char| c.is_ascii_digit());
            let is_field = !is_called && at > 0 && tokens[at - 1] == Sign('.');
            let is_known = is_number
                || PLAIN_WORDS.contains(word.as_str()) && !(is_called && self.own.contains(word.as_str()))
                || key.names.contains(word)
                || ways.is_some_and(|ways| ways.contains(word));
            is_known || is_field || !is_called && (body.args.contains(word) || key.columns.contains(word))
        })
    }
}

/// Returns sources of keys' values in the texts that are not followed.
pub fn judge(
    callers: &[TableCaller],
    calls: &Calls<'_>,
    known: &ReachableSequences<'_>,
    keys: &[TableKeys],
    ways: &[BTreeSet<String>],
    closed: BTreeSet<String>,
) -> JudgedTexts {
    let of_body = |body: &&Body| -> BTreeSet<String> {
        let mut named = known.named_by(body);
        named.extend(known.of_tables_in(body, None));
        // An argument of a function may be a table.
        let told = known.of_tables.iter().filter(|of| body.oid.is_none() && body.words.contains(&of.table));
        named.extend(told.map(|of| (&of.sequence, false)));
        named.into_iter().map(|(sequence, _)| sequence.relname.clone()).collect()
    };
    let named: Vec<BTreeSet<String>> = calls.bodies.iter().map(of_body).collect();
    let functions = calls.bodies.iter().filter(|body| body.oid.is_some());
    let own = functions.map(|body| body.name.as_str()).collect();
    let mut starts = Vec::new();
    for caller in callers {
        let what = match (caller.place, &caller.column, &caller.fill) {
            (CodePlace::Table, Some(column), _) | (CodePlace::View, _, Some(column)) => {
                TextKind::Default(column.clone())
            }
            (CodePlace::View, _, None) if !caller.fills.is_empty() => TextKind::Elsewhere,
            (CodePlace::Table, None, _) => TextKind::Text,
            (CodePlace::View, _, None) => TextKind::View,
            (CodePlace::OtherDefault, ..) => TextKind::Elsewhere,
            (CodePlace::OtherRow, ..) => TextKind::Row,
        };
        let keys = [caller.function.clone(), Some(caller.key())];
        let [function, text] = keys.map(|key| key.and_then(|key| calls.number.get(key.as_str()).copied()));
        for number in function.into_iter().chain(text) {
            let (table, who, what) = (caller.table, caller.what.as_str(), what.clone());
            starts.push(Start { table, number, told: text, who, what });
        }
    }
    Judge { calls, named: &named, closed, own, keys, ways }.judge(&starts)
}
