//! The steps that bring a database under a keyspace, in their order, and what a person has to decide. A step that was
//! done before is left out, so that the same call goes on where another one was ended.

use super::calls;
use super::error;
use super::findings::{self, SurveyLine, Surveyed};
use super::request::{SurveyRequest, family};
use super::tables::SurveyTable;
use super::tenancy::{Tenancy, TenantBy};
use super::text::few;
use super::whole;
use crate::catalog::derived_column::{self, DerivedColumn};
use crate::catalog::job::{self, JobKind};
use crate::catalog::{keyspace, shard, table_policy};
use crate::error::Failure;
use crate::named_enum::named_enum;
use crate::remote::quote::{literal, text_array};
use crate::words::counted;
use std::collections::{BTreeMap, BTreeSet};

named_enum! {
    /// What is done in a step.
    pub enum StepKind {
        /// A person decides; nothing is done.
        Decide = "decide",
        /// Give a table a primary key.
        Identify = "identify",
        /// Give a table the column of its tenant.
        Derive = "derive",
        /// Register a table.
        Table = "table",
        /// Give each shard numbers of its own.
        Sequences = "sequences",
        /// Assign the keys whose rows are there.
        Keys = "keys",
        /// Create the tables on the other shard.
        Schema = "schema",
        /// Wait until that shard has the rows of reference tables.
        References = "references",
    }
}

/// A step: what its call needs, the call as a person writes it, and the statement that takes it back.
#[derive(Debug, Clone)]
pub struct AdoptionStep {
    pub kind: StepKind,
    pub table: Option<String>,
    pub column: Option<String>,
    pub through: Vec<String>,
    pub value: Option<String>,
    /// Tables that are copied as well.
    pub also: Vec<String>,
    /// The policy of a table that is registered, and the type of its keys.
    pub policy: Option<&'static str>,
    pub key_type: Option<&'static str>,
    pub call: Option<String>,
    pub undo: Option<String>,
    pub why: String,
}

/// What is to be brought under a keyspace.
pub struct Adoption<'a> {
    pub survey: SurveyRequest<'a>,
    pub tenant: &'a str,
    /// The shard that gets the tables as well.
    pub target: Option<&'a str>,
    pub keyspace: &'a str,
    /// Tables whose tenant is unclear, and is to be found as the survey proposes.
    pub accept: &'a [String],
}

/// What the master knows already.
struct Known {
    tables: BTreeSet<String>,
    /// Columns that are being filled, by their tables.
    unfilled: BTreeMap<String, DerivedColumn>,
}

