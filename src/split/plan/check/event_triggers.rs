//! Event triggers: one of them may refuse what a split creates and drops on a shard, at the start or as late as the
//! finish. So one object of each kind is created and dropped if some fire for it, and nothing of that stays. Their
//! code is trusted by then.

use crate::agent::catalogs;
use crate::agent::error::Result;
use crate::agent::session::Side;
use crate::catalog::split::Plan;
use crate::remote::quote::text_array;
use crate::remote::{Connection, RemoteError};
use crate::split::finding::Finding;
use crate::split::remark::Remark;
use crate::words::some_of;

const EVENT_TRIGGERS: &str = include_str!("../../../../sql/check/event_triggers.sql");
const TRIAL: &str = include_str!("../../../../sql/check/trial.sql");
/// The last statement of a trial that has created the schema.
const DROP_SCHEMA: &str = "DROP SCHEMA shardmaster_agent";
const HAS_SCHEMA: &str = "SELECT pg_catalog.to_regnamespace('shardmaster_agent') IS NOT NULL";
const AS_REPLICA: &str = "SET LOCAL session_replication_role = replica";

/// An event trigger that fires for something that a split does.
struct EventTrigger {
    name: String,
    event: String,
    function: String,
    /// It fires only in sessions of replicas, as some of a split's are.
    is_of_replicas: bool,
    may_raise: bool,
}

impl EventTrigger {
    fn text(&self) -> String {
        format!("event trigger {} (on {}) calls {}", self.name, self.event, self.function)
    }
}

pub fn check(plan: &Plan, side: Side, session: &mut Connection) -> Result<Vec<Finding>> {
    let triggers = find(session)?;
    let Some(first) = triggers.first() else { return Ok(Vec::new()) };
    let is_replica: &[bool] =
        if triggers.iter().any(|trigger| trigger.is_of_replicas) { &[false, true] } else { &[false] };
    for is_replica in is_replica {
        let Some((command, error)) = session.undone(|session| refused(session, *is_replica))? else {
            continue;
        };
        let names: Vec<String> = triggers.iter().map(EventTrigger::text).collect();
        let detail = format!(
            "{command}, as a split does, fails because of an event trigger or a missing right: {}; {}",
            error.message,
            some_of(&names)
        );
        let hint = format!(
            "Change its function to allow role {}. Or ALTER EVENT TRIGGER {} DISABLE until the split is finished.",
            session.user(),
            first.name
        );
        let name = format!("{}: event triggers", side.as_str());
        let transient = error.is_transient();
        return Ok(vec![Finding { transient, ..Finding::new(&name, false, detail, &hint) }]);
    }
    Ok(triggers.iter().map(|trigger| passed(plan, side, trigger)).collect())
}

/// Returns the finding for one that has admitted the trial.
fn passed(plan: &Plan, side: Side, trigger: &EventTrigger) -> Finding {
    let (side, text) = (side.as_str(), trigger.text());
    if trigger.may_raise {
        let detail = format!(
            "{side}: {text}, which may raise an error: a trial passed, under names other than those of a split"
        );
        let object = format!("{side}: {}", trigger.name);
        Finding::remark_of(plan.reverse_of, Remark::EventTriggers, &object, detail)
    } else {
        let name = format!("{side}: event triggers");
        Finding::note(&name, text, "It fires for what the split creates and drops; a trial passed.")
    }
}

/// Returns the statements of a trial.
fn trial() -> impl Iterator<Item = &'static str> {
    TRIAL.lines().filter(|line| !line.starts_with("--"))
}

/// Returns the first command that is refused, and why.
fn refused(
    session: &mut Connection,
    is_replica: bool,
) -> std::result::Result<Option<(String, RemoteError)>, RemoteError> {
    let is_made = session.run(HAS_SCHEMA)?.scalar() == Some("f");
    if is_replica {
        session.run(AS_REPLICA)?;
    }
    let last = is_made.then_some(DROP_SCHEMA);
    for statement in trial().chain(last) {
        if let Err(error) = session.run(statement) {
            return if error.sqlstate.is_some() { Ok(Some((command(statement), error))) } else { Err(error) };
        }
    }
    Ok(None)
}

/// Finds event triggers by the commands of a trial.
fn find(session: &mut Connection) -> Result<Vec<EventTrigger>> {
    let mut tags: Vec<String> = trial().chain([DROP_SCHEMA]).map(command).collect();
    tags.push("DROP ROUTINE".to_owned());
    let rows = catalogs::ask(session, EVENT_TRIGGERS, &[Some(&text_array(&tags))])?;
    let read = |row: &Vec<Option<String>>| -> Option<EventTrigger> {
        let [name, event, function, is_of_replicas, may_raise] = row.as_slice() else { return None };
        Some(EventTrigger {
            name: name.clone()?,
            event: event.clone()?,
            function: function.clone()?,
            is_of_replicas: is_of_replicas.as_deref()? == "t",
            may_raise: may_raise.as_deref()? == "t",
        })
    };
    let all: Option<Vec<EventTrigger>> = rows.rows.iter().map(read).collect();
    Ok(all.ok_or_else(|| RemoteError::unreadable(session.shard(), "its event triggers"))?)
}

/// Returns the command tag that event triggers get for a statement.
fn command(statement: &'static str) -> String {
    let words: Vec<&str> = statement.split(' ').filter(|word| *word != "TEMPORARY").collect();
    let is_copy = words.contains(&"AS") && words[1] == "TABLE";
    match words[0] {
        "GRANT" | "REVOKE" | "COMMENT" => words[0].to_owned(),
        first => format!("{first} {}{}", words[1], if is_copy { " AS" } else { "" }),
    }
}

#[cfg(test)]
mod tests {
    use super::{command, trial};

    #[test]
    fn a_trial_is_of_commands_by_their_tags() {
        let tags: Vec<String> = trial().map(command).collect();
        for tag in ["CREATE SCHEMA", "CREATE TABLE AS", "GRANT", "COMMENT", "CREATE VIEW", "DROP TRIGGER"] {
            assert!(tags.iter().any(|known| known == tag), "{tag} of {tags:?}");
        }
    }
}
