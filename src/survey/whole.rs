//! What is said of a database as a whole: lines without a table.

use super::findings::{SurveyLine, SurveyRemark, Surveyed, loose_keys};
use super::sample_query::TableSample;
use super::tables::SurveyTable;
use super::tenancy;
use super::text::{few, percent};
use crate::remote::quote::{ident_as_needed, literal, qualified_as_needed};
use crate::words::counted;
use std::collections::{BTreeMap, BTreeSet};

/// The number of tenants that are named.
const NAMED: usize = 5;

/// Returns the lines of the database.
pub fn lines(surveyed: &Surveyed<'_>, namespace: &str) -> Vec<SurveyLine> {
    let mut found: Vec<SurveyRemark> = vec![(tenancy::counts(surveyed.tenancies), None)];
    found.extend(of_tenants(surveyed));
    found.extend(of_samples(surveyed));
    found.extend(of_statistics(surveyed));
    found.extend(of_loose_keys(surveyed));
    found.extend(of_objects(surveyed));
    found.extend(of_database(surveyed, namespace));
    found
        .into_iter()
        .map(|(finding, call)| SurveyLine { finding: Some(finding), call, ..SurveyLine::default() })
        .collect()
}

/// Says how the rows lie: the largest tenants, by the rows of all tables.
fn of_tenants(surveyed: &Surveyed<'_>) -> Vec<SurveyRemark> {
    let mut rows: BTreeMap<&str, f64> = BTreeMap::new();
    let (mut all, mut most) = (0.0, 0);
    for (number, sample) in &surveyed.samples.of {
        let Some(table) = surveyed.database.table(*number).filter(|_| sample.seen > 0) else { continue };
        let scale = table_rows(table, sample) / sample.seen as f64;
        all += sample.seen as f64 * scale;
        most = most.max(sample.tenants);
        for (tenant, count) in &sample.most {
            *rows.entry(tenant).or_default() += *count as f64 * scale;
        }
    }
    let tenants =
        surveyed.root.and_then(|root| surveyed.database.table(root)).map_or(most, |root| root.rows.max(most));
    let mut rows: Vec<(&str, f64)> = rows.into_iter().collect();
    rows.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(other.0)));
    if rows.is_empty() || all <= 0.0 {
        return Vec::new();
    }
    let largest: Vec<String> =
        rows.iter().take(NAMED).map(|(tenant, rows)| format!("{tenant} {}", percent(rows / all))).collect();
    let word = if surveyed.samples.of.values().all(|sample| sample.is_whole) { "" } else { "about " };
    let text = format!(
        "{word}{}; the largest by rows: {}; an even share is {}",
        counted(tenants, "tenant", "tenants"),
        largest.join(", "),
        percent(1.0 / tenants.max(1) as f64)
    );
    vec![(text, None)]
}

fn table_rows(table: &SurveyTable, sample: &TableSample) -> f64 {
    if sample.is_whole { sample.seen as f64 } else { table.rows.max(1) as f64 }
}

/// Says which rows were looked at, and which were not.
fn of_samples(surveyed: &Surveyed<'_>) -> Vec<SurveyRemark> {
    let samples = surveyed.samples;
    let seen: i64 = samples.of.values().map(|sample| sample.seen).sum();
    let whole = samples.of.values().filter(|sample| sample.is_whole).count();
    let mut found = Vec::new();
    if !samples.of.is_empty() {
        let text = format!(
            "{} of {} were looked at; all rows of {} of these",
            counted(seen, "row", "rows"),
            counted(samples.of.len() as i64, "table", "tables"),
            whole
        );
        found.push((text, None));
    }
    if !samples.late.is_empty() {
        let names = samples.late.iter().filter_map(|number| surveyed.database.table(*number));
        let text = format!(
            "there was no time for the rows of {}: {}",
            counted(samples.late.len() as i64, "table", "tables"),
            few(names.map(|table| &table.shown))
        );
        let call = format!(
            "SELECT * FROM shard_survey({}, {}, timeout => '10 min')",
            literal(surveyed.shard),
            literal(&surveyed.tenant.name)
        );
        found.push((text, Some(call)));
    }
    found
}

