//! The functions of defaults, triggers, constraints and policies, and the objects that they name: on the target these
//! must exist, and be the same. The texts were read for them already.

use crate::agent::catalogs;
use crate::agent::deparsed::{canonical, in_schema};
use crate::agent::error::Result;
use crate::agent::session::Side;
use crate::agent::table_names::TableNames;
use crate::catalog::shard;
use crate::catalog::split::Plan;
use crate::remote::Connection;
use crate::remote::quote::{ident_as_needed, qualified_as_needed, text_array};
use crate::schema::compare::{self, SchemaDifference};
use crate::schema::inventory;
use crate::server::txn::in_one;
use crate::split::finding::Finding;
use crate::split::plan::check::beside::rights;
use crate::split::remark::Remark;
use crate::split::sequences::functions::FunctionTexts;
use crate::split::sequences::named_rows::{self, Why};
use crate::split::sequences::pair::Places;
use crate::split::sequences::survey::Survey;
use crate::words::some_of;
use std::collections::{BTreeMap, BTreeSet};

const NAMED: &str = include_str!("../../../sql/check/named.sql");
const DEFINITIONS: &str = include_str!("../../../sql/check/definitions.sql");

const CALLED: &str = "writes to the moving tables call";

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Thing {
    kind: String,
    schema: String,
    name: String,
}

/// Objects of some names, and tables that views of these names show, with the views' names.
struct Things {
    named: BTreeSet<Thing>,
    shown: Vec<(Thing, String)>,
    /// The definitions of types, text search configurations and collations.
    made_of: BTreeMap<Thing, String>,
}

pub fn check(
    plan: &Plan,
    source: &mut Connection,
    target: &mut Connection,
    schemas: &[String],
    found: &Survey,
) -> Result<Vec<Finding>> {
    let (texts, mut counted) = (&found.texts, found.counted.clone());
    if texts.named.is_empty() && texts.names.is_empty() && counted.is_empty() {
        return Ok(Vec::new());
    }
    let places = Places::of(plan);
    let words: Vec<String> = texts.named.iter().cloned().collect();
    // A text may name the schema, too; that of another shard in the same database does not belong to this one.
    let of_others = in_one(|| shard::schemas_of_others(&plan.source));
    let here = without(schemas.iter().chain(&texts.named), &of_others);
    let Things { named, mut shown, made_of } = things(source, &here, &words)?;
    shown.retain(|(thing, _)| !of_others.contains(&thing.schema));
    let of_shown = |of: fn(&Thing) -> &String| shown.iter().map(move |(thing, _)| of(thing));
    let there: Vec<String> =
        here.iter().chain(of_shown(|thing| &thing.schema)).map(|schema| places.there(schema)).collect();
    let wanted: Vec<String> = words.iter().chain(of_shown(|thing| &thing.name)).cloned().collect();
    let Things { named: own, made_of: made_there, .. } = things(target, &there, &wanted)?;
    let is_there = |kind: &str, thing: &Thing| {
        let (kind, schema, name) = (kind.to_owned(), places.there(&thing.schema), thing.name.clone());
        own.contains(&Thing { kind, schema, name })
    };
    let lacks = |thing: &Thing| match thing.kind.as_str() {
        // A view may replace a table.
        "table" | "view" | "materialized view" => {
            !["table", "view", "materialized view"].iter().any(|kind| is_there(kind, thing))
        }
        kind => !is_there(kind, thing),
    };
    for (thing, view) in &shown {
        if counted.contains(view) {
            counted.insert(thing.name.clone());
        }
    }
    let all: BTreeSet<Thing> = named.into_iter().chain(shown.into_iter().map(|(thing, _)| thing)).collect();
    let (lacking, both): (Vec<Thing>, Vec<Thing>) = all.into_iter().partition(lacks);
    let missing = lacking.iter().map(|thing| {
        let kind = &thing.kind;
        let object = qualified_as_needed(&thing.schema, &thing.name);
        let detail = format!("{kind} {object}, which the target lacks, is named by functions that {CALLED}");
        Finding::remark_of(plan.reverse_of, Remark::Lacking, &object, detail)
    });
    let mut findings: Vec<Finding> = missing.collect();
    findings.extend(made_of_others(plan, &both, &made_of, &made_there));
    findings.extend(otherwise(plan, source, target, &here, texts)?);
    let tables = both.into_iter().filter(|thing| thing.kind == "table");
    let tables: Vec<(String, String)> = tables.map(|thing| (thing.schema, thing.name)).collect();
    findings.extend(named_rows::check(plan, source, target, &tables, Why::Named(&counted))?);
    let mut others = counting(plan, source, schemas, found)?;
    others.retain(|table| !tables.contains(table));
    findings.extend(named_rows::check(plan, source, target, &others, Why::Counted)?);
    let TableNames { schemas, names } = TableNames::of(plan, Side::Source);
    let moving: Vec<(String, String)> = schemas.into_iter().zip(names).collect();
    let staying = without(tables.iter(), &moving);
    findings.extend(rights(plan, source, target, &staying)?);
    findings.extend(made_otherwise(plan, source, target, &staying)?);
    Ok(findings)
}

