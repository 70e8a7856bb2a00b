//! Plans what has to be created so that a shard has what another one has, and finds what prevents it. Invariant: what
//! exists is not changed, and its users never wait for anything that takes longer with more rows.

use super::compare::by_key;
use super::object::{NAMESPACE, Object};
use crate::remote::quote::ident;
use crate::remote::template::{name, put};
use std::collections::BTreeSet;

/// What is requested.
#[derive(Debug, Clone, Copy)]
pub struct SchemaWanted {
    /// Without it, indexes that enforce nothing and foreign keys are left out: they cost least after the rows have
    /// arrived.
    pub secondary: bool,
    /// Owners, grants, and privileges revoked from PUBLIC.
    pub rights: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaStep {
    pub kind: String,
    pub name: String,
    pub statement: String,
}

/// First all of `together` and `late`, in one transaction; then each of `after` alone.
#[derive(Debug, Default)]
pub struct SchemaPlan {
    pub together: Vec<SchemaStep>,
    pub after: Vec<SchemaStep>,
    /// The rest of that transaction: it locks existing tables, and their writers wait from then on until its end.
    pub late: Vec<SchemaStep>,
    pub made_late: Vec<Object>,
    /// The last steps of `together`.
    comments: Vec<SchemaStep>,
    /// The objects created by `together`, with the definitions that they must have then.
    pub made: Vec<Object>,
    /// If there is a problem, nothing is created.
    pub problems: Vec<String>,
}

/// The schemas of the two shards' tables.
#[derive(Debug, Clone, Copy)]
pub struct Namespaces<'a> {
    pub from: &'a str,
    pub to: &'a str,
}

pub fn make(from: &[Object], to: &[Object], wanted: SchemaWanted, namespaces: Namespaces<'_>) -> SchemaPlan {
    let there = by_key(to);
    let names = |kind: &str| -> BTreeSet<&str> {
        to.iter().filter(|object| object.key().0 == kind).map(|object| object.name.as_str()).collect()
    };
    let maker = Maker { to, tables: names("table"), schemas: names("schema"), namespaces };
    let mut plan = SchemaPlan::default();
    let partitioned: BTreeSet<&str> =
        from.iter().filter(|object| object.is_partitioned()).map(|object| object.name.as_str()).collect();
    let foreign: BTreeSet<&str> = from
        .iter()
        .filter(|object| object.kind == "foreign key")
        .map(|object| object.name.as_str())
        .collect();
    let is_of_foreign =
        |object: &Object| constraint_of(object).is_some_and(|name| foreign.contains(name.as_str()));
    let is_wanted = |object: &Object| {
        is_wanted(object, &partitioned, wanted)
            && (wanted.secondary || !(object.kind == "comment" && is_of_foreign(object)))
    };
    for object in from.iter().filter(|object| !object.is_unused() && is_wanted(object)) {
        // The table has a column order, and keeps it.
        if object.kind == "column order" {
            continue;
        }
        match there.get(&object.key()) {
            Some(found) if found.definition == object.definition => {}
            Some(found) => maker.otherwise(object, found, &mut plan),
            None => maker.missing(object, &mut plan),
        }
    }
    let comments = std::mem::take(&mut plan.comments);
    plan.together.extend(comments);
    plan
}

/// Returns an object that came with the new ones and that neither shard had: a privilege that the server grants on
/// every new object, or a function there that a text has reached unintentionally.
pub fn beside<'a>(after: &'a [Object], before: [&[Object]; 2], wanted: SchemaWanted) -> Option<&'a Object> {
    let known = before.map(by_key);
    let is_used = |object: &Object| {
        known.iter().any(|shard| shard.get(&object.key()).is_some_and(|found| !found.is_unused()))
    };
    after.iter().filter(|object| !object.is_unused() && !is_used(object)).find(|object| {
        let is_right = object.is(&["owner", "grant", "revoke"]);
        // Existing tables may have more of these, which a new partition gets.
        let is_of_table = object.is(&["index of partition", "check of partition", "trigger of partition"]);
        !is_of_table && !object.name.starts_with("SCHEMA ") && (wanted.rights || !is_right)
    })
}

fn is_wanted(object: &Object, partitioned: &BTreeSet<&str>, wanted: SchemaWanted) -> bool {
    // What a partitioned table has is created together with it: later, no server can create it without blocking
    // writers.
    let is_later = object.on_table.as_deref().is_some_and(|table| !partitioned.contains(table));
    let is_secondary = match object.kind.as_str() {
        "foreign key" | "cluster" | "index statistics" => true,
        "index" => !object.is_unique_index(),
        "comment" => object.name.starts_with("INDEX "),
        "replica identity" => object.definition.starts_with("USING INDEX "),
        _ => false,
    };
    let is_right = object.is(&["owner", "grant", "revoke"]);
    (wanted.secondary || !(is_secondary && is_later)) && (wanted.rights || !is_right)
}

