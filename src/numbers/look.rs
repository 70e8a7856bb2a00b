//! The sequences that fill columns of a keyspace's tables on one shard.

use super::progression::Numbers;
use crate::agent::error::Result;
use crate::agent::{catalogs, session};
use crate::catalog::place::ITSELF;
use crate::catalog::shard::Shard;
use crate::catalog::table_policy::{TableName, TablePolicy};
use crate::remote::quote::{array_of, literal, text_array};
use crate::remote::{Connection, RemoteError};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

const LOOK: &str = include_str!("../../sql/numbers/look.sql");

/// A column: the table's position among those of the keyspace, and its plain name.
pub type NumberColumn = (usize, String);

/// A sequence of a shard.
#[derive(Debug, Clone)]
pub struct ShardSequence {
    /// Its number there.
    pub oid: String,
    /// Qualified and quoted.
    pub name: String,
    pub numbers: Numbers,
    /// What TRUNCATE .. RESTART IDENTITY begins with.
    pub start: i64,
    pub may_read: bool,
    pub may_set: bool,
    pub owner: String,
    /// What it fills.
    pub columns: BTreeSet<NumberColumn>,
    /// The greatest number that all of them, and what refers to them, can hold; and which of them holds the least.
    pub holds: i64,
    pub held_by: String,
    /// Whether one of them is in a unique key without the shard-by column.
    pub is_needed: bool,
    /// What has no place for numbers far beyond those of now.
    pub in_the_way: Option<String>,
    /// What may fail for such numbers, or make the same of two of them.
    pub narrow: Option<String>,
    /// Those of them whose rows are looked at.
    pub sought: BTreeSet<NumberColumn>,
    /// The greatest number in a row, as far as it was looked for.
    pub in_rows: Option<i64>,
    /// Whether a row of some shard has a number that it is yet to give out.
    pub is_behind: bool,
}

/// What a shard has of them.
pub struct OnShard {
    pub shard: Shard,
    pub session: Connection,
    /// Which database of which running server it is.
    place: String,
    pub sequences: Vec<ShardSequence>,
    /// The tables, in their order.
    pub schemas: Vec<String>,
    pub names: Vec<String>,
}

impl OnShard {
    /// Whether both are one sequence: two shards in one database may draw from it.
    pub fn is_one(&self, own: &ShardSequence, other: &OnShard, theirs: &ShardSequence) -> bool {
        self.place == other.place && own.oid == theirs.oid
    }
}

/// Asks a shard; without the tables it has none.
pub fn look(shard: Shard, tables: &[TablePolicy], deadline: Instant) -> Result<OnShard> {
    let mut session = session::open(&shard, "sequences")?;
    session.set_deadline(Some(deadline));
    let place = place_of(&mut session)?;
    let named: Vec<(String, String, &str)> = tables
        .iter()
        .filter_map(|table| {
            let name = TableName::parse(&table.table_name)?;
            let schema = name.schema.unwrap_or_else(|| shard.namespace.clone());
            Some((schema, name.name, table.shard_by.as_str()))
        })
        .collect();
    let list = |of: &dyn Fn(&(String, String, &str)) -> String| named.iter().map(of).collect::<Vec<_>>();
    let (schemas, names) = (list(&|n| n.0.clone()), list(&|n| n.1.clone()));
    let lists = [text_array(&schemas), text_array(&names), text_array(&list(&|n| n.2.to_owned()))];
    let sequences = of_tables(&mut session, &lists)?;
    Ok(OnShard { shard, session, place, sequences, schemas, names })
}

/// Which database of which running server a session is in: a copy of a disk shares all but when it was started.
pub fn place_of(session: &mut Connection) -> Result<String> {
    let place = session.run(ITSELF)?.scalar().unwrap_or_default().to_owned();
    let started = session.run("SELECT pg_catalog.pg_postmaster_start_time()")?;
    Ok(format!("{place} {}", started.scalar().unwrap_or_default()))
}

/// The sequences of some tables: lists of their schemas, names and shard-by columns.
pub fn of_tables(session: &mut Connection, lists: &[String; 3]) -> Result<Vec<ShardSequence>> {
    let rows = catalogs::ask(session, LOOK, &[Some(&lists[0]), Some(&lists[1]), Some(&lists[2])])?;
    let mut found = read(session.shard(), &rows.rows)?;
    let readable = found.iter_mut().filter(|sequence| sequence.may_read);
    begin(session, readable.map(|of| (of.oid.as_str(), of.name.as_str(), &mut of.numbers)))?;
    Ok(found)
}

