//! Creates on one shard what another one has. Each call can be repeated: it skips what already exists.

use super::blocks;
use super::compare::by_key;
use super::error;
use super::inventory::{LONGEST_WAIT, SchemaLook, path};
use super::object::Object;
use super::plan::{self, Namespaces, SchemaPlan, SchemaStep, SchemaWanted};
use crate::catalog::caller::Caller;
use crate::catalog::job;
use crate::catalog::number_block::GivenBlock;
use crate::catalog::shard;
use crate::catalog::table_policy::TableName;
use crate::error::Failure;
use crate::numbers::block::Block;
use crate::numbers::spread;
use crate::remote::fan_out::Question;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The shortest time for which a lock is waited for.
const LEAST: Duration = Duration::from_millis(50);

/// The index of the target among the shards that are read.
const TO: usize = 1;

pub struct SchemaCopy<'a> {
    pub from: &'a str,
    pub to: &'a str,
    pub keyspace: &'a str,
    /// The tables beside those of the keyspace.
    pub also: &'a [String],
    pub wanted: SchemaWanted,
    /// Nothing is created.
    pub dry_run: bool,
    /// The total time for which each shard is waited for.
    pub timeout: Duration,
}

/// An object that the other shard lacked.
pub struct CopyLine {
    pub kind: String,
    pub name: String,
    /// The statement that creates it; `None` if it is not created.
    pub statement: Option<String>,
}

impl SchemaCopy<'_> {
    /// Returns what was created, or would be, and what is not created.
    pub fn run(&self) -> Result<Vec<CopyLine>, Failure> {
        if self.from == self.to {
            return Err(error::named_twice(self.from));
        }
        let mut look = SchemaLook::open(&[self.from, self.to], self.keyspace, self.also, self.timeout)?;
        let mut found = look.inventories(|_| true)?;
        let (there, here) = (found.pop().unwrap_or_default(), found.pop().unwrap_or_default());
        look.require_tables(0, &here)?;
        let namespace = |number: usize| look.sessions.shards()[number].shard.namespace.clone();
        let (from, to) = (namespace(0), namespace(TO));
        let mut plan = plan::make(&here, &there, self.wanted, Namespaces { from: &from, to: &to });
        plan.problems.extend(self.waits_for_itself(&plan)?);
        if let Some(first) = plan.problems.first() {
            return Err(error::cannot_be_created([self.from, self.to], first, &plan.problems));
        }
        self.give_numbers(&mut look, &mut plan)?;
        if !self.dry_run {
            self.make(&mut look, &plan, &path(&to), [&here, &there])?;
            // The functions behind derived columns name the schema of their shard.
            Caller::as_owner(|_| job::derive_again(self.keyspace));
        }
        let made = plan.together.into_iter().chain(plan.late).chain(plan.after);
        let made = made.map(|SchemaStep { kind, name, statement }| CopyLine {
            kind,
            name,
            statement: Some(statement),
        });
        Ok(made.chain(unmade(&mut look, &there)?).collect())
    }

    /// Gives a sequence that is spread on one shard numbers of its own on the other one, too.
    fn give_numbers(&self, look: &mut SchemaLook, plan: &mut SchemaPlan) -> Result<(), Failure> {
        let steps = || plan.together.iter().chain(&plan.late).chain(&plan.after);
        let wanted: BTreeSet<i64> = steps().flat_map(|step| blocks::wanted(&step.statement)).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let blocks: BTreeMap<i64, Block> = Caller::as_owner(|_| {
            spread::reserve(self.keyspace, self.to, &wanted, self.timeout, self.dry_run)
        })?;
        for step in plan.together.iter_mut().chain(&mut plan.late).chain(&mut plan.after) {
            step.statement = blocks::fill(&step.statement, &blocks);
        }
        let given =
            blocks.values().map(|block| GivenBlock { shard_key: self.to.to_owned(), range: block.range() });
        look.blocks.extend(given);
        Ok(())
    }

    /// Returns the problem of indexes in this same database: CREATE INDEX CONCURRENTLY would wait for the caller's
    /// transaction.
    fn waits_for_itself(&self, plan: &SchemaPlan) -> Result<Option<String>, Failure> {
        let is_here = Caller::as_owner(|_| shard::by_key(self.to))?.conninfo.is_none();
        let mut indexes = plan.after.iter().filter(|step| is_here && step.kind == "index");
        Ok(indexes.next().map(|step| {
            format!(
                "index {} is in this database, and would wait for this call: {}",
                step.name, step.statement
            )
        }))
    }

    /// Creates the objects. `before` contains what both shards had.
    fn make(
        &self,
        look: &mut SchemaLook,
        plan: &SchemaPlan,
        path: &str,
        before: [&[Object]; 2],
    ) -> Result<(), Failure> {
        if !(plan.together.is_empty() && plan.late.is_empty()) {
            tell(look, "BEGIN")?;
            tell(look, &format!("SET LOCAL search_path = {path}"))?;
            for step in &plan.together {
                tell(look, &step.statement).map_err(|failure| of(step, failure))?;
            }
            // With a thousand tables, this reading takes a while, during which writers would wait if it came after the
            // locks. Other late steps may affect more than their table, so the reading comes after them.
            let is_alone = plan
                .late
                .iter()
                .all(|step| matches!(step.kind.as_str(), "foreign key" | "grant" | "comment"));
            if is_alone {
                let made = look.inventories(|number| number == TO)?.pop().unwrap_or_default();
                self.require_alike(&made, &plan.made, before)?;
            }
            let began = Instant::now();
            for step in &plan.late {
                // The waits for all locks together take as long as one may take.
                let left = LONGEST_WAIT.saturating_sub(began.elapsed()).max(LEAST).as_millis();
                let statement = format!("SET LOCAL lock_timeout = {left}; {}", step.statement);
                tell(look, &statement).map_err(|failure| of(step, failure))?;
            }
            let names: BTreeSet<&str> =
                plan.made_late.iter().filter_map(|object| object.on_table.as_deref()).collect();
            let tables: Vec<TableName> = names.into_iter().filter_map(TableName::parse).collect();
            if !is_alone {
                let made = look.inventories(|number| number == TO)?.pop().unwrap_or_default();
                self.require_alike(&made, &plan.made, before)?;
                self.require_alike(&made, &plan.made_late, before)?;
            } else if !tables.is_empty() {
                let made = look.inventories_of(&tables, |number| number == TO)?.pop().unwrap_or_default();
                self.require_alike(&made, &plan.made_late, before)?;
            }
            tell(look, "COMMIT")?;
        }
        tell(look, &format!("SET search_path = {path}"))?;
        // Each step is a transaction of its own, as CREATE INDEX CONCURRENTLY requires. Nobody waits for that
        // statement while it waits for writers.
        for step in &plan.after {
            let longest = if step.kind == "index" { 0 } else { LONGEST_WAIT.as_millis() };
            tell(look, &format!("SET lock_timeout = {longest}"))?;
            tell(look, &step.statement).map_err(|failure| of(step, failure))?;
        }
        Ok(())
    }

    /// Requires that the new objects are the wanted ones, before anyone sees them.
    fn require_alike(
        &self,
        after: &[Object],
        wanted: &[Object],
        before: [&[Object]; 2],
    ) -> Result<(), Failure> {
        if let Some(object) = plan::beside(after, before, self.wanted) {
            return Err(self.otherwise(object, "missing", &object.definition));
        }
        let found = by_key(after);
        let is_other = |wanted: &&Object| {
            found.get(&wanted.key()).is_none_or(|made| made.definition != wanted.definition)
        };
        let Some(wanted) = wanted.iter().find(is_other) else { return Ok(()) };
        let made = found.get(&wanted.key()).map_or("missing", |made| made.definition.as_str());
        Err(self.otherwise(wanted, &wanted.definition, made))
    }

    fn otherwise(&self, object: &Object, there: &str, here: &str) -> Failure {
        error::created_differently([self.from, self.to], &object.text(), [there, here])
    }
}

