//! Code of other roles that a session of the mover would run: in CHECK constraints, indexes, generated columns,
//! statistics, types, triggers that fire always. Its author would have the mover's rights, so it stops a split unless
//! the role is declared trusted. It is searched before the first query over a table, which may run some of it already
//! while it is planned, and again whenever a table has another `code` than before.

use crate::agent;
use crate::agent::error::{Result, SplitError};
use crate::agent::named::NamedThings;
use crate::agent::observe;
use crate::agent::reading::{self, LockedTables};
use crate::agent::seen::{self, SeenTables};
use crate::agent::session::Side;
use crate::agent::table_names::TableNames;
use crate::agent::temporary;
use crate::agent::untrusted_code::{self, Code, CodeFindings, find_in};
use crate::agent::{catalogs, database_identity};
use crate::catalog::split::Plan;
use crate::catalog::{naming, trusted_owner};
use crate::guc;
use crate::remote::Connection;
use crate::remote::result::Rows;
use crate::server::txn::with_lock_timeout;
use crate::split::finding::Finding;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Finds such code. `code` is that of an observation that was made before, under the same locks.
pub fn find(connection: &mut Connection, plan: &Plan, side: Side, code: &str) -> Result<CodeFindings> {
    let trusted = trusted_by(plan, side);
    let found = find_on(connection, plan, side, trusted)?;
    if found.code.is_empty() && !code.is_empty() {
        keep(KnownCode::of(connection, plan, side, code, trusted));
    }
    Ok(found)
}

/// Whether there is no such code; it is read only if the result is not known for this very code.
pub fn is_none(connection: &mut Connection, plan: &Plan, side: Side, code: &str) -> Result<bool> {
    let now = KnownCode::of(connection, plan, side, code, trusted_by(plan, side));
    forget(HOLDS);
    Ok(is_known(&now) || find(connection, plan, side, code)?.code.is_empty())
}

/// Returns the trusted roles of the plan.
fn trusted_by(plan: &Plan, side: Side) -> &[String] {
    let [source, target] = &plan.trusted;
    side.of([source, target])
}

fn find_on(connection: &mut Connection, plan: &Plan, side: Side, trusted: &[String]) -> Result<CodeFindings> {
    let tables = TableNames::of(plan, side);
    Ok(find_in(connection, &tables, trusted, &NamedThings::by(plan, side))?)
}

/// Returns the roles that are trusted by now; this runs in a worker. In a cutover no lock is waited for. It is an
/// error if a role has declared what moves there and may no longer do so.
fn trusted_now(connection: &mut Connection, plan: &Plan, side: Side) -> Result<Vec<String>> {
    let (shard, other) = (side.shard(plan), side.other().shard(plan));
    let (trusted, unsaid) =
        with_lock_timeout(|| Ok((trusted_owner::of(shard), naming::unsaid(&plan.keyspace, shard, other))))
            .unwrap_or_else(|| {
                Err(SplitError::Retry(
                    "a lock on shardmaster.trusted_owner or shardmaster.table_policy".into(),
                ))
            })?;
    match unsaid {
        Some(unsaid) if database_identity::is_here(connection, shard, &unsaid.here)? => {
            let hint = format!("{} Then resume the split with the call that it stopped in.", unsaid.hint);
            Err(SplitError::Failed(unsaid.failure().hint(hint)))
        }
        Some(_) | None => Ok(trusted),
    }
}

/// Returns a finding for such a declaration in the plan.
pub fn unsaid(connection: &mut Connection, plan: &Plan, side: Side) -> Result<Option<Finding>> {
    match side.of(plan.unsaid.each_ref()) {
        Some(unsaid) if database_identity::is_here(connection, side.shard(plan), &unsaid.here)? => {
            let name = format!("{}: right to name", side.as_str());
            Ok(Some(Finding::new(&name, false, unsaid.text.clone(), &unsaid.hint)))
        }
        Some(_) | None => Ok(None),
    }
}

fn hint(plan: &Plan, side: Side, owner: &str) -> String {
    untrusted_code::hint(&side.shard(plan).shard_key, owner)
}

impl CodeFindings {
    /// Returns the findings of the check.
    pub fn findings(&self, plan: &Plan, side: Side) -> Vec<Finding> {
        let label = |name: &str| format!("{}: {name}", side.as_str());
        let code = self.code.iter().map(|code| {
            Finding::new(&label("code of owners"), false, code.text(), &hint(plan, side, &code.owner))
        });
        let lesser = (!self.lesser.is_empty()).then(|| {
            let owners = self.lesser.join(", ");
            let detail = format!("the mover is a superuser, the tables belong to {owners}");
            let hint = "A mover with no more rights than it needs limits what code of these tables could do. See \"The mover\" in docs/operate/roles-and-rights.md.";
            Finding::note(&label("rights of the mover"), detail, hint)
        });
        code.chain(lesser).collect()
    }
}

/// Stops the split if there is such code.
pub fn require_none(connection: &mut Connection, plan: &Plan, side: Side) -> Result<()> {
    let now = seen::look(connection, plan, side)?;
    look_through(connection, plan, side, now.code()).map(drop)
}