/// Returns what is not left out, in order and each once.
fn without<'a, T: Ord + Clone + 'a>(all: impl Iterator<Item = &'a T>, left_out: &[T]) -> Vec<T> {
    all.collect::<BTreeSet<&T>>().into_iter().filter(|one| !left_out.contains(one)).cloned().collect()
}

/// Returns tables by whose rows functions count, of the triggers and defaults, or of clients.
fn counting(
    plan: &Plan,
    source: &mut Connection,
    schemas: &[String],
    found: &Survey,
) -> Result<Vec<(String, String)>> {
    let words: Vec<String> = found.counted.iter().cloned().collect();
    if words.is_empty() {
        return Ok(Vec::new());
    }
    let of_others = in_one(|| shard::schemas_of_others(&plan.source));
    let here = without(schemas.iter().chain(&found.texts.named).chain(&words), &of_others);
    let Things { named, .. } = things(source, &here, &words)?;
    let tables = named.into_iter().filter(|thing| thing.kind == "table");
    Ok(tables.map(|thing| (thing.schema, thing.name)).collect())
}

/// Returns such tables that are in no keyspace, before the cutover.
pub fn counters(
    plan: &Plan,
    source: &mut Connection,
    schemas: &[String],
    found: &Survey,
) -> Result<Vec<Finding>> {
    let tables = counting(plan, source, schemas, found)?;
    named_rows::counters(plan, source, &tables)
}

/// Returns types, text search configurations and collations of the same name with different definitions.
fn made_of_others(
    plan: &Plan,
    both: &[Thing],
    here: &BTreeMap<Thing, String>,
    there: &BTreeMap<Thing, String>,
) -> Vec<Finding> {
    let places = Places::of(plan);
    let is_other = |thing: &&Thing| {
        let other = Thing { schema: places.there(&thing.schema), ..(*thing).clone() };
        let [from, into] = [&thing.schema, &other.schema].map(|schema| ident_as_needed(schema));
        let made_of = here.get(thing).zip(there.get(&other));
        made_of.is_some_and(|(here, own)| in_schema(here, &from, &into) != *own)
    };
    let finding = |thing: &Thing| {
        let object = qualified_as_needed(&thing.schema, &thing.name);
        let detail = format!(
            "{} {object}, which is named by functions that {CALLED}, is different on the target",
            thing.kind
        );
        Finding::remark_of(plan.reverse_of, Remark::Lacking, &object, detail)
    };
    both.iter().filter(is_other).map(finding).collect()
}

/// Finds, for tables that functions name, what only the target's would refuse, or only the source's.
fn made_otherwise(
    plan: &Plan,
    source: &mut Connection,
    target: &mut Connection,
    here: &[(String, String)],
) -> Result<Vec<Finding>> {
    const KINDS: [&str; 6] = ["column", "check", "primary key", "unique", "exclusion", "foreign key"];
    let places = Places::of(plan);
    if here.is_empty() {
        return Ok(Vec::new());
    }
    let there: Vec<(String, String)> =
        here.iter().map(|(schema, table)| (places.there(schema), table.clone())).collect();
    let given = inventory::of_tables(source, places.source, here)?;
    let own = inventory::of_tables(target, places.target, &there)?;
    let mut by_table: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for SchemaDifference { one, other } in compare::differences(&given, &own) {
        let object = one.or(other).filter(|object| object.is(&KINDS));
        if let Some((object, table)) = object.and_then(|object| Some((object, object.on_table.as_deref()?))) {
            by_table.entry(table).or_default().push(object.text());
        }
    }
    let finding = |(table, objects): (&str, Vec<String>)| {
        let detail = format!(
            "table {table}, which is named by functions that {CALLED}, is different on the target: {}",
            some_of(&objects)
        );
        Finding::remark_of(plan.reverse_of, Remark::Lacking, table, detail)
    };
    Ok(by_table.into_iter().map(finding).collect())
}

/// Finds missing rights on tables that functions name: the roles that write to the moving tables read and write these,
/// too.
fn rights(
    plan: &Plan,
    source: &mut Connection,
    target: &mut Connection,
    tables: &[(String, String)],
) -> Result<Vec<Finding>> {
    let mut lacking: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for (table, text) in rights::of_places(plan, source, target, tables)? {
        lacking.entry(table).or_default().push(text);
    }
    let finding = |((schema, name), texts): ((String, String), Vec<String>)| {
        let object = qualified_as_needed(&schema, &name);
        let detail = format!(
            "table {object}, which is named by functions that {CALLED}: the target lacks {}",
            texts.join(", ")
        );
        Finding::remark_of(plan.reverse_of, Remark::Lacking, &object, detail)
    };
    Ok(lacking.into_iter().map(finding).collect())
}