/// Returns what exists only on the first shard, and is not created. `there` contains the other shard's tables and what
/// they need.
fn unmade(look: &mut SchemaLook, there: &[Object]) -> Result<Vec<CopyLine>, Failure> {
    let mut found = look.unmade()?;
    let (beside, here) = (found.pop().unwrap_or_default(), found.pop().unwrap_or_default());
    let known: BTreeSet<(&str, &str)> =
        there.iter().chain(&beside).map(|object| (object.kind.as_str(), object.name.as_str())).collect();
    let is_missing = |object: &&Object| !known.contains(&(object.kind.as_str(), object.name.as_str()));
    Ok(here
        .iter()
        .filter(is_missing)
        .map(|object| CopyLine { kind: object.kind.clone(), name: object.name.clone(), statement: None })
        .collect())
}

fn tell(look: &mut SchemaLook, statement: &str) -> Result<(), Failure> {
    let question = |number: usize| (number == TO).then(|| Question::Own(statement.to_owned()));
    look.sessions.ask(question).map(drop)
}

/// Adds the object to an error: a server does not always name it.
fn of(step: &SchemaStep, failure: Failure) -> Failure {
    let text = format!("{} {}: {}", step.kind, step.name, failure.message);
    // A grant by a role with the grant option is made by that role on the other shard, too.
    let is_by_another = step.kind == "grant" && step.statement.starts_with("SET LOCAL ROLE ");
    let hint = (is_by_another && failure.hint.is_none()).then(|| {
        "The role that granted it on the other shard must grant it. Make the login a member of that role, or call it with rights => false.".to_owned()
    });
    Failure { message: text, hint: failure.hint.or(hint), ..failure }
}