struct Maker<'a> {
    to: &'a [Object],
    tables: BTreeSet<&'a str>,
    schemas: BTreeSet<&'a str>,
    namespaces: Namespaces<'a>,
}

impl Maker<'_> {
    /// Whether it would revoke a privilege on an existing object, which somebody may be using.
    fn takes_from_what_is_there(&self, object: &Object) -> bool {
        let is_it = |found: &&Object| {
            let (word, name) = object.name.split_once(' ').unwrap_or_default();
            found.name == name && found.kind.eq_ignore_ascii_case(word)
        };
        object.kind == "revoke" && self.to.iter().any(|found| is_it(&found))
    }

    /// Whether a foreign key refers to an existing table: it locks both of its tables.
    fn refers_to_one_there(&self, object: &Object) -> bool {
        let of = object.definition.split_once(" REFERENCES ").map_or("", |(_, of)| of);
        object.kind == "foreign key"
            && self
                .tables
                .iter()
                .any(|table| of.strip_prefix(table).is_some_and(|rest| rest.starts_with('(')))
    }

    /// Whether it is a privilege on, or the owner of, an existing schema, which that schema's owner decides.
    fn is_of_schema_there(&self, object: &Object) -> bool {
        let schema = object.name.strip_prefix("SCHEMA ");
        object.is(&["owner", "grant", "revoke"]) && schema.is_some_and(|schema| self.schemas.contains(schema))
    }

    /// Handles an object that both shards have, but not alike. A difference in a comment is left alone.
    fn otherwise(&self, object: &Object, found: &Object, plan: &mut SchemaPlan) {
        let is_but = |state: &str| found.definition == format!("{} {state}", object.definition);
        if object.is(&["foreign key", "check"]) && is_but("NOT VALID") {
            plan.after.extend(validation(object));
        } else if object.kind == "index" && is_but("INVALID") {
            // An interrupted call leaves such an index.
            plan.after.push(step(object, format!("REINDEX INDEX CONCURRENTLY {}", object.name)));
        } else if object.kind != "comment" && !self.is_of_schema_there(object) {
            plan.problems.push(format!("{} is different there", object.text()));
        }
    }

    fn missing(&self, object: &Object, plan: &mut SchemaPlan) {
        let is_there = object.on_table.as_deref().is_some_and(|table| self.tables.contains(table));
        // A column is created with its table.
        if object.kind == "column" {
            if is_there {
                plan.problems.push(format!("{} is missing, of a table that exists", object.text()));
            }
            return;
        }
        // The owner of an existing schema decides about it; a check of a partition is created with that of its table.
        if self.is_of_schema_there(object) || object.kind == "check of partition" && is_there {
            return;
        }
        let Some(statement) = &object.statement else {
            if object.kind == "trigger of partition" {
                let is_late = is_there || is_said_of_late(object, plan);
                let made = if is_late { &mut plan.made_late } else { &mut plan.made };
                made.push(object.clone());
                return;
            }
            plan.problems.push(match object.kind.as_str() {
                "extension" => format!("{} is missing: CREATE EXTENSION", object.text()),
                _ => format!("{} is of a kind that cannot be created: {}", object.text(), object.definition),
            });
            return;
        };
        // The index is incomplete: its final state is only known on its own shard.
        if object.kind == "index" && object.definition.ends_with(" INVALID") {
            plan.problems.push(format!("{} is invalid on the first shard", object.text()));
            return;
        }
        if self.has_default_beside(object) {
            plan.problems.push(format!("{} is missing beside a default partition", object.text()));
            return;
        }
        if self.names_its_schema(object, statement) {
            let (text, schema) = (object.text(), self.namespaces.from);
            plan.problems.push(format!("{text} names schema \"{schema}\", which is a different one there"));
            return;
        }
        if self.takes_from_what_is_there(object) {
            plan.problems.push(format!("{} {} is missing there", object.text(), object.definition));
            return;
        }
        let statement = self.placed(object, statement);
        match is_there {
            true => self.beside_rows(object, statement, plan),
            false if self.refers_to_one_there(object) || is_said_of_late(object, plan) => {
                late(object, statement, plan);
            }
            false => together(object, statement, plan),
        }
    }

    /// Whether a text contains the first shard's schema: texts are copied unchanged, so this name would remain.
    fn names_its_schema(&self, object: &Object, statement: &str) -> bool {
        let Namespaces { from, to } = self.namespaces;
        if from == to || object.kind == "comment" {
            return false;
        }
        let quoted = ident(from);
        let is_path = |line: &str| {
            line.trim_start().starts_with("SET search_path")
                && (line.contains(&quoted) || line.split(|c| !is_of_word(c)).any(|word| word == from))
        };
        let is_named = |text: &str, name: &str| qualifies(text, name) || qualifies(text, &quoted);
        // An unquoted name may be written in capitals.
        is_named(statement, from)
            || is_named(&statement.to_lowercase(), from)
            || object.kind == "function" && statement.lines().any(is_path)
    }

    fn placed(&self, object: &Object, statement: &str) -> String {
        if object.kind == "schema" || object.name.starts_with("SCHEMA ") {
            put(statement, NAMESPACE, &name(self.namespaces.to))
        } else {
            statement.to_owned()
        }
    }

    /// Plans an object on an existing table, which may have rows and writers.
    fn beside_rows(&self, object: &Object, statement: String, plan: &mut SchemaPlan) {
        let table = object.on_table.as_deref().unwrap_or_default();
        let is_partitioned = self.to.iter().any(|o| o.is_partitioned() && o.name == table);
        match object.kind.as_str() {
            // Attaching one of these reads the whole table, while nobody else may write.
            "primary key" | "unique" | "exclusion" | "index of partition" | "partition"
            | "owned sequence" | "replica identity" => {
                plan.problems.push(format!("{} is missing, of a table that exists", object.text()));
            }
            "index" if object.is_unique_index() || is_partitioned => {
                plan.problems.push(format!("{} is missing, of a table that exists", object.text()));
            }
            "index" => {
                let statement = statement.replacen("CREATE INDEX ", "CREATE INDEX CONCURRENTLY ", 1);
                plan.after.push(SchemaStep { statement, ..step(object, String::new()) });
            }
            "foreign key" | "check" => {
                let is_valid = !object.definition.ends_with(" NOT VALID");
                let later = if is_valid { " NOT VALID" } else { "" };
                plan.late.push(step(object, format!("{statement}{later}")));
                plan.made_late
                    .push(Object { definition: format!("{}{later}", object.definition), ..object.clone() });
                plan.after.extend(is_valid.then(|| validation(object)).flatten());
            }
            // These may be created afterwards.
            "cluster" | "comment" | "index statistics" => plan.after.push(step(object, statement)),
            _ => late(object, statement, plan),
        }
    }

    /// Whether the partition has a default partition beside it: the server would read that one as a whole, and lock
    /// it.
    fn has_default_beside(&self, object: &Object) -> bool {
        let mut parents = self.tables.iter();
        object.kind == "partition"
            && parents.any(|table| {
                let default = format!("of {table} DEFAULT");
                object.definition.starts_with(&format!("of {table} "))
                    && self.to.iter().any(|o| o.kind == "partition" && o.definition == default)
            })
    }
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

