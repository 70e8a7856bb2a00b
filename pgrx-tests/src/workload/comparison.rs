//! Compares the record with the rows on the shards, row by row.

use super::model::{Ledger, Number, Row, State, Table, Tenant};
use crate::Result;
use crate::cluster::Cluster;
use postgres::fallible_iterator::FallibleIterator;
use std::collections::HashMap;

/// A row as a shard holds it.
#[derive(Clone, Debug)]
pub struct FoundRow {
    /// Index of the shard.
    pub shard: usize,
    /// The tenant, or `None` if it is not one of the workload.
    pub tenant: Option<Tenant>,
    pub id: i64,
    pub account: Option<i64>,
    pub revision: i32,
    pub code: String,
    pub amount: String,
    pub details: String,
}

impl FoundRow {
    fn is(&self, number: Number, row: &Row) -> bool {
        self.tenant == Some(row.tenant)
            && row.id.is_none_or(|id| id == self.id)
            // The account of an order in doubt is not known either.
            && (row.id.is_none() || row.account == self.account)
            && self.revision == row.revision
            && self.code == row.code_text()
            && self.amount == row.amount(number)
            && self.details == row.details(number)
    }
}

/// All rows of all shards, by number.
pub type Rows = HashMap<(Table, Number), Vec<FoundRow>>;

/// How the record and the shards differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    pub rows: u64,
    /// Rows whose last acknowledged write is not what their shard has: the row is missing, is older, or is
    /// there although it was deleted.
    pub lost: u64,
    /// Rows that are there more than once.
    pub doubled: u64,
    /// Rows on a shard to which their tenant is not routed, or that nobody wrote.
    pub misplaced: u64,
    /// The first few differences, in words.
    pub examples: Vec<String>,
}

const EXAMPLES: usize = 12;

impl Comparison {
    fn note(&mut self, what: impl FnOnce() -> String) {
        if self.examples.len() < EXAMPLES {
            self.examples.push(what());
        }
    }
}

/// Returns for each tenant the index of the shard to which the master routes it.
pub fn routes(cluster: &Cluster, tenants: &[String], keyspace: &str) -> Result<Vec<usize>> {
    let mut master = cluster.superuser()?;
    let mut routed = Vec::new();
    for tenant in tenants {
        let key: String =
            master.query_one("SELECT shard_of($1, keyspace => $2)", &[tenant, &keyspace])?.get(0);
        let index = cluster.shards.iter().position(|shard| shard.key == key);
        routed
            .push(index.ok_or_else(|| format!("tenant \"{tenant}\" is routed to unknown shard \"{key}\""))?);
    }
    Ok(routed)
}

/// Reads both tables of every shard.
pub fn read_shards(cluster: &Cluster, tenants: &[String]) -> Result<Rows> {
    let numbers: HashMap<&str, Tenant> =
        tenants.iter().enumerate().map(|(n, name)| (name.as_str(), n)).collect();
    let mut rows = Rows::new();
    for (shard, place) in cluster.shards.iter().enumerate() {
        let mut client = cluster.owner_of(place)?;
        for table in Table::ALL {
            let account = if table == Table::Orders { "account_id" } else { "NULL::bigint" };
            let query = format!(
                "SELECT ref, tenant_id, id, {account}, revision, code, amount::text, details::text FROM {}",
                table.name()
            );
            let mut found = client.query_raw(query.as_str(), std::iter::empty::<i32>())?;
            while let Some(row) = found.next()? {
                let seen = FoundRow {
                    shard,
                    tenant: numbers.get(row.get::<_, &str>(1)).copied(),
                    id: row.get(2),
                    account: row.get(3),
                    revision: row.get(4),
                    code: row.get(5),
                    amount: row.get(6),
                    details: row.get(7),
                };
                rows.entry((table, row.get(0))).or_default().push(seen);
            }
        }
    }
    Ok(rows)
}

/// Judges every row of the record and of the shards.
pub fn compare(ledger: &Ledger, found: &Rows, routed: &[usize]) -> Comparison {
    let mut result = Comparison::default();
    for (table, number, state) in ledger.iter() {
        let copies = found.get(&(table, number)).map_or(&[][..], Vec::as_slice);
        if !is_as_known(number, state, copies, routed) {
            result.lost += 1;
            result.note(|| format!("lost: {} {number}: known {state:?}, found {copies:?}", table.name()));
        }
    }
    for ((table, number), copies) in found {
        result.rows += copies.len() as u64;
        if copies.len() > 1 {
            result.doubled += 1;
            result.note(|| format!("doubled: {} {number}: {copies:?}", table.name()));
        }
        let known = ledger.get(*table, *number).is_some();
        for copy in copies {
            if !known || copy.tenant.is_none_or(|tenant| routed[tenant] != copy.shard) {
                result.misplaced += 1;
                result.note(|| format!("misplaced: {} {number}: {copy:?}", table.name()));
            }
        }
    }
    result
}

