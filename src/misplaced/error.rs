//! Why rows on the wrong shard are neither moved nor deleted. Arguments run from the whole to its part: keyspace,
//! shard, table, key.

use crate::error::{Failure, SqlState, invalid};
use serde_json::json;

pub fn no_keys() -> Failure {
    invalid("keys", "the list is empty").hint("shard_misplaced() lists keys with rows on the wrong shard.")
}

pub fn in_place(shard: &str, key: &str) -> Failure {
    Failure::new(SqlState::NOT_IN_STATE, format!("key \"{key}\" is routed to shard \"{shard}\""))
        .hint("Its rows are on the right shard. shard_misplaced() lists those that are not.")
}

pub fn no_route(keyspace: &str, key: &str) -> Failure {
    Failure::new(SqlState::NOT_IN_STATE, format!("key \"{key}\" of keyspace \"{keyspace}\" has no route"))
        .hint("Assign it first, for example with shard_assign(). Its rows may exist nowhere else: shard_misplaced_delete() deletes them only with rows => 'all'.")
}

pub fn between_shards(key: &str) -> Failure {
    Failure::new(SqlState::BETWEEN_SHARDS, format!("key \"{key}\" is being moved between two shards"))
        .hint("Wait until the split that moves it has ended.")
}

pub fn key_in_split(key: &str, split: i64) -> Failure {
    Failure::new(SqlState::IN_USE, format!("key \"{key}\" is in use by split {split}")).hint(format!(
        "Wait until it ends. SELECT * FROM shard_split_diagnose({split}) shows what it waits for."
    ))
}

pub fn redirected(shard: &str, key: &str, splits: &str) -> Failure {
    let message = format!(
        "shard \"{shard}\" redirects clients of key \"{key}\", which left it with one of the splits {splits}"
    );
    Failure::new(SqlState::IN_USE, message)
        .hint("Its rows there are refused to all clients. shard_split_redirect_drop() of the split ends that, and so does shardmaster.redirect_retention in time.")
}

pub fn unplanned_split(shard: &str, split: i64) -> Failure {
    let message = format!("shard \"{shard}\" knows split {split}, which this master has not planned");
    Failure::new(SqlState::NOT_IN_STATE, message)
        .hint("The routes of a restored master may be older than the rows. See shard_cleanup(), and find out where the keys are before any row is moved or deleted.")
}

pub fn execution_on_shard(shard: &str, execution: i64) -> Failure {
    let message = format!("execution {execution} of a statement is on shard \"{shard}\"");
    Failure::new(SqlState::IN_USE, message)
        .hint("Wait until it ends, or abandon it. shard_executions() lists it.")
}

pub fn key_in_run(key: &str, run: i64) -> Failure {
    Failure::new(SqlState::IN_USE, format!("key \"{key}\" is in use by run {run} of misplaced rows"))
        .hint("Wait until it ends, or cancel it.")
}

pub fn held_elsewhere(run: i64) -> Failure {
    Failure::new(SqlState::IN_USE, format!("another session is working on run {run} of misplaced rows"))
        .hint("Wait until it ends, or cancel it.")
}

pub fn not_held(run: i64) -> Failure {
    let message = format!("this session is not working on run {run} of misplaced rows");
    Failure::new(SqlState::NOT_IN_STATE, message)
        .hint("It is a step of shard_misplaced_move() and shard_misplaced_delete().")
}

pub fn ended(run: i64) -> Failure {
    Failure::new(SqlState::NOT_IN_STATE, format!("run {run} of misplaced rows has ended"))
        .hint("shard_misplaced_runs() shows how it ended.")
}

pub fn unknown_table(keyspace: &str, table: &str) -> Failure {
    Failure::new(SqlState::UNDEFINED_OBJECT, format!("table \"{table}\" is not in keyspace \"{keyspace}\""))
        .hint("shard_tables() lists them as they are to be written.")
}

pub fn same_place(here: &str, there: &str, namespace: &str) -> Failure {
    let message =
        format!("shards \"{here}\" and \"{there}\" are the same: namespace \"{namespace}\" of one database");
    Failure::new(SqlState::NOT_IN_STATE, message).hint("Its rows are on the right shard, under another name.")
}

pub fn unfit_table(shard: &str, table: &str, what: &str) -> Failure {
    Failure::new(SqlState::UNSUPPORTED, format!("table {table} of shard \"{shard}\" {what}"))
        .hint("Name the other tables with tables => .., or fix it. shard_misplaced_delete() with rows => 'all' compares nothing with the other shard.")
}

pub fn trigger_fires(shard: &str, trigger: &str) -> Failure {
    let message = format!("{trigger} of shard \"{shard}\" fires for rows that are deleted");
    Failure::new(SqlState::UNSUPPORTED, message)
        .hint("What it deletes or changes there would not be moved. Disable it, or pass fire_triggers => true if it does no such thing.")
}

pub fn unfit_encoding(shard: &str, encoding: &str) -> Failure {
    let message = format!("shard \"{shard}\" has encoding {encoding}, whose texts may change on the way");
    Failure::new(SqlState::UNSUPPORTED, message)
        .hint("Rows can be moved between shards of encoding UTF8 or LATIN1.")
}

pub fn foreign_key_cycle(keyspace: &str) -> Failure {
    let message = format!("foreign keys among tables of keyspace \"{keyspace}\" form a cycle");
    Failure::new(SqlState::UNSUPPORTED, message).hint("Name some of the tables with tables => ..")
}