/// Whether the name, and not the end of a longer one, is before a dot.
fn qualifies(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let (before, after) = (text.get(..at), text.get(at + name.len()..));
        after.is_some_and(|after| after.trim_start().starts_with('.'))
            && !before.is_some_and(|before| before.ends_with(is_of_word))
    })
}

fn together(object: &Object, statement: String, plan: &mut SchemaPlan) {
    let step = step(object, statement);
    match object.kind.as_str() {
        "comment" => plan.comments.push(step),
        _ => plan.together.push(step),
    }
    plan.made.push(object.clone());
}

fn late(object: &Object, statement: String, plan: &mut SchemaPlan) {
    plan.late.push(step(object, statement));
    plan.made_late.push(object.clone());
}

fn is_said_of_late(object: &Object, plan: &SchemaPlan) -> bool {
    let is_late = |kind: &str| plan.late.iter().any(|step| step.kind == kind);
    let is_of = |name: &String| plan.late.iter().any(|step| step.kind == "foreign key" && step.name == *name);
    match object.kind.as_str() {
        "trigger of partition" => is_late("trigger"),
        "comment" if object.name.starts_with("TRIGGER ") => is_late("trigger"),
        "comment" => constraint_of(object).as_ref().is_some_and(is_of),
        _ => false,
    }
}

/// Returns the name of the constraint that a comment describes.
fn constraint_of(object: &Object) -> Option<String> {
    let (name, table) = (object.name.strip_prefix("CONSTRAINT ")?, object.on_table.as_deref()?);
    Some(format!("{table}: {}", name.strip_suffix(&format!(" ON {table}"))?))
}

fn step(object: &Object, statement: String) -> SchemaStep {
    SchemaStep { kind: object.kind.clone(), name: object.name.clone(), statement }
}

/// Returns the step that validates a NOT VALID constraint for existing rows.
fn validation(object: &Object) -> Option<SchemaStep> {
    let table = object.on_table.as_deref()?;
    let name = object.name.strip_prefix(table)?.strip_prefix(": ")?;
    Some(step(object, format!("ALTER TABLE {table} VALIDATE CONSTRAINT {name}")))
}
