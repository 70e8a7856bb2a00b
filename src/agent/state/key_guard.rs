//! The table `standing`: the key guards of a database, one for each namespace and keyspace that an operator wants to
//! keep other keys out of; and the tables `listed_<guard>` of the keys, buckets or ranges that belong there. Entries
//! of a list are never removed. Ranges of one list neither overlap nor touch.

use crate::agent::error::{Result, SplitError};
use crate::agent::shape::Column;
use crate::agent::state::moved_keys::comparable;
use crate::agent::state::{LONGEST, has, is_gone, scope};
use crate::agent::types::TypeFamily;
use crate::error::SqlState;
use crate::keys::interval::Interval;
use crate::keys::key_type::KeyType;
use crate::keys::ordered::Ordered;
use crate::keys::strategy::Strategy;
use crate::remote::Connection;
use crate::remote::quote::{literal, text_array};
use crate::remote::result::Rows;
use crate::remote::template::{fill, sql};

const NAMES: &str = include_str!("../../../sql/agent/standing_names.sql");
const RANGES: &str = include_str!("../../../sql/agent/standing_ranges.sql");

/// The number of names in one statement, and of ranges in one message.
const NAMES_AT_ONCE: usize = 10_000;
const RANGES_AT_ONCE: usize = 200;

/// A key guard as it is on a shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyGuard {
    pub id: i32,
    pub namespace: String,
    pub keyspace: String,
    pub entries: Strategy,
    /// The shard's name on its master.
    pub shard: String,
}

impl KeyGuard {
    fn from_row(row: &[Option<String>]) -> Option<KeyGuard> {
        let [Some(id), Some(namespace), Some(keyspace), Some(entries), Some(shard)] = row else {
            return None;
        };
        Some(KeyGuard {
            id: id.parse().ok()?,
            namespace: namespace.clone(),
            keyspace: keyspace.clone(),
            entries: Strategy::of_entries(entries)?,
            shard: shard.clone(),
        })
    }

    /// Returns the table of what belongs there.
    pub fn table(&self) -> String {
        format!("shardmaster_agent.listed_{}", self.id)
    }

    /// Returns the name of the look-up function, of which there is one for each type of column.
    pub fn function(&self) -> String {
        format!("not_listed_{}", self.id)
    }

    /// The prefix makes the triggers fire after those of splits and redirects, which know where a key is, and before
    /// those of foreign keys.
    pub fn trigger_prefix(&self) -> String {
        format!("00_shardmaster_standing_{}_", self.id)
    }
}

/// The query for the key guards, for a database that has the table.
pub const ALL: &str = "SELECT id, namespace, keyspace, entries, shard FROM shardmaster_agent.standing
    WHERE greatest(octet_length(namespace), octet_length(keyspace), octet_length(entries), octet_length(shard)) < 200
    ORDER BY id";

/// Reads the answer to that query.
pub fn read(rows: &Rows) -> Vec<KeyGuard> {
    let short = |row: &&Vec<Option<String>>| row.iter().flatten().all(|text| text.len() < LONGEST);
    rows.rows.iter().filter(short).filter_map(|row| KeyGuard::from_row(row)).collect()
}