impl Adoption<'_> {
    /// Returns the decisions, then the steps.
    pub fn steps(&self) -> Result<Vec<AdoptionStep>, Failure> {
        self.look(|_, _, steps| steps)
    }

    /// Surveys the database, and gives what is known, the findings and the steps to whoever writes an answer.
    pub fn look<T>(
        &self,
        write: impl FnOnce(&Surveyed<'_>, &[SurveyLine], Vec<AdoptionStep>) -> T,
    ) -> Result<T, Failure> {
        let found = keyspace::find(self.keyspace)?;
        if !found.strategy.is_directory() {
            return Err(error::no_directory(&found.name));
        }
        let keyspace = found.name;
        if let Some(target) = self.target {
            shard::by_key(target)?.require_server()?;
            if target == self.survey.shard {
                return Err(error::onto_itself(target));
            }
        }
        let is_open =
            |table: &str| job::open_of(&keyspace, table).is_some_and(|(_, kind, _)| kind == JobKind::Derive);
        let unfilled =
            derived_column::all(&keyspace).into_iter().filter(|column| is_open(&column.table_name));
        let unfilled = unfilled.map(|column| (column.table_name.clone(), column)).collect();
        let known = Known { tables: table_policy::names(), unfilled };
        self.survey.of_tenant(self.tenant, |surveyed, namespace| {
            let lines = findings::of_tables(surveyed).into_iter().chain(whole::lines(surveyed, namespace));
            let lines: Vec<SurveyLine> = lines.collect();
            let steps = self.of(surveyed, &lines, &known)?;
            Ok(write(surveyed, &lines, steps))
        })?
    }

    fn of(
        &self,
        surveyed: &Surveyed<'_>,
        lines: &[SurveyLine],
        known: &Known,
    ) -> Result<Vec<AdoptionStep>, Failure> {
        self.require_unclear(surveyed)?;
        let mut numbers: Vec<usize> = (0..surveyed.database.tables.len()).collect();
        // A table gets its column from one that has it.
        let depth = |number: &usize| {
            let tenancy = surveyed.tenancies.get(*number)?;
            tenancy.path.as_ref().map(Vec::len)
        };
        numbers.sort_by_key(|number| (depth(number), *number));
        let mut derived = BTreeSet::new();
        let steps = numbers.into_iter().flat_map(|number| {
            let steps = self.of_table(surveyed, number, known, &derived);
            derived.extend(steps.iter().any(|step| step.kind == StepKind::Derive).then_some(number));
            steps
        });
        // A shard that lacks a reference table would be tried again only after a while.
        let (references, mut steps): (Vec<_>, Vec<_>) =
            steps.partition(|step| step.policy == Some("reference"));
        if lines.iter().any(|line| line.call.as_deref() == Some(calls::SPREAD)) {
            steps.push(self.sequences());
        }
        if let Some(target) = self.target {
            let also = undecided(surveyed, known, &steps);
            steps.push(self.schema(target, &references, also));
        }
        steps.extend(references);
        steps.extend(self.target.map(|target| self.references(target)));
        steps.push(self.keys());
        let mut all = decisions(lines, &steps, known);
        all.extend(steps);
        Ok(all)
    }

    /// Requires that the accepted tables are such as can be accepted.
    fn require_unclear(&self, surveyed: &Surveyed<'_>) -> Result<(), Failure> {
        let tables = surveyed.database.tables.iter().zip(surveyed.tenancies);
        let unclear: Vec<&str> = tables
            .filter(|(_, tenancy)| tenancy.by == TenantBy::Unclear && tenancy.path.is_some())
            .map(|(table, _)| table.shown.as_str())
            .collect();
        // One that was accepted by an earlier call has its column now.
        let tables = surveyed.database.tables.iter().zip(surveyed.tenancies);
        let with_path = tables.filter(|(_, tenancy)| tenancy.path.is_some());
        let with_path: BTreeSet<&str> = with_path.map(|(table, _)| table.shown.as_str()).collect();
        match self.accept.iter().find(|name| !with_path.contains(name.as_str())) {
            Some(name) => Err(error::not_unclear(name, &unclear)),
            None => Ok(()),
        }
    }

    /// Returns the steps of a table, given those that get their column before.
    fn of_table(
        &self,
        surveyed: &Surveyed<'_>,
        number: usize,
        known: &Known,
        derived: &BTreeSet<usize>,
    ) -> Vec<AdoptionStep> {
        let Some((table, tenancy)) = surveyed.database.table(number).zip(surveyed.tenancies.get(number))
        else {
            return Vec::new();
        };
        if known.tables.contains(&table.shown) {
            return Vec::new();
        }
        let mut steps = Vec::new();
        let needs_key = tenancy.by != TenantBy::Global && !table.has_primary_key();
        let identify = needs_key.then(|| self.identify(table));
        match tenancy.by {
            TenantBy::Reference | TenantBy::Global => {
                steps.extend(identify);
                steps.push(self.registered(table, tenancy));
            }
            TenantBy::Column => {
                let unfilled = known.unfilled.get(&table.shown);
                steps.extend(unfilled.map(|column| self.filled(table, column)));
                let column = table.column.as_ref().map_or(self.tenant, |column| column.name.as_str());
                steps.extend(identify);
                steps.push(self.sharded(surveyed, table, column));
            }
            TenantBy::Unclear
                if !self.accept.contains(&table.shown) && !is_settled(surveyed, number, tenancy, derived) => {
            }
            TenantBy::Through | TenantBy::Unclear => {
                let Some(derive) = self.derive(surveyed, table, tenancy) else { return steps };
                steps.push(derive);
                steps.extend(identify);
                steps.push(self.sharded(surveyed, table, &surveyed.tenant.name));
            }
        }
        steps
    }

    /// Returns the last argument of a call, unless it is not needed.
    fn in_keyspace(&self) -> String {
        match self.keyspace {
            "default" => String::new(),
            keyspace => format!(", keyspace => {}", literal(keyspace)),
        }
    }

    /// Returns the only argument of a call, unless it is not needed.
    fn of_keyspace(&self) -> String {
        match self.keyspace {
            "default" => String::new(),
            keyspace => literal(keyspace),
        }
    }

    fn identify(&self, table: &SurveyTable) -> AdoptionStep {
        let call = format!("SELECT shard_table_identify({}{})", literal(&table.shown), self.in_keyspace());
        let step = step(StepKind::Identify, call, "it has no primary key");
        AdoptionStep { table: Some(table.shown.clone()), ..step }
    }

    fn undo_of_table(&self, table: &SurveyTable) -> Option<String> {
        Some(format!("SELECT shard_table_drop({}{})", literal(&table.shown), self.in_keyspace()))
    }

    fn sharded(&self, surveyed: &Surveyed<'_>, table: &SurveyTable, column: &str) -> AdoptionStep {
        let key_type = calls::key_type(family(surveyed.tenant).as_deref());
        let call = format!(
            "SELECT shard_table_add({}, {}{}, key_type => '{key_type}')",
            literal(&table.shown),
            literal(column),
            self.in_keyspace()
        );
        AdoptionStep {
            table: Some(table.shown.clone()),
            column: Some(column.to_owned()),
            key_type: Some(key_type),
            policy: Some("sharded"),
            undo: self.undo_of_table(table),
            ..step(StepKind::Table, call, "its rows lie with their tenant")
        }
    }

    fn registered(&self, table: &SurveyTable, tenancy: &Tenancy) -> AdoptionStep {
        let (policy, origin) = match tenancy.by {
            TenantBy::Reference => ("reference", format!(", origin => {}", literal(self.survey.shard))),
            _ => ("global", String::new()),
        };
        let call = format!(
            "SELECT shard_table_add({}, NULL{}, policy => '{policy}'{origin})",
            literal(&table.shown),
            self.in_keyspace()
        );
        AdoptionStep {
            table: Some(table.shown.clone()),
            policy: Some(policy),
            undo: self.undo_of_table(table),
            ..step(StepKind::Table, call, tenancy.reason.clone().unwrap_or_default())
        }
    }

    fn derive(
        &self,
        surveyed: &Surveyed<'_>,
        table: &SurveyTable,
        tenancy: &Tenancy,
    ) -> Option<AdoptionStep> {
        let key = surveyed.database.keys.get(*tenancy.path.as_ref()?.first()?)?;
        let parent = surveyed.database.table(key.to?)?;
        let column = &surveyed.tenant.name;
        let of_parent = parent.column.as_ref().map_or(column, |column| &column.name);
        let value = (of_parent != column).then(|| of_parent.clone());
        let through: Vec<String> = key.columns.iter().map(|column| column.from.clone()).collect();
        let why = format!("its tenant is that of {}, by {}", parent.shown, key.columns_text());
        Some(self.with_column(table, column, through, value, why))
    }

    /// Returns the step that waits until a column is filled, which another call has begun.
    fn filled(&self, table: &SurveyTable, column: &DerivedColumn) -> AdoptionStep {
        let (through, value) = (column.through.clone(), column.value.clone());
        self.with_column(table, &column.column, through, value, "its rows are being filled".to_owned())
    }

    fn with_column(
        &self,
        table: &SurveyTable,
        column: &str,
        through: Vec<String>,
        value: Option<String>,
        why: String,
    ) -> AdoptionStep {
        let (shown, keyspace) = (literal(&table.shown), self.in_keyspace());
        let call = calls::derive(table, column, &through, value.as_deref(), &keyspace);
        AdoptionStep {
            table: Some(table.shown.clone()),
            column: Some(column.to_owned()),
            through,
            value,
            undo: Some(format!("SELECT shard_table_derive_drop({shown}{keyspace})")),
            ..step(StepKind::Derive, call, why)
        }
    }

    fn sequences(&self) -> AdoptionStep {
        let call = format!("SELECT * FROM shard_sequences_spread({})", self.of_keyspace());
        step(StepKind::Sequences, call, "no two shards draw the same number")
    }

    fn keys(&self) -> AdoptionStep {
        let call = format!("SELECT * FROM shard_assign_found({})", self.of_keyspace());
        let why = "each tenant is routed to the shard that has its rows";
        step(StepKind::Keys, call, why)
    }

    fn schema(&self, target: &str, references: &[AdoptionStep], undecided: Vec<String>) -> AdoptionStep {
        let mut also: Vec<String> = references.iter().filter_map(|step| step.table.clone()).collect();
        also.extend(undecided);
        let shown = match also.is_empty() {
            true => String::new(),
            false => format!(", also => {}", literal(&text_array(&also))),
        };
        let call = format!(
            "SELECT * FROM shard_schema_copy({}, {}{}{shown})",
            literal(self.survey.shard),
            literal(target),
            self.in_keyspace()
        );
        AdoptionStep { also, ..step(StepKind::Schema, call, format!("shard {target} gets the same tables")) }
    }

    fn references(&self, target: &str) -> AdoptionStep {
        let call = format!("SELECT shard_reference_wait({})", self.of_keyspace());
        step(StepKind::References, call, format!("shard {target} gets the rows of reference tables"))
    }
}

