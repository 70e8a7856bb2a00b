//! A shard's answers about its tables and keys, which may contain anything.

use crate::error::Failure;
use crate::keys::key_type::KeyType;
use crate::remote::number;
use crate::remote::result::Rows;
use std::collections::HashMap;

/// No table is bigger, and no counter higher.
const MOST: f64 = number::MOST as f64;

/// Facts about an existing table.
pub struct TableFacts {
    /// Its position among the tables of the keyspace.
    pub number: usize,
    pub pages: f64,
    pub bytes: f64,
    pub writes: f64,
    /// The bytes of a row's columns, as its server has written the sum.
    pub payload: String,
}

impl TableFacts {
    pub fn read(row: &[Option<String>]) -> Option<TableFacts> {
        let [number, pages, bytes, writes, payload] = row else { return None };
        let figure = |cell: &Option<String>| {
            let figure: f64 = cell.as_deref()?.parse().ok()?;
            (figure >= 0.0).then(|| figure.min(MOST))
        };
        Some(TableFacts {
            number: number.as_deref()?.parse().ok()?,
            pages: figure(pages)?,
            bytes: figure(bytes)?,
            writes: figure(writes)?,
            payload: payload.clone().unwrap_or_else(|| "0".to_owned()),
        })
    }
}

/// The estimate for one key on a shard.
pub struct KeyEstimate {
    /// The key in the form of its keyspace, or as the shard has it if it is no key of that.
    pub key: String,
    pub is_key: bool,
    pub rows: i64,
    /// The true number is within this distance in 19 of 20 cases.
    pub rows_error: i64,
    pub bytes: i64,
    pub writes: i64,
    /// The percentage of the shard.
    pub share: f64,
}

/// Reads the answer. Texts that are the same key are merged.
pub fn read(shard: &str, rows: &Rows, key_type: KeyType) -> Result<Vec<KeyEstimate>, Failure> {
    let mut all: Vec<KeyEstimate> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for row in &rows.rows {
        let found = one(shard, row, key_type)?;
        match places.get(&found.key).and_then(|place| all.get_mut(*place)) {
            Some(known) => known.add(&found),
            None => {
                places.insert(found.key.clone(), all.len());
                all.push(found);
            }
        }
    }
    Ok(all)
}

fn one(shard: &str, row: &[Option<String>], key_type: KeyType) -> Result<KeyEstimate, Failure> {
    let cell = |column: usize| row.get(column).and_then(Option::as_deref);
    let count = |column, what| number::count(shard, what, cell(column)).map_err(Failure::from);
    let text = cell(0).unwrap_or_default();
    let key = key_type.of_value(text);
    let share: f64 = cell(5).and_then(|share| share.parse().ok()).unwrap_or(0.0);
    Ok(KeyEstimate {
        is_key: key.is_some(),
        key: key.map_or_else(|| text.to_owned(), std::borrow::Cow::into_owned),
        rows: count(1, "the rows of a key")?,
        rows_error: count(2, "the error of a number of rows")?,
        bytes: count(3, "the bytes of a key")?,
        writes: count(4, "the writes to a key")?,
        share: if share.is_finite() { share.clamp(0.0, 100.0) } else { 0.0 },
    })
}

impl KeyEstimate {
    fn add(&mut self, other: &KeyEstimate) {
        let squares = (self.rows_error as f64).hypot(other.rows_error as f64);
        self.rows = self.rows.saturating_add(other.rows);
        self.rows_error = squares.round() as i64;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.writes = self.writes.saturating_add(other.writes);
        self.share = (self.share + other.share).min(100.0);
    }
}
