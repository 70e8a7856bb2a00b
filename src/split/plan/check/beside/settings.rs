//! Settings of the database and of roles for their sessions: with another one the same statement may have another
//! effect on the target.

use super::texts::Used;
use crate::agent::catalogs;
use crate::agent::error::Result;
use crate::agent::observed_side::ObservedSide;
use crate::catalog::split::Plan;
use crate::remote::quote::{ident_as_needed, text_array};
use std::collections::{BTreeMap, BTreeSet};

const SETTINGS_READ: &str = include_str!("../../../../../sql/check/settings_read.sql");

/// The settings by role and name; those of the database have the role ''.
pub type Settings = BTreeMap<(String, String), String>;

/// Describes the settings that the target lacks, has with another value, or that only it has. Values may be secrets,
/// and are not shown.
pub fn others(plan: &Plan, given: &Settings, there: &Settings) -> Vec<String> {
    let names: BTreeSet<&(String, String)> = given.keys().chain(there.keys()).collect();
    let is_other = |(role, name): &&&(String, String)| {
        let (here, own) = (of(given, role, name), of(there, role, name));
        here != own
            && here.map(|here| key_identity(plan, name, here)) != own.map(|own| key_identity(plan, name, own))
    };
    let text = |(role, name): &(String, String)| match role.as_str() {
        "" => format!("{name} of the database"),
        role => format!("{name} of role {role}"),
    };
    names.iter().filter(is_other).map(|key| text(key)).collect()
}

/// Describes the settings that differ in the servers' configurations. `told`: settings of databases and roles that are
/// reported already.
pub fn of_servers(
    plan: &Plan,
    here: &BTreeMap<String, String>,
    there: &BTreeMap<String, String>,
    told: &[String],
) -> Vec<String> {
    let other = |(name, value): (&String, &String)| {
        let own = there.get(name)?;
        // A server without prepared transactions has no clients that use them.
        if name == "max_prepared_transactions" && value == "0" {
            return None;
        }
        let is_told = told.contains(&format!("{name} of the database"));
        (!is_told && key_identity(plan, name, value) != key_identity(plan, name, own))
            .then(|| format!("{name} of the server, '{own}' and not '{value}'"))
    };
    here.iter().filter_map(other).collect()
}

/// Describes settings of applications, read by texts over the tables, that sessions begin with differently. `told`:
/// settings of databases and roles that are reported already.
pub fn read(
    source: &mut ObservedSide,
    target: &mut ObservedSide,
    used: &Used,
    told: &[String],
) -> Result<Vec<String>> {
    let (schemas, names): (Vec<String>, Vec<String>) = used.functions.iter().cloned().unzip();
    let functions = [text_array(&schemas), text_array(&names)];
    let values = |side: &mut ObservedSide| -> Result<BTreeMap<String, String>> {
        let lists = side.names.lists();
        let lists = [&lists[0], &lists[1], &functions[0], &functions[1]];
        Ok(catalogs::ask(&mut side.session, SETTINGS_READ, &catalogs::given(&lists))?.pairs().collect())
    };
    let here = values(source)?;
    if here.is_empty() {
        return Ok(Vec::new());
    }
    let own = values(target)?;
    let is_other = |(name, value): &(&String, &String)| {
        let is_told = told.contains(&format!("{name} of the database"));
        !is_told && own.get(*name).is_some_and(|own| own != *value)
    };
    let others = here.iter().filter(is_other);
    Ok(others.map(|(name, _)| format!("{name} of the server, which texts over the tables read")).collect())
}

fn of<'a>(settings: &'a Settings, role: &str, name: &str) -> Option<&'a str> {
    let get = |role: &str| settings.get(&(role.to_owned(), name.to_owned())).map(String::as_str);
    get(role).or_else(|| get(""))
}

/// Returns a value in a form that is the same on both sides: servers write names of locales in several ways, and a
/// path names each shard's own schema.
fn key_identity(plan: &Plan, name: &str, value: &str) -> String {
    match name {
        name if name.starts_with("lc_") => value.to_lowercase().replace('-', ""),
        "max_prepared_transactions" if value != "0" => String::new(),
        "default_text_search_config" => value.trim_start_matches("pg_catalog.").to_owned(),
        // The time zone without an offset has many names.
        "timezone" if ["UTC", "Etc/UTC", "GMT", "Etc/GMT", "UCT", "Etc/UCT", "Zulu"].contains(&value) => {
            "UTC".to_owned()
        }
        "search_path" => {
            let own = [&plan.source.namespace, &plan.target.namespace].map(|name| ident_as_needed(name));
            let schemas = value.split(',').map(str::trim);
            let schemas = schemas.map(|schema| if own.iter().any(|own| own == schema) { "" } else { schema });
            schemas.collect::<Vec<_>>().join(", ")
        }
        _ => value.to_owned(),
    }
}
