//! Code of others that a session of the mover would run: in CHECK constraints, indexes,
//! generated columns, statistics, types, triggers that fire always. Whoever has written it
//! would have the mover's rights, so it stops a split unless somebody has said that the role
//! is trusted. It is looked for before the first query over a table, which may run some of it
//! already while it is planned, and again whenever a table has another `code` than before.

use crate::agent::error::{Result, SplitError};
use crate::agent::observe;
use crate::agent::session::Side;
use crate::catalog::split::Plan;
use crate::error::{Failure, SqlState};
use crate::remote::Connection;
use crate::remote::quote::{literal, text_array};
use crate::split::finding::Finding;

const OWNERS: &str = include_str!("../../sql/check/owners.sql");
/// Volatile functions of the server, or of extensions, that whoever owns a table may use.
const HARMLESS: &str = r"^(random(_normal)?|clock_timestamp|timeofday|nextval|gen_random_uuid|uuidv[47]|uuid_generate_v\w+|gen_random_bytes|gen_salt)$";
/// Those that are not volatile, and run what a text or a number names, or tell what the mover
/// alone may see.
pub const RUNS_A_TEXT: &str = r"^(table|schema|database)_to_xml|^(domain|array|record|range|multirange)_in$|^pg_input_|^current_setting$";

/// What the mover would run, and whose it is.
pub struct Code {
    /// By its plain name.
    owner: String,
    what: String,
    called_by: String,
    others: u64,
}

impl Code {
    pub fn text(&self) -> String {
        let others = match self.others {
            0 => String::new(),
            others => format!(" and {others} others"),
        };
        format!("{}{others}: {}", self.called_by, self.what)
    }
}

/// What is found on a side.
#[derive(Default)]
pub struct Found {
    pub code: Vec<Code>,
    /// Roles that own tables and are no superusers, where the mover is one.
    lesser: Vec<String>,
}

pub fn find(connection: &mut Connection, plan: &Plan, side: Side) -> Result<Found> {
    let (schemas, names) = observe::table_names(plan, side);
    find_in(connection, schemas, names, trusted(plan, side))
}

fn trusted(plan: &Plan, side: Side) -> &[String] {
    let [source, target] = &plan.trusted;
    match side {
        Side::Source => source,
        Side::Target => target,
    }
}

/// The same for any relations.
pub fn find_in(
    connection: &mut Connection,
    schemas: Vec<String>,
    names: Vec<String>,
    trusted: &[String],
) -> Result<Found> {
    let lists = [&schemas, &names, &trusted.to_vec()].map(|list| text_array(list));
    let rows = connection.query(
        OWNERS,
        &[Some(&lists[0]), Some(&lists[1]), Some(&lists[2]), Some(HARMLESS), Some(RUNS_A_TEXT)],
    )?;
    let mut found = Found::default();
    for row in rows.rows {
        match row.as_slice() {
            [Some(owner), Some(what), Some(called_by), Some(others)] => found.code.push(Code {
                owner: owner.clone(),
                what: what.clone(),
                called_by: called_by.clone(),
                others: others.parse().unwrap_or(0),
            }),
            [Some(owner), None, ..] => found.lesser.push(owner.clone()),
            _ => {}
        }
    }
    Ok(found)
}

fn hint(plan: &Plan, side: Side, owner: &str) -> String {
    let shard = match side {
        Side::Source => &plan.source.shard_key,
        Side::Target => &plan.target.shard_key,
    };
    format!(
        "SELECT shard_trust_owner({}, {}) lets the mover run what this role has written, with all its rights there; or give it to a superuser, or do without it.",
        literal(shard),
        literal(owner)
    )
}

impl Found {
    /// As lines of the check.
    pub fn findings(&self, plan: &Plan, side: Side) -> Vec<Finding> {
        let label = |name: &str| format!("{}: {name}", side.as_str());
        let code = self.code.iter().map(|code| {
            Finding::new(&label("code of owners"), false, code.text(), &hint(plan, side, &code.owner))
        });
        let lesser = (!self.lesser.is_empty()).then(|| {
            let owners = self.lesser.join(", ");
            let detail = format!("the mover is a superuser, the tables belong to {owners}");
            let hint = "A mover with no more rights than it needs bounds what code of these tables could do: see \"The mover\" in docs/operations.md.";
            Finding::note(&label("rights of the mover"), detail, hint)
        });
        code.chain(lesser).collect()
    }
}

/// Stops the split where there is such code.
pub fn require_none(connection: &mut Connection, plan: &Plan, side: Side) -> Result<()> {
    let found = find(connection, plan, side)?;
    let Some(first) = found.code.first() else { return Ok(()) };
    let all: Vec<String> = found.code.iter().map(Code::text).collect();
    Err(SplitError::Failed(
        Failure::new(
            SqlState::NOT_IN_STATE,
            format!(
                "on shard \"{}\" the mover would run code of others: {}",
                connection.shard(),
                first.text()
            ),
        )
        .detail(all.join("; "))
        .hint(format!(
            "{} Then resume the split with the call that it stopped in.",
            hint(plan, side, &first.owner)
        )),
    ))
}

/// What each side's tables could run, as it was when it was looked through last.
#[derive(Default)]
pub struct LookedThrough {
    source: Option<String>,
    target: Option<String>,
}

impl LookedThrough {
    /// Looks again if a side has other code than before.
    pub fn require_none(
        &mut self,
        connection: &mut Connection,
        plan: &Plan,
        side: Side,
        code: &str,
    ) -> Result<()> {
        let known = match side {
            Side::Source => &mut self.source,
            Side::Target => &mut self.target,
        };
        if known.as_deref() != Some(code) {
            require_none(connection, plan, side)?;
            *known = Some(code.to_owned());
        }
        Ok(())
    }
}