fn things(session: &mut Connection, schemas: &[String], words: &[String]) -> Result<Things> {
    let lists = [schemas, words].map(text_array);
    let rows = catalogs::ask(session, NAMED, &catalogs::given(&lists))?.rows;
    let mut things = Things { named: BTreeSet::new(), shown: Vec::new(), made_of: BTreeMap::new() };
    for row in rows {
        let Ok([Some(kind), Some(schema), Some(name), view, made_of]) = <[_; 5]>::try_from(row) else {
            continue;
        };
        let thing = Thing { kind, schema, name };
        things.made_of.extend(made_of.map(|made_of| (thing.clone(), canonical(&made_of))));
        match view {
            Some(view) => things.shown.push((thing, view)),
            None => drop(things.named.insert(thing)),
        }
    }
    Ok(things)
}

/// A function whose text can be read.
struct FunctionDefinition {
    oid: String,
    schema: String,
    name: String,
    signature: String,
    /// `None` for an extension's function.
    says: Option<String>,
    callers: BTreeSet<String>,
}

/// Finds functions that differ on the target, or may not be called by the same roles.
fn otherwise(
    plan: &Plan,
    source: &mut Connection,
    target: &mut Connection,
    schemas: &[String],
    texts: &FunctionTexts,
) -> Result<Vec<Finding>> {
    let places = Places::of(plan);
    let names: Vec<String> = texts.names.iter().cloned().collect();
    let is_renamed = places.source != places.target;
    let key = |definition: &FunctionDefinition, schema: String| (schema, definition.signature.clone());
    let there: BTreeMap<(String, String), FunctionDefinition> =
        definitions(target, &names, is_renamed.then_some(places.target))?
            .into_iter()
            .map(|definition| (key(&definition, definition.schema.clone()), definition))
            .collect();
    let mut here = definitions(source, &names, is_renamed.then_some(places.source))?;
    let given: BTreeSet<(String, String)> =
        here.iter().map(|one| key(one, places.there(&one.schema))).collect();
    // A function in a schema that nothing names is another function of that name.
    here.retain(|one| {
        one.says.is_some() && (schemas.contains(&one.schema) || texts.called.contains(&one.oid))
    });
    let called: BTreeSet<(String, String)> =
        here.iter().map(|one| (places.there(&one.schema), one.name.clone())).collect();
    let mut findings = Vec::new();
    for one in here {
        let schema = places.there(&one.schema);
        let object = format!("{}.{}", ident_as_needed(&one.schema), one.signature);
        let is_named_there = there.values().any(|other| other.schema == schema && other.name == one.name);
        let detail = match there.get(&key(&one, schema)) {
            Some(other) if other.says != one.says => {
                format!("function {object}, which {CALLED}, is different on the target")
            }
            Some(other) => {
                let lacking = lacking(&one.callers, &other.callers);
                if lacking.is_empty() {
                    continue;
                }
                format!(
                    "function {object}, which {CALLED}: the target lacks EXECUTE for {}",
                    lacking.join(", ")
                )
            }
            None if is_named_there => {
                format!("function {object}, which the target lacks, is one that {CALLED}")
            }
            // That no function of its name exists, or that its caller is missing, is reported already.
            None => continue,
        };
        findings.push(Finding::remark_of(plan.reverse_of, Remark::Lacking, &object, detail));
    }
    // A call may mean this function, or either of two.
    let more = there.iter().filter(|(key, other)| {
        other.says.is_some()
            && !given.contains(*key)
            && called.contains(&(other.schema.clone(), other.name.clone()))
    });
    findings.extend(more.map(|(_, other)| {
        let object = format!("{}.{}", ident_as_needed(&other.schema), other.signature);
        let detail = format!(
            "function {object} of the target has the name of one that {CALLED}, and may be called instead"
        );
        Finding::remark_of(plan.reverse_of, Remark::Alone, &object, detail)
    }));
    Ok(findings)
}

fn lacking<'a>(wanted: &'a BTreeSet<String>, given: &BTreeSet<String>) -> Vec<&'a str> {
    let is_given = |role: &String| given.contains("public") || given.contains(role);
    wanted.iter().filter(|role| !is_given(role)).map(String::as_str).collect()
}

fn definitions(
    session: &mut Connection,
    names: &[String],
    namespace: Option<&str>,
) -> Result<Vec<FunctionDefinition>> {
    let names = text_array(names);
    let rows = catalogs::ask(session, DEFINITIONS, &[Some(&names), namespace])?.rows;
    let definition = |row: Vec<Option<String>>| {
        let [oid, schema, name, signature, says, callers] = <[_; 6]>::try_from(row).ok()?;
        Some(FunctionDefinition {
            oid: oid?,
            schema: schema?,
            name: name?,
            signature: signature?,
            says,
            callers: callers.map_or(Some(BTreeSet::new()), |text| serde_json::from_str(&text).ok())?,
        })
    };
    Ok(rows.into_iter().filter_map(definition).collect())
}
