//! The contents of the writers' rows, and the record of what each row must be.
//!
//! A row's contents follow from its number, revision and code, so the record is small and the comparison
//! exact. The record is made of acknowledgements alone. It contains nothing that was read from a database,
//! except for the identities that the database generated.

use crate::random::Random;
use std::collections::HashMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Table {
    Accounts,
    Orders,
}

impl Table {
    pub const ALL: [Table; 2] = [Table::Accounts, Table::Orders];

    pub fn name(self) -> &'static str {
        match self {
            Table::Accounts => "accounts",
            Table::Orders => "orders",
        }
    }
}

/// A row's number. The writer that owns the row draws it, and never uses it again.
pub type Number = i64;

/// Index into the tenants of a workload.
pub type Tenant = usize;

/// The contents that a row must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub tenant: Tenant,
    /// The id, or `None` if the answer with the identity never arrived.
    pub id: Option<i64>,
    /// The order's account, by id.
    pub account: Option<i64>,
    pub revision: i32,
    /// A value that is unique within its tenant. Rows may exchange theirs.
    pub code: i64,
}

impl Row {
    pub fn new(tenant: Tenant, number: Number, account: Option<i64>) -> Row {
        Row { tenant, id: None, account, revision: 1, code: number }
    }

    /// Returns the row after one more change.
    pub fn revised(&self) -> Row {
        Row { revision: self.revision + 1, ..self.clone() }
    }

    pub fn code_text(&self) -> String {
        format!("code {:06x}", self.code)
    }

    pub fn amount(&self, number: Number) -> String {
        let cents = mix(number, self.revision) % 10_000_000;
        format!("{}.{:02}", cents / 100, cents % 100)
    }

    /// Returns a jsonb value in the form in which the server prints it.
    pub fn details(&self, number: Number) -> String {
        let noise = mix(number, self.revision + 1_000_000);
        format!(
            "{{\"ref\": {number}, \"note\": \"ü \\\"{noise:016x}\\\" {noise:032x}\", \"revision\": {}}}",
            self.revision
        )
    }
}

/// Returns a well mixed number that depends on nothing else.
pub fn mix(number: Number, salt: i32) -> u64 {
    Random::new(number.cast_unsigned() ^ u64::from(salt.cast_unsigned()).rotate_left(40)).number()
}

/// The known state of a row. An answer that never arrived leaves two possibilities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Is(Option<Row>),
    Either(Option<Row>, Option<Row>),
}

impl State {
    pub fn possible(&self) -> Vec<Option<&Row>> {
        match self {
            State::Is(row) => vec![row.as_ref()],
            State::Either(before, after) => vec![before.as_ref(), after.as_ref()],
        }
    }
}

/// The change of a row: its contents afterwards, or `None` if it is deleted.
#[derive(Clone, Debug)]
pub struct Change {
    pub table: Table,
    pub number: Number,
    pub after: Option<Row>,
}

/// The record of acknowledged writes.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    rows: HashMap<(Table, Number), State>,
}

impl Ledger {
    /// Returns the row, if it is known to exist.
    pub fn row(&self, table: Table, number: Number) -> Option<&Row> {
        match self.rows.get(&(table, number)) {
            Some(State::Is(row)) => row.as_ref(),
            Some(State::Either(..)) | None => None,
        }
    }

    pub fn acknowledged(&mut self, change: Change) {
        self.rows.insert((change.table, change.number), State::Is(change.after));
    }

    /// Records a change whose connection was lost before the answer. The change was made or not.
    pub fn in_doubt(&mut self, change: Change) {
        let key = (change.table, change.number);
        let before = match self.rows.remove(&key) {
            Some(State::Is(row)) => row,
            Some(State::Either(before, _)) => before,
            None => None,
        };
        self.rows.insert(key, State::Either(before, change.after));
    }

    /// Records an acknowledged statement that deleted rows: TRUNCATE.
    pub fn forget_all(&mut self, gone: impl Fn(Table, &Row) -> bool) {
        for ((table, _), state) in &mut self.rows {
            if state.possible().iter().flatten().any(|row| gone(*table, row)) {
                *state = State::Is(None);
            }
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (Table, Number, &State)> {
        self.rows.iter().map(|((table, number), state)| (*table, *number, state))
    }

    pub fn get(&self, table: Table, number: Number) -> Option<&State> {
        self.rows.get(&(table, number))
    }

    pub fn count_in_doubt(&self) -> usize {
        self.rows.values().filter(|state| matches!(state, State::Either(..))).count()
    }

    /// Adds the rows of another writer's record. Writers own disjoint rows.
    pub fn merge(&mut self, other: Ledger) {
        self.rows.extend(other.rows);
    }
}
