//! Sequences that functions draw from: of a column's default, or of a trigger, where the texts tell which column may be filled.

use super::index::Part;
use crate::agent::catalogs;
use crate::agent::error::Result;
use crate::agent::shape::Observation;
use crate::numbers::look;
use crate::numbers::progression::Numbers;
use crate::remote::quote::array_of;
use crate::remote::{Connection, RemoteError};
use crate::split::sequences::draw::{By, Draw};
use crate::split::sequences::functions;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

const NUMBERS: &str = include_str!("../../../../../sql/sequences/numbers.sql");
/// What a trigger fills with a number as it is. Into a text it may write anything.
const NUMERIC: [&str; 4] = ["smallint", "integer", "bigint", "numeric"];

/// A sequence, and the function that names it.
pub struct Drawn {
    /// The table's position among those of the split.
    pub table: usize,
    /// Which column has the default; None: a trigger's.
    pub column: Option<String>,
    /// Who draws, for people.
    pub by: String,
    pub oid: String,
    /// Qualified and quoted.
    pub name: String,
    pub numbers: Numbers,
    /// Names in the function's text, and in those that it calls.
    pub words: Rc<BTreeSet<String>>,
}

impl Drawn {
    /// Of a default's function that is known; of a trigger's it is taken for true where its text has the name of a column of numbers
    /// that nothing else fills.
    pub fn may_fill(&self, (table, name): &(usize, String), part: &Part) -> bool {
        let by_trigger = || {
            NUMERIC.contains(&part.type_name.as_str())
                && part.default.is_none()
                && part.refers.is_none()
                && self.words.contains(name)
        };
        self.table == *table && self.column.as_ref().map_or_else(by_trigger, |column| column == name)
    }
}

/// Of one side's tables.
pub fn of(session: &mut Connection, tables: &Observation, schemas: &[String]) -> Result<Vec<Drawn>> {
    let oids: Vec<Option<&str>> = tables.tables.iter().map(|table| table.oid.as_deref()).collect();
    let draws = functions::find(session, &oids, schemas)?.draws;
    if draws.is_empty() {
        return Ok(Vec::new());
    }
    let sequences = array_of(draws.iter().map(|draw| Some(draw.sequence.oid.as_str())));
    let mut numbers: BTreeMap<String, Numbers> = BTreeMap::new();
    let mut readable = BTreeSet::new();
    for row in catalogs::ask(session, NUMBERS, &[Some(&sequences)])?.rows {
        let read = || {
            let (oid, may_read) = (row.first()?.clone()?, row.get(6)?.as_deref() == Some("t"));
            Some((oid, Numbers::read(row.get(1..6)?)?, may_read))
        };
        let (oid, read, may_read) =
            read().ok_or_else(|| RemoteError::unreadable(session.shard(), "what its sequences are like"))?;
        numbers.insert(oid.clone(), read);
        readable.extend(may_read.then_some(oid));
    }
    let names: BTreeMap<&str, &str> =
        draws.iter().map(|draw| (draw.sequence.oid.as_str(), draw.sequence.name.as_str())).collect();
    let new = numbers.iter_mut().filter(|(oid, _)| readable.contains(*oid));
    let new = new.filter_map(|(oid, numbers)| Some((oid.as_str(), *names.get(oid.as_str())?, numbers)));
    look::begin(session, new)?;
    let drawn = draws.into_iter().filter_map(|draw| {
        let Draw { table: Some(table), column, by: By::Function(by), sequence, words, .. } = draw else {
            return None;
        };
        let numbers = *numbers.get(&sequence.oid)?;
        Some(Drawn { table, column, by, oid: sequence.oid, name: sequence.name, numbers, words })
    });
    Ok(drawn.collect())
}
