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
    #[error("key \"{key}\" of keyspace \"{keyspace}\" is routed nowhere")]
    Nowhere { key: String, keyspace: String },
    #[error("key \"{0}\" is between two shards")]
    Between(String),
    #[error("key \"{key}\" is in use by split {split}")]
    Split { key: String, split: i64 },
    #[error(
        "shard \"{shard}\" redirects clients of key \"{key}\", which has left it by one of the splits {splits}"
    )]
    Redirected { key: String, shard: String, splits: String },
    #[error("shard \"{shard}\" knows split {split}, which this master has not planned")]
    Later { shard: String, split: i64 },
    #[error("execution {id} of a statement is on shard \"{shard}\"")]
    Execution { id: i64, shard: String },
    #[error("key \"{key}\" is in use by run {run} of misplaced rows")]
    Busy { key: String, run: i64 },
    #[error("run {0} of misplaced rows is carried out by another session")]
    Held(i64),
    #[error("run {0} of misplaced rows is not carried out by this session")]
    NotHeld(i64),
    #[error("run {0} of misplaced rows has ended")]
    Ended(i64),
    #[error("keyspace \"{0}\" has no tables")]
    NoTables(String),
    #[error("table \"{table}\" is not in keyspace \"{keyspace}\"")]
    OtherTable { table: String, keyspace: String },
    #[error("shards \"{here}\" and \"{there}\" are one place: namespace \"{namespace}\" of one database")]
    OnePlace { here: String, there: String, namespace: String },
    #[error("table {table} of shard \"{shard}\" {what}")]
    Table { shard: String, table: String, what: String },
    #[error("{what} of shard \"{shard}\" fires for rows that are deleted")]
    Trigger { shard: String, what: String },
    #[error("shard \"{shard}\" is of encoding {encoding}, of which texts may not arrive as they are")]
    Encoding { shard: String, encoding: String },
    #[error("foreign keys among tables of keyspace \"{0}\" run in a circle")]
    Circle(String),
    #[error("shard \"{shard}\": foreign key {name} of {from} would follow rows of {to} that are deleted")]
    Follows { shard: String, name: String, from: String, to: String },
    #[error("shard \"{0}\": somebody has changed a table, or what depends on it")]
    Changed(String),
    #[error("session_replication_role of the login is not \"origin\" on shard \"{0}\"")]
    Replica(String),
    #[error(
        "{rows} rows of table {table} are on shard \"{there}\" already with other content, with the key ({key}) one of them"
    )]
    Conflict { rows: u64, table: String, key: String, here: String, there: String },
    #[error(
        "{rows} rows of table {table} on shard \"{here}\" are not on shard \"{there}\", with the key ({key}) one of them"
    )]
    Elsewhere { rows: u64, table: String, key: String, here: String, there: String },
    #[error(
        "{rows} rows of table {table} have not arrived on shard \"{there}\" as they are, with the key ({key}) one of them"
    )]
    Altered { rows: u64, table: String, key: String, there: String },
    #[error(
        "shard \"{here}\" gave {rows} rows of table {table} that are of other keys than those that are moved, with the key ({key}) one of them"
    )]
    Strange { rows: u64, table: String, key: String, here: String },
    #[error(
        "run {run} of misplaced rows was interrupted when its rows had come to shard \"{shard}\", and those of table \"{table}\" are not there as they came"
    )]
    Doubtful { run: i64, table: String, shard: String },
    #[error("rows of table {table} stay on shard \"{shard}\" whatever deletes them")]
    Stays { table: String, shard: String },
    #[error("shard \"{0}\" has not committed")]
    NotCommitted(String),
    #[error("shard \"{0}\": a session is left that does not end")]
    Left(String),
}