/// Returns the guards of the database.
pub fn all(connection: &mut Connection) -> Result<Vec<KeyGuard>> {
    if !has(connection, "standing")? {
        return Ok(Vec::new());
    }
    match connection.run(ALL) {
        Ok(rows) => Ok(read(&rows)),
        Err(error) if is_gone(&error) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Chooses the guard of a namespace and keyspace among these.
pub fn choose(all: Vec<KeyGuard>, namespace: &str, keyspace: &str) -> Option<KeyGuard> {
    all.into_iter().find(|guard| guard.namespace == namespace && guard.keyspace == keyspace)
}

pub fn find(connection: &mut Connection, namespace: &str, keyspace: &str) -> Result<Option<KeyGuard>> {
    Ok(choose(all(connection)?, namespace, keyspace))
}

/// Inserts a guard. An existing one stays as it is.
pub fn insert(
    connection: &mut Connection,
    [namespace, keyspace, shard]: [&str; 3],
    entries: Strategy,
) -> Result<()> {
    connection.query(
        "INSERT INTO shardmaster_agent.standing (namespace, keyspace, entries, shard) VALUES ($1, $2, $3, $4)
         ON CONFLICT DO NOTHING",
        &[Some(namespace), Some(keyspace), Some(&entries.entries()), Some(shard)],
    )?;
    Ok(())
}

/// Changes the shard's name, in a transaction; the guard's look-ups must be written anew.
pub fn rename(connection: &mut Connection, guard: &KeyGuard, shard: &str) -> Result<()> {
    connection.query(
        &format!("UPDATE shardmaster_agent.standing SET shard = $1 WHERE id = {}", guard.id),
        &[Some(shard)],
    )?;
    Ok(())
}

/// Returns the type of the list's keys, whatever type the tables have.
fn key_type(column: &Column) -> &'static str {
    match column.family() {
        // Keys are compared by their bytes, whatever the collations of the tables are: an index has only one.
        Some(TypeFamily::Text | TypeFamily::Enum(_)) | None => "pg_catalog.text COLLATE pg_catalog.\"C\"",
        Some(family) => family.compared_as(),
    }
}

pub fn create_list(connection: &mut Connection, guard: &KeyGuard, column: &Column) -> Result<()> {
    let table = guard.table();
    let entry = scope::entry_columns(guard.entries, key_type(column));
    connection.run(&format!("CREATE TABLE IF NOT EXISTS {table} ({entry})"))?;
    if guard.entries.order().is_some() {
        connection
            .run(&format!("CREATE INDEX IF NOT EXISTS listed_{}_lower ON {table} (lower)", guard.id))?;
    }
    Ok(())
}

/// Whether the list's keys have the type that those of a column are compared as; a list that does not exist fits.
/// Buckets and ranges have the type of their keyspace.
pub fn list_fits(connection: &mut Connection, guard: &KeyGuard, column: &Column) -> Result<bool> {
    if guard.entries != Strategy::Directory {
        return Ok(true);
    }
    let compared_as = column.family().map_or("pg_catalog.text", |family| family.compared_as());
    let odd = connection.query(
        "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_attribute a
                         WHERE a.attrelid = pg_catalog.to_regclass($1) AND a.attname = 'key' AND NOT a.attisdropped
                           AND a.atttypid <> pg_catalog.to_regtype($2))",
        &[Some(&guard.table()), Some(compared_as)],
    )?;
    Ok(odd.scalar() != Some("t"))
}

/// Adds entries to the list, in an open transaction. Other sessions wait with their entries until its end: it writes
/// the guard's row, which no earlier snapshot can lock any more.
pub fn add(
    connection: &mut Connection,
    guard: &KeyGuard,
    names: &[String],
    keys_are: Option<KeyType>,
) -> Result<()> {
    connection.run(&format!(
        "UPDATE shardmaster_agent.standing SET version = version + 1 WHERE id = {}",
        guard.id
    ))?;
    match guard.entries {
        Strategy::Directory => {
            add_named(connection, guard, &with_and_without_blanks(&comparable(names, keys_are)))
        }
        Strategy::Hash { .. } => add_named(connection, guard, names),
        Strategy::Range { of } => add_ranges(connection, guard, of, names),
    }
}

/// Adds names, cast to the type of the list's own column: a name that cannot be cast is no key of its tables. They are
/// sent as parameters in batches, since one text cannot hold all.
fn add_named(connection: &mut Connection, guard: &KeyGuard, names: &[String]) -> Result<()> {
    let statement = fill(NAMES, &[("table", sql(guard.table()))]);
    for names in names.chunks(NAMES_AT_ONCE) {
        connection.query(&statement, &[Some(&text_array(names))])?;
    }
    Ok(())
}

/// Returns names as values of the list with and without trailing blanks. The list does not know whether its tables
/// have char(n), whose values are compared without trailing blanks.
fn with_and_without_blanks(names: &[String]) -> Vec<String> {
    let trimmed = |name: &String| {
        let trimmed = name.trim_end_matches(' ');
        (trimmed != name).then(|| trimmed.to_owned())
    };
    names.iter().cloned().chain(names.iter().filter_map(trimmed)).collect()
}