/// Where those begin that have given out nothing: RESTART and setval(.., false) say it to the sequence alone, and no catalog has it.
pub fn begin<'a>(
    session: &mut Connection,
    sequences: impl Iterator<Item = (&'a str, &'a str, &'a mut Numbers)>,
) -> Result<()> {
    let mut new: Vec<(&str, &str, &mut Numbers)> =
        sequences.filter(|(.., numbers)| numbers.last.is_none()).collect();
    if new.is_empty() {
        return Ok(());
    }
    let queries: Vec<String> = new
        .iter()
        .enumerate()
        .map(|(number, (_, name, _))| format!("SELECT {number}, last_value FROM {name} WHERE NOT is_called"))
        .collect();
    let still = still_sequences(new.iter().map(|(oid, name, _)| (*oid, *name)));
    let answers = session.run_for_each(&format!("{still}; {}", queries.join(" UNION ALL ")))?;
    for row in answers.last().map(|rows| rows.rows.as_slice()).unwrap_or_default() {
        let [Some(number), Some(first)] = row.as_slice() else { continue };
        let found =
            number.parse::<usize>().ok().and_then(|number| new.get_mut(number)).zip(first.parse().ok());
        if let Some(((.., numbers), first)) = found {
            numbers.begin_with(first);
        }
    }
    Ok(())
}

/// What fails, and with it the rest of its message, where a name has come to be of something else since it was known: an owner
/// could have put a view there, whose functions the mover would run. Numbers and names, qualified and quoted.
pub fn still_sequences<'a>(sequences: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> String {
    let oids = array_of(sequences.clone().map(|(oid, _)| Some(oid)));
    let names = array_of(sequences.map(|(_, name)| Some(name)));
    format!(
        "SELECT (2147483647::int8 + (
             SELECT count(*) FROM unnest({}::oid[], {}::text[]) w (known, name)
              WHERE NOT EXISTS (SELECT 1 FROM pg_class c WHERE c.oid = w.known AND c.relkind = 'S' AND c.oid = to_regclass(w.name))))::int4",
        literal(&oids),
        literal(&names)
    )
}

fn read(shard: &str, rows: &[Vec<Option<String>>]) -> Result<Vec<ShardSequence>> {
    let mut found: BTreeMap<String, ShardSequence> = BTreeMap::new();
    for row in rows {
        let sequence =
            one(row).ok_or_else(|| RemoteError::unreadable(shard, "what its sequences are like"))?;
        match found.get_mut(&sequence.oid) {
            Some(known) => known.fills_also(sequence),
            None => drop(found.insert(sequence.oid.clone(), sequence)),
        }
    }
    Ok(found.into_values().collect())
}

impl ShardSequence {
    /// Whether somebody has said where its numbers end: no type does there.
    pub fn is_bounded(&self) -> bool {
        ![i64::from(i16::MAX), i64::from(i32::MAX), i64::MAX].contains(&self.numbers.max)
    }

    /// What it would give out once it has started anew.
    pub fn restarted(&self) -> Numbers {
        let mut numbers = Numbers { last: None, ..self.numbers };
        numbers.begin_with(self.start);
        numbers
    }

    fn fills_also(&mut self, other: ShardSequence) {
        self.columns.extend(other.columns);
        self.sought.extend(other.sought);
        self.is_needed |= other.is_needed;
        self.in_the_way = self.in_the_way.take().or(other.in_the_way);
        self.narrow = self.narrow.take().or(other.narrow);
        if other.holds < self.holds {
            (self.holds, self.held_by) = (other.holds, other.held_by);
        }
    }
}

/// One column that it fills.
fn one(row: &[Option<String>]) -> Option<ShardSequence> {
    let text = |at: usize| row.get(at).cloned().flatten();
    let is = |at: usize| text(at).as_deref() == Some("t");
    let column: NumberColumn = (text(0)?.parse().ok()?, text(1)?);
    // Of a text nobody knows which part is the number; and where no index helps, only what a key needs is worth a look at all rows.
    let is_sought = is(17) && (is(14) || is(15));
    Some(ShardSequence {
        oid: text(2)?,
        name: text(3)?,
        numbers: Numbers::read(row.get(4..9)?)?,
        start: text(19)?.parse().ok()?,
        may_read: is(9),
        may_set: is(10),
        owner: text(11)?,
        sought: is_sought.then(|| column.clone()).into_iter().collect(),
        columns: BTreeSet::from([column]),
        holds: text(12)?.parse().ok()?,
        held_by: text(13)?,
        is_needed: is(14),
        in_the_way: text(16),
        narrow: text(18),
        in_rows: None,
        is_behind: false,
    })
}
