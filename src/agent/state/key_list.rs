//! The table `key_list`: the lists of a database by which writes are refused, and the names of their objects. A list
//! with mode deny is a redirect; there is one for each namespace and keyspace that something has left. One with mode
//! allow is that of a key guard; there is one for each namespace and keyspace that an operator wants to keep other keys
//! out of.

use super::{LONGEST, or_gone, scope};
use crate::agent::error::Result;
use crate::agent::shape::Column;
use crate::keys::strategy::Strategy;
use crate::named_enum::named_enum;
use crate::remote::Connection;
use crate::remote::result::Rows;

named_enum! {
    /// What a list says of its keys.
    pub enum ListMode {
        /// They have left: they are refused.
        Deny = "deny",
        /// They belong here: all others are refused.
        Allow = "allow",
    }
}

/// A list as it is on a shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyList {
    pub id: i32,
    pub mode: ListMode,
    pub namespace: String,
    pub keyspace: String,
    pub entries: Strategy,
    /// The shard's name on its master, which a key guard's refusals give.
    pub shard: String,
    /// Whether it is in a table of version 0.1 still: `schema::bootstrap` moves it.
    pub is_old: bool,
}

impl KeyList {
    fn from_row(row: &[Option<String>], is_old: bool) -> Option<KeyList> {
        let [Some(id), Some(mode), Some(namespace), Some(keyspace), Some(entries), Some(shard)] = row else {
            return None;
        };
        Some(KeyList {
            id: id.parse().ok()?,
            mode: ListMode::from_name(mode)?,
            namespace: namespace.clone(),
            keyspace: keyspace.clone(),
            entries: Strategy::of_entries(entries)?,
            shard: shard.clone(),
            is_old,
        })
    }

    /// Returns the name of the table of its entries, in the agent's schema.
    fn entries_name(&self) -> String {
        match self.mode {
            ListMode::Deny => format!("left_{}", self.id),
            ListMode::Allow => format!("listed_{}", self.id),
        }
    }

    /// Returns the table of its entries.
    pub fn table(&self) -> String {
        format!("shardmaster_agent.{}", self.entries_name())
    }

    /// Returns the name of the lookup function, of which there is one for each type of column.
    pub fn function(&self) -> String {
        match self.mode {
            ListMode::Deny => format!("redirected_{}", self.id),
            ListMode::Allow => format!("not_listed_{}", self.id),
        }
    }

    /// Returns the name of the filter function, which is called before the lookup of a list with mode deny. There is
    /// one for each type, too.
    pub fn filter_function(&self) -> String {
        format!("may_have_left_{}", self.id)
    }

    /// The prefix makes the triggers fire before those of foreign keys, like those of splits. Those of a key guard fire
    /// after those of splits and redirects, which know where a key is.
    pub fn trigger_prefix(&self) -> String {
        match self.mode {
            ListMode::Deny => format!("00_shardmaster_redirect_{}_", self.id),
            ListMode::Allow => format!("00_shardmaster_standing_{}_", self.id),
        }
    }

    /// Returns the type of the entries' keys, whatever type the tables have.
    fn key_type(&self, column: &Column) -> String {
        let compared_as = column.family().map_or("pg_catalog.text", |family| family.compared_as());
        match (self.mode, compared_as) {
            // Keys are compared by their bytes, whatever the collations of the tables are: an index has only one.
            (ListMode::Allow, "pg_catalog.text") => format!("{compared_as} COLLATE pg_catalog.\"C\""),
            _ => compared_as.to_owned(),
        }
    }
}

/// The tables that a database has for them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ListTables {
    None,
    /// Those of version 0.1.
    Old,
    Own,
}

impl ListTables {
    /// The query for them.
    pub const QUERY: &str =
        "SELECT CASE WHEN to_regclass('shardmaster_agent.key_list') IS NOT NULL THEN 'own'
                WHEN to_regclass('shardmaster_agent.redirect') IS NOT NULL
                 AND to_regclass('shardmaster_agent.standing') IS NOT NULL THEN 'old' END";

    /// Reads the answer to that query.
    pub fn read(rows: &Rows) -> ListTables {
        match rows.scalar() {
            Some("own") => ListTables::Own,
            Some(_) => ListTables::Old,
            None => ListTables::None,
        }
    }
}

/// The query for the lists, for a database that has the table.
pub const ALL: &str = "SELECT id, mode, namespace, keyspace, entries, shard FROM shardmaster_agent.key_list
    WHERE greatest(octet_length(namespace), octet_length(keyspace), octet_length(entries), octet_length(shard)) < 200
    ORDER BY mode, id";

const ALL_OLD: &str = "SELECT id, mode, namespace, keyspace, entries, shard
     FROM (SELECT id, 'deny' AS mode, namespace, keyspace, entries, '' AS shard FROM shardmaster_agent.redirect
           UNION ALL
           SELECT id, 'allow', namespace, keyspace, entries, shard FROM shardmaster_agent.standing) l
    WHERE greatest(octet_length(namespace), octet_length(keyspace), octet_length(entries), octet_length(shard)) < 200
    ORDER BY mode, id";

/// Reads the answer to `ALL`.
pub fn read(rows: &Rows) -> Vec<KeyList> {
    read_from(rows, false)
}