fn of_statistics(surveyed: &Surveyed<'_>) -> Option<SurveyRemark> {
    let tables = &surveyed.database.tables;
    let count = tables.iter().filter(|table| !table.is_analyzed).count();
    (!surveyed.is_analyzed).then(|| {
        let text = format!(
            "never analyzed: {count} of {}; their rows are estimated from their sizes",
            counted(tables.len() as i64, "table", "tables")
        );
        (text, Some("ANALYZE".to_owned()))
    })
}

fn of_loose_keys(surveyed: &Surveyed<'_>) -> Option<SurveyRemark> {
    let (keys, tables) = loose_keys(surveyed);
    let differing: usize = surveyed.samples.of.values().map(|sample| sample.differing.len()).sum();
    let seen = match differing {
        0 => "no row that was looked at does",
        _ => "rows that do are named with their tables",
    };
    (keys > 0).then(|| {
        let text = format!(
            "{} without the tenant in {}: a row could reference one of another tenant; {seen}",
            counted(keys as i64, "foreign key", "foreign keys"),
            counted(tables as i64, "table", "tables")
        );
        (text, None)
    })
}

/// Says what the tables have that each shard needs as well.
fn of_objects(surveyed: &Surveyed<'_>) -> Vec<SurveyRemark> {
    let tables = &surveyed.database.tables;
    let count = |kind: &str| {
        let numbers = tables.iter().map(|table| table.objects(kind).count()).filter(|count| *count > 0);
        let numbers: Vec<usize> = numbers.collect();
        (numbers.iter().sum::<usize>() as i64, numbers.len() as i64)
    };
    let mut found = Vec::new();
    for (kind, one, more) in [("policy", "policy", "policies"), ("trigger", "trigger", "triggers")] {
        let (number, of) = count(kind);
        if number > 0 {
            let text = format!(
                "{} of {}: shard_schema_copy() creates them on each shard",
                counted(number, one, more),
                counted(of, "table", "tables")
            );
            found.push((text, None));
        }
    }
    for (kind, one, more) in [("v", "view", "views"), ("m", "materialized view", "materialized views")] {
        let views = tables.iter().flat_map(|table| table.objects("view"));
        let views = views.filter(|view| view.of.as_deref() == Some(kind)).map(|view| view.name.as_str());
        let views: BTreeSet<&str> = views.collect();
        if !views.is_empty() {
            let text = format!(
                "{}: {}; each shard shows its own rows there",
                counted(views.len() as i64, one, more),
                few(views)
            );
            found.push((text, None));
        }
    }
    found
}

/// Says what the database has beside its tables.
fn of_database(surveyed: &Surveyed<'_>, namespace: &str) -> Vec<SurveyRemark> {
    let remark = |object: &super::tables::TableObject| {
        let (name, of) = (&object.name, object.of.as_deref().unwrap_or_default());
        let (text, call) = match object.kind.as_str() {
            "sequence" => {
                let plain = object.more.as_deref().unwrap_or_default();
                let known =
                    if of == namespace { ident_as_needed(plain) } else { qualified_as_needed(of, plain) };
                let text = format!("sequence {known} fills no column: clients or functions draw from it");
                (text, Some(format!("SELECT shard_sequence_add({})", literal(&known))))
            }
            "foreign table" => (format!("foreign table {name}: its rows are on another server"), None),
            "event trigger" => {
                let owner = object.more.as_deref().unwrap_or_default();
                (
                    format!(
                        "event trigger {name} of role {owner} runs {of} when a split creates its objects"
                    ),
                    None,
                )
            }
            "large objects" => (format!("{name} large objects, which no split moves"), None),
            "subscription" => {
                (format!("subscription {name} writes rows here, wherever their tenant is"), None)
            }
            "publication" => {
                (format!("publication {name} publishes rows of this shard alone, after a move as well"), None)
            }
            _ => return None,
        };
        Some((text, call))
    };
    surveyed.database.whole.iter().filter_map(remark).collect()
}
