//! Shards whose record contradicts this master's: its tables were taken out, follow another origin, or are another's
//! origin. The master was restored to an earlier time, and rows that clients have written there would be replaced.
//! Nothing is written there until the operator has determined which shard is the origin.

use crate::agent::error::{Result, SplitError};
use crate::agent::state::{has, reference_ended};
use crate::catalog::reference::{self, Member, ReferencePlace, ReferenceSet};
use crate::error::SqlState;
use crate::reference::probe::{names, qualified};
use crate::remote::Connection;
use crate::remote::quote::{literal, text_array};
use crate::server::txn::transaction;

/// Returns the hint: the table becomes each shard's own, and then the operator determines whose rows all are to have.
fn say(set: &ReferenceSet, member: &Member, first: &str) -> String {
    format!(
        "This master was restored to an earlier time. SELECT shard_table_drop({}, {}),{first} and add the table again. Its origin must be the shard whose rows are right: those of the others are replaced.",
        literal(&member.name.quoted()),
        literal(&set.keyspace)
    )
}

/// Refuses tables that a shard records otherwise, before anything is created or written there.
pub fn require_followed(
    session: &mut Connection,
    set: &ReferenceSet,
    tables: &[Member],
    place: &ReferencePlace,
) -> Result<()> {
    require_not_ended(session, set, tables, place)?;
    for other in others(session, tables, place)? {
        if other.token == set.token || transaction(|| reference::is_known(&other.token)) {
            continue;
        }
        let Some(member) = tables.get(other.position) else { continue };
        return Err(of_another(session.shard(), set, member, place, other.origin));
    }
    Ok(())
}

fn require_not_ended(
    session: &mut Connection,
    set: &ReferenceSet,
    tables: &[Member],
    place: &ReferencePlace,
) -> Result<()> {
    let (tokens, members): (Vec<String>, Vec<&Member>) =
        tables.iter().filter_map(|member| Some((member.token.clone()?, member))).unzip();
    let ended = reference_ended::first_of(session, &tokens)?;
    let Some(member) = ended.and_then(|position| members.get(position)) else { return Ok(()) };
    Err(SplitError::failed(
        SqlState::NOT_IN_STATE,
        format!(
            "shard \"{}\" records that table {} was removed from keyspace \"{}\", and this master does not know it",
            session.shard(),
            full_name(member, place),
            set.keyspace
        ),
        say(set, member, ""),
    ))
}

fn full_name(member: &Member, place: &ReferencePlace) -> String {
    qualified(std::slice::from_ref(member), &place.shard).concat()
}

/// A set whose triggers a table has.
struct Other {
    position: usize,
    token: String,
    /// `None` if the shard is its origin.
    origin: Option<String>,
}

fn others(session: &mut Connection, tables: &[Member], place: &ReferencePlace) -> Result<Vec<Other>> {
    let lists = names(tables, &place.shard).lists();
    let query = include_str!("../../sql/reference/others.sql");
    let found = session.query(query, &[Some(&lists[0]), Some(&lists[1])])?;
    let other = |row: Vec<Option<String>>| {
        let [position, token, origin] = <[_; 3]>::try_from(row).ok()?;
        Some(Other { position: position?.parse::<usize>().ok()?.checked_sub(1)?, token: token?, origin })
    };
    Ok(found.rows.into_iter().filter_map(other).collect())
}

fn of_another(
    shard: &str,
    set: &ReferenceSet,
    member: &Member,
    place: &ReferencePlace,
    origin: Option<String>,
) -> SplitError {
    let table = full_name(member, place);
    let is = match &origin {
        Some(origin) => {
            format!("a copy in reference tables that this master does not know, with origin \"{origin}\"")
        }
        None => "the origin of reference tables that this master does not know".to_owned(),
    };
    let cleanup = format!("SELECT * FROM shard_cleanup({})", literal(shard));
    let is_same = origin.as_deref().unwrap_or(shard) == set.origin.shard.shard_key;
    let hint = if is_same {
        format!("{cleanup} removes them.")
    } else {
        say(set, member, &format!(" then {cleanup},"))
    };
    SplitError::failed(SqlState::NOT_IN_STATE, format!("table {table} on shard \"{shard}\" is {is}"), hint)
}

/// Refuses a copy that no longer knows a set of which it had tables: the shard was dropped since, with all its
/// records, or was restored itself. One without rows loses nothing.
pub fn require_remembered(
    session: &mut Connection,
    set: &ReferenceSet,
    place: &ReferencePlace,
) -> Result<()> {
    let remembered = set.remembered(&place.shard.shard_key);
    if remembered.is_empty() || knows(session, set, place)? {
        return Ok(());
    }
    let tables = qualified(&remembered, &place.shard);
    let with_rows = format!(
        "SELECT min(t) FROM unnest({}::text[]) AS t WHERE pg_relation_size(to_regclass(t)) > 0",
        literal(&text_array(&tables))
    );
    let found = session.run(&with_rows)?;
    let Some(table) = found.scalar() else { return Ok(()) };
    Err(SplitError::failed(
        SqlState::NOT_IN_STATE,
        format!(
            "shard \"{}\" no longer knows that its table {table} is a copy, and it has rows",
            session.shard()
        ),
        "If they are not needed, TRUNCATE the table there, and it is filled again. If the shard no longer belongs to this master, drop it with shard_drop().",
    ))
}

fn knows(session: &mut Connection, set: &ReferenceSet, place: &ReferencePlace) -> Result<bool> {
    if !has(session, "reference_copy")? {
        return Ok(false);
    }
    let found = session.run(&format!(
        "SELECT EXISTS (SELECT 1 FROM shardmaster_agent.reference_copy WHERE set_id = {} AND shard = {})",
        set.id,
        literal(&place.shard.shard_key)
    ))?;
    Ok(found.scalar() == Some("t"))
}