fn read_from(rows: &Rows, is_old: bool) -> Vec<KeyList> {
    let short = |row: &&Vec<Option<String>>| row.iter().flatten().all(|text| text.len() < LONGEST);
    rows.rows.iter().filter(short).filter_map(|row| KeyList::from_row(row, is_old)).collect()
}

/// Returns the lists of the database.
pub fn all(connection: &mut Connection) -> Result<Vec<KeyList>> {
    let tables = ListTables::read(&connection.run(ListTables::QUERY)?);
    let query = match tables {
        ListTables::None => return Ok(Vec::new()),
        ListTables::Old => ALL_OLD,
        ListTables::Own => ALL,
    };
    Ok(read_from(&or_gone(connection, query, &[])?, tables == ListTables::Old))
}

fn with_mode(connection: &mut Connection, mode: ListMode) -> Result<Vec<KeyList>> {
    let mut lists = all(connection)?;
    lists.retain(|list| list.mode == mode);
    Ok(lists)
}

/// Returns the redirects of the database.
pub fn redirects(connection: &mut Connection) -> Result<Vec<KeyList>> {
    with_mode(connection, ListMode::Deny)
}

/// Returns the lists of the database's key guards.
pub fn guards(connection: &mut Connection) -> Result<Vec<KeyList>> {
    with_mode(connection, ListMode::Allow)
}

/// Chooses the redirect of a namespace and keyspace among these, whatever the shard's name is.
pub fn choose_redirect<'a>(
    lists: &'a [KeyList],
    namespace: &str,
    keyspace: &str,
    entries: Strategy,
) -> Option<&'a KeyList> {
    let is_of = |list: &&KeyList| list.mode == ListMode::Deny && list.entries == entries;
    lists.iter().filter(is_of).find(|list| list.namespace == namespace && list.keyspace == keyspace)
}

/// Chooses the key guard of a namespace and keyspace among these.
pub fn choose_guard<'a>(lists: &'a [KeyList], namespace: &str, keyspace: &str) -> Option<&'a KeyList> {
    let is_it = |list: &&KeyList| list.namespace == namespace && list.keyspace == keyspace;
    lists.iter().filter(|list| list.mode == ListMode::Allow).find(is_it)
}

pub fn find_redirect(
    connection: &mut Connection,
    namespace: &str,
    keyspace: &str,
    entries: Strategy,
) -> Result<Option<KeyList>> {
    Ok(choose_redirect(&all(connection)?, namespace, keyspace, entries).cloned())
}

pub fn find_guard(connection: &mut Connection, namespace: &str, keyspace: &str) -> Result<Option<KeyList>> {
    Ok(choose_guard(&all(connection)?, namespace, keyspace).cloned())
}

/// Inserts a list. An existing one stays as it is.
pub fn insert(
    connection: &mut Connection,
    mode: ListMode,
    [namespace, keyspace, shard]: [&str; 3],
    entries: Strategy,
) -> Result<()> {
    connection.query(
        "INSERT INTO shardmaster_agent.key_list (mode, namespace, keyspace, entries, shard) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT DO NOTHING",
        &[Some(mode.as_str()), Some(namespace), Some(keyspace), Some(&entries.entries()), Some(shard)],
    )?;
    Ok(())
}

/// Changes the shard's name, in a transaction; the lookups must be written anew.
pub fn rename(connection: &mut Connection, list: &KeyList, shard: &str) -> Result<()> {
    connection.query(&format!("UPDATE {} SET shard = $1 WHERE {}", TABLE, row(list)), &[Some(shard)])?;
    Ok(())
}

/// Increments a list's version, in a transaction. Other sessions that do wait until its end.
pub fn next_version(connection: &mut Connection, list: &KeyList) -> Result<i64> {
    let update = format!("UPDATE {TABLE} SET version = version + 1 WHERE {} RETURNING version", row(list));
    Ok(connection.run(&update)?.scalar().and_then(|version| version.parse().ok()).unwrap_or(0))
}

const TABLE: &str = "shardmaster_agent.key_list";

/// Returns the condition for a list's row.
fn row(list: &KeyList) -> String {
    format!("mode = '{}' AND id = {}", list.mode.as_str(), list.id)
}

/// Creates the table of a list's entries, whose keys are compared like those of the column.
pub fn create_entries(connection: &mut Connection, list: &KeyList, column: &Column) -> Result<()> {
    let (table, entry) = (list.table(), scope::entry_columns(list.entries, &list.key_type(column)));
    let facts = match list.mode {
        ListMode::Deny => {
            ", shard text NOT NULL, version bigint NOT NULL, split_id bigint NOT NULL, token text NOT NULL,
               since timestamptz NOT NULL DEFAULT clock_timestamp()"
        }
        ListMode::Allow => "",
    };
    connection.run(&format!("CREATE TABLE IF NOT EXISTS {table} ({entry}{facts})"))?;
    if list.entries.order().is_some() {
        let index = format!("{}_lower", list.entries_name());
        connection.run(&format!("CREATE INDEX IF NOT EXISTS {index} ON {table} (lower)"))?;
    }
    Ok(())
}

/// Drops a list whose functions and triggers are gone, in a transaction.
pub fn drop(connection: &mut Connection, list: &KeyList) -> Result<()> {
    connection.run(&format!(
        "DROP TABLE IF EXISTS {}; DELETE FROM {TABLE} WHERE {}",
        list.table(),
        row(list)
    ))?;
    Ok(())
}
