//! What is said of one table: a line about how its tenant is found, and a line for each thing that is in the way.

use super::calls;
use super::sample::{Samples, keys_without_tenant};
use super::sample_query::{RowEstimate, TableSample};
use super::tables::{
    SurveyKey, SurveyTable, SurveyUnique, SurveyedDatabase, TenantColumn, UniqueColumn, ValueSource,
};
use super::tenancy::{self, Tenancy, TenantBy};
use super::text::{about, few, percent, sql_name};
use crate::agent::shape::TypePart;
use crate::agent::types::Travel;
use crate::remote::quote::{ident_as_needed, literal};
use crate::words::counted;

/// A row of the result.
#[derive(Debug, Clone, Default)]
pub struct SurveyLine {
    pub table_name: Option<String>,
    pub rows: Option<i64>,
    pub bytes: Option<i64>,
    pub tenant_by: Option<&'static str>,
    pub path: Option<Vec<String>>,
    pub finding: Option<String>,
    pub call: Option<String>,
}

/// All that is known when lines are written.
pub struct Surveyed<'a> {
    /// The shard's key.
    pub shard: &'a str,
    /// The mover's role on the shard.
    pub mover: &'a str,
    pub database: &'a SurveyedDatabase,
    pub tenancies: &'a [Tenancy],
    /// The column that tables without it get.
    pub tenant: &'a TenantColumn,
    /// The table of the tenants.
    pub root: Option<usize>,
    pub samples: &'a Samples,
    /// Whether most tables were analyzed: otherwise one line says so for all.
    pub is_analyzed: bool,
}

/// A finding, and the call that does something about it.
pub type SurveyRemark = (String, Option<String>);

/// Returns the lines of all tables, in the order of their names.
pub fn of_tables(surveyed: &Surveyed<'_>) -> Vec<SurveyLine> {
    (0..surveyed.database.tables.len()).flat_map(|number| surveyed.of_table(number)).collect()
}

