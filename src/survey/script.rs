//! The steps of an adoption as a script for psql.

use super::adoption::{AdoptionStep, StepKind};
use crate::clean::{is_obeyed, printable};
use crate::remote::quote::literal;
use crate::words::counted;

/// Returns the script, with what has to be decided in front of it.
pub fn of(shard: &str, tenant: &str, steps: &[AdoptionStep]) -> String {
    let (decisions, steps): (Vec<_>, Vec<_>) = steps.iter().partition(|step| step.kind == StepKind::Decide);
    let mut lines = vec![
        comment(&format!(
            "Brings the database of shard {} under a keyspace, by column {}.",
            literal(shard),
            literal(tenant)
        )),
        "-- Run it by psql on the master. If it ends early, make a new one: what is done is left out."
            .to_owned(),
    ];
    if !decisions.is_empty() {
        lines.push(String::new());
        let many = counted(decisions.len() as i64, "finding", "findings");
        lines.push(format!(
            "-- {many} to read first. Statements that are not calls of shard_ functions run on the shard."
        ));
    }
    for decision in decisions {
        let table = decision.table.as_ref().map_or(String::new(), |table| format!("{table}: "));
        lines.push(comment(&format!("{table}{}", decision.why)));
        lines.extend(decision.call.iter().map(|call| comment(&format!("    {call};"))));
    }
    lines.extend([String::new(), "\\set ON_ERROR_STOP on".to_owned()]);
    for step in steps {
        lines.push(String::new());
        let table = step.table.as_ref().map_or(String::new(), |table| format!("{table}: "));
        lines.push(comment(&format!("{table}{}", step.why)));
        // Whole, since it is run: names of a shard's tables are in it, of which no character is to be obeyed.
        let call = step.call.as_deref().unwrap_or_default().replace(is_obeyed, " ");
        match step.kind {
            StepKind::Identify | StepKind::Derive => {
                lines.push(format!("{call} AS job \\gset"));
                lines.push("CALL shard_job_wait(:job);".to_owned());
            }
            _ => lines.push(format!("{call};")),
        }
        lines.extend(step.undo.iter().map(|undo| comment(&format!("back: {undo};"))));
    }
    lines.push(String::new());
    lines.join("\n")
}

/// Returns a comment of one line.
fn comment(text: &str) -> String {
    format!("-- {}", printable(text))
}
