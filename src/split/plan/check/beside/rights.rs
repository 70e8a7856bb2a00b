//! Roles that may read and write the source's tables, and may not do so on the target, or can no longer log in there.

use super::settings::{self, Settings};
use super::texts::Used;
use crate::agent::catalogs;
use crate::agent::deparsed::in_schema;
use crate::agent::error::Result;
use crate::agent::observed_side::ObservedSide;
use crate::agent::table_names::TableNames;
use crate::catalog::split::Plan;
use crate::remote::quote::{array_of, ident_as_needed, text_array};
use crate::remote::{Connection, RemoteError};
use crate::split::sequences::Places;
use std::collections::{BTreeMap, BTreeSet};

const GRANTED: &str = include_str!("../../../../../sql/check/granted.sql");
const LACKING: &str = include_str!("../../../../../sql/check/lacking.sql");
const USED: &str = include_str!("../../../../../sql/check/used.sql");

/// A right of a role.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RoleRight {
    /// The position of the table. None for all tables.
    position: Option<usize>,
    role: String,
    right: String,
    /// Its object: a column, a view or a role.
    of: Option<String>,
}

/// What a side's roles have there.
#[derive(Default)]
struct Granted {
    rights: Vec<RoleRight>,
    settings: Settings,
    /// The defaults of sessions for which neither a role nor the database has a setting, by name.
    server: BTreeMap<String, String>,
}

/// What the target's roles lack, in words.
#[derive(Default)]
pub struct MissingRights {
    /// By the table's position, which is `None` for no table.
    pub rights: Vec<(Option<usize>, String)>,
    pub settings: Vec<String>,
    /// What roles may do with rows only on the target, by the table's position.
    pub alone: Vec<(Option<usize>, String)>,
}

const NO_ROLE: &str = ", which is not a role there";
/// Rights that give access to rows.
const OF_ROWS: [&str; 6] = ["SELECT", "INSERT", "UPDATE", "DELETE", "BYPASSRLS", "rights of"];

/// Rights that are not on columns.
const OF_OTHERS: [&str; 6] = [
    "rights of",
    "SET ROLE to",
    "EXECUTE of function",
    "nextval of sequence",
    "USAGE of schema",
    "CREATE in schema",
];

pub fn missing(plan: &Plan, source: &mut ObservedSide, target: &mut ObservedSide) -> Result<MissingRights> {
    let ObservedSide { session: source, names: from, .. } = source;
    let ObservedSide { session: target, names: into, .. } = target;
    let (here, own) = (granted(source, from)?, granted(target, into)?);
    let mut settings = settings::others(plan, &here.settings, &own.settings);
    settings.extend(settings::of_servers(plan, &here.server, &own.server, &settings));
    let here = in_schemas(here.rights, &from.schemas, &into.schemas);
    let mut alone = others(&own.rights, &here);
    alone.retain(|RoleRight { right, .. }| OF_ROWS.contains(&right.as_str()) || right.starts_with("view "));
    let alone = in_schemas(alone, &into.schemas, &from.schemas);
    let wanted = others(&here, &own.rights);
    // A role that only the target has cannot be compared.
    let alone = lacking(source, &alone, from)?;
    let alone = alone.into_iter().filter(|(_, text)| !text.ends_with(NO_ROLE)).collect();
    Ok(MissingRights { alone, rights: lacking(target, &wanted, into)?, settings })
}

/// Returns the rights that are not among the known ones.
fn others(rights: &[RoleRight], known: &[RoleRight]) -> Vec<RoleRight> {
    let known: BTreeSet<&RoleRight> = known.iter().collect();
    rights.iter().filter(|right| !known.contains(right)).cloned().collect()
}

/// Returns the rights that the target lacks on tables given by schema and name on the source, without those that
/// belong to no single table; each text with its table.
pub fn of_places(
    plan: &Plan,
    source: &mut Connection,
    target: &mut Connection,
    tables: &[(String, String)],
) -> Result<Vec<((String, String), String)>> {
    let here: TableNames = tables.iter().cloned().collect();
    let schemas = here.schemas.iter().map(|schema| Places::of(plan).there(schema)).collect();
    let there = TableNames { schemas, names: here.names.clone() };
    let rights = granted(source, &here)?.rights;
    let wanted: Vec<RoleRight> = rights.into_iter().filter(|right| right.position.is_some()).collect();
    Ok(lacking(target, &wanted, &there)?
        .into_iter()
        .filter_map(|(position, text)| Some((tables.get(position?)?.clone(), text)))
        .collect())
}