impl Surveyed<'_> {
    fn of_table(&self, number: usize) -> Vec<SurveyLine> {
        let Some((table, tenancy)) = self.database.table(number).zip(self.tenancies.get(number)) else {
            return Vec::new();
        };
        let (finding, call) = self.how(number, table, tenancy);
        let first = SurveyLine {
            table_name: Some(table.shown.clone()),
            rows: Some(table.rows),
            bytes: Some(table.bytes),
            tenant_by: Some(tenancy.by.as_str()),
            path: tenancy.path.as_ref().map(|path| tenancy::path_text(self.database, number, path)),
            finding,
            call,
        };
        let mut remarks = self.access(table);
        if tenancy.is_of_tenants() {
            remarks.extend(self.of_rows(number, table, tenancy));
            remarks.extend(self.of_keys(number, table));
        }
        if tenancy.by != TenantBy::Global {
            remarks.extend(self.of_shape(table));
            remarks.extend(self.of_global(number, table));
        }
        remarks.extend(of_upkeep(table));
        let line = |(finding, call)| SurveyLine {
            table_name: Some(table.shown.clone()),
            finding: Some(finding),
            call,
            ..SurveyLine::default()
        };
        std::iter::once(first).chain(remarks.into_iter().map(line)).collect()
    }

    /// Returns why the table is what it is, and the call that registers it.
    fn how(&self, number: usize, table: &SurveyTable, tenancy: &Tenancy) -> (Option<String>, Option<String>) {
        let key = tenancy.path.as_ref().and_then(|path| self.database.keys.get(*path.first()?));
        let with_column = || calls::add_column(self.database, table, key?, self.tenant);
        match tenancy.by {
            TenantBy::Column => {
                let root = (self.root == Some(number)).then(|| "the table of the tenants".to_owned());
                let column = table.column.as_ref().map_or("", |column| column.name.as_str());
                (root, Some(calls::add_sharded(table, column)))
            }
            TenantBy::Through => (tenancy.reason.clone(), with_column()),
            TenantBy::Reference => (tenancy.reason.clone(), Some(calls::add_reference(table, self.shard))),
            TenantBy::Global => (tenancy.reason.clone(), Some(calls::add_global(table))),
            TenantBy::Unclear => {
                let nullable = key.filter(|key| key.is_nullable() && tenancy.others.is_empty());
                let column = nullable.map(|key| {
                    let columns = key.columns.iter().filter(|column| column.nullable);
                    calls::refuse_null(table, columns.map(|column| column.from.as_str()))
                });
                let agreed = self.samples.of.get(&number).and_then(|sample| agreement(tenancy, sample));
                let reason = tenancy.reason.clone();
                let reason =
                    reason.map(|why| agreed.map_or(why.clone(), |agreed| format!("{why}; {agreed}")));
                (reason, column.or_else(with_column))
            }
        }
    }

    /// Finds what keeps the mover from the table's rows.
    fn access(&self, table: &SurveyTable) -> Vec<SurveyRemark> {
        let (name, mover) = (table.written(), sql_name(self.mover));
        let mut found = Vec::new();
        if !table.may_read {
            let schema = sql_name(&table.schema);
            found.push((
                format!("role {mover} may not read it"),
                Some(format!("GRANT USAGE ON SCHEMA {schema} TO {mover}; GRANT SELECT ON {name} TO {mover}")),
            ));
        }
        if table.is_filtered {
            let text = format!("its policies hide rows from role {mover}");
            found.push((text, Some(format!("ALTER ROLE {mover} BYPASSRLS"))));
        }
        if !table.is_free {
            found.push((
                "a session holds it locked: its size is from the statistics, and its rows were not looked at"
                    .to_owned(),
                None,
            ));
        }
        if !table.is_analyzed && self.is_analyzed {
            found.push((
                "it was never analyzed: its rows are estimated from its size".to_owned(),
                Some(format!("ANALYZE {name}")),
            ));
        }
        found
    }

    /// Finds rows without a tenant, and rows whose paths lead to different ones.
    fn of_rows(&self, number: usize, table: &SurveyTable, tenancy: &Tenancy) -> Vec<SurveyRemark> {
        let mut found = Vec::new();
        let sample = self.samples.of.get(&number);
        // Of its own obstacles there is a line already.
        let is_open = table.may_read && !table.is_filtered && table.is_free;
        if let Some(why) = self.samples.skipped.get(&number).filter(|_| is_open) {
            found.push((format!("its rows were not looked at: {why}"), None));
        }
        let column = table.column.as_ref().filter(|column| !column.is_not_null);
        match sample.filter(|sample| sample.without.rows > 0) {
            Some(sample) => {
                let text = format!(
                    "{} without a tenant{}",
                    rows_text(sample, &sample.without),
                    examples(&sample.without)
                );
                found.push((text, column.map(|column| calls::find_null(table, &column.name))));
            }
            None => found.extend(column.map(|column| {
                let text =
                    format!("{} may be NULL{}", ident_as_needed(&column.name), known_nulls(column, sample));
                (text, Some(calls::refuse_null(table, [column.name.as_str()])))
            })),
        }
        let Some((sample, query)) = sample.zip(self.samples.queries.get(&number)) else { return found };
        let best = tenancy.path.as_deref().unwrap_or_default();
        for (place, estimate) in &sample.differing {
            let Some(other) = query.others.get(*place) else { continue };
            let key = other.first().and_then(|key| self.database.keys.get(*key));
            let name = key.map_or("", |key| key.name.as_str());
            let text = format!(
                "{} of another tenant than the row that {} leads to{}",
                rows_text(sample, estimate),
                ident_as_needed(name),
                examples(estimate)
            );
            found.push((text, calls::find_differing(self.database, number, best, other)));
        }
        found
    }

    /// Finds unique keys that two shards could use twice.
    fn of_keys(&self, number: usize, table: &SurveyTable) -> Vec<SurveyRemark> {
        let tenant = table.column.as_ref().map_or(self.tenant.name.as_str(), |column| column.name.as_str());
        let has_tenant =
            |key: &SurveyUnique| key.columns.iter().any(|column| column.name.as_deref() == Some(tenant));
        let mut sequences: Vec<String> = Vec::new();
        let mut found = Vec::new();
        for key in table.unique.iter().filter(|key| !has_tenant(key)) {
            match self.source(table, key) {
                ValueSource::Random => {}
                ValueSource::Sequence => sequences.push(key_text(key)),
                source => {
                    let whence = match source {
                        ValueSource::Default => "a default",
                        ValueSource::Expression => "an expression",
                        ValueSource::Client | ValueSource::Random | ValueSource::Sequence => "clients",
                    };
                    let text = format!(
                        "{} does not contain {}, and its values come from {whence}: two shards could have the same",
                        key_text(key),
                        ident_as_needed(tenant)
                    );
                    found.push((text, calls::make_unique(table, key, tenant)));
                }
            }
        }
        let is_drawn = |column: &UniqueColumn| {
            column.source == ValueSource::Sequence && column.name.as_deref() == Some(tenant)
        };
        if self.root == Some(number) && table.unique.iter().flat_map(|key| &key.columns).any(is_drawn) {
            let text = format!(
                "{} of new tenants comes from a sequence, of which each shard has its own",
                ident_as_needed(tenant)
            );
            found.push((text, Some(calls::SPREAD.to_owned())));
        }
        if !sequences.is_empty() {
            let text = format!(
                "{} without {}: the values come from a sequence, of which each shard has its own",
                few(&sequences),
                ident_as_needed(tenant)
            );
            found.push((text, Some(calls::SPREAD.to_owned())));
        }
        found
    }

    /// Returns where the values of a key come from: one column with values of its own is enough. Values of a foreign
    /// key are as different as those that it references.
    fn source(&self, table: &SurveyTable, key: &SurveyUnique) -> ValueSource {
        let names: Vec<&str> = key.columns.iter().filter_map(|column| column.name.as_deref()).collect();
        let is_of_key = self.database.keys.iter().any(|foreign| {
            let from = self.database.table(foreign.from).is_some_and(|from| from.oid == table.oid);
            let is_of_tenants =
                foreign.to.and_then(|to| self.tenancies.get(to)).is_some_and(Tenancy::is_of_tenants);
            from && is_of_tenants
                && foreign.columns.iter().all(|column| names.contains(&column.from.as_str()))
        });
        if is_of_key {
            return ValueSource::Random;
        }
        key.columns.iter().map(|column| column.source).min().unwrap_or(ValueSource::Client)
    }

    /// Finds what no split accepts, or only with a word from its operator.
    fn of_shape(&self, table: &SurveyTable) -> Vec<SurveyRemark> {
        let name = table.written();
        let mut found = Vec::new();
        if !table.has_primary_key() {
            found.push(("it has no primary key".to_owned(), Some(calls::add_primary_key(table))));
        }
        if table.is_unlogged {
            found.push(("it is unlogged".to_owned(), Some(format!("ALTER TABLE {name} SET LOGGED"))));
        }
        if table.inherits {
            found.push(("it is part of an inheritance tree, which no split moves".to_owned(), None));
        }
        if table.has_foreign {
            found.push(("a partition is a foreign table, whose rows no split moves".to_owned(), None));
        }
        for rule in table.objects("rule") {
            let drop = format!("DROP RULE {} ON {name}", sql_name(&rule.name));
            found.push((format!("rule {} changes what statements do", rule.name), Some(drop)));
        }
        for object in table.objects("type") {
            found.extend(of_type(table, &object.name, object.of.as_deref(), object.more.as_deref()));
        }
        for code in table.objects("code") {
            let owner = code.of.as_deref().unwrap_or_default();
            let call = format!("SELECT shard_trust_owner({}, {})", literal(self.shard), literal(owner));
            found.push((format!("splits would run code of role {owner}: {}", code.name), Some(call)));
        }
        for caller in table.objects("search path") {
            let function = caller.of.as_deref().unwrap_or_default();
            let call = format!("ALTER FUNCTION {function} SET search_path = {}", sql_name(&table.schema));
            let text = format!(
                "{} calls {function}, which finds its names by the search_path of its caller",
                caller.name
            );
            found.push((text, Some(call)));
        }
        for trigger in table.objects("trigger").filter(|trigger| trigger.more.as_deref() != Some("O")) {
            let trigger = sql_name(&trigger.name);
            let call = format!("ALTER TABLE {name} ENABLE TRIGGER {trigger}");
            found.push((format!("trigger {trigger} also fires for rows that a split copies"), Some(call)));
        }
        found
    }

    /// Finds foreign keys to tables whose rows are on one shard only.
    fn of_global(&self, number: usize, table: &SurveyTable) -> Vec<SurveyRemark> {
        let keys = self.database.keys.iter().filter(|key| key.from == number && key.to != Some(number));
        let remark = |key: &SurveyKey| {
            let name = ident_as_needed(&key.name);
            let call = Some(calls::drop_key(table, key));
            let Some((to, tenancy)) =
                key.to.and_then(|to| Some((self.database.table(to)?, self.tenancies.get(to)?)))
            else {
                return Some((
                    format!("foreign key {name} leads to {}, which is not surveyed", key.to_name),
                    None,
                ));
            };
            if tenancy.by != TenantBy::Global {
                return None;
            }
            let why = tenancy::too_much(to).unwrap_or_default();
            let text = format!(
                "foreign key {name} leads to {}, which is {why}: without the key, orphans have to be looked for",
                to.shown
            );
            Some((text, call))
        };
        keys.filter_map(remark).collect()
    }
}