/// Returns the tables that no step registers, and nobody has: foreign keys of others may lead to them, which the other
/// shard gets, too.
fn undecided(surveyed: &Surveyed<'_>, known: &Known, steps: &[AdoptionStep]) -> Vec<String> {
    let tables = surveyed.database.tables.iter().zip(surveyed.tenancies);
    let open = tables.filter(|(table, tenancy)| {
        tenancy.by == TenantBy::Unclear
            && !known.tables.contains(&table.shown)
            && !steps.iter().any(|step| step.table.as_ref() == Some(&table.shown))
    });
    open.map(|(table, _)| table.shown.clone()).collect()
}

/// Whether the tenant of an unclear table is known all the same: all of its paths agree in the rows that are there, or
/// the table that its only path leads through has got its column. The check of a split finds rows that contradict later.
fn is_settled(surveyed: &Surveyed<'_>, number: usize, tenancy: &Tenancy, derived: &BTreeSet<usize>) -> bool {
    let first = tenancy.path.as_ref().and_then(|path| surveyed.database.keys.get(*path.first()?));
    let Some(key) = first.filter(|key| !key.is_nullable()) else { return false };
    let has_column = |to: Option<usize>| {
        to.is_some_and(|to| {
            let of_parent = surveyed.tenancies.get(to);
            derived.contains(&to) || of_parent.is_some_and(|tenancy| tenancy.by == TenantBy::Column)
        })
    };
    if !has_column(key.to) {
        return false;
    }
    if tenancy.others.is_empty() {
        return tenancy.is_above_unclear;
    }
    let sample = surveyed.samples.of.get(&number);
    sample.is_some_and(|sample| sample.seen > 0 && sample.differing.is_empty() && sample.without.rows == 0)
}

