//! Sequences that functions draw from: functions of a column's default, of a trigger, of a view that is written
//! through. Their texts show which column may be filled.

use super::index::IndexPart;
use crate::agent::catalogs;
use crate::agent::error::Result;
use crate::catalog::split::ColumnMap;
use crate::numbers::introspect;
use crate::numbers::progression::Numbers;
use crate::remote::quote::array_of;
use crate::remote::{Connection, RemoteError};
use crate::split::sequences::doings::Doings;
use crate::split::sequences::draw::{Draw, Drawer};
use crate::split::sequences::plainly_filled;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

const NUMBERS: &str = include_str!("../../../../../sql/sequences/numbers.sql");
/// Types that a trigger fills with a number as it is. It may write anything into a text.
const NUMERIC: [&str; 4] = ["smallint", "integer", "bigint", "numeric"];

/// A sequence, and the function that names it.
pub struct Drawn {
    /// The table's position among those of the split.
    pub table: usize,
    /// The column with the default. `None` for a trigger.
    pub column: Option<String>,
    /// The function that draws, for people.
    pub by: String,
    pub oid: String,
    /// The name, qualified and quoted.
    pub name: String,
    pub relname: String,
    pub numbers: Numbers,
    /// Whether the function is known to be called, and to draw.
    pub is_sure: bool,
    /// The names in the function's text, and in those that it calls.
    pub words: Rc<BTreeSet<String>>,
    pub doings: Rc<Doings>,
}

/// A table of a side: its plain name, and its shard-by column.
pub struct DrawnTable {
    pub name: String,
    pub shard_by: String,
    pub maps: Vec<ColumnMap>,
}

impl DrawnTable {
    /// Returns the column of the source that fills one of the target.
    pub fn source_of(&self, column: &str) -> Option<String> {
        plainly_filled(&self.maps, column)
    }

    /// Returns the column of the target that one of the source fills.
    pub fn target_of(&self, column: &str) -> Option<String> {
        let renamed = self.maps.iter().find(|map| self.source_of(&map.column).as_deref() == Some(column));
        let is_mapped = self.maps.iter().any(|map| map.column == column);
        renamed.map(|map| map.column.clone()).or_else(|| (!is_mapped).then(|| column.to_owned()))
    }
}

impl Drawn {
    /// Whether it may fill a column. `part`: the part of an index, if it is known; `is_open`: nothing else fills the
    /// column.
    pub fn may_fill(
        &self,
        column: &(usize, String),
        table: &DrawnTable,
        part: Option<&IndexPart>,
        is_open: bool,
    ) -> bool {
        let (position, name) = column;
        if self.table != *position {
            return false;
        }
        if let Some(own) = &self.column {
            return own == name;
        }
        // A value that contains the key as well is different for each key.
        let draws_for = || {
            self.doings.draws_for(name, &self.relname)
                && self.doings.sources_of(name).is_some_and(|words| !words.contains(&table.shard_by))
        };
        // A function that is not known to be called must name the column plainly.
        self.doings.inserts(&table.name, name)
            || draws_for()
            || self.is_sure && is_open && part.is_some_and(|part| self.names(name, part))
    }

    /// Whether a trigger's function is assumed to fill the column: its text has the name of a numeric column that
    /// nothing else fills.
    fn names(&self, name: &String, part: &IndexPart) -> bool {
        NUMERIC.contains(&part.type_name.as_str())
            && part.default.is_none()
            && part.refers.is_empty()
            && self.words.contains(name)
    }
}

/// Returns those of one side.
pub fn of(session: &mut Connection, draws: Vec<Draw>) -> Result<Vec<Drawn>> {
    if draws.is_empty() {
        return Ok(Vec::new());
    }
    let sequences: BTreeSet<&str> = draws.iter().map(|draw| draw.sequence.oid.as_str()).collect();
    let sequences = array_of(sequences.into_iter().map(Some));
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
    introspect::begin(session, new)?;
    let drawn = draws.into_iter().filter_map(|draw| {
        let is_sure = draw.is_sure();
        let Draw { table: Some(table), column, by, sequence, words, doings, .. } = draw else { return None };
        let (Drawer::Function(by) | Drawer::Perhaps(by)) = by else { return None };
        let numbers = *numbers.get(&sequence.oid)?;
        let (oid, name, relname) = (sequence.oid, sequence.name, sequence.relname);
        Some(Drawn { table, column, by, oid, name, relname, numbers, is_sure, words, doings })
    });
    Ok(drawn.collect())
}
