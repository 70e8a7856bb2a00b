//! Why rows on the wrong shard are neither moved nor deleted.

use crate::error::{Failure, SqlState};
use serde_json::json;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum MisplacedError {
    #[error("invalid value for \"keys\": the list is empty")]
    NoKeys,
    #[error("key \"{key}\" is routed to shard \"{shard}\"")]
    InPlace { key: String, shard: String },
    #[error("key \"{key}\" of keyspace \"{keyspace}\" has no route")]
    Nowhere { key: String, keyspace: String },
    #[error("key \"{0}\" is being moved between two shards")]
    Between(String),
    #[error("key \"{key}\" is in use by split {split}")]
    Split { key: String, split: i64 },
    #[error(
        "shard \"{shard}\" redirects clients of key \"{key}\", which left it with one of the splits {splits}"
    )]
    Redirected { key: String, shard: String, splits: String },
    #[error("shard \"{shard}\" knows split {split}, which this master has not planned")]
    Later { shard: String, split: i64 },
    #[error("execution {id} of a statement is on shard \"{shard}\"")]
    Execution { id: i64, shard: String },
    #[error("key \"{key}\" is in use by run {run} of misplaced rows")]
    Busy { key: String, run: i64 },
    #[error("another session is working on run {0} of misplaced rows")]
    Held(i64),
    #[error("this session is not working on run {0} of misplaced rows")]
    NotHeld(i64),
    #[error("run {0} of misplaced rows has ended")]
    Ended(i64),
    #[error("keyspace \"{0}\" has no tables")]
    NoTables(String),
    #[error("table \"{table}\" is not in keyspace \"{keyspace}\"")]
    OtherTable { table: String, keyspace: String },
    #[error("shards \"{here}\" and \"{there}\" are the same: namespace \"{namespace}\" of one database")]
    OnePlace { here: String, there: String, namespace: String },
    #[error("table {table} of shard \"{shard}\" {what}")]
    Table { shard: String, table: String, what: String },
    #[error("{what} of shard \"{shard}\" fires for rows that are deleted")]
    Trigger { shard: String, what: String },
    #[error("shard \"{shard}\" has encoding {encoding}, whose texts may change on the way")]
    Encoding { shard: String, encoding: String },
    #[error("foreign keys among tables of keyspace \"{0}\" form a cycle")]
    Circle(String),
    #[error(
        "shard \"{shard}\": foreign key {name} of {from} would delete or change rows when rows of {to} are deleted"
    )]
    Follows { shard: String, name: String, from: String, to: String },
    #[error("shard \"{0}\": somebody has changed a table, or what depends on it")]
    Changed(String),
    #[error("session_replication_role of the login is not \"origin\" on shard \"{0}\"")]
    Replica(String),
    #[error(
        "{rows} rows of table {table} are already on shard \"{there}\" with other content, one of them with the key ({key})"
    )]
    Conflict { rows: u64, table: String, key: String, here: String, there: String },
    #[error(
        "{rows} rows of table {table} on shard \"{here}\" are not on shard \"{there}\", one of them with the key ({key})"
    )]
    Elsewhere { rows: u64, table: String, key: String, here: String, there: String },
    #[error(
        "{rows} rows of table {table} have not arrived unchanged on shard \"{there}\", one of them with the key ({key})"
    )]
    Altered { rows: u64, table: String, key: String, there: String },
    #[error(
        "shard \"{here}\" gave {rows} rows of table {table} whose keys are not those that are moved, one of them with the key ({key})"
    )]
    Strange { rows: u64, table: String, key: String, here: String },
    #[error(
        "run {run} of misplaced rows was interrupted after its rows had been copied to shard \"{shard}\", and those of table \"{table}\" have changed there since"
    )]
    Doubtful { run: i64, table: String, shard: String },
    #[error("rows of table {table} stay on shard \"{shard}\" although they were deleted")]
    Stays { table: String, shard: String },
    #[error("shard \"{0}\" has not committed")]
    NotCommitted(String),
    #[error("shard \"{0}\": a session of it does not end")]
    Left(String),
}

/// The SQLSTATE if rows of one primary key are on two shards, and differ.
const CONFLICT: SqlState = SqlState(*b"SM008");

impl From<MisplacedError> for Failure {
    fn from(error: MisplacedError) -> Failure {
        let (state, hint) = error.state_and_hint();
        let failure = Failure::new(state, error.to_string());
        let failure = if hint.is_empty() { failure } else { failure.hint(hint) };
        match error {
            MisplacedError::Conflict { rows, table, key, here, there }
            | MisplacedError::Elsewhere { rows, table, key, here, there } => failure.detail(
                json!({ "table": table, "row": key, "rows": rows, "shard": here, "routed_to": there })
                    .to_string(),
            ),
            _ => failure,
        }
    }
}