/// Whether the row on the shard to which it is routed is what the record says. Copies elsewhere are counted
/// as doubled and misplaced, and not here.
fn is_as_known(number: Number, state: &State, copies: &[FoundRow], routed: &[usize]) -> bool {
    state.possible().into_iter().any(|possible| match possible {
        Some(row) => copies.iter().any(|copy| copy.shard == routed[row.tenant] && copy.is(number, row)),
        None => copies.iter().all(|copy| copy.tenant.is_some_and(|tenant| routed[tenant] != copy.shard)),
    })
}

#[cfg(test)]
mod tests {
    use super::super::model::Change;
    use super::*;

    const ROUTED: [usize; 2] = [0, 1];

    fn row() -> Row {
        Row { id: Some(7), ..Row::new(1, 42, Some(3)) }
    }

    fn found(shard: usize, row: &Row) -> FoundRow {
        FoundRow {
            shard,
            tenant: Some(row.tenant),
            id: row.id.unwrap(),
            account: row.account,
            revision: row.revision,
            code: row.code_text(),
            amount: row.amount(42),
            details: row.details(42),
        }
    }

    /// Returns (lost, doubled, misplaced) for one row of the record.
    fn judge(state: State, copies: Vec<FoundRow>) -> (u64, u64, u64) {
        let mut ledger = Ledger::default();
        let change = |after| Change { table: Table::Orders, number: 42, after };
        match state {
            State::Is(after) => ledger.acknowledged(change(after)),
            State::Either(before, after) => {
                ledger.acknowledged(change(before));
                ledger.in_doubt(change(after));
            }
        }
        let mut rows = Rows::new();
        if !copies.is_empty() {
            rows.insert((Table::Orders, 42), copies);
        }
        let result = compare(&ledger, &rows, &ROUTED);
        (result.lost, result.doubled, result.misplaced)
    }

    #[test]
    fn a_row_in_its_place_is_well() {
        assert_eq!(judge(State::Is(Some(row())), vec![found(1, &row())]), (0, 0, 0));
        assert_eq!(judge(State::Is(None), vec![]), (0, 0, 0));
    }

    #[test]
    fn missing_older_and_undeleted_rows_are_lost() {
        assert_eq!(judge(State::Is(Some(row())), vec![]), (1, 0, 0));
        assert_eq!(judge(State::Is(Some(row().revised())), vec![found(1, &row())]), (1, 0, 0));
        assert_eq!(judge(State::Is(None), vec![found(1, &row())]), (1, 0, 0));
    }

    #[test]
    fn every_column_is_compared() {
        let spoilt: [fn(&mut FoundRow); 6] = [
            |f| f.id += 1,
            |f| f.account = None,
            |f| f.code.push('x'),
            |f| f.amount.push('0'),
            |f| f.details.push(' '),
            |f| f.tenant = None,
        ];
        for spoil in spoilt {
            let mut copy = found(1, &row());
            spoil(&mut copy);
            assert_eq!(judge(State::Is(Some(row())), vec![copy]).0, 1);
        }
    }

    #[test]
    fn copies_elsewhere_are_doubled_and_misplaced() {
        assert_eq!(judge(State::Is(Some(row())), vec![found(0, &row()), found(1, &row())]), (0, 1, 1));
        assert_eq!(judge(State::Is(Some(row())), vec![found(0, &row())]), (1, 0, 1));
        assert_eq!(judge(State::Is(None), vec![found(0, &row())]), (0, 0, 1));
    }

    #[test]
    fn a_row_in_doubt_is_either() {
        let either = State::Either(Some(row()), Some(row().revised()));
        assert_eq!(judge(either.clone(), vec![found(1, &row())]), (0, 0, 0));
        assert_eq!(judge(either.clone(), vec![found(1, &row().revised())]), (0, 0, 0));
        assert_eq!(judge(either, vec![]), (1, 0, 0));
        assert_eq!(judge(State::Either(None, Some(row())), vec![]), (0, 0, 0));
    }
}