/// Finds constraints and indexes that the server itself does not rely on.
fn of_upkeep(table: &SurveyTable) -> Vec<SurveyRemark> {
    let mut found = Vec::new();
    for object in table.objects("not valid") {
        let name = sql_name(&object.name);
        let on = object.of.clone().unwrap_or_else(|| table.written());
        let call = format!("ALTER TABLE {on} VALIDATE CONSTRAINT {name}");
        found.push((format!("constraint {name} is NOT VALID: older rows may violate it"), Some(call)));
    }
    for object in table.objects("invalid index") {
        let call = format!("REINDEX INDEX CONCURRENTLY {}", object.name);
        found.push((format!("index {} is invalid", object.name), Some(call)));
    }
    for months in table.objects("months") {
        let number = months.of.as_deref().and_then(|number| number.parse::<i64>().ok()).unwrap_or(0);
        let text = format!(
            "{} by time, {}: each shard needs the next ones in time",
            counted(number, "partition", "partitions"),
            months.name
        );
        found.push((text, None));
    }
    found
}

/// Says of a type that it does not travel, or means something on one server only.
fn of_type(
    table: &SurveyTable,
    columns: &str,
    type_name: Option<&str>,
    extension: Option<&str>,
) -> Option<SurveyRemark> {
    let name = type_name?;
    let part = TypePart {
        name: name.to_owned(),
        kind: "b".to_owned(),
        extension: extension.map(str::to_owned),
        builtin: extension.is_none() && !name.contains('.'),
    };
    if part.is_of_one_server() {
        let text = format!(
            "{columns}: a value of type {name} means something on this server only; each split has to accept it with shard_split_accept()"
        );
        return Some((text, None));
    }
    let travels = matches!(part.travel(), Some(Travel::Binary | Travel::Text));
    let first = columns.split(", ").next().unwrap_or(columns);
    (!travels).then(|| {
        let call = format!(
            "SELECT shard_split_map(:split, {}, {}, {})",
            literal(&table.shown),
            literal(first.trim_matches('"')),
            literal(&format!("{first}::text"))
        );
        (format!("{columns}: no split copies the type {name}"), Some(call))
    })
}