/// Rows of one primary key are on two shards, and differ.
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
                "Its rows are in their place there; shard_misplaced() lists those that are not.",
            ),
            E::Nowhere { .. } => fixed(
                SqlState::NOT_IN_STATE,
                "Assign it with shard_assign() or its like. Its rows may be nowhere else: shard_misplaced_delete() deletes them only with rows => 'all'.",
            ),
            E::Between(_) => fixed(SqlState::BETWEEN_SHARDS, "Wait for the split that moves it."),
            E::Split { split, .. } => (
                SqlState::IN_USE,
                format!(
                    "Wait for its end: SELECT * FROM shard_split_diagnose({split}) says what it waits for."
                ),
            ),
            E::Redirected { .. } => fixed(
                SqlState::IN_USE,
                "Its rows there are refused to everybody: shard_split_redirect_drop() of the split ends that, or wait for shardmaster.redirect_retention.",
            ),
            E::Later { .. } => fixed(
                SqlState::NOT_IN_STATE,
                "The routes of a master that was restored may be older than the rows: see shard_cleanup(), and where the keys are, before any are moved or deleted.",
            ),
            E::Encoding { .. } => {
                fixed(SqlState::UNSUPPORTED, "Rows go between shards of encoding UTF8 or LATIN1.")
            }
            E::Execution { .. } => fixed(
                SqlState::IN_USE,
                "Wait for its end, or give it up: shard_executions() lists what is under way.",
            ),
            E::Busy { .. } | E::Held(_) => fixed(SqlState::IN_USE, "Wait for its end, or cancel it."),
            E::NotHeld(_) => fixed(
                SqlState::NOT_IN_STATE,
                "It is a step of shard_misplaced_move() and shard_misplaced_delete().",
            ),
            E::Ended(_) => fixed(SqlState::NOT_IN_STATE, "shard_misplaced_runs() tells how."),
            E::NoTables(_) => fixed(SqlState::NOT_IN_STATE, "shard_table_add() says which tables it has."),
            E::OtherTable { .. } => {
                fixed(SqlState::UNDEFINED_OBJECT, "shard_tables() lists them, as they are to be written.")
            }
            E::OnePlace { .. } => {
                fixed(SqlState::NOT_IN_STATE, "Its rows are in their place, by another name.")
            }
            E::Table { .. } => fixed(
                SqlState::UNSUPPORTED,
                "Name the other tables with tables => .., or mend it. shard_misplaced_delete() with rows => 'all' compares nothing with the other shard.",
            ),
            E::Trigger { .. } => fixed(
                SqlState::UNSUPPORTED,
                "What it deletes or changes there is moved nowhere. Disable it, or say fire_triggers => true if it does nothing of that kind.",
            ),
            E::Circle(_) => fixed(SqlState::UNSUPPORTED, "Name some of the tables with tables => .."),
            E::Follows { .. } => fixed(
                SqlState::UNSUPPORTED,
                "Rows would be deleted or changed that are not of this key's. See what they refer to.",
            ),
            E::Changed(_) => fixed(SqlState::SERIALIZATION_FAILURE, "Call it again."),
            E::Replica(_) => fixed(
                SqlState::UNSUPPORTED,
                "Foreign keys would not be looked at: take the setting from the login's role.",
            ),
            E::Conflict { here, .. } => (
                CONFLICT,
                format!(
                    "Look at both: to keep both, give one another primary key. If what shard \"{here}\" has of these rows may be lost, shard_misplaced_delete() with rows => 'conflicting' deletes them there and no other row; then call shard_misplaced_move() again."
                ),
            ),
            E::Elsewhere { here, .. } => (
                SqlState::NOT_IN_STATE,
                format!(
                    "Call shard_misplaced_move(), which moves them and deletes nothing that is on one shard alone. shard_misplaced_delete() with rows => 'all' deletes them on shard \"{here}\", and they are lost."
                ),
            ),
            E::Altered { .. } => fixed(
                SqlState::UNSUPPORTED,
                "A trigger or a rule there changes rows, or keeps them from being inserted, or a generated column makes them another key's. Disable it for the time, or move them by hand.",
            ),
            E::Doubtful { run, .. } => (
                SqlState::NOT_IN_STATE,
                format!(
                    "What somebody has deleted or changed there may be left on the wrong shard. Look at both: shard_misplaced_delete() with rows => 'all' deletes what is on the wrong one, and after shard_misplaced_abandon({run}) the next call takes it for rows that were never moved. It goes on by itself only with all keys of that run."
                ),
            ),
            E::Strange { .. } => fixed(
                SqlState::UNSUPPORTED,
                "Nothing of them was moved. See what that shard makes of an equality of keys: its index may be broken, or somebody has changed an operator.",
            ),
            E::Stays { .. } => fixed(SqlState::NOT_IN_STATE, "See which trigger or rule there keeps them."),
            E::NotCommitted(_) => fixed(SqlState::CONNECTION_FAILURE, "Call it again."),
            E::Left(_) => fixed(SqlState::IN_USE, "See in its pg_stat_activity what the session waits for."),
        }
    }
}

/// What was not heard of to its end holds its keys.
pub fn of_run(id: i64, mut why: Failure) -> Failure {
    let goes_on = format!(
        "Run {id} holds its keys: the same call again takes its place, shard_misplaced_abandon({id}) gives it up."
    );
    why.hint = Some(why.hint.map_or(goes_on.clone(), |hint| format!("{hint} {goes_on}")));
    why
}