/// Returns rights on what functions over the tables need that roles of both sides have only on the source: right and
/// object, and the role.
pub fn of_used(
    plan: &Plan,
    source: &mut ObservedSide,
    target: &mut Connection,
    used: &Used,
) -> Result<Vec<(String, String)>> {
    let (schemas, names): (Vec<String>, Vec<String>) = used.functions.iter().cloned().unzip();
    let words: Vec<String> = used.words.iter().cloned().collect();
    let lists = [text_array(&schemas), text_array(&names), text_array(&words)];
    let given = source.names.lists();
    let lists = [&given[0], &given[1], &lists[0], &lists[1], &lists[2]];
    let [from, into] = [&plan.source.namespace, &plan.target.namespace].map(|name| ident_as_needed(name));
    let right = |row: Vec<Option<String>>| -> Option<RoleRight> {
        let [role, right, of] = <[_; 3]>::try_from(row).ok()?;
        let of = of.map(|of| if of == from { into.clone() } else { in_schema(&of, &from, &into) });
        Some(RoleRight { position: None, role: role?, right: right?, of })
    };
    let rows = catalogs::ask(&mut source.session, USED, &catalogs::given(&lists))?.rows;
    let wanted: Vec<RoleRight> = rows.into_iter().filter_map(right).collect();
    let missing = unmet(target, &wanted, &TableNames::default())?.into_iter().filter(|(_, is_role)| *is_role);
    Ok(missing.map(|(right, _)| (text(right), right.role.clone())).collect())
}

/// Describes the wanted rights that the target's roles lack.
fn lacking(
    target: &mut Connection,
    wanted: &[RoleRight],
    places: &TableNames,
) -> Result<Vec<(Option<usize>, String)>> {
    let mut missing: BTreeMap<(Option<usize>, String), BTreeSet<String>> = BTreeMap::new();
    for (right, is_role) in unmet(target, wanted, places)? {
        let role = &right.role;
        let who = if is_role { role.clone() } else { format!("{role}{NO_ROLE}") };
        missing.entry((right.position, who)).or_default().insert(text(right));
    }
    let text = |((position, role), rights): ((Option<usize>, String), BTreeSet<String>)| {
        let rights: Vec<String> = rights.into_iter().collect();
        (position, format!("{} for {role}", rights.join(" and ")))
    };
    Ok(missing.into_iter().map(text).collect())
}

/// Returns the wanted rights that the target's roles lack, each with whether the role exists.
fn unmet<'a>(
    target: &mut Connection,
    wanted: &'a [RoleRight],
    places: &TableNames,
) -> Result<Vec<(&'a RoleRight, bool)>> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let of = |cell: fn(&RoleRight) -> Option<&str>| array_of(wanted.iter().map(cell));
    let place =
        |list: &[String]| array_of(wanted.iter().map(|right| list.get(right.position?).map(String::as_str)));
    let lists = [
        place(&places.schemas),
        place(&places.names),
        of(|right| Some(&right.role)),
        of(|right| Some(&right.right)),
        of(|right| right.of.as_deref()),
    ];
    let right = |row: Vec<Option<String>>| match row.as_slice() {
        [Some(number), Some(is_role)] => Some((wanted.get(number.parse::<usize>().ok()?)?, is_role == "t")),
        [..] => None,
    };
    let rows = catalogs::ask(target, LACKING, &catalogs::given(&lists))?.rows;
    Ok(rows.into_iter().filter_map(right).collect())
}

fn text(RoleRight { right, of, .. }: &RoleRight) -> String {
    match (right.strip_prefix("view "), of) {
        (Some(right), Some(view)) => format!("{right} of view {view}"),
        (None, Some(of)) if OF_OTHERS.contains(&right.as_str()) => format!("{right} {of}"),
        (None, Some(column)) => format!("{right} of \"{column}\""),
        (_, None) => right.clone(),
    }
}

/// Returns the rights with the target's schemas for views that are in the schema of their table.
fn in_schemas(rights: Vec<RoleRight>, from: &[String], into: &[String]) -> Vec<RoleRight> {
    let there = |it: RoleRight| {
        let pair = it.position.and_then(|at| Some((from.get(at)?, into.get(at)?)));
        let of = match pair.filter(|_| it.right.starts_with("view ")) {
            Some((from, into)) => {
                it.of.map(|view| in_schema(&view, &ident_as_needed(from), &ident_as_needed(into)))
            }
            None => it.of,
        };
        RoleRight { of, ..it }
    };
    rights.into_iter().map(there).collect()
}

fn granted(session: &mut Connection, tables: &TableNames) -> Result<Granted> {
    let rows = catalogs::ask(session, GRANTED, &catalogs::given(&tables.lists()))?;
    let mut granted = Granted::default();
    let mut read = |row: &Vec<Option<String>>| -> Option<()> {
        let [position, Some(role), Some(right), of, value] = row.as_slice() else { return None };
        match right.as_str() {
            "server setting" => {
                granted.server.insert(of.clone()?, value.clone()?);
            }
            "setting" => {
                granted.settings.insert((role.clone(), of.clone()?), value.clone()?);
            }
            _ => {
                let position = position.as_ref().map_or(Some(None), |at| at.parse().ok().map(Some))?;
                let (role, right, of) = (role.clone(), right.clone(), of.clone());
                granted.rights.push(RoleRight { position, role, right, of });
            }
        }
        Some(())
    };
    let is_read = rows.rows.iter().all(|row| read(row).is_some());
    is_read
        .then_some(granted)
        .ok_or_else(|| RemoteError::unreadable(session.shard(), "who may read its tables").into())
}