fn key_text(key: &SurveyUnique) -> String {
    let columns: Vec<String> = key
        .columns
        .iter()
        .map(|column| column.name.as_deref().map_or("expression".to_owned(), ident_as_needed))
        .collect();
    let what = if key.is_primary { "primary key" } else { "unique index" };
    format!("{what} {} ({})", ident_as_needed(&key.index), columns.join(", "))
}

/// `about 12 rows (+- 3) are`, or `12 rows are` if all were counted.
fn rows_text(sample: &TableSample, estimate: &RowEstimate) -> String {
    let verb = if estimate.rows == 1 { "is" } else { "are" };
    if sample.is_whole {
        return format!("{} {verb}", counted(estimate.rows, "row", "rows"));
    }
    format!("{} (+- {}) {verb}", about(estimate.rows, "row", "rows"), estimate.error)
}

fn examples(estimate: &RowEstimate) -> String {
    match estimate.examples.as_str() {
        "" => String::new(),
        examples => format!(", for example {examples}"),
    }
}

/// Says what is known of rows without a value in a column that may be NULL.
fn known_nulls(column: &TenantColumn, sample: Option<&TableSample>) -> String {
    match (sample, column.null_fraction) {
        (Some(sample), _) => format!("; it is in none of {}", counted(sample.seen, "row", "rows")),
        (None, Some(fraction)) => format!("; it is in {} of the rows, by the statistics", percent(fraction)),
        (None, None) => String::new(),
    }
}

/// Says whether the paths of a table agree, where nothing else says that they do not.
fn agreement(tenancy: &Tenancy, sample: &TableSample) -> Option<String> {
    let is_said = tenancy.others.is_empty() || sample.seen == 0 || !sample.differing.is_empty();
    (!is_said).then(|| format!("they agree in {}", counted(sample.seen, "row", "rows")))
}

/// Returns how many foreign keys of tables with the tenant do not contain it, and of how many tables.
pub fn loose_keys(surveyed: &Surveyed<'_>) -> (usize, usize) {
    let counts = surveyed.tenancies.iter().enumerate().filter(|(_, tenancy)| tenancy.by == TenantBy::Column);
    let counts: Vec<usize> = counts
        .map(|(number, _)| keys_without_tenant(surveyed.database, surveyed.tenancies, number).count())
        .filter(|count| *count > 0)
        .collect();
    (counts.iter().sum(), counts.len())
}
