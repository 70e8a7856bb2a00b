//! The current entry of a name, read through the index of `shardmaster.routing_entry` itself.

use crate::server::index_scan::{IndexedRow, TextIndex, Unusable, Xid};
use std::collections::HashMap;

thread_local! {
    static CURRENT: TextIndex = const { TextIndex::new(
        c"routing_entry",
        c"routing_entry_current_key",
        &[c"key", c"keyspace"],
        Some(c"valid_to"),
        &[c"read_shard", c"write_shard", c"reads_from", c"status"],
    ) };
}

/// Positions of columns in that list.
const READ_SHARD: usize = 0;
const WRITE_SHARD: usize = 1;
const READS_FROM: usize = 2;
const STATUS: usize = 3;

/// Where an entry is read and written.
#[derive(Debug, PartialEq, Eq)]
pub struct CurrentEntry {
    pub read_shard: String,
    pub write_shard: String,
    /// The shard that reads use instead of `read_shard`.
    pub reads_from: Option<String>,
    /// Whether a split holds the entry.
    pub is_disabled: bool,
    pub written_by: Xid,
}

/// Finds the entry that a statement would see if it began now. Returns None if no entry has this name.
pub fn find(keyspace: &str, name: &str) -> Result<Option<CurrentEntry>, Unusable> {
    let mut found = None;
    TextIndex::rows(&CURRENT, std::iter::once([name, keyspace]), |_, row| found = from_row(row))?;
    Ok(found)
}

fn from_row(row: &IndexedRow) -> Option<CurrentEntry> {
    Some(CurrentEntry {
        read_shard: row.text(READ_SHARD)?,
        write_shard: row.text(WRITE_SHARD)?,
        reads_from: row.text(READS_FROM),
        is_disabled: row.text(STATUS)? != "active",
        written_by: row.written_by(),
    })
}

/// Returns those of the names that have an entry, each with the shard that it is written to.
pub fn written_to(keyspace: &str, names: &[String]) -> Result<HashMap<String, String>, Unusable> {
    let mut found = HashMap::new();
    let keys = names.iter().map(|name| [name.as_str(), keyspace]);
    TextIndex::rows(&CURRENT, keys, |[name, _], row| {
        found.extend(row.text(WRITE_SHARD).map(|shard| (name.to_owned(), shard)));
    })?;
    Ok(found)
}