pub fn foreign_key_cascades(shard: &str, name: &str, from: &str, to: &str) -> Failure {
    let message = format!(
        "shard \"{shard}\": foreign key {name} of {from} would delete or change rows when rows of {to} are deleted"
    );
    Failure::new(SqlState::UNSUPPORTED, message)
        .hint("Rows of other keys would be deleted or changed. See what they refer to.")
}

pub fn table_changed(shard: &str) -> Failure {
    let message = format!("shard \"{shard}\": somebody has changed a table, or what depends on it");
    Failure::new(SqlState::SERIALIZATION_FAILURE, message).hint("Call it again.")
}

pub fn other_replication_role(shard: &str) -> Failure {
    let message = format!("session_replication_role of the login is not \"origin\" on shard \"{shard}\"");
    Failure::new(SqlState::UNSUPPORTED, message)
        .hint("Foreign keys would not be checked. Remove the setting from the login's role.")
}

/// Rows of a table that are not as they should be, and the primary key of one of them.
pub struct OddRows<'a> {
    pub table: &'a str,
    pub rows: u64,
    pub key: String,
}

impl OddRows<'_> {
    fn detail(&self, here: &str, there: &str) -> String {
        let OddRows { table, rows, key } = self;
        json!({ "table": table, "row": key, "rows": rows, "shard": here, "routed_to": there }).to_string()
    }
}

/// The SQLSTATE if rows of one primary key are on two shards, and differ.
const CONFLICT: SqlState = SqlState(*b"SM008");

pub fn conflict(here: &str, there: &str, odd: &OddRows<'_>) -> Failure {
    let OddRows { table, rows, key } = odd;
    let message = format!(
        "{rows} rows of table {table} are already on shard \"{there}\" with other content, one of them with the key ({key})"
    );
    Failure::new(CONFLICT, message).detail(odd.detail(here, there)).hint(format!(
        "Look at both. To keep both, give one another primary key. If those on shard \"{here}\" may be lost, shard_misplaced_delete() with rows => 'conflicting' deletes them, and no other row. Then call shard_misplaced_move() again."
    ))
}

pub fn only_here(here: &str, there: &str, odd: &OddRows<'_>) -> Failure {
    let OddRows { table, rows, key } = odd;
    let message = format!(
        "{rows} rows of table {table} on shard \"{here}\" are not on shard \"{there}\", one of them with the key ({key})"
    );
    Failure::new(SqlState::NOT_IN_STATE, message).detail(odd.detail(here, there)).hint(format!(
        "shard_misplaced_move() moves them, and deletes no row that exists on one shard only. shard_misplaced_delete() with rows => 'all' deletes them on shard \"{here}\", and they are lost."
    ))
}

pub fn altered(there: &str, odd: &OddRows<'_>) -> Failure {
    let OddRows { table, rows, key } = odd;
    let message = format!(
        "{rows} rows of table {table} have not arrived unchanged on shard \"{there}\", one of them with the key ({key})"
    );
    Failure::new(SqlState::UNSUPPORTED, message)
        .hint("A trigger or rule there changes rows or keeps them from being inserted, or a generated column gives them another key. Disable it meanwhile, or move the rows by hand.")
}

pub fn rows_of_other_keys(here: &str, odd: &OddRows<'_>) -> Failure {
    let OddRows { table, rows, key } = odd;
    let message = format!(
        "shard \"{here}\" gave {rows} rows of table {table} whose keys are not those that are moved, one of them with the key ({key})"
    );
    Failure::new(SqlState::UNSUPPORTED, message)
        .hint("None of them was moved. Check how that shard compares keys: its index may be broken, or somebody has changed an operator.")
}

pub fn doubtful(run: i64, shard: &str, table: &str) -> Failure {
    let message = format!(
        "run {run} of misplaced rows was interrupted after its rows had been copied to shard \"{shard}\", and those of table \"{table}\" have changed there since"
    );
    Failure::new(SqlState::NOT_IN_STATE, message).hint(format!(
        "Rows that somebody deleted or changed there may be left on the wrong shard. Look at both. shard_misplaced_delete() with rows => 'all' deletes those on the wrong shard. After shard_misplaced_abandon({run}) the next call takes them for rows that were never moved. The run continues only with all of its keys."
    ))
}

pub fn rows_stay(shard: &str, table: &str) -> Failure {
    let message = format!("rows of table {table} stay on shard \"{shard}\" although they were deleted");
    Failure::new(SqlState::NOT_IN_STATE, message).hint("Find the trigger or rule there that keeps them.")
}

pub fn not_committed(shard: &str) -> Failure {
    Failure::new(SqlState::CONNECTION_FAILURE, format!("shard \"{shard}\" has not committed"))
        .hint("Call it again.")
}

pub fn session_left(shard: &str) -> Failure {
    Failure::new(SqlState::IN_USE, format!("shard \"{shard}\": a session of it does not end"))
        .hint("Its pg_stat_activity shows what the session waits for.")
}

/// Adds to an error that the run, whose end is unknown, holds its keys.
pub fn of_run(id: i64, why: Failure) -> Failure {
    let goes_on = format!(
        "Run {id} holds its keys. The same call again continues it; shard_misplaced_abandon({id}) abandons it."
    );
    why.more_hint(&goes_on)
}