impl MisplacedError {
    fn state_and_hint(&self) -> (SqlState, String) {
        use MisplacedError as E;
        let fixed = |state, hint: &str| (state, hint.to_owned());
        match self {
            E::NoKeys => {
                fixed(SqlState::INVALID_VALUE, "shard_misplaced() lists keys with rows on the wrong shard.")
            }
            E::InPlace { .. } => fixed(
                SqlState::NOT_IN_STATE,
                "Its rows are on the right shard. shard_misplaced() lists those that are not.",
            ),
            E::Nowhere { .. } => fixed(
                SqlState::NOT_IN_STATE,
                "Assign it first, for example with shard_assign(). Its rows may exist nowhere else: shard_misplaced_delete() deletes them only with rows => 'all'.",
            ),
            E::Between(_) => fixed(SqlState::BETWEEN_SHARDS, "Wait until the split that moves it has ended."),
            E::Split { split, .. } => (
                SqlState::IN_USE,
                format!(
                    "Wait until it ends. SELECT * FROM shard_split_diagnose({split}) shows what it waits for."
                ),
            ),
            E::Redirected { .. } => fixed(
                SqlState::IN_USE,
                "Its rows there are refused to all clients. shard_split_redirect_drop() of the split ends that, and so does shardmaster.redirect_retention in time.",
            ),
            E::Later { .. } => fixed(
                SqlState::NOT_IN_STATE,
                "The routes of a restored master may be older than the rows. See shard_cleanup(), and find out where the keys are before any row is moved or deleted.",
            ),
            E::Encoding { .. } => {
                fixed(SqlState::UNSUPPORTED, "Rows can be moved between shards of encoding UTF8 or LATIN1.")
            }
            E::Execution { .. } => {
                fixed(SqlState::IN_USE, "Wait until it ends, or abandon it. shard_executions() lists it.")
            }
            E::Busy { .. } | E::Held(_) => fixed(SqlState::IN_USE, "Wait until it ends, or cancel it."),
            E::NotHeld(_) => fixed(
                SqlState::NOT_IN_STATE,
                "It is a step of shard_misplaced_move() and shard_misplaced_delete().",
            ),
            E::Ended(_) => fixed(SqlState::NOT_IN_STATE, "shard_misplaced_runs() shows how it ended."),
            E::NoTables(_) => fixed(SqlState::NOT_IN_STATE, "shard_table_add() adds tables."),
            E::OtherTable { .. } => {
                fixed(SqlState::UNDEFINED_OBJECT, "shard_tables() lists them as they are to be written.")
            }
            E::OnePlace { .. } => {
                fixed(SqlState::NOT_IN_STATE, "Its rows are on the right shard, under another name.")
            }
            E::Table { .. } => fixed(
                SqlState::UNSUPPORTED,
                "Name the other tables with tables => .., or fix it. shard_misplaced_delete() with rows => 'all' compares nothing with the other shard.",
            ),
            E::Trigger { .. } => fixed(
                SqlState::UNSUPPORTED,
                "What it deletes or changes there would not be moved. Disable it, or pass fire_triggers => true if it does no such thing.",
            ),
            E::Circle(_) => fixed(SqlState::UNSUPPORTED, "Name some of the tables with tables => .."),
            E::Follows { .. } => fixed(
                SqlState::UNSUPPORTED,
                "Rows of other keys would be deleted or changed. See what they refer to.",
            ),
            E::Changed(_) => fixed(SqlState::SERIALIZATION_FAILURE, "Call it again."),
            E::Replica(_) => fixed(
                SqlState::UNSUPPORTED,
                "Foreign keys would not be checked. Remove the setting from the login's role.",
            ),
            E::Conflict { here, .. } => (
                CONFLICT,
                format!(
                    "Look at both. To keep both, give one another primary key. If those on shard \"{here}\" may be lost, shard_misplaced_delete() with rows => 'conflicting' deletes them, and no other row. Then call shard_misplaced_move() again."
                ),
            ),
            E::Elsewhere { here, .. } => (
                SqlState::NOT_IN_STATE,
                format!(
                    "shard_misplaced_move() moves them, and deletes no row that exists on one shard only. shard_misplaced_delete() with rows => 'all' deletes them on shard \"{here}\", and they are lost."
                ),
            ),
            E::Altered { .. } => fixed(
                SqlState::UNSUPPORTED,
                "A trigger or rule there changes rows or keeps them from being inserted, or a generated column gives them another key. Disable it meanwhile, or move the rows by hand.",
            ),
            E::Doubtful { run, .. } => (
                SqlState::NOT_IN_STATE,
                format!(
                    "Rows that somebody deleted or changed there may be left on the wrong shard. Look at both. shard_misplaced_delete() with rows => 'all' deletes those on the wrong shard. After shard_misplaced_abandon({run}) the next call takes them for rows that were never moved. The run continues only with all of its keys."
                ),
            ),
            E::Strange { .. } => fixed(
                SqlState::UNSUPPORTED,
                "None of them was moved. Check how that shard compares keys: its index may be broken, or somebody has changed an operator.",
            ),
            E::Stays { .. } => {
                fixed(SqlState::NOT_IN_STATE, "Find the trigger or rule there that keeps them.")
            }
            E::NotCommitted(_) => fixed(SqlState::CONNECTION_FAILURE, "Call it again."),
            E::Left(_) => fixed(SqlState::IN_USE, "Its pg_stat_activity shows what the session waits for."),
        }
    }
}

/// Adds to an error that the run, whose end is unknown, holds its keys.
pub fn of_run(id: i64, mut why: Failure) -> Failure {
    let goes_on = format!(
        "Run {id} holds its keys. The same call again continues it; shard_misplaced_abandon({id}) abandons it."
    );
    why.hint = Some(why.hint.map_or(goes_on.clone(), |hint| format!("{hint} {goes_on}")));
    why
}
