//! Columns that could hold the tenant, the best first.

use super::findings::SurveyLine;
use super::paths::{PathEdge, reaching};
use super::tables::{SurveyedDatabase, whole_number};
use super::tenancy;
use super::text::percent;
use crate::agent::catalogs::given;
use crate::remote::quote::literal;
use crate::remote::{Connection, RemoteError};
use crate::words::counted;
use std::collections::{BTreeMap, BTreeSet};

const NAMES: &str = include_str!("../../sql/survey/names.sql");

/// The number of candidates that are proposed.
const PROPOSED: usize = 5;
/// The fewest values of a column by which rows can be spread.
const LEAST_VALUES: i64 = 2;

/// A column that several tables have.
#[derive(Debug, Clone)]
struct TenantCandidate {
    name: String,
    tables: i64,
    filled: i64,
    /// The number of tables where it is the first column of an index.
    indexed: i64,
    referring: i64,
    /// The table that its foreign keys lead to.
    root: Option<usize>,
    values: Option<i64>,
    /// The part of the rows that have the most frequent value.
    most: Option<f64>,
    of: BTreeSet<usize>,
    /// The number of further tables from which keys lead to one with the column.
    through: usize,
}

impl TenantCandidate {
    fn read(row: &[Option<String>], positions: &BTreeMap<String, usize>) -> Option<TenantCandidate> {
        let cell = |at: usize| row.get(at).and_then(|cell| cell.as_deref());
        let number = |at: usize| whole_number(cell(at));
        let position = |oid: &str| positions.get(oid).copied();
        let of: Vec<serde_json::Value> = serde_json::from_str(cell(8)?).ok()?;
        let oid = |value: &serde_json::Value| value.as_str().map_or(value.to_string(), str::to_owned);
        Some(TenantCandidate {
            name: cell(0)?.to_owned(),
            tables: number(1)?,
            filled: number(2)?,
            indexed: number(3)?,
            referring: number(4)?,
            root: cell(5).and_then(position),
            values: number(6),
            most: cell(7).and_then(|number| number.parse().ok()),
            of: of.iter().filter_map(|value| position(&oid(value))).collect(),
            through: 0,
        })
    }

    /// Returns the number of tables without the column from which keys lead to one that has it.
    fn reached(&self, edges: &[PathEdge], tables: usize) -> usize {
        let is_keyed: Vec<bool> =
            (0..tables).map(|table| self.of.contains(&table) || self.root == Some(table)).collect();
        let reaches = reaching(&is_keyed, edges);
        reaches.iter().zip(&is_keyed).filter(|(reaches, own)| **reaches && !**own).count()
    }

    /// Weighs how many tables belong to its tenants, by how often a foreign key or an index confirms that it names one.
    fn weight(&self) -> f64 {
        let reached = (self.of.len() + self.through) as f64;
        let confirmed = self.referring as f64 + self.indexed as f64 / 2.0 + self.tables as f64 / 4.0;
        reached * confirmed / self.tables.max(1) as f64
    }

    fn line(&self, database: &SurveyedDatabase, shard: &str) -> SurveyLine {
        let root = self.root.and_then(|root| database.table(root));
        let all = database.tables.len() as i64;
        let mut reasons = vec![format!(
            "{} of {} have column {}, NOT NULL in {}",
            self.tables,
            counted(all, "table", "tables"),
            self.name,
            self.filled
        )];
        if self.through > 0 {
            reasons.push(format!("foreign keys of {} more lead to these", self.through));
        }
        if let Some(root) = root {
            reasons.push(format!("{} reference {}", self.referring, root.shown));
        }
        match (self.values, self.most) {
            (Some(values), Some(most)) => reasons.push(format!(
                "{}, the largest with {} of the rows of a table",
                counted(values, "value", "values"),
                percent(most)
            )),
            (Some(values), None) => {
                reasons.push(format!("{}, none much larger than others", counted(values, "value", "values")));
            }
            (None, _) => reasons.push("no statistics of its values, run ANALYZE".to_owned()),
        }
        SurveyLine {
            table_name: root.map(|root| root.shown.clone()),
            rows: root.map(|root| root.rows),
            bytes: root.map(|root| root.bytes),
            tenant_by: Some("candidate"),
            path: Some(vec![self.name.clone()]),
            finding: Some(reasons.join("; ")),
            call: Some(format!("SELECT * FROM shard_survey({}, {})", literal(shard), literal(&self.name))),
        }
    }
}

/// Returns a line for each candidate.
pub fn lines(session: &mut Connection, database: &SurveyedDatabase) -> Result<Vec<SurveyLine>, RemoteError> {
    let rows = session.query(NAMES, &given(&[database.oids()]))?;
    let positions = database.positions();
    let read = rows.rows.iter().map(|row| TenantCandidate::read(row, &positions)).collect::<Option<Vec<_>>>();
    let mut found =
        read.ok_or_else(|| RemoteError::unreadable(session.shard(), "which columns its tables share"))?;
    let (_, edges) = tenancy::edges(database);
    for candidate in &mut found {
        candidate.through = candidate.reached(&edges, database.tables.len());
    }
    // A column of one value only, or of a kind of rows, spreads nothing.
    found.retain(|candidate| candidate.values.is_none_or(|values| values >= LEAST_VALUES));
    found.sort_by(|one, other| other.weight().total_cmp(&one.weight()).then(one.name.cmp(&other.name)));
    found.truncate(PROPOSED);
    let shard = session.shard().to_owned();
    let mut lines: Vec<SurveyLine> = found.iter().map(|candidate| candidate.line(database, &shard)).collect();
    if lines.is_empty() {
        let text = format!(
            "no column is shared by several of {}: name it with tenant",
            counted(database.tables.len() as i64, "table", "tables")
        );
        lines.push(SurveyLine { finding: Some(text), ..SurveyLine::default() });
    }
    Ok(lines)
}