fn add_ranges(connection: &mut Connection, guard: &KeyGuard, of: Ordered, names: &[String]) -> Result<()> {
    let collate = if of == Ordered::Text { " COLLATE pg_catalog.\"C\"" } else { "" };
    let value = |value: &str| format!("({value}::{}{collate})", of.name());
    let bound = |bound: &Option<String>| value(&bound.as_deref().map_or("NULL".to_owned(), literal));
    for names in names.chunks(RANGES_AT_ONCE) {
        let mut statements = Vec::new();
        for name in names {
            let Some(range) = Interval::parse(name, of) else {
                return Err(SplitError::failed(
                    SqlState::INTERNAL,
                    format!("range {name} of keyspace \"{}\" cannot be read", guard.keyspace),
                    "Please report this.",
                ));
            };
            let values = [
                ("lower", sql(bound(&range.lower))),
                ("upper", sql(bound(&range.upper))),
                ("touched", sql(touched(guard, &range, bound))),
                ("table", sql(guard.table())),
            ];
            statements.push(fill(RANGES, &values));
        }
        connection.run(&statements.join("; "))?;
    }
    Ok(())
}

/// Returns a condition for the ranges of the list that overlap or touch another one, found by their index: from the
/// one that begins last before it to its end, however many there are.
fn touched(guard: &KeyGuard, range: &Interval, bound: impl Fn(&Option<String>) -> String) -> String {
    let (table, lower, upper) = (guard.table(), bound(&range.lower), bound(&range.upper));
    let mut begins = Vec::new();
    if range.lower.is_some() {
        begins.push(format!(
            "l.lower OPERATOR(pg_catalog.>=) coalesce((SELECT b.lower FROM {table} b WHERE b.lower OPERATOR(pg_catalog.<=) {lower}
                                                        ORDER BY b.lower DESC LIMIT 1), {lower})"
        ));
    }
    if range.upper.is_some() {
        begins.push(format!("l.lower OPERATOR(pg_catalog.<=) {upper}"));
    }
    let begins = if begins.is_empty() { "true".to_owned() } else { begins.join(" AND ") };
    let ends = match range.lower {
        Some(_) => format!(" AND (l.upper IS NULL OR {lower} OPERATOR(pg_catalog.<=) l.upper)"),
        None => String::new(),
    };
    format!("(l.lower IS NULL OR {begins}){ends}")
}

/// Drops a guard whose functions and triggers are gone, in a transaction.
pub fn drop(connection: &mut Connection, guard: &KeyGuard) -> Result<()> {
    connection.run(&format!(
        "DROP TABLE IF EXISTS {}; DELETE FROM shardmaster_agent.standing WHERE id = {}",
        guard.table(),
        guard.id
    ))?;
    Ok(())
}

/// Tells a database, in a transaction of its own, what belongs to a namespace of it from now on. Returns false if the
/// namespace has no such guard. A master that may not own the database must check that before.
pub fn tell(
    connection: &mut Connection,
    [namespace, keyspace]: [&str; 2],
    entries: Strategy,
    names: &[String],
    keys_are: Option<KeyType>,
) -> Result<bool> {
    let Some(guard) = find(connection, namespace, keyspace)? else { return Ok(false) };
    require_same(&guard, entries)?;
    connection.run("BEGIN")?;
    match add(connection, &guard, names, keys_are) {
        // The guard was removed just now.
        Err(SplitError::Remote(error)) if is_gone(&error) => {
            connection.run("ROLLBACK")?;
            return Ok(false);
        }
        other => other?,
    }
    connection.run("COMMIT")?;
    Ok(true)
}

/// Refuses a list of another kind of entries, which would admit, or keep out, the wrong keys.
pub fn require_same(guard: &KeyGuard, entries: Strategy) -> Result<()> {
    if guard.entries == entries {
        return Ok(());
    }
    Err(SplitError::failed(
        SqlState::NOT_IN_STATE,
        format!(
            "the guard of keyspace \"{}\" in namespace \"{}\" is for {}, not {}",
            guard.keyspace,
            guard.namespace,
            guard.entries.entries(),
            entries.entries()
        ),
        "It belongs to another keyspace of this name. See shard_cleanup() and shard_guard_remove().",
    ))
}