fn require_none_but_of(
    connection: &mut Connection,
    plan: &Plan,
    side: Side,
    trusted: &[String],
) -> Result<()> {
    let found = find_on(connection, plan, side, trusted)?;
    let Some(first) = found.code.first() else { return Ok(()) };
    let all: Vec<String> = found.code.iter().map(Code::text).collect();
    let hint = hint(plan, side, &first.owner);
    let failure = untrusted_code::refused(connection.shard(), first).detail(all.join("; "));
    Err(SplitError::Failed(
        failure.hint(format!("{hint} Then resume the split with the call that it stopped in.")),
    ))
}

/// Reads a side's tables outside of a step, if that runs no code of others. Nothing of it stays.
pub fn reading<T>(
    connection: &mut Connection,
    plan: &Plan,
    side: Side,
    body: impl FnOnce(&mut Connection, &LockedTables) -> Result<T>,
) -> Result<T> {
    reading_within(guc::remote_timeout(), connection, plan, side, body)
}

/// Reads them with a limit on the wait for locks, for a caller that others wait for.
pub fn reading_within<T>(
    longest: Duration,
    connection: &mut Connection,
    plan: &Plan,
    side: Side,
    body: impl FnOnce(&mut Connection, &LockedTables) -> Result<T>,
) -> Result<T> {
    let locked = reading::begin_all(connection, &TableNames::of(plan, side), longest)?;
    let outcome = require_none(connection, plan, side).and_then(|()| body(connection, &locked));
    reading::end(connection, outcome)
}

/// Returns a number for the code that a side's tables could run now: `look_through` compares it with the last one.
pub fn code_now(connection: &mut Connection, plan: &Plan, side: Side) -> Result<String> {
    let message = code_statements(connection, plan, side)?;
    let code = connection.run_for_each(&message)?;
    Ok(code.first().and_then(Rows::scalar).unwrap_or_default().to_owned())
}

/// Returns the statements for that, of which one gives rows, to be sent with others.
pub fn code_statements(connection: &mut Connection, plan: &Plan, side: Side) -> Result<String> {
    let [schemas, tables] = TableNames::of(plan, side).lists();
    let named = NamedThings::by(plan, side);
    let parameters = [schemas, tables, named.schemas, named.names, named.columns];
    Ok(catalogs::statements(connection, "code", &agent::CODE, &catalogs::given(&parameters))?)
}

/// What was checked: the tables, the role that reads them, the code that they could run, and the trusted roles.
#[derive(PartialEq, Eq)]
struct KnownCode {
    subject: String,
    user: String,
    code: String,
    trusted: Vec<String>,
}

impl KnownCode {
    fn of(connection: &Connection, plan: &Plan, side: Side, code: &str, trusted: &[String]) -> KnownCode {
        let (subject, user) = (observe::subject(plan, side), connection.user());
        KnownCode { subject, user, code: code.to_owned(), trusted: trusted.to_vec() }
    }
}

/// The number of results that a process keeps: for both sides, and for some of their tables.
const KEPT: usize = 16;
/// How long they are valid: role memberships, and the rights to call functions by them, are in no number.
const HOLDS: Duration = Duration::from_secs(60);

thread_local! {
    /// The results, the latest first.
    static KNOWN: RefCell<VecDeque<(Instant, KnownCode)>> = const { RefCell::new(VecDeque::new()) };
}

/// Makes the next checks happen now, before clients are kept waiting, and not then.
pub fn look_again_soon() {
    forget(HOLDS / 2);
}

fn forget(age: Duration) {
    KNOWN.with_borrow_mut(|all| all.retain(|(at, _)| at.elapsed() < age));
}

/// Checks a side's tables if they could run other code than at this process's last check, if other roles are trusted
/// by now, or if that was a while ago. Returns whether it did.
pub fn look_through(connection: &mut Connection, plan: &Plan, side: Side, code: &str) -> Result<bool> {
    let trusted = trusted_now(connection, plan, side)?;
    let now = KnownCode::of(connection, plan, side, code, &trusted);
    forget(HOLDS);
    if is_known(&now) {
        return Ok(false);
    }
    require_none_but_of(connection, plan, side, &now.trusted)?;
    keep(now);
    Ok(true)
}

fn is_known(now: &KnownCode) -> bool {
    KNOWN.with_borrow(|all| all.iter().any(|(_, known)| known == now))
}

fn keep(now: KnownCode) {
    KNOWN.with_borrow_mut(|all| {
        all.push_front((Instant::now(), now));
        all.truncate(KEPT);
    });
}

/// Some tables of a side, checked again before each batch over them: by one number of the catalogs, as in a step. Only
/// if that differs, the code that they could run is read; for a table with many partitions that takes long.
pub struct WatchedCode {
    plan: Plan,
    side: Side,
    seen: SeenTables,
}

impl WatchedCode {
    /// Returns the tables of a plan that has no others.
    pub fn of(plan: Plan, side: Side) -> WatchedCode {
        WatchedCode { plan, side, seen: SeenTables::default() }
    }

    /// Stops the split if there is such code by now, or if the session's temporary tables were made for other types.
    pub fn look(&mut self, connection: &mut Connection) -> Result<()> {
        let WatchedCode { plan, side, seen } = self;
        let now = seen.look(connection, plan, *side)?;
        look_through(connection, plan, *side, now.code())?;
        if seen.is_new() {
            temporary::require_known(connection, plan, *side, temporary::COMPARED)?;
        }
        Ok(())
    }
}
