//! The table `redirect`: the redirects of a database, one for each namespace and keyspace that something has left, and
//! the names of their objects.

use super::{LONGEST, has};
use crate::agent::error::Result;
use crate::keys::strategy::Strategy;
use crate::remote::Connection;
use crate::remote::result::Rows;

/// A redirect as it is on a shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Redirect {
    pub id: i32,
    pub namespace: String,
    pub keyspace: String,
    pub entries: Strategy,
}

impl Redirect {
    fn from_row(row: &[Option<String>]) -> Option<Redirect> {
        let [Some(id), Some(namespace), Some(keyspace), Some(entries)] = row else { return None };
        Some(Redirect {
            id: id.parse().ok()?,
            namespace: namespace.clone(),
            keyspace: keyspace.clone(),
            entries: Strategy::of_entries(entries)?,
        })
    }

    /// Returns the table of the entries that have left.
    pub fn table(&self) -> String {
        format!("shardmaster_agent.left_{}", self.id)
    }

    /// Returns the name of the look-up function, of which there is one for each type of column.
    pub fn function(&self) -> String {
        format!("redirected_{}", self.id)
    }

    /// Returns the name of the filter function, which is called before the look-up. There is one for each type, too.
    pub fn filter_function(&self) -> String {
        format!("may_have_left_{}", self.id)
    }

    /// The prefix makes the triggers fire before those of foreign keys, like those of splits.
    pub fn trigger_prefix(&self) -> String {
        format!("00_shardmaster_redirect_{}_", self.id)
    }
}

/// Returns the redirects of the database.
pub fn all(connection: &mut Connection) -> Result<Vec<Redirect>> {
    if !has(connection, "redirect")? {
        return Ok(Vec::new());
    }
    Ok(read(&connection.run(ALL)?))
}

/// The query for them, for a database that has the table.
pub const ALL: &str = "SELECT id, namespace, keyspace, entries FROM shardmaster_agent.redirect
    WHERE greatest(octet_length(namespace), octet_length(keyspace), octet_length(entries)) < 200 ORDER BY id";

/// Reads the answer to that query.
pub fn read(rows: &Rows) -> Vec<Redirect> {
    let short = |row: &&Vec<Option<String>>| row.iter().flatten().all(|text| text.len() < LONGEST);
    rows.rows.iter().filter(short).filter_map(|row| Redirect::from_row(row)).collect()
}

/// Returns the redirect of a namespace and keyspace, whatever the shard's name is.
pub fn find(
    connection: &mut Connection,
    namespace: &str,
    keyspace: &str,
    entries: Strategy,
) -> Result<Option<Redirect>> {
    Ok(choose(all(connection)?, namespace, keyspace, entries))
}

/// Chooses the redirect of a namespace and keyspace among these.
pub fn choose(all: Vec<Redirect>, namespace: &str, keyspace: &str, entries: Strategy) -> Option<Redirect> {
    let is_it = |r: &Redirect| r.namespace == namespace && r.keyspace == keyspace && r.entries == entries;
    all.into_iter().find(is_it)
}

/// Inserts a redirect. An existing one stays as it is.
pub fn insert(connection: &mut Connection, namespace: &str, keyspace: &str, entries: Strategy) -> Result<()> {
    connection.query(
        "INSERT INTO shardmaster_agent.redirect (namespace, keyspace, entries) VALUES ($1, $2, $3)
         ON CONFLICT DO NOTHING",
        &[Some(namespace), Some(keyspace), Some(&entries.entries())],
    )?;
    Ok(())
}

/// Increments a redirect's version, so that look-ups written for an earlier one know that they are old.
pub fn next_version(connection: &mut Connection, redirect: &Redirect) -> Result<i64> {
    let version = connection.run(&format!(
        "UPDATE shardmaster_agent.redirect SET version = version + 1 WHERE id = {} RETURNING version",
        redirect.id
    ))?;
    Ok(version.scalar().and_then(|version| version.parse().ok()).unwrap_or(0))
}

pub fn delete(redirect: &Redirect) -> String {
    format!("DELETE FROM shardmaster_agent.redirect WHERE id = {}", redirect.id)
}
