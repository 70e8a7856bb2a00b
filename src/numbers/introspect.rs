//! The sequences that fill columns of a keyspace's tables on one shard.

use crate::agent::error::Result;
use crate::agent::table_names::TableNames;
use crate::agent::{catalogs, session};
use crate::catalog::database_location::ITSELF;
use crate::catalog::shard::Shard;
use crate::catalog::table_policy::{TableName, TablePolicy};
use crate::numbers::progression::Numbers;
use crate::remote::quote::{array_of, literal};
use crate::remote::{Connection, RemoteError};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

const LOOK: &str = include_str!("../../sql/numbers/look.sql");

/// A column: the table's position among those of the keyspace, and its plain name.
pub type NumberColumn = (usize, String);

/// A sequence of a shard.
#[derive(Debug, Clone)]
pub struct ShardSequence {
    /// Its oid on the shard.
    pub oid: String,
    /// The qualified and quoted name.
    pub name: String,
    pub numbers: Numbers,
    /// The number with which TRUNCATE .. RESTART IDENTITY begins.
    pub start: i64,
    pub may_read: bool,
    pub may_set: bool,
    pub owner: String,
    /// The columns that it fills.
    pub columns: BTreeSet<NumberColumn>,
    /// The greatest number that all these columns, and those that refer to them, can hold; and the one that holds the
    /// least.
    pub holds: i64,
    pub held_by: String,
    /// Whether one of the columns is in a unique key without the shard-by column.
    pub is_needed: bool,
    /// The partitions that have no place for numbers far beyond the current ones.
    pub in_the_way: Option<String>,
    /// The constraint or index that may fail for such numbers, or map two of them to one value.
    pub narrow: Option<String>,
    /// The columns whose rows are read.
    pub sought: BTreeSet<NumberColumn>,
    /// The greatest number in a row, among the rows that were read.
    pub in_rows: Option<i64>,
    /// Whether a row of some shard has a number that the sequence has not given out yet.
    pub is_behind: bool,
}

/// The sequences of one shard.
pub struct OnShard {
    pub shard: Shard,
    pub session: Connection,
    /// Identifies the database and its running server.
    place: String,
    pub sequences: Vec<ShardSequence>,
    pub tables: TableNames,
}

impl OnShard {
    /// Whether both are one sequence: two shards in one database may draw from it.
    pub fn is_one(&self, own: &ShardSequence, other: &OnShard, theirs: &ShardSequence) -> bool {
        self.place == other.place && own.oid == theirs.oid
    }
}

/// Asks a shard, which has no sequences if it does not have the tables.
pub fn look(shard: Shard, tables: &[TablePolicy], deadline: Instant) -> Result<OnShard> {
    let mut session = session::open(&shard, "sequences")?;
    session.set_deadline(Some(deadline));
    let place = place_of(&mut session)?;
    let named = tables.iter().filter_map(|table| {
        let name = TableName::parse(&table.table_name)?;
        Some((name.on(&shard.namespace), table.shard_by.clone()))
    });
    let (tables, columns): (TableNames, Vec<String>) = named.unzip();
    let sequences = of_tables(&mut session, &tables.lists_with(&columns))?;
    Ok(OnShard { shard, session, place, sequences, tables })
}

/// Identifies the database and the running server of a session: a copy of a disk only differs in the time of its
/// start.
pub fn place_of(session: &mut Connection) -> Result<String> {
    let place = session.run(ITSELF)?.scalar().unwrap_or_default().to_owned();
    let started = session.run("SELECT pg_catalog.pg_postmaster_start_time()")?;
    Ok(format!("{place} {}", started.scalar().unwrap_or_default()))
}

/// Returns the sequences of some tables, given as lists of their schemas, names and shard-by columns.
pub fn of_tables(session: &mut Connection, lists: &[String; 3]) -> Result<Vec<ShardSequence>> {
    let rows = catalogs::ask(session, LOOK, &catalogs::given(lists))?;
    let mut found = read(session.shard(), &rows.rows)?;
    let readable = found.iter_mut().filter(|sequence| sequence.may_read);
    begin(session, readable.map(|of| (of.oid.as_str(), of.name.as_str(), &mut of.numbers)))?;
    Ok(found)
}

/// Reads the start of the sequences that have given out nothing: only the sequence itself knows of RESTART and
/// setval(.., false), not a catalog.
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

/// Returns a statement that fails, and with it the rest of its message, if a name now belongs to another object: an
/// owner could have put a view there, whose functions the mover would run. It takes oids and qualified, quoted names.
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
    /// Whether somebody has set the end of its numbers: it is not the limit of a type.
    pub fn is_bounded(&self) -> bool {
        ![i64::from(i16::MAX), i64::from(i32::MAX), i64::MAX].contains(&self.numbers.max)
    }

    /// Returns its numbers after a restart.
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

/// Reads a sequence with one column that it fills.
fn one(row: &[Option<String>]) -> Option<ShardSequence> {
    let text = |at: usize| row.get(at).cloned().flatten();
    let is = |at: usize| text(at).as_deref() == Some("t");
    let column: NumberColumn = (text(0)?.parse().ok()?, text(1)?);
    // Nobody knows which part of a text is the number; and without an index, only the numbers that a key needs are
    // worth reading all rows.
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