fn step(kind: StepKind, call: String, why: impl Into<String>) -> AdoptionStep {
    AdoptionStep {
        kind,
        table: None,
        column: None,
        through: Vec::new(),
        value: None,
        also: Vec::new(),
        policy: None,
        key_type: None,
        call: Some(call),
        undo: None,
        why: why.into(),
    }
}

/// Returns what no step does: the findings that have to be decided or read by a person.
fn decisions(lines: &[SurveyLine], steps: &[AdoptionStep], known: &Known) -> Vec<AdoptionStep> {
    let has_step = |line: &SurveyLine| {
        steps.iter().any(|step| step.table.is_some() && step.table == line.table_name)
            || line.table_name.as_ref().is_some_and(|table| known.tables.contains(table))
    };
    let is_open = |line: &&SurveyLine| {
        // How a table's tenant is found is said by its step.
        let is_done = match line.call.as_deref() {
            Some(calls::SPREAD) => true,
            Some(call) if call.starts_with(calls::IDENTIFY) => has_step(line),
            _ => line.tenant_by.is_some() && has_step(line),
        };
        !is_done && line.finding.is_some() && (line.call.is_some() || line.table_name.is_some())
    };
    // Many tables have the same one: it is said once, for all of them.
    let mut groups: Vec<(String, Vec<&SurveyLine>)> = Vec::new();
    for line in lines.iter().filter(is_open) {
        let same = match (&line.call, &line.finding) {
            (Some(call), _) => call.clone(),
            (None, Some(finding)) => finding.replace(|c: char| c.is_ascii_digit(), ""),
            (None, None) => continue,
        };
        match groups.iter_mut().find(|(known, _)| *known == same) {
            Some((_, group)) => group.push(line),
            None => groups.push((same, vec![line])),
        }
    }
    // What a table is comes first.
    groups.sort_by_key(|(_, group)| group.first().is_none_or(|line| line.tenant_by.is_none()));
    groups.iter().filter_map(|(_, group)| decision(group)).collect()
}

/// Returns one decision for all tables that have it.
fn decision(group: &[&SurveyLine]) -> Option<AdoptionStep> {
    let first = group.first()?;
    let why = first.finding.clone().unwrap_or_default();
    let others = group.iter().filter(|line| line.finding != first.finding).count();
    let why = match others {
        0 => why,
        _ => format!("{why}; and {}", counted(others as i64, "finding like it", "findings like it")),
    };
    let tables: Vec<&String> = group.iter().filter_map(|line| line.table_name.as_ref()).collect();
    let table = (!tables.is_empty()).then(|| few(&tables));
    Some(AdoptionStep { table, call: first.call.clone(), ..step(StepKind::Decide, String::new(), why) })
}
