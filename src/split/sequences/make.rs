//! Sequences of moving keys that the target lacks: they are created there as they are on the source, for the same
//! owner and with the same rights of those roles that both servers have.

use super::draw::no_numbers;
use super::pair::WantedSequence;
use crate::agent::catalogs;
use crate::agent::error::{Result, SplitError};
use crate::error::SqlState;
use crate::remote::Connection;
use crate::remote::quote::{ident, text_array};
use std::collections::BTreeSet;

const DEFINITION: &str = include_str!("../../../sql/sequences/definition.sql");
const TYPES: [&str; 3] = ["smallint", "integer", "bigint"];
const PRIVILEGES: [&str; 3] = ["SELECT", "UPDATE", "USAGE"];

struct SequenceDefinition {
    oid: String,
    type_name: &'static str,
    /// Increment, least and greatest value, start, cache.
    numbers: [i64; 5],
    owner: String,
    /// A grantee is `None` for PUBLIC.
    grants: Vec<(Option<String>, &'static str)>,
}

/// Returns the wanted sequences with their definitions, in the order of the question; one that the source does not
/// have any more is left out.
fn definitions(
    source: &mut Connection,
    wanted: &[WantedSequence],
) -> Result<Vec<(WantedSequence, SequenceDefinition)>> {
    let oids: Vec<String> = wanted.iter().map(|wanted| wanted.from.sequence.oid.clone()).collect();
    let rows = catalogs::ask(source, DEFINITION, &[Some(&text_array(&oids))])?.rows;
    let mut found = Vec::new();
    for row in rows {
        let definition = read(&row).ok_or_else(|| no_numbers(source, "what a sequence is made of", &row))?;
        if let Some(wanted) = wanted.iter().find(|wanted| wanted.from.sequence.oid == definition.oid) {
            found.push((wanted.clone(), definition));
        }
    }
    Ok(found)
}

/// Returns None if no server has such a sequence.
fn read(row: &[Option<String>]) -> Option<SequenceDefinition> {
    let [oid, type_name, rest @ ..] = row else { return None };
    let [numbers @ .., owner, grants] = rest else { return None };
    let numbers: Option<Vec<i64>> = numbers.iter().map(|cell| cell.as_deref()?.parse().ok()).collect();
    let type_name = TYPES.into_iter().find(|known| type_name.as_deref() == Some(known))?;
    let grants: Vec<(Option<String>, String)> =
        serde_json::from_str(grants.as_deref().unwrap_or("[]")).ok()?;
    let grants = grants.into_iter().filter_map(|(role, privilege)| {
        Some((role, PRIVILEGES.into_iter().find(|known| *known == privilege)?))
    });
    Some(SequenceDefinition {
        oid: oid.clone()?,
        type_name,
        numbers: numbers?.try_into().ok()?,
        owner: owner.clone()?,
        grants: grants.collect(),
    })
}

/// Returns the roles among some that a server has.
fn roles(connection: &mut Connection, names: &BTreeSet<&str>) -> Result<BTreeSet<String>> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let rows = connection.query(
        "SELECT rolname FROM pg_roles WHERE rolname = ANY ($1::name[])",
        &[Some(&text_array(&names))],
    )?;
    Ok(rows.column().collect())
}

fn statement(wanted: &WantedSequence, made: &SequenceDefinition, known: &BTreeSet<String>) -> String {
    let name = wanted.name();
    let [increment, min, max, start, cache] = made.numbers;
    let mut statements = vec![
        "BEGIN".to_owned(),
        format!(
            "CREATE SEQUENCE IF NOT EXISTS {name} AS {} INCREMENT BY {increment} MINVALUE {min} MAXVALUE {max} START WITH {start} CACHE {cache}",
            made.type_name
        ),
    ];
    for (role, privilege) in &made.grants {
        match role {
            None => statements.push(format!("GRANT {privilege} ON SEQUENCE {name} TO PUBLIC")),
            Some(role) if known.contains(role) => {
                statements.push(format!("GRANT {privilege} ON SEQUENCE {name} TO {}", ident(role)));
            }
            Some(_) => {}
        }
    }
    if known.contains(&made.owner) {
        statements.push(format!("ALTER SEQUENCE {name} OWNER TO {}", ident(&made.owner)));
    }
    statements.push("COMMIT".to_owned());
    statements.join("; ")
}

/// Creates them. One that somebody else has created meanwhile stays as it is.
pub fn make(source: &mut Connection, target: &mut Connection, wanted: &[WantedSequence]) -> Result<()> {
    let made = definitions(source, wanted)?;
    if made.is_empty() {
        return Ok(());
    }
    let names = made.iter().flat_map(|(_, one)| {
        one.grants.iter().filter_map(|(role, _)| role.as_deref()).chain([one.owner.as_str()])
    });
    let known = roles(target, &names.collect())?;
    let statements: Vec<String> = made.iter().map(|(wanted, one)| statement(wanted, one, &known)).collect();
    let Err((done, error)) = target.run_transactions(&statements) else { return Ok(()) };
    target.run("ROLLBACK")?;
    if error.is_transient() {
        return Err(error.into());
    }
    let name = made.get(done).map(|(wanted, _)| wanted.name()).unwrap_or_default();
    Err(SplitError::failed(
        error.sqlstate.unwrap_or(SqlState::NOT_IN_STATE),
        format!("sequence {name} cannot be created on shard \"{}\": {}", target.shard(), error.message),
        format!("Create it there as the source has it, or grant the mover the missing right. {MAY_MAKE}"),
    ))
}

pub const MAY_MAKE: &str =
    "The mover needs CREATE on the schema, and must be a member of the sequence's owner.";

/// Returns, of sequences to be created, those that the mover may not create on the target, and why.
pub fn may_not(
    source: &mut Connection,
    target: &mut Connection,
    wanted: &[WantedSequence],
) -> Result<Vec<(WantedSequence, String)>> {
    let mut found = Vec::new();
    for (wanted, made) in definitions(source, wanted)? {
        let asked = target.query(
            "SELECT has_schema_privilege(n.oid, 'CREATE'), r.oid IS NULL OR pg_has_role(r.oid, 'USAGE'),
                    r.oid IS NULL OR has_schema_privilege(r.oid, n.oid, 'CREATE')
               FROM pg_namespace n LEFT JOIN pg_roles r ON r.rolname = $2 WHERE n.nspname = $1",
            &[Some(&wanted.schema), Some(&made.owner)],
        )?;
        let is = |column: usize| {
            asked
                .rows
                .first()
                .and_then(|row| row.get(column))
                .is_some_and(|cell| cell.as_deref() == Some("t"))
        };
        let why = if asked.rows.is_empty() {
            format!("schema \"{}\" does not exist there", wanted.schema)
        } else if !is(0) {
            format!("the mover cannot create in schema \"{}\"", wanted.schema)
        } else if !is(1) {
            format!("the mover is not a member of its owner, role \"{}\"", made.owner)
        } else if !is(2) {
            format!("its owner, role \"{}\", cannot create in schema \"{}\"", made.owner, wanted.schema)
        } else {
            continue;
        };
        found.push((wanted, why));
    }
    Ok(found)
}
